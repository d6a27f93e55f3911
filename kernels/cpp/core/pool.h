// A pool of threads over one job at a time. The caller always takes part and never waits for a thread that has not joined,
// so a pool works with fewer threads than it was made for, or none (before workers start, after a fork).
#pragma once
#include <atomic>

#include "../kernel.h"

struct Pool {
  static constexpr uint32_t CLOSED = 1 << 11, JOINED = CLOSED - 1, EPOCH = 1 << 12;
  static constexpr int MAX_THREADS = 1024;

  int threads = 1;
  std::atomic<bool> busy{false}, stop{false};
  std::atomic<uint32_t> state{CLOSED};  // number of the job, whether it takes more threads, how many are in it
  std::atomic<uint32_t> sleepers{0};

  // The job; changed only while nobody has joined.
  RangeFn fn = nullptr;
  void* ctx = nullptr;
  i64 n = 0, chunk = 0;
  std::atomic<i64> next{0};

  void* os = nullptr;  // native threads

  void work(int thread);
  void worker(int thread);
  void sleep(uint32_t seen);
  void wake();
};

Pool* pool_create(int threads);
void pool_destroy(Pool*);

// To be called before a run: forgets threads that a fork left behind.
void pool_check_fork(Pool*);
