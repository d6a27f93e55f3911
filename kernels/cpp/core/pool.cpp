#include "pool.h"

#include <algorithm>
#include <new>

#include "memory.h"

// A page's main thread may not wait, so in WebAssembly the caller spins.
#if defined(__wasm__)
#define YIELD()
#else
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#define YIELD() sched_yield()
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#define PAUSE() _mm_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE()
#endif

namespace {
// About 100 us, what a wake-up takes: of those who wake 25 us, of those who sleep 50 and more (measured in a virtual machine). During a run
// threads stay awake unless nothing comes for 2 ms. x86 pauses for some 140 cycles.
#if defined(__x86_64__)
constexpr int SPINS = 2000;
#else
constexpr int SPINS = 40000;
#endif
constexpr int SPINS_IN_RUN = 20 * SPINS;
constexpr i64 PIECES = 4;  // of a thread's share: what is left is another's to take
thread_local int current_thread = 0;
}  // namespace

void Pool::work(int thread) {
  for (int k = 0, of = thread; k < threads; k++, of = of + 1 < threads ? of + 1 : 0) {
    Share& share = shares()[of];
    while (share.next.load(std::memory_order_relaxed) < share.end) {  // a look costs many threads less than an addition
      const i64 begin = share.next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= share.end) break;
      fn(ctx, begin, std::min(begin + chunk, share.end), thread);
    }
  }
}

void Pool::worker(int thread) {
  current_thread = thread;
  uint32_t done = CLOSED;  // the last job looked at, as state & -EPOCH; no job has this value
  int spins = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    uint32_t seen = state.load(std::memory_order_acquire);
    if (!(seen & CLOSED) && (seen & -EPOCH) != done) {
      if (!state.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) continue;
      work(thread);
      state.fetch_sub(1, std::memory_order_release);
      done = seen & -EPOCH;
      spins = 0;
    } else if (++spins < SPINS || (spins < SPINS_IN_RUN && runs.load(std::memory_order_relaxed))) {
      PAUSE();
    } else {
      sleep(seen);
      spins = 0;
    }
  }
}

int pool_threads(const Pool* pool) { return pool ? pool->threads : 1; }

#if defined(__wasm__)

void Pool::sleep(uint32_t seen) {
  sleepers.fetch_add(1);
  if (!stop.load()) __builtin_wasm_memory_atomic_wait32(reinterpret_cast<int32_t*>(&state), int32_t(seen), -1);
  sleepers.fetch_sub(1);
}
void Pool::wake() { __builtin_wasm_memory_atomic_notify(reinterpret_cast<int32_t*>(&state), uint32_t(threads)); }

static void start_threads(Pool*) {}
void pool_check_fork(Pool*) {}

// Workers leave when they see `stop`, at a time that nobody can wait for, so their pool is not given back.
void pool_destroy(Pool* pool) {
  if (!pool) return;
  pool->stop.store(true);
  pool->state.fetch_add(Pool::EPOCH);
  pool->wake();
  if (pool->threads == 1) pwx_free(pool);
}

EXPORT(pwx_worker) void pwx_worker(Pool* pool, int32_t index) {
  if (pool && index > 0 && index < pool->threads) pool->worker(index);
}

#else

namespace {

struct Gate {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  void enter() { pthread_mutex_lock(&lock); }
  void leave() { pthread_mutex_unlock(&lock); }
  void wait() { pthread_cond_wait(&changed, &lock); }
  void notify() { pthread_cond_broadcast(&changed); }
};

struct Thread {
  Pool* pool;
  int index;
  pthread_t handle;
};

struct Os {
  Gate gate;
  int owner;  // the process that started the threads, 0: not started
  int started;
  Thread threads[];
};

Os* os_of(Pool* pool) { return static_cast<Os*>(pool->os); }

void* entry(void* t) {
  static_cast<Thread*>(t)->pool->worker(static_cast<Thread*>(t)->index);
  return nullptr;
}
bool start(Thread& t) { return pthread_create(&t.handle, nullptr, entry, &t) == 0; }
void join(Thread& t) { pthread_join(t.handle, nullptr); }

void start_threads(Pool* pool) {
  Os* os = os_of(pool);
  if (os->owner) return;
  os->owner = int(getpid());
  for (os->started = 0; os->started < pool->threads - 1; os->started++) {
    Thread& t = os->threads[os->started];
    t.pool = pool, t.index = os->started + 1;
    if (!start(t)) break;
  }
}

}  // namespace

void Pool::sleep(uint32_t seen) {
  Gate& gate = os_of(this)->gate;
  gate.enter();
  sleepers.fetch_add(1);
  if (state.load() == seen && !stop.load()) gate.wait();
  sleepers.fetch_sub(1);
  gate.leave();
}

void Pool::wake() {
  Gate& gate = os_of(this)->gate;
  gate.enter();
  gate.notify();
  gate.leave();
}

void pool_check_fork(Pool* pool) {
  if (!pool || pool->threads == 1) return;
  Os* os = os_of(pool);
  if (!os->owner || os->owner == int(getpid())) return;
  os->gate = Gate();
  os->owner = os->started = 0;
  pool->sleepers.store(0);
  pool->busy.store(false);
  pool->runs.store(0);
  pool->state.store(Pool::CLOSED);
}

void pool_destroy(Pool* pool) {
  if (!pool) return;
  pool_check_fork(pool);
  if (Os* os = os_of(pool)) {
    pool->stop.store(true);
    pool->wake();
    for (int i = 0; i < os->started; i++) join(os->threads[i]);
    pwx_free(os);
  }
  pwx_free(pool);
}

#endif

Pool* pool_create(int threads) {
  void* memory = threads < 1 || threads > Pool::MAX_THREADS ? nullptr : pwx_alloc(sizeof(Pool) + size_t(threads) * sizeof(Pool::Share));
  if (!memory) return nullptr;
  Pool* pool = new (memory) Pool;
  pool->threads = threads;
#if !defined(__wasm__)
  if (threads > 1) {
    pool->os = pwx_alloc(sizeof(Os) + sizeof(Thread) * size_t(threads - 1));
    if (!pool->os) {
      pwx_free(pool);
      return nullptr;
    }
    new (pool->os) Os{Gate(), 0, 0};
  }
#endif
  return pool;
}

void pool_for(Pool* pool, i64 n, i64 grain, RangeFn fn, void* ctx) {
  if (n <= 0) return;
  grain = std::max<i64>(grain, 1);
  if (!pool || pool->threads == 1 || n <= grain || pool->busy.exchange(true, std::memory_order_acquire)) {
    fn(ctx, 0, n, current_thread);
    return;
  }
  start_threads(pool);
  const i64 wanted = i64(pool->threads) * PIECES, chunk = std::max(grain, n / wanted + (n % wanted != 0)), pieces = n / chunk + (n % chunk != 0);
  pool->fn = fn, pool->ctx = ctx, pool->chunk = chunk;
  for (int t = 0; t < pool->threads; t++) {
    new (pool->shares() + t) Pool::Share{pieces * t / pool->threads * chunk, std::min(pieces * (t + 1) / pool->threads * chunk, n)};
  }
  uint32_t open = ((pool->state.load(std::memory_order_relaxed) & -Pool::EPOCH) + Pool::EPOCH);
  pool->state.store(open);
  if (pool->sleepers.load()) pool->wake();
  // All threads read what `ctx` refers to, in the frames above: those that the caller is about to write lie cache lines away.
  alignas(128) char apart[256];
  asm volatile("" : : "r"(apart) : "memory");
  pool->work(0);
  pool->state.fetch_or(Pool::CLOSED);
  // Those that joined are inside their last piece.
  for (int spins = 0; pool->state.load(std::memory_order_acquire) & Pool::JOINED;)
    if (++spins < SPINS) PAUSE();
    else YIELD();
  pool->busy.store(false, std::memory_order_release);
}
