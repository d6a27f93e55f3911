// What the steps so far have written of each storage: proves that no step reads what the Program did not write.
#pragma once
#include "program.h"

struct Written {
  // Room for this many storages and for `pieces` separate ranges in all; false when out of memory.
  bool init(i64 storages, i64 pieces);
  void clear();

  // False where it was not noted, as the storage lies in too many pieces: those count as unwritten.
  bool add(i64 storage, i64 begin, i64 end);
  bool covers(i64 storage, i64 begin, i64 end) const;

  // The first bytes of [begin, end) that are not covered.
  Range gap(i64 storage, i64 begin, i64 end) const;

 private:
  static constexpr int MOST = 256;  // pieces of a storage that are looked at, so that hostile Programs cost little
  struct Piece {
    i64 begin, end;
    int32_t next;
  };
  Array<int32_t> first_;  // per storage: its first piece, by place; -1: nothing
  Array<Piece> pieces_;   // apart from each other within a storage
  i64 used_ = 0;
};
