// Weights of products as this machine's tiles read them (gemm/product.h): run once, before the first run.
#include "gemm.h"
#include "params.h"

namespace {

using gemm::least;

struct Args {
  const PackParams& p;
  const PackBufs& b;
  explicit Args(const Call& call) : p(*reinterpret_cast<const PackParams*>(call.params)), b(*reinterpret_cast<const PackBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (b.w.dtype != F32 || b.y.dtype != F32) return "packed weights are float32";
  if (p.k < 1 || p.n < 1 || p.k > MAX_EXTENT || p.n > MAX_EXTENT || p.band < 1 || p.band > p.k) return "a size is out of range";
  if (p.transposed && p.band != p.k) return "transposed weights are one band";
  const Size count = Size(p.k) * p.n;
  if (!count.within(b.w.count()) || !count.within(b.y.count())) return "the weights do not fit their buffer";
  proof.operations = count;
  proof.writes(0, {0, count.value()});
  return nullptr;
}

// What is packed in its own place is copied before: a band, or the columns of a panel.
PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  return p.transposed ? Size(4) * threads * gemm::NR * p.k : Size(4) * p.band * p.n;
}

PWX_SMALL void run(Call& call) {
  const auto [p, b] = Args(call);
  const isize k = proven(p.k), n = proven(p.n), band = proven(p.band);
  const bool transposed = p.transposed, own = b.y.data == b.w.data;
  float* const copy = reinterpret_cast<float*>(call.scratch);
  constexpr isize TOGETHER = 16 * gemm::NR;  // columns of a row, which is read from one end to the other
  const isize columns = transposed ? gemm::NR : TOGETHER;
  for (isize k0 = 0; k0 < k; k0 += band) {
    const isize deep = least(band, k - k0);
    const float* from = b.w.as<float>() + k0 * n;
    float* to = b.y.as<float>() + k0 * n;
    if (own && !transposed) from = static_cast<const float*>(__builtin_memcpy(copy, from, size_t(deep) * size_t(n) * 4));
    parallel_for(call.pool, (n + columns - 1) / columns, 1, [&](i64 begin, i64 end, int thread) __attribute__((minsize)) {
      const isize last = least(proven(end) * columns, n);
      for (isize j0 = proven(begin) * columns; j0 < last; j0 += columns) {
        const isize j1 = least(j0 + columns, last);
        if (transposed) {
          const float* rows = from + j0 * k;
          if (own) rows = static_cast<const float*>(__builtin_memcpy(copy + thread * gemm::NR * k, rows, size_t(j1 - j0) * size_t(k) * 4));
          gemm::copy_matrix(rows, 1, k, to + j0 * k, j1 - j0, k, j1 - j0);
        } else {
          for (isize r = 0; r < deep; r++)
            for (isize j = j0, c; j < j1; j += c) {
              c = least(gemm::NR, n - j);
              gemm::copy_floats(from + r * n + j, to + j * deep + r * c, c);
            }
        }
      }
    });
  }
}

}  // namespace

KERNEL(pack, check, scratch, run)
