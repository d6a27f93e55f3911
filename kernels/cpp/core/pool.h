// A pool of threads over one job at a time. The caller always takes part and never waits for a thread that has not joined,
// so a pool works with fewer threads than it was made for, or none (before workers start, after a fork).
#pragma once
#include <atomic>

#include "../kernel.h"

struct alignas(64) Pool {
  static constexpr uint32_t CLOSED = 1 << 11, JOINED = CLOSED - 1, EPOCH = 1 << 12;
  static constexpr int MAX_THREADS = 1024;

  int threads = 1;
  std::atomic<bool> busy{false}, stop{false};
  std::atomic<uint32_t> state{CLOSED};  // number of the job, whether it takes more threads, how many are in it
  std::atomic<uint32_t> sleepers{0}, runs{0};

  // The job; changed only while nobody has joined.
  RangeFn fn = nullptr;
  void* ctx = nullptr;
  i64 chunk = 0;

  // What a thread does first, [next, end) of the items, before it helps others: neighbouring items of one step after the other stay with the
  // core whose cache holds them.
  struct alignas(64) Share {
    std::atomic<i64> next;
    i64 end;
  };

  void* os = nullptr;  // native threads

  void work(int thread);
  void worker(int thread);
  void sleep(uint32_t seen);
  void wake();
  Share* shares() { return reinterpret_cast<Share*>(this + 1); }
};

Pool* pool_create(int threads);
void pool_destroy(Pool*);

// Forgets threads that a fork left behind.
void pool_check_fork(Pool*);

// A run, between whose steps threads stay awake.
struct PoolRun {
  Pool* pool;
  explicit PoolRun(Pool* p) : pool(p) {
    if (!pool) return;
    pool_check_fork(pool);
    pool->runs.fetch_add(1, std::memory_order_relaxed);
  }
  PoolRun(const PoolRun&) = delete;
  ~PoolRun() {
    if (pool) pool->runs.fetch_sub(1, std::memory_order_relaxed);
  }
};
