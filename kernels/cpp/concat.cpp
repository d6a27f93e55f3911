// Copies each input into its place in y; the places may be any strided views.
#include "params.h"
#include "small.h"
#include "strided.h"

namespace {

struct Piece {
  i64 yoff, xoff, shape[8], xstride[8];
};
static_assert(sizeof(Piece) == 18 * 8);

// Pieces that follow each other along one axis are one view of y. Tells what the first of them make, and returns how many they are.
i64 tell_run(const ConcatParams& p, const Piece* piece, i64 n, Proof& proof) {
  Piece run = piece[0];
  i64 axis = -1, taken = 1;
  if (product(run.shape, p.rank) > 0)
    for (; taken < n; taken++) {
      const Piece& next = piece[taken];
      i64 along = axis, begin;
      for (i64 d = 0; d < p.rank && along < 0; d++)
        if (!mul_over(run.shape[d], p.ystride[d], &begin) && next.yoff - run.yoff == begin) along = d;
      bool same = along >= 0 && next.shape[along] > 0 && !mul_over(run.shape[along], p.ystride[along], &begin) && next.yoff - run.yoff == begin;
      for (i64 d = 0; d < p.rank && same; d++) same = d == along || next.shape[d] == run.shape[d];
      if (!same) break;
      axis = along, run.shape[axis] += next.shape[axis];
    }
  proof.writes(0, dense(p.rank, run.shape, p.ystride, run.yoff));
  return taken;
}

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const ConcatParams*>(call.params);
  auto& b = *reinterpret_cast<const ConcatBufs*>(call.bufs);
  const i64 fixed = i64(sizeof(ConcatParams) / 8), n = call.n_bufs - 1;
  if (p.rank < 0 || p.rank > MAX_RANK) return "rank out of range";
  if (call.n_params != fixed + 18 * n) return "parameters do not match the number of inputs";
  if (!dtype_size(b.y.dtype)) return "packed dtype";
  auto* piece = reinterpret_cast<const Piece*>(p.tail);
  Size all;
  for (i64 i = 0; i < n; i++) {
    if (b.x[i].dtype != b.y.dtype) return "dtypes differ";
    if (!view_fits(p.rank, piece[i].shape, piece[i].xstride, piece[i].xoff, b.x[i].count())) return "an input is smaller than its view";
    if (!view_fits(p.rank, piece[i].shape, p.ystride, piece[i].yoff, b.y.count())) return "y is smaller than a view of it";
    all += product(piece[i].shape, p.rank);
  }
  proof.operations = all;
  for (i64 i = 0; i < n;) i += tell_run(p, piece + i, n - i, proof);
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const ConcatParams*>(call.params);
  auto& b = *reinterpret_cast<const ConcatBufs*>(call.bufs);
  const i64 size = dtype_size(b.y.dtype);
  auto* piece = reinterpret_cast<const Piece*>(p.tail);
  for (i64 i = 0; i < call.n_bufs - 1; i++)
    if (product(piece[i].shape, p.rank) > 0)
      copy_view(call.pool, size, b.y.data + piece[i].yoff * size, b.x[i].data + piece[i].xoff * size, p.rank, piece[i].shape, piece[i].xstride, p.ystride);
}

}  // namespace

KERNEL(concat, check, no_scratch, run)
