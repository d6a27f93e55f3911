// Copies each input into its place in y; the places may be any strided views.
#include "params.h"
#include "strided.h"

namespace {

struct Piece {
  i64 yoff, xoff, shape[8], xstride[8];
};
static_assert(sizeof(Piece) == 18 * 8);

const char* check(const Call& call) {
  const auto& p = *reinterpret_cast<const ConcatParams*>(call.params);
  auto& b = *reinterpret_cast<const ConcatBufs*>(call.bufs);
  const i64 fixed = i64(sizeof(ConcatParams) / 8), n = call.n_bufs - 1;
  if (p.rank < 0 || p.rank > MAX_RANK) return "rank out of range";
  if (call.n_params != fixed + 18 * n) return "parameters do not match the number of inputs";
  if (!dtype_size(b.y.dtype)) return "packed dtype";
  auto* piece = reinterpret_cast<const Piece*>(p.tail);
  for (i64 i = 0; i < n; i++) {
    if (b.x[i].dtype != b.y.dtype) return "dtypes differ";
    if (!view_fits(p.rank, piece[i].shape, piece[i].xstride, piece[i].xoff, b.x[i].count())) return "an input is smaller than its view";
    if (!view_fits(p.rank, piece[i].shape, p.ystride, piece[i].yoff, b.y.count())) return "y is smaller than a view of it";
  }
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const ConcatParams*>(call.params);
  auto& b = *reinterpret_cast<const ConcatBufs*>(call.bufs);
  const i64 size = dtype_size(b.y.dtype);
  auto* piece = reinterpret_cast<const Piece*>(p.tail);
  for (i64 i = 0; i < call.n_bufs - 1; i++)
    copy_view(call.pool, size, b.y.data + piece[i].yoff * size, b.x[i].data + piece[i].xoff * size, p.rank, piece[i].shape, piece[i].xstride, p.ystride);
}

}  // namespace

KERNEL(concat, check, no_scratch, run)
