// The heap in WebAssembly: best fit, exact growth. libc's allocator rounds large blocks up to powers of two, which would cost
// a model of 90 MB another 38. Not thread-safe: only the coordinating thread allocates.
#if defined(__wasm__)
#include "heap.h"

#include <cstdint>

extern "C" unsigned char __heap_base;

namespace {

constexpr size_t ALIGN = 64, PAGE = 65536;

// Lies in the ALIGN bytes before what the caller gets. Free blocks are linked in order of their addresses.
struct Block {
  size_t size;  // with these ALIGN bytes
  Block* next;
  char* end() { return reinterpret_cast<char*>(this) + size; }
};

Block* first = nullptr;
bool started = false;

void insert(Block* b) {
  Block* before = nullptr;
  Block** link = &first;
  while (*link && *link < b) before = *link, link = &before->next;
  b->next = *link;
  *link = b;
  if (b->next && b->end() == reinterpret_cast<char*>(b->next)) b->size += b->next->size, b->next = b->next->next;
  if (before && before->end() == reinterpret_cast<char*>(b)) before->size += b->size, before->next = b->next;
}

void insert(uintptr_t at, uintptr_t end) {
  at = (at + ALIGN - 1) & -ALIGN, end &= -ALIGN;
  if (end <= at) return;
  Block* b = reinterpret_cast<Block*>(at);
  b->size = end - at;
  insert(b);
}

// Makes room for a block of `size` bytes, together with a free block that ends where memory ends.
bool grow(size_t size) {
  size_t top = __builtin_wasm_memory_size(0);
  Block* last = first;
  while (last && last->next) last = last->next;
  // At the full 4 GiB the end of memory is address 0.
  if (last && reinterpret_cast<uintptr_t>(last->end()) == uintptr_t(top * PAGE)) size -= last->size;
  size_t pages = (size + PAGE - 1) / PAGE;
  size_t at = __builtin_wasm_memory_grow(0, pages);
  if (at == SIZE_MAX) return false;
  insert(at * PAGE, (at + pages) * PAGE);
  return true;
}

Block** best_fit(size_t size) {
  Block** best = nullptr;
  for (Block** link = &first; *link; link = &(*link)->next)
    if ((*link)->size >= size && (!best || (*link)->size < (*best)->size)) best = link;
  return best;
}

}  // namespace

void* heap_alloc(size_t bytes) {
  if (bytes > SIZE_MAX - 2 * PAGE) return nullptr;
  if (!started) {
    started = true;
    insert(reinterpret_cast<uintptr_t>(&__heap_base), __builtin_wasm_memory_size(0) * PAGE);
  }
  const size_t size = ((bytes ? bytes : 1) + 2 * ALIGN - 1) & -ALIGN;
  Block** link = best_fit(size);
  if (!link) link = grow(size) ? best_fit(size) : nullptr;
  if (!link) return nullptr;
  Block* b = *link;
  if (b->size > size) {
    Block* rest = reinterpret_cast<Block*>(reinterpret_cast<char*>(b) + size);
    rest->size = b->size - size, rest->next = b->next;
    *link = rest;
    b->size = size;
  } else {
    *link = b->next;
  }
  return reinterpret_cast<char*>(b) + ALIGN;
}

void heap_free(void* p) {
  if (p) insert(reinterpret_cast<Block*>(static_cast<char*>(p) - ALIGN));
}
#endif
