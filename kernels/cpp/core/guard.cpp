#if defined(PWX_GUARD)
#include "guard.h"

#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

i64 guard_left = INT64_MAX;

namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PWX_SANITIZED 1
#endif
#endif

#if defined(PWX_SANITIZED)
// Memory of its own, whose ends the sanitizer guards.
struct Copy {
  char* data;

  void make(i64 bytes, i64 align, bool) {
    void* memory = nullptr;
    if (posix_memalign(&memory, size_t(align < 8 ? 8 : align), size_t(bytes ? bytes : 1))) abort();
    data = static_cast<char*>(memory);
    guard_left -= bytes;
    memset(data, 0x5a, size_t(bytes));  // of scratch: as bad as anything
  }
  void lock() const {}
  void drop() const { free(data); }
};
#else
struct Copy {
  char *map, *data;
  size_t length;

  // Pages around `bytes` bytes, the first and the last of them unmapped.
  void make(i64 bytes, i64 align, bool at_end) {
    const i64 page = sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    length = size_t(room + 2 * page);
    map = static_cast<char*>(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (map == MAP_FAILED) abort();
    mprotect(map, size_t(page), PROT_NONE);
    mprotect(map + page + room, size_t(page), PROT_NONE);
    data = map + page + (at_end ? (room - bytes) / align * align : 0);
  }
  void lock() const { mprotect(map, length, PROT_READ); }
  void drop() const { munmap(map, length); }
};
#endif

}  // namespace

void run_guarded(const Kernel& kernel, const Call& call, int n_outputs, const char** error) {
  if (guard_left < 0) {
    Call plain = call;
    kernel.run(plain);
    *error = plain.error;
    return;
  }
  const int n = int(call.n_bufs);
  Copy* copies = static_cast<Copy*>(malloc(size_t(n + 1) * sizeof(Copy)));
  Buf* bufs = static_cast<Buf*>(malloc(size_t(n + 1) * sizeof(Buf)));
  int* same = static_cast<int*>(malloc(size_t(n + 1) * sizeof(int)));
  const i64 scratch = kernel.scratch(call, pool_threads(call.pool)).value();
  for (int round = 0; round < 2; round++) {
    const bool at_end = round == 0;
    for (int i = 0; i < n; i++) {
      const Buf& b = bufs[i] = call.bufs[i];
      same[i] = i;
      if (!b) continue;
      for (int j = 0; j < i; j++)
        if (call.bufs[j] && b.bytes && call.bufs[j].data == b.data && call.bufs[j].bytes == b.bytes) same[i] = same[j];
      if (same[i] == i) {
        copies[i].make(b.bytes, 1, at_end);
        if (b.bytes) memcpy(copies[i].data, b.data, size_t(b.bytes));
        if (i >= n_outputs) copies[i].lock();
      }
      bufs[i].data = copies[same[i]].data;
    }
    copies[n].make(scratch, 64, at_end);
    Call guarded = call;
    guarded.bufs = bufs, guarded.scratch = copies[n].data;
    kernel.run(guarded);
    *error = guarded.error;
    for (int i = 0; i < n; i++) {
      const Buf& b = call.bufs[i];
      if (!b || same[i] != i) continue;
      if (!at_end && i < n_outputs && b.bytes) memcpy(b.data, copies[i].data, size_t(b.bytes));
      copies[i].drop();
    }
    copies[n].drop();
  }
  free(copies), free(bufs), free(same);
}
#endif
