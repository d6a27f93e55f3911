#include "../small.h"
#include "plan.h"

#include <algorithm>

namespace {
constexpr i64 ALIGN = 64;
constexpr i64 NEIGHBOURS = i64(1) << 20;  // more pairs than this and the longest-lived storages stop sharing

i64 round_up(i64 v) { return (v + ALIGN - 1) / ALIGN * ALIGN; }
constexpr auto by_at = [](const auto& a, const auto& b) { return a.at < b.at; };
}  // namespace

bool Planner::init(const StorageRow* rows, i64 n, const StageRow* stages, i64 n_stages) {
  rows_ = rows;
  i64 count = 0;
  for (i64 i = 0; i < n; i++) count += rows[i].kind == ARENA;
  Array<Key> firsts, lasts;
  Array<int32_t> active;
  if (!arena_.resize(count) || !first_.resize(count) || !start_.resize(count) || !end_.resize(count) || !order_.resize(count) ||
      !taken_.resize(count) || !firsts.resize(count) || !lasts.resize(count) || !active.resize(count) || !degree_.resize(count) || !ends_.resize(n_stages))
    return false;
  i64 k = 0;
  for (i64 i = 0; i < n; i++)
    if (rows[i].kind == ARENA) firsts[k] = {rows[i].first, i}, lasts[k++] = {rows[i].last, i};
  std::sort(firsts.begin(), firsts.end(), by_at);
  std::sort(lasts.begin(), lasts.end(), by_at);

  // Two lives overlap unless one ends before the other starts.
  i64 total = 0;
  for (i64 i = 0; i < count; i++) {
    arena_[i] = int32_t(firsts[i].value);
    const StorageRow& s = rows[arena_[i]];
    i64 ended = std::lower_bound(lasts.begin(), lasts.end(), Key{s.first, 0}, by_at) - lasts.begin();
    i64 begun = std::upper_bound(firsts.begin(), firsts.end(), Key{s.last, 0}, by_at) - firsts.begin();
    degree_[i] = int32_t(begun - ended - 1);
    total += degree_[i];
  }
  for (i64 s = 0, i = 0; s < n_stages; s++) {
    while (i < count && (s + 1 == n_stages || rows[arena_[i]].first < stages[s].steps)) i++;
    ends_[s] = int32_t(i);
  }
  const i64 limit = total > NEIGHBOURS ? std::max<i64>(NEIGHBOURS / count, 16) : count;
  total = 0;
  for (i64 i = 0; i < count; i++) {
    if (degree_[i] > limit) degree_[i] = -1;
    first_[i] = int32_t(total);
    total += std::max(degree_[i], 0);
  }
  if (!neighbours_.resize(total)) return false;

  // A sweep in order of birth tells both of each pair.
  for (i64 i = 0; i < count; i++) degree_[i] = std::min(degree_[i], 0);
  i64 alive = 0;
  for (i64 i = 0; i < count; i++) {
    if (degree_[i] < 0) continue;
    i64 kept = 0;
    for (i64 a = 0; a < alive; a++) {
      int32_t j = active[a];
      if (rows[arena_[j]].last < rows[arena_[i]].first) continue;
      active[kept++] = j;
      neighbours_[first_[i] + degree_[i]++] = j;
      neighbours_[first_[j] + degree_[j]++] = int32_t(i);
    }
    active[kept++] = int32_t(i);
    alive = kept;
  }
  return true;
}

i64 Planner::plan(i64 stage, const i64* sizes, i64* offsets, i64* last) {
  const i64 begin = stage ? ends_[stage - 1] : 0, end = ends_[stage];
  i64 top = 0, shared = 0;
  *last = -1;
  for (i64 i = begin; i < end; i++) {
    *last = std::max<i64>(*last, rows_[arena_[i]].last);
    end_[i] = 0;
    offsets[arena_[i]] = 0;
    i64 size = round_up(sizes[arena_[i]]);
    if (size && degree_[i] < 0) {
      offsets[arena_[i]] = top;
      top += size;
      if (top > HUGE_COUNT) return -1;
    } else if (size) {
      order_[shared++] = {-size, i};
    }
  }
  std::sort(order_.data, order_.data + shared, by_at);
  const i64 base = top;
  for (i64 o = 0; o < shared; o++) {
    const i64 i = order_[o].value, size = -order_[o].at;
    i64 taken = 0;
    for (i64 k = first_[i]; k < first_[i] + degree_[i]; k++) {
      int32_t j = neighbours_[k];
      if (j >= begin && j < end && end_[j]) taken_[taken++] = {start_[j], end_[j]};
    }
    std::sort(taken_.data, taken_.data + taken, by_at);
    i64 free = base, place = -1, best = INT64_MAX;
    for (i64 k = 0; k < taken; k++) {
      i64 gap = taken_[k].at - free;
      if (gap >= size && gap < best) place = free, best = gap;
      free = std::max(free, taken_[k].value);
    }
    if (place < 0) place = free;
    start_[i] = place, end_[i] = place + size;
    if (end_[i] > HUGE_COUNT) return -1;
    offsets[arena_[i]] = place;
    top = std::max(top, end_[i]);
  }
  return top;
}
