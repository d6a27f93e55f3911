// The arena planner: places storages that live at the same time apart, largest first, each into the tightest gap.
#pragma once
#include "program.h"

struct Planner {
  // Remembers who lives together with whom; false when out of memory.
  bool init(const StorageRow* rows, i64 n, const StageRow* stages, i64 n_stages);

  // Fills offsets (multiples of 64) of the arena storages that are born in a stage and returns the bytes that they span, or -1
  // beyond HUGE_COUNT. `last` is the last step of any of them, -1 where there are none.
  i64 plan(i64 stage, const i64* sizes, i64* offsets, i64* last);

  // The arena storages that are born in a stage.
  const int32_t* begin(i64 stage) const { return arena_.data + (stage ? ends_[stage - 1] : 0); }
  const int32_t* end(i64 stage) const { return arena_.data + ends_[stage]; }

 private:
  struct Key {
    i64 at, value;
  };
  const StorageRow* rows_;
  Array<int32_t> ends_;       // per stage: where its storages end in arena_
  Array<int32_t> arena_;      // indices of arena storages, by first step
  Array<int32_t> neighbours_; // positions in arena_
  Array<int32_t> first_;      // per position: where its neighbours begin
  Array<int32_t> degree_;     // per position: how many they are; -1: it lives so long that it shares with nobody
  Array<i64> start_, end_;    // per position: its place; end 0 while it has none
  Array<Key> order_, taken_;
};
