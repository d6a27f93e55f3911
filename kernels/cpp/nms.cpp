// Non-maximum suppression per batch and class: boxes in the order of their scores, without those that overlap one taken before.
#include <algorithm>

#include "params.h"
#include "simd.h"
#include "small.h"

namespace {

struct Box {
  float x0, y0, x1, y1;
};

Box box_of(const float* b, bool centre) {
  if (centre) return {b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2};
  return {std::min(b[1], b[3]), std::min(b[0], b[2]), std::max(b[1], b[3]), std::max(b[0], b[2])};
}

// Boxes that were taken, W beside each other; those that are missing have no area and lie at 0, where they overlap nothing.
struct Taken {
  enum { X0, Y0, X1, Y1, AREA, FIELDS };
  float* fields;  // of `most` each
  i64 most;

  static i64 vectors(i64 most) { return (most + W - 1) / W * W; }  // numbers in as many whole ones
  float* at(int field, i64 i) const { return fields + field * vectors(most) + i; }

  void put(i64 i, const Box& b, float area) const {
    const float values[] = {b.x0, b.y0, b.x1, b.y1, area};
    for (int f = 0; f < FIELDS; f++) {
      if (i % W == 0) store(at(f, i), splat(0));
      *at(f, i) = values[f];
    }
  }
  bool overlapping(const Box& b, float area, float threshold, i64 count) const {
    for (i64 i = 0; i < count; i += W) {
      const VF w = vmin(load(at(X1, i)), splat(b.x1)) - vmax(load(at(X0, i)), splat(b.x0));
      const VF h = vmin(load(at(Y1, i)), splat(b.y1)) - vmax(load(at(Y0, i)), splat(b.y0));
      const VF common = w * h, both = load(at(AREA, i)) + splat(area) - common;
      if (any_lane((w > 0.0f) & (h > 0.0f) & (both > 0.0f) & (common / both > splat(threshold)))) return true;
    }
    return false;
  }
};

// A score and its box as one number: the greater the score, the greater it is; of equal ones, the earlier the box.
i64 rank(float score, i64 box) {
  const i64 bits = __builtin_bit_cast(int32_t, score + 0.0f);  // -0 is 0
  return (bits < 0 ? bits ^ INT32_MAX : bits) << 32 | (UINT32_MAX - box);
}
i64 box_at(i64 rank) { return UINT32_MAX - (rank & UINT32_MAX); }

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const NmsParams*>(call.params);
  auto& b = *reinterpret_cast<const NmsBufs*>(call.bufs);
  if (b.boxes.dtype != F32 || b.scores.dtype != F32) return "boxes or scores are not float32";
  if (b.selected.dtype != I64 || b.n.dtype != I64) return "an output is not int64";
  if (p.boxes > UINT32_MAX) return "boxes are too many";
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
  return p.batches && p.classes ? Size(p.boxes) * 8 + Size(Taken::vectors(p.boxes)) * Taken::FIELDS * 4 : Size(0);
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const NmsParams*>(call.params);
  auto& b = *reinterpret_cast<const NmsBufs*>(call.bufs);
  const float overlap = float(p.overlap), least = float(p.least);
  i64 *heap = reinterpret_cast<i64*>(call.scratch), *out = b.selected.as<i64>(), total = 0;
  for (i64 batch = 0; batch < p.batches; batch++)
    for (i64 c = 0; c < p.classes; c++) {
      const Taken taken{reinterpret_cast<float*>(heap + p.boxes), p.boxes};
      const float* score = b.scores.as<float>() + (batch * p.classes + c) * p.boxes;
      i64 n = 0, kept = 0;
      for (i64 i = 0; i < p.boxes; i++)
        if (const float s = score[i]; s > least) heap[n++] = rank(s, i);
      // The heap's first is the best that is left: often few are asked for.
      for (std::make_heap(heap, heap + n); n && kept < p.most; n--) {
        const i64 best = box_at(heap[0]);
        std::pop_heap(heap, heap + n);
        const Box box = box_of(b.boxes.as<float>() + (batch * p.boxes + best) * 4, p.centre != 0);
        const float area = (box.x1 - box.x0) * (box.y1 - box.y0);
        if (taken.overlapping(box, area, overlap, kept)) continue;
        taken.put(kept++, box, area);
        i64* row = out + 3 * total++;
        row[0] = batch, row[1] = c, row[2] = best;
      }
    }
  std::fill(out + 3 * total, out + 3 * p.batches * p.classes * p.most, i64(0));
  b.n.as<i64>()[0] = total;
}

}  // namespace

KERNEL(nms, check, scratch, run)
