// Memory in WebAssembly; see heap.cpp.
#pragma once
#include <cstddef>

void* heap_alloc(size_t bytes);  // 64-byte aligned; nullptr when out of memory
void heap_free(void*);
