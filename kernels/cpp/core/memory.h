// Memory that fails with nullptr, and arrays over it.
#pragma once
#include "../kernel.h"

#if defined(__wasm__)
#define EXPORT(name) extern "C" __attribute__((export_name(#name)))
#elif defined(_WIN32)
#define EXPORT(name) extern "C" __attribute__((dllexport))
#else
#define EXPORT(name) extern "C" __attribute__((visibility("default")))
#endif

EXPORT(pwx_alloc) void* pwx_alloc(size_t bytes);  // 64-byte aligned
EXPORT(pwx_free) void pwx_free(void*);

inline void* allocate(i64 bytes) { return bytes < 0 || uint64_t(bytes) > SIZE_MAX - 64 ? nullptr : pwx_alloc(size_t(bytes)); }

// A fixed-size array of trivial elements, not initialised.
template <class T> struct Array {
  T* data = nullptr;
  i64 size = 0;
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { pwx_free(data); }
  bool resize(i64 n) {
    pwx_free(data);
    i64 bytes;
    data = mul_over(n, sizeof(T), &bytes) ? nullptr : static_cast<T*>(allocate(bytes));
    size = data ? n : 0;
    return data;
  }
  T& operator[](i64 i) { return data[i]; }
  const T& operator[](i64 i) const { return data[i]; }
  T* begin() { return data; }
  T* end() { return data + size; }
};
