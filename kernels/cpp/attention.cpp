// Attention in one pass: for a block of query rows the scores of all keys are computed, masked, exponentiated and multiplied with the
// values, so only rows * keys floats exist at a time. The matrix products take keys from panels of packed columns.
#include <initializer_list>
#include "attention/few.h"
#include "gemm/pack.h"
#include "params.h"
#include "powers.h"

namespace {
constexpr i64 FEW = 4;  // query rows that do not pay for packing the keys
// Rows and vectors of the microkernel.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MR = 8, NR = 2;
#else
constexpr int MR = 6, NR = 2;
#endif
constexpr i64 ROWS = MR == 8 ? 16 : 3 * MR;  // query rows per block, in whole tiles
constexpr i64 PANEL = NR * W;

i64 round_up(i64 n, i64 to) { return (n + to - 1) / to * to; }
i64 least(i64 a, i64 b) { return a < b ? a : b; }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const AttentionParams*>(call.params);
  const auto& b = *reinterpret_cast<const AttentionBufs*>(call.bufs);
  for (const Buf* buf : {&b.y, &b.q, &b.k, &b.v, &b.mask})
    if (*buf && buf->dtype != F32) return "only float32";
  if (p.rep < 1 || p.rep > HUGE_COUNT) return "rep must be positive";
  if (p.past > HUGE_COUNT || p.past < -HUGE_COUNT) return "past out of range";
  const i64 sizes[] = {p.batch, p.heads, p.sq, p.sk, p.d, p.dv};
  for (i64 s : sizes)
    if (s < 0 || s > HUGE_COUNT) return "bad size";
  const Size rows = Size(p.batch) * p.heads * p.sq;
  if (!rows.within(HUGE_COUNT)) return "sizes too large";
  i64 kv = (p.heads + p.rep - 1) / p.rep;
  const i64 q_shape[] = {p.batch, p.heads, p.sq, p.d}, q_stride[] = {p.q_b, p.q_h, p.q_s, 1};
  const i64 k_shape[] = {p.batch, kv, p.sk, p.d}, k_stride[] = {p.k_b, p.k_h, p.k_s, p.k_d};
  const i64 v_shape[] = {p.batch, kv, p.sk, p.dv}, v_stride[] = {p.v_b, p.v_h, p.v_s, 1};
  const i64 m_shape[] = {p.batch, p.heads, p.sq, p.sk}, m_stride[] = {p.m_b, p.m_h, p.m_q, p.m_k};
  const i64 y_shape[] = {p.batch, p.heads, p.sq, p.dv}, y_stride[] = {p.y_b, p.y_h, p.y_s, 1};
  if (!view_fits(4, q_shape, q_stride, p.qoff, b.q.count())) return "q leaves its buffer";
  if (!view_fits(4, k_shape, k_stride, p.koff, b.k.count())) return "k leaves its buffer";
  if (!view_fits(4, v_shape, v_stride, p.voff, b.v.count())) return "v leaves its buffer";
  if (b.mask && !view_fits(4, m_shape, m_stride, p.moff, b.mask.count())) return "mask leaves its buffer";
  if (!view_fits(4, y_shape, y_stride, p.yoff, b.y.count())) return "y leaves its buffer";
  const Size pairs = Size(p.batch) * p.heads * p.sk;  // of a head and a key, packed for every block of rows in the worst case
  proof.operations = (rows + 1) * p.sk * (Size(p.d) + p.dv + 1) + rows * p.dv + pairs * (Size(p.d) + p.dv);
  proof.writes(0, dense(4, y_shape, y_stride, p.yoff));
  return nullptr;
}

bool packs(const AttentionParams& p) { return p.sq >= FEW; }

struct Layout {  // of one thread's scratch, in floats
  Size score_stride, out_stride, keys, values, scores, out, total;
  explicit Layout(const AttentionParams& p)
      : score_stride(::round_up(Size(p.sk), PANEL)), out_stride(::round_up(Size(p.dv), W)), keys(0),
        values(packs(p) ? score_stride * p.d : Size(0)), scores(values + (p.dv % W ? out_stride * p.sk : Size(0))),
        out(scores + score_stride * ROWS), total(::round_up(out + out_stride * ROWS, 16)) {}
};

PWX_SMALL Size scratch(const Call& call, int threads) {
  return Layout(*reinterpret_cast<const AttentionParams*>(call.params)).total * sizeof(float) * threads;
}

// The layout once it is proved to be small enough.
struct Places {
  i64 score_stride, out_stride, keys, values, scores, out, total;
  explicit Places(const Layout& l)
      : score_stride(l.score_stride.value()), out_stride(l.out_stride.value()), keys(l.keys.value()), values(l.values.value()),
        scores(l.scores.value()), out(l.out.value()), total(l.total.value()) {}
};

// c[M, N vectors] = a[M, k] * b[k, N vectors]. LDB: b's stride when it is known, else 0.
template <int M, int N, isize LDB> void micro(isize k, const float* a, isize lda, const float* b, isize ldb, float* c, isize ldc) {
  VF acc[M][N];
  const float* at[M];
#pragma unroll
  for (int i = 0; i < M; i++) {
    at[i] = a + i * lda;
#pragma unroll
    for (int j = 0; j < N; j++) acc[i][j] = splat(0);
  }
  for (; k > 0; k--, b += LDB ? LDB : ldb) {
    VF row[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
      row[j] = load(b + j * W);
      pin(row[j]);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF x = splat(*at[i]++);
#pragma unroll
      for (int j = 0; j < N; j++) {
        acc[i][j] = fma(x, row[j], acc[i][j]);
        pin(acc[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int j = 0; j < N; j++) store(c + i * ldc + j * W, acc[i][j]);
}

// As many of the rows as one microkernel takes, so that all are about as high; returns how many.
template <int N, isize LDB, int M = MR>
isize rows_of(isize rows, isize k, const float* a, isize lda, const float* b, isize ldb, float* c, isize ldc) {
  if constexpr (M == MR) {
    const isize parts = (rows + M - 1) / M;
    rows = (rows + parts - 1) / parts;
  }
  if constexpr (M > 1)
    if (rows < M) return rows_of<N, LDB, M - 1>(rows, k, a, lda, b, ldb, c, ldc);
  return micro<M, N, LDB>(k, a, lda, b, ldb, c, ldc), M;
}
template <int N, isize LDB> void strip(isize rows, isize k, const float* a, isize lda, const float* b, isize ldb, float* c, isize ldc) {
  for (isize i = 0; i < rows;) i += rows_of<N, LDB>(rows - i, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
}

// Panels of PANEL keys, each [d, PANEL]; the last one is padded with zeros.
void pack_keys(const float* k, const AttentionParams& p, float* out) {
  for (i64 j0 = 0; j0 < p.sk; j0 += PANEL, out += p.d * PANEL) {
    i64 n = least(PANEL, p.sk - j0);
    if (n < PANEL)
      for (i64 i = 0; i < p.d * PANEL; i++) out[i] = 0;
    gemm::copy_matrix(k + j0 * p.k_s, p.d > 1 ? proven(p.k_d) : 1, n > 1 ? proven(p.k_s) : 1, out, PANEL, proven(p.d), proven(n));
  }
}

// The scores of one query against n keys whose numbers do not lie side by side.
void scores_apart(const float* q, const float* k, const AttentionParams& p, i64 n, float* out) {
  for (i64 j = 0; j < n; j++) out[j] = 0;
  for (i64 t = 0; t < p.d; t++) {
    const float* row = k + t * p.k_d;
    float x = q[t];
    if (p.k_s == 1)
      for (i64 j = 0; j < n; j++) out[j] += x * row[j];
    else
      for (i64 j = 0; j < n; j++) out[j] += x * row[j * p.k_s];
  }
}

float largest(VF v) {
  float m = v[0];
  for (int i = 1; i < W; i++) m = v[i] > m ? v[i] : m;
  return m;
}

// Scales, caps and masks n scores and turns them into weights in place. Returns 1 / their sum, 0 when every key is masked.
float weigh(float* s, i64 n, const float* mask, i64 mask_step, float scale, float cap) {
  const float lowest = -__builtin_inff(), per_cap = 1 / cap;
  if (mask && mask_step != 1) {
    for (i64 j = 0; j < n; j++) s[j] = (cap > 0 ? cap * float(__builtin_tanh(double(s[j] * scale * per_cap))) : s[j] * scale) + mask[j * mask_step];
    mask = nullptr, scale = 1, cap = 0;
  }
  if (cap > 0) {
    for (i64 j = 0; j < n; j += W) {
      const i64 w = least(n - j, W);
      store_part(s + j, vtanh(load_part(s + j, w) * scale * per_cap) * cap, w);
    }
    scale = 1;
  }
  auto score = [&](VF v) { return v * scale; };
  i64 rest = n % W, j = 0;
  VF top = splat(lowest);
  if (mask) {
    for (; j + W <= n; j += W) {
      VF v = score(load(s + j)) + load(mask + j);
      store(s + j, v);
      top = vmax(top, v);
    }
  } else {
    for (; j + W <= n; j += W) {
      VF v = score(load(s + j));
      store(s + j, v);
      top = vmax(top, v);
    }
  }
  float m = largest(top);
  if (rest) {
    VF v = score(load_part(s + j, rest));
    if (mask) v += load_part(mask + j, rest);
    store_part(s + j, v, rest);
    for (i64 u = 0; u < rest; u++) m = s[j + u] > m ? s[j + u] : m;
  }
  if (m == lowest) {  // so it is for scores that are all NaN, too
    for (j = 0; j < n; j++)
      if (s[j] != s[j]) return s[j];
    return 0;
  }
  return float(1 / sum_of_powers<2>(s, s, n, m, true));
}

struct Head {
  const AttentionParams& p;
  const Places l;
  const float *q, *k, *v, *mask;
  float *y, *scratch;
  bool packed;  // the keys are there: those of the head before, which shares them
  bool heads_as_rows;
  const float* next;  // the keys of the head behind it
  i64 v_step = 0;

  void rows(i64 begin, i64 end) {
    if (!p.sk) return nothing(begin, end);
    if (in_panels() && p.d && !packed) pack_keys(k, p, scratch + l.keys);
    v_step = p.v_s;
    if (p.dv % W) {
      float* out = scratch + l.values;
      for (i64 j = 0; j < p.sk; j++, out += l.out_stride) {
        __builtin_memcpy(out, v + j * p.v_s, size_t(p.dv) * sizeof(float));
        for (i64 t = p.dv; t < l.out_stride; t++) out[t] = 0;
      }
      v = scratch + l.values, v_step = l.out_stride;
    }
    for (i64 i = begin; i < end; i += ROWS) block(i, least(ROWS, end - i));
  }

 private:
  bool in_panels() const { return packs(p) && !heads_as_rows; }
  i64 visible(i64 row) const {
    if (!p.causal) return p.sk;
    i64 n = (heads_as_rows ? 0 : row) + p.past + 1;
    return n < 0 ? 0 : least(n, p.sk);
  }

  // Without keys.
  void nothing(i64 begin, i64 end) {
    for (i64 i = begin; i < end; i++)
      for (i64 c = 0; c < p.dv; c++) y[i * p.y_s + c] = 0;
  }

  void block(i64 first, i64 count) {
    float *s = scratch + l.scores, *out = scratch + l.out;
    const float* queries = p.d ? q + first * p.q_s : nullptr;
    i64 most = visible(first + count - 1);
    const isize rows = proven(count), keys = proven(most), pitch = proven(l.score_stride), out_pitch = proven(l.out_stride);
    const isize step = most > 1 ? proven(v_step) : 0, key_step = most > 1 ? proven(p.k_s) : 0;  // of a single key they were not proved
    const attention::Rows few{rows, proven(p.d), queries, count > 1 && p.d ? proven(p.q_s) : 0, s, pitch};
    if (!p.d) {
      for (i64 i = 0; i < count; i++)
        for (i64 j = 0; j < most; j++) s[i * l.score_stride + j] = 0;
    } else if (in_panels()) {
      for (i64 j = 0; j < most; j += PANEL)
        strip<NR, PANEL>(rows, proven(p.d), queries, proven(p.q_s), scratch + l.keys + j * p.d, PANEL, s + j, pitch);
    } else if (p.k_d == 1) {
      attention::score(few, k, key_step, keys, {v, step, proven(p.dv)});
    } else {
      for (i64 i = 0; i < count; i++) scores_apart(queries + i * p.q_s, k, p, most, s + i * l.score_stride);
    }
    float inverse[ROWS];
    for (i64 i = 0; i < count; i++) {
      i64 n = visible(first + i);
      float* row = s + i * l.score_stride;
      inverse[i] = weigh(row, n, mask ? mask + (first + i) * p.m_q : nullptr, p.m_k, float(p.scale), float(p.softcap));
      for (i64 j = n; j < most; j++) row[j] = 0;
    }
    if (!in_panels() || count < FEW) {
      attention::weighted(few, v, step, keys, out_pitch, out, out_pitch, {next, key_step, proven(p.d)});
    } else {
      i64 t = 0;
      for (; t + NR * W <= l.out_stride; t += NR * W) strip<NR, 0>(rows, keys, s, pitch, v + t, step, out + t, out_pitch);
      if (t < l.out_stride) strip<1, 0>(rows, keys, s, pitch, v + t, step, out + t, out_pitch);
    }
    for (i64 i = 0; i < count; i++) {
      float* to = y + (first + i) * p.y_s;
      const float* from = out + i * l.out_stride;
      float r = inverse[i];
      const float hidden = p.nan_rows ? __builtin_nanf("") : 0;
      if (r == 0)  // all keys masked: the scores were left as they are
        for (i64 c = 0; c < p.dv; c++) to[c] = hidden;
      else
        for (i64 c = 0; c < p.dv; c++) to[c] = from[c] * r;
    }
  }
};

// A query of each of the heads that share keys as rows of one head.
AttentionParams in_one(const AttentionParams& p) {
  auto all = [&](i64 step) { return i64(uint64_t(step) * uint64_t(p.rep)); };  // of views of nothing it may be any number
  AttentionParams t = p;
  t.heads = p.heads / p.rep, t.sq = p.rep, t.rep = 1;
  t.q_s = p.q_h, t.q_h = all(p.q_h);
  t.y_s = p.y_h, t.y_h = all(p.y_h);
  t.m_q = p.m_h, t.m_h = all(p.m_h);
  return t;
}

void run(Call& call) {
  const auto& given = *reinterpret_cast<const AttentionParams*>(call.params);
  const auto& b = *reinterpret_cast<const AttentionBufs*>(call.bufs);
  if (given.batch * given.heads == 0 || given.sq == 0 || given.dv == 0) return;
  const Places l{Layout(given)};
  const bool heads_as_rows = given.sq == 1 && given.rep > 1 && given.heads % given.rep == 0;
  const AttentionParams p = heads_as_rows ? in_one(given) : given;
  const i64 heads = p.batch * p.heads, threads = pool_threads(call.pool);
  // Views of nothing may have any strides and offsets.
  const bool no_k = !p.sk || !p.d, no_v = !p.sk, no_mask = !b.mask || !p.sk, no_q = !p.d;
  auto keys_of = [&](i64 t) { return no_k ? nullptr : b.k.as<float>() + p.koff + t / p.heads * p.k_b + t % p.heads / p.rep * p.k_h; };
  auto head = [&](i64 t, float* scratch) {
    const i64 h = t % p.heads, n = t / p.heads;
    return Head{p, l,
                no_q ? nullptr : b.q.as<float>() + p.qoff + n * p.q_b + h * p.q_h,
                keys_of(t),
                no_v ? nullptr : b.v.as<float>() + p.voff + n * p.v_b + h / p.rep * p.v_h,
                no_mask ? nullptr : b.mask.as<float>() + p.moff + n * p.m_b + h * p.m_h,
                b.y.as<float>() + p.yoff + n * p.y_b + h * p.y_h, scratch, false, heads_as_rows, nullptr};
  };
  // Whole heads share one packing of the keys, or one reading; they are split only to keep all threads busy.
  i64 pieces = (2 * threads + heads - 1) / heads;
  const i64 span = threads == 1 || heads >= 2 * threads ? p.sq : round_up((p.sq + pieces - 1) / pieces, heads_as_rows ? 1 : ROWS);
  pieces = (p.sq + span - 1) / span;
  const double work = double(least(span, p.sq)) * double(p.sk + 1) * double(p.d + p.dv + 16) / 16;
  parallel_for(call.pool, heads * pieces, i64(8192 / (work + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    const float* last = nullptr;
    for (i64 t = begin; t < end; t++) {
      const i64 piece = t % pieces;
      Head h = head(t / pieces, reinterpret_cast<float*>(call.scratch) + thread * l.total);
      h.packed = h.k && h.k == last;
      last = h.k;
      const float* next = t + 1 < end && p.k_d == 1 ? keys_of((t + 1) / pieces) : nullptr;
      h.next = next == h.k ? nullptr : next;
      h.rows(piece * span, least(p.sq, (piece + 1) * span));
    }
  });
}
}  // namespace

KERNEL(attention, check, scratch, run)
