// The arena planner: places storages that live at the same time apart, largest first, each into the tightest gap.
#pragma once
#include "program.h"

struct Planner {
  // Remembers who lives together with whom; false when out of memory.
  bool init(const StorageRow* rows, i64 n);

  // Fills offsets (multiples of 64) of the arena storages and returns the bytes that they span, or -1 beyond HUGE_COUNT.
  i64 plan(const i64* sizes, i64* offsets);

 private:
  struct Key {
    i64 at, value;
  };
  Array<int32_t> arena_;      // indices of arena storages, by first step
  Array<int32_t> neighbours_; // positions in arena_
  Array<int32_t> first_;      // per position: where its neighbours begin
  Array<int32_t> degree_;     // per position: how many they are; -1: it lives so long that it shares with nobody
  Array<i64> start_, end_;    // per position: its place; end 0 while it has none
  Array<Key> order_, taken_;
};
