// Sorting by what may change meanwhile: the memory of inputs and outputs is the caller's.
#pragma once
#include <algorithm>

// A heap sort, as that stays inside its range whatever the comparison says.
template <class T, class Less> inline void sort_inside(T* begin, T* end, Less less) {
  std::make_heap(begin, end, less);
  std::sort_heap(begin, end, less);
}
