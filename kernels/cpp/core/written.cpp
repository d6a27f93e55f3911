#include "../small.h"
#include "written.h"

#include <algorithm>

bool Written::init(i64 storages, i64 pieces) { return first_.resize(storages) && pieces_.resize(pieces); }

void Written::clear() {
  std::fill(first_.begin(), first_.end(), -1);
  used_ = 0;
}

bool Written::add(i64 storage, i64 begin, i64 end) {
  if (begin >= end) return true;
  int32_t* link = &first_[storage];
  int walked = 0;
  for (; *link >= 0 && pieces_[*link].end < begin; link = &pieces_[*link].next)
    if (++walked == MOST) return false;
  if (*link < 0 || pieces_[*link].begin > end) {
    if (used_ == pieces_.size) return false;
    pieces_[used_] = {begin, end, *link};
    *link = int32_t(used_++);
    return true;
  }
  Piece& piece = pieces_[*link];
  piece.begin = std::min(piece.begin, begin), piece.end = std::max(piece.end, end);
  for (; piece.next >= 0 && pieces_[piece.next].begin <= piece.end; piece.next = pieces_[piece.next].next)
    piece.end = std::max(piece.end, pieces_[piece.next].end);
  return true;
}

bool Written::covers(i64 storage, i64 begin, i64 end) const { return begin >= end || gap(storage, begin, end).count == 0; }

Range Written::gap(i64 storage, i64 begin, i64 end) const {
  int32_t at = first_[storage];
  for (int walked = 0; at >= 0 && walked < MOST && begin < end; at = pieces_[at].next, walked++) {
    const Piece& piece = pieces_[at];
    if (piece.begin > begin) return {begin, std::min(end, piece.begin) - begin};
    begin = std::max(begin, piece.end);
  }
  return {begin, std::max<i64>(end - begin, 0)};
}
