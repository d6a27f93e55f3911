// Non-maximum suppression per batch and class: boxes in the order of their scores, without those that overlap one taken before.
#include "params.h"
#include "small.h"
#include "sort.h"

namespace {

struct Box {
  float x0, y0, x1, y1;
};

Box box_of(const float* b, bool centre) {
  if (centre) return {b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2};
  return {std::min(b[1], b[3]), std::min(b[0], b[2]), std::max(b[1], b[3]), std::max(b[0], b[2])};
}

bool overlaps(const Box& a, const Box& b, double threshold) {
  const float w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0), h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  if (!(w > 0) || !(h > 0)) return false;
  const float common = w * h, both = (a.x1 - a.x0) * (a.y1 - a.y0) + (b.x1 - b.x0) * (b.y1 - b.y0) - common;
  return both > 0 && common / both > float(threshold);
}

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const NmsParams*>(call.params);
  auto& b = *reinterpret_cast<const NmsBufs*>(call.bufs);
  if (b.boxes.dtype != F32 || b.scores.dtype != F32) return "boxes or scores are not float32";
  if (b.selected.dtype != I64 || b.n.dtype != I64) return "an output is not int64";
  const i64 boxes[] = {p.batches, p.boxes, 4}, scores[] = {p.batches, p.classes, p.boxes}, out[] = {p.batches, p.classes, p.most, 3};
  if (product(boxes, 3) < 0 || product(boxes, 3) > b.boxes.count()) return "boxes are too few";
  if (product(scores, 3) < 0 || product(scores, 3) > b.scores.count()) return "scores are too few";
  if (product(out, 4) < 0 || product(out, 4) > b.selected.count() || b.n.count() < 1) return "y is too small";
  const Size lists = Size(p.batches) * p.classes;
  proof.operations = lists * p.boxes * (Size(p.most < p.boxes ? p.most : p.boxes) + depth_of(p.boxes)) + lists * p.most * 3;
  proof.writes(0, {0, product(out, 4)});
  proof.writes(1, {0, 1});
  return nullptr;
}

Size scratch(const Call& call, int) {
  const auto& p = *reinterpret_cast<const NmsParams*>(call.params);
  return p.batches && p.classes ? Size(p.boxes) * (8 + sizeof(Box)) : Size(0);
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const NmsParams*>(call.params);
  auto& b = *reinterpret_cast<const NmsBufs*>(call.bufs);
  const double overlap = p.overlap, least = p.least;
  i64 *order = reinterpret_cast<i64*>(call.scratch), *out = b.selected.as<i64>(), total = 0;
  Box* taken = reinterpret_cast<Box*>(order + (p.batches && p.classes ? p.boxes : 0));
  for (i64 batch = 0; batch < p.batches; batch++)
    for (i64 c = 0; c < p.classes; c++) {
      const float* score = b.scores.as<float>() + (batch * p.classes + c) * p.boxes;
      i64 n = 0, kept = 0;
      for (i64 i = 0; i < p.boxes; i++)
        if (score[i] > float(least)) order[n++] = i;
      sort_inside(order, order + n, [&](i64 i, i64 j) { return score[i] > score[j] || (score[i] == score[j] && i < j); });
      for (i64 k = 0; k < n && kept < p.most; k++) {
        const Box box = box_of(b.boxes.as<float>() + (batch * p.boxes + order[k]) * 4, p.centre != 0);
        bool free = true;
        for (i64 t = 0; t < kept && free; t++) free = !overlaps(taken[t], box, overlap);
        if (!free) continue;
        taken[kept++] = box;
        i64* row = out + 3 * total++;
        row[0] = batch, row[1] = c, row[2] = order[k];
      }
    }
  std::fill(out + 3 * total, out + 3 * p.batches * p.classes * p.most, i64(0));
  b.n.as<i64>()[0] = total;
}

}  // namespace

KERNEL(nms, check, scratch, run)
