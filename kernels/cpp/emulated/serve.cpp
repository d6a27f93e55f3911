// The core behind a pipe: serve FILE BYTES. For processors that another one emulates (testing/emulated.py). What it is given and gives lies in
// FILE, which both map, here at BASE, so that an address has 32 bits, as in WebAssembly. A call is eight int64, a number of `Call` and its
// arguments; an int64 answers it.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../core/session.h"

EXPORT(pwx_version) int32_t pwx_version();
EXPORT(pwx_build) int32_t pwx_build();
EXPORT(pwx_create) Session* pwx_create(const int32_t*, i64, void* const*, const i64*, i64, Pool*, Error*);
EXPORT(pwx_bind) int32_t pwx_bind(Session*, const i64*, void* const*, Error*);
EXPORT(pwx_output_dims) const i64* pwx_output_dims(Session*);
EXPORT(pwx_run) int32_t pwx_run(Session*, void* const*, void* const*, Error*);
EXPORT(pwx_limit) void pwx_limit(Session*, i64, i64);
EXPORT(pwx_slice) void pwx_slice(Session*, i64);
EXPORT(pwx_seed) void pwx_seed(Session*, i64);
EXPORT(pwx_destroy) void pwx_destroy(Session*);

namespace {

enum Call : i64 { VERSION, BUILT, ALLOC, FREE, CREATE, BIND, OUTPUT_DIMS, RUN, LIMITS, SLICE, SEED, DESTROY };

constexpr i64 BASE = 0x20000000, LINE = 64, MOST_SESSIONS = 1 << 16;
i64 used = LINE, bytes;  // of the file; nothing is given back, as a process serves one model
Session* sessions[MOST_SESSIONS];
i64 n_sessions;

template <class T> T* at(i64 address) { return reinterpret_cast<T*>(address); }

i64 taken(i64 n) {
  const i64 begin = used;
  if (n < 0 || n > bytes - used - LINE) return 0;
  used = (used + n + LINE - 1) & -LINE;
  return BASE + begin;
}

// Addresses of 32 bits as pointers.
struct Pointers {
  void** each;
  Pointers(i64 from, i64 n) : each(from ? static_cast<void**>(malloc(size_t(n + 1) * sizeof(void*))) : nullptr) {
    for (i64 i = 0; each && i < n; i++) each[i] = at<void>(at<uint32_t>(from)[i]);
  }
  ~Pointers() { free(each); }
};

i64 create(const i64* a) {
  if (n_sessions == MOST_SESSIONS) return 0;
  const Pointers weights(a[2], a[4]);
  Session* s = pwx_create(at<int32_t>(a[0]), a[1], weights.each, at<i64>(a[3]), a[4], nullptr, at<Error>(a[6]));
  if (!s) return 0;
  sessions[n_sessions++] = s;
  return n_sessions;
}

i64 output_dims(Session* s) {
  i64 count = 0;
  for (i64 o = 0; o < s->p.outputs.size; o++) count += s->p.outputs[o].rank;
  const i64 copy = taken(8 * count);
  if (copy) memcpy(at<i64>(copy), pwx_output_dims(s), size_t(8 * count));
  return copy;
}

i64 answer(i64 call, const i64* a) {
  if (call == VERSION) return pwx_version();
  if (call == BUILT) return pwx_build();
  if (call == ALLOC) return taken(a[0]);
  if (call == FREE) return 0;
  if (call == CREATE) return create(a);
  if (a[0] < 1 || a[0] > n_sessions) abort();
  Session* s = sessions[a[0] - 1];
  const i64 inputs = s->p.n_inputs, outputs = s->p.outputs.size;
  if (call == BIND) return pwx_bind(s, at<i64>(a[1]), Pointers(a[2], inputs).each, at<Error>(a[3]));
  if (call == OUTPUT_DIMS) return output_dims(s);
  if (call == RUN) return pwx_run(s, Pointers(a[1], inputs).each, Pointers(a[2], outputs).each, at<Error>(a[3]));
  if (call == LIMITS) return pwx_limit(s, a[1], a[2]), 0;
  if (call == SLICE) return pwx_slice(s, a[1]), 0;
  if (call == SEED) return pwx_seed(s, a[1]), 0;
  if (call == DESTROY) return pwx_destroy(s), 0;
  abort();
}

bool moved(auto step, void* data, size_t n) {
  char* to = static_cast<char*>(data);
  while (n) {
    const ssize_t some = step(to, n);
    if (some <= 0) return false;
    to += some, n -= size_t(some);
  }
  return true;
}

}  // namespace

int main(int n, char** arguments) {
  if (n != 3) return fprintf(stderr, "serve FILE BYTES\n"), 2;
  bytes = atoll(arguments[2]);
  const int file = open(arguments[1], O_RDWR);
  if (file < 0 || mmap(at<void>(BASE), size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != at<void>(BASE)) return perror(arguments[1]), 2;
  i64 words[8];
  while (moved([](char* to, size_t some) { return read(0, to, some); }, words, sizeof words)) {
    i64 found = answer(words[0], words + 1);
    if (!moved([](char* from, size_t some) { return write(1, from, some); }, &found, sizeof found)) return 1;
  }
}
