// The k largest or smallest elements along the middle axis, in order; ties go to the lower index, NaN is the largest number.
// Elements become order-preserving 64-bit keys; a heap of the k best, its root the worst of them, sees each key once.
#include "half.h"
#include "params.h"
#include "simd.h"
#include "strided.h"

#include <type_traits>

namespace {

struct Entry {
  uint64_t key;
  i64 index;
  bool worse(const Entry& o) const { return key < o.key || (key == o.key && index > o.index); }
};

constexpr i64 BLOCK = 256, SMALL = 32;  // SMALL: where most are passed over

// Whether one of a block of numbers side by side may belong before the worst of those that are kept; a NaN on either side may.
bool worth(const float* x, float worst, bool largest) {
  VI beaten = splat_i(-1);
  for (isize i = 0; i < SMALL; i += W) beaten &= largest ? load(x + i) <= splat(worst) : load(x + i) >= splat(worst);
  return any_lane(~beaten);
}

uint64_t key_of(double v) {
  if (v != v) return ~uint64_t(0);
  const uint64_t bits = __builtin_bit_cast(uint64_t, v + 0.0);  // -0 becomes 0
  return bits >> 63 ? ~bits : bits | uint64_t(1) << 63;
}
uint64_t key_of(float v) { return key_of(double(v)); }
template <class T> std::enable_if_t<std::is_integral_v<T>, uint64_t> key_of(T v) {
  return std::is_signed_v<T> ? uint64_t(i64(v)) ^ uint64_t(1) << 63 : uint64_t(v);
}

template <class T> T plain(T v) { return v; }

template <class T, auto widen> void keys_of(uint64_t* keys, const char* data, i64 stride, i64 n, uint64_t flip) {
  const T* x = reinterpret_cast<const T*>(data);
  for (i64 i = 0; i < n; i++) keys[i] = key_of(widen(x[i * stride])) ^ flip;
}
using Keys = void (*)(uint64_t* keys, const char* x, i64 stride, i64 n, uint64_t flip);

Keys find_keys(int32_t dtype) {
  switch (dtype) {
    case F32: return keys_of<float, plain<float>>;
    case F64: return keys_of<double, plain<double>>;
    case F16: return keys_of<uint16_t, half_to_float>;
    case BF16: return keys_of<uint16_t, bf16_to_float>;
    case I8: return keys_of<int8_t, plain<int8_t>>;
    case U8: return keys_of<uint8_t, plain<uint8_t>>;
    case I16: return keys_of<int16_t, plain<int16_t>>;
    case U16: return keys_of<uint16_t, plain<uint16_t>>;
    case I32: return keys_of<int32_t, plain<int32_t>>;
    case U32: return keys_of<uint32_t, plain<uint32_t>>;
    case I64: return keys_of<int64_t, plain<int64_t>>;
    case U64: return keys_of<uint64_t, plain<uint64_t>>;
    default: return nullptr;
  }
}

// Puts `e` at the root of heap[0, n) and lets it sink below all that are worse.
void sink(Entry* heap, i64 n, i64 at, Entry e) {
  for (i64 child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1].worse(heap[child])) child++;
    if (!heap[child].worse(e)) break;
    heap[at] = heap[child];
  }
  heap[at] = e;
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const TopkParams*>(call.params);
  auto& b = *reinterpret_cast<const TopkBufs*>(call.bufs);
  if (b.x.dtype != b.values.dtype || !find_keys(b.x.dtype)) return "dtype is not supported";
  if (b.indices.dtype != I64) return "indices are not int64";
  const i64 in[] = {p.outer, p.n, p.inner}, out[] = {p.outer, p.k, p.inner};
  const i64 have = product(in, 3), want = product(out, 3);
  if (p.k < 0 || p.k > p.n) return "k is larger than the axis";
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (want < 0 || want > b.values.count() || want > b.indices.count()) return "y is too small";
  proof.operations = (Size(have) + want) * depth_of(p.k);
  proof.writes(0, {0, want});
  proof.writes(1, {0, want});
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto& p = *reinterpret_cast<const TopkParams*>(call.params);
  return p.outer && p.inner ? Size(p.k) * i64(sizeof(Entry)) * threads : 0;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const TopkParams*>(call.params);
  auto& b = *reinterpret_cast<const TopkBufs*>(call.bufs);
  if (p.outer == 0 || p.inner == 0 || p.k == 0) return;
  const Keys keys_of = find_keys(b.x.dtype);
  const i64 size = dtype_size(b.x.dtype);
  const uint64_t flip = p.largest ? 0 : ~uint64_t(0);
  const bool close = b.x.dtype == F32 && p.inner == 1 && p.k <= p.n / 64;
  const i64 block = close ? SMALL : BLOCK;
  const float* x = b.x.as<float>();
  parallel_for(call.pool, p.outer * p.inner, 1 + (1 << 13) / p.n, [&](i64 at, i64 end, int thread) {
    Entry* heap = reinterpret_cast<Entry*>(call.scratch) + thread * p.k;
    uint64_t keys[BLOCK];
    for (; at < end; at++) {
      const i64 base = at / p.inner * p.n * p.inner + at % p.inner;
      for (i64 first = 0; first < p.n; first += block) {
        const i64 n = p.n - first < block ? p.n - first : block;
        if (close && first >= p.k && n == SMALL && !worth(x + base + first, x[base + heap[0].index], p.largest)) continue;
        keys_of(keys, b.x.data + (base + first * p.inner) * size, p.inner, n, flip);
        for (i64 i = 0; i < n; i++) {
          const i64 index = first + i;
          if (index >= p.k) {
            if (keys[i] > heap[0].key) sink(heap, p.k, 0, {keys[i], index});
            continue;
          }
          heap[index] = {keys[i], index};
          if (index == p.k - 1)
            for (i64 root = p.k / 2; root-- > 0;) sink(heap, p.k, root, heap[root]);
        }
      }
      const i64 to = at / p.inner * p.k * p.inner + at % p.inner;
      for (i64 n = p.k; n-- > 0;) {
        const Entry worst = heap[0];
        sink(heap, n, 0, heap[n]);
        const i64 place = to + n * p.inner;
        b.indices.as<i64>()[place] = worst.index;
        with_bits(size, [&](auto bits) { b.values.as<decltype(bits)>()[place] = b.x.as<decltype(bits)>()[base + worst.index * p.inner]; });
      }
    }
  });
}

}  // namespace

KERNEL(topk, check, scratch, run)
