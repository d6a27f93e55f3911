// The C API. Pointers are of the host's size; see error.h for `Error`.
#include <cstdlib>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "../small.h"
#include "build.h"
#include "heap.h"
#include "session.h"

#if defined(PWX_POISON)
extern int pwx_poison;  // fuzz/fuzz.cpp
#endif

namespace {

[[maybe_unused]] constexpr size_t LARGE = 2 << 20;  // a huge page: matrices walk over more small ones than their table in the processor holds

int32_t clear(Error* e) {
  if (e) *e = Error{0, -1, -1, -1, {}};
  return 0;
}

}  // namespace

EXPORT(pwx_version) int32_t pwx_version() { return 3; }

// A number for the sources that this was built from.
EXPORT(pwx_build) int32_t pwx_build() { return BUILD; }

// 64-byte aligned; nullptr when out of memory. Only the coordinating thread may call it in WebAssembly.
EXPORT(pwx_alloc) void* pwx_alloc(size_t bytes) {
  if (bytes > SIZE_MAX - 64) return nullptr;
  bytes = bytes ? (bytes + 63) & ~size_t(63) : 64;
#if defined(__wasm__)
  return heap_alloc(bytes);
#elif defined(_WIN32)
  return _aligned_malloc(bytes, 64);
#else
#if defined(MADV_HUGEPAGE) && !defined(PWX_GUARD)
  if (bytes >= LARGE) {
    void* memory = aligned_alloc(LARGE, bytes);
    if (memory) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  }
#endif
  void* memory = aligned_alloc(64, bytes);
#if defined(PWX_POISON)
  if (memory) __builtin_memset(memory, pwx_poison, bytes);
#endif
  return memory;
#endif
}

EXPORT(pwx_free) void pwx_free(void* p) {
#if defined(__wasm__)
  heap_free(p);
#elif defined(_WIN32)
  _aligned_free(p);
#else
  free(p);
#endif
}

// The caller counts among the threads. nullptr: fewer than 1, more than 1024, or no memory.
EXPORT(pwx_pool_create) Pool* pwx_pool_create(int32_t threads) { return pool_create(threads); }
EXPORT(pwx_pool_destroy) void pwx_pool_destroy(Pool* pool) { pool_destroy(pool); }

// Copies the code, keeps the pointers to weights. Negative weight_bytes[i]: -weight_bytes[i] bytes that no step may write.
EXPORT(pwx_create)
Session* pwx_create(const int32_t* code, i64 words, void* const* weights, const i64* weight_bytes, i64 n_weights, Pool* pool, Error* e) {
  clear(e);
  if (!code || words < 0 || n_weights < 0 || (n_weights && (!weights || !weight_bytes))) {
    fail(e, MISUSE, -1, "pwx_create needs a program and weights");
    return nullptr;
  }
  void* memory = pwx_alloc(sizeof(Session));
  if (!memory) {
    no_memory(e);
    return nullptr;
  }
  Session* s = new (memory) Session;
  s->pool = pool;
  if (!s->create(code, words, weights, weight_bytes, n_weights, e)) return s;
  s->~Session();
  pwx_free(s);
  return nullptr;
}

// After an error there is no binding.
EXPORT(pwx_bind) int32_t pwx_bind(Session* s, const i64* dims, void* const* inputs, Error* e) { return clear(e), s->bind(dims, inputs, false, e); }

// Evaluates and proves like bind and hands out all registers, those of later stages not yet of use, for hosts that run the steps
// elsewhere. It takes no memory; there is no binding afterwards.
EXPORT(pwx_evaluate) int32_t pwx_evaluate(Session* s, const i64* dims, void* const* inputs, i64* registers, i64 n, Error* e) {
  clear(e);
  if (int32_t err = s->bind(dims, inputs, true, e)) return err;
  if (n != s->p.n_regs) return fail(e, MISUSE, -1, "the program has ", s->p.n_regs, " registers");
  if (n) __builtin_memcpy(registers, s->regs.data, size_t(n) * 8);
  return 0;
}

// The same for the stage behind the one evaluated last, or for an earlier one again: `values` are what its READ and SIZE instructions read,
// in their order, `slot_bytes` the bytes of what control steps gave so far.
EXPORT(pwx_evaluate_stage) int32_t pwx_evaluate_stage(Session* s, int32_t stage, const i64* values, const i64* slot_bytes, i64* registers, i64 n, Error* e) {
  clear(e);
  if (int32_t err = s->evaluate_stage(stage, values, slot_bytes, e)) return err;
  if (n != s->p.n_regs) return fail(e, MISUSE, -1, "the program has ", s->p.n_regs, " registers");
  if (n) __builtin_memcpy(registers, s->regs.data, size_t(n) * 8);
  return 0;
}

// A Program within, as a session of its own for hosts that run control steps themselves: it shares limits, random numbers and threads with
// the outer one and goes when that goes. nullptr where there is none.
EXPORT(pwx_part) Session* pwx_part(Session* s, int32_t index) { return index >= 0 && index < s->p.n_parts ? s->parts[index] : nullptr; }

// Runs one step of what was evaluated; `storages` is where each lies, those of weights aside. Its scratch memory is the session's.
EXPORT(pwx_run_step) int32_t pwx_run_step(Session* s, int32_t step, void* const* storages, Error* e) { return clear(e), s->run_step(step, storages, e); }

// nullptr without a binding. The dims of outputs that later stages decide are -1 until they are known.
EXPORT(pwx_output_dims) const i64* pwx_output_dims(Session* s) { return s->current ? s->current->out_dims : nullptr; }

// Arena and scratch memory of the current binding; of a Program of several stages, what they have taken so far.
EXPORT(pwx_arena_bytes) i64 pwx_arena_bytes(Session* s) {
  if (!s->current || s->p.n_stages == 1) return s->current ? s->current->arena : 0;
  i64 bytes = 0;
  for (i64 i = 0; i < s->n_blocks; i++) bytes += s->blocks[i].bytes;
  return bytes;
}

// Bounds what later bindings may take: bytes of intermediate tensors, scratch and outputs, and elementary operations of a run. Drops the
// current binding.
EXPORT(pwx_limit) void pwx_limit(Session* s, i64 max_memory, i64 max_operations) { s->limit(max_memory, max_operations); }

// An estimate of the elementary operations of a run under the current binding, or evaluation; of a Program of several stages, of those that
// are known.
EXPORT(pwx_operations) i64 pwx_operations(Session* s) {
  const Binding* b = s->current ? s->current : s->resolved;
  return b && b->valid ? b->operations : 0;
}

// Where the random numbers of later runs begin; the same seed gives the same numbers on every machine. Without it the seed is 0.
EXPORT(pwx_seed) void pwx_seed(Session* s, i64 seed) { s->own_chance = {uint64_t(seed), 0}; }

// From any thread. 1: the run in progress, or else the next one, ends before its next step with code CANCELLED; 0: takes that back.
EXPORT(pwx_cancel) void pwx_cancel(Session* s, int32_t on) { s->cancelled.store(on, std::memory_order_relaxed); }

// pwx_run stops, with -3, each time that it has taken about so many operations, and goes on when it is called again; 0: it never does.
EXPORT(pwx_slice) void pwx_slice(Session* s, i64 operations) { s->slice = operations > 0 ? operations : INT64_MAX; }

EXPORT(pwx_step_count) int32_t pwx_step_count(Session* s) { return int32_t(s->p.steps.size); }

// Runs to the end (0), or to where the sizes of further outputs became known (-1): then their dims are >= 0, the caller gives memory for
// them and calls again, which goes on from there.
EXPORT(pwx_run) int32_t pwx_run(Session* s, void* const* inputs, void* const* outputs, Error* e) {
  s->own_due = s->slice;
  return clear(e), s->go_on(inputs, outputs, e);
}

// Runs steps [first, last), so that hosts can time them; -1 as in pwx_run, with no step of the stage run.
EXPORT(pwx_run_steps) int32_t pwx_run_steps(Session* s, void* const* inputs, void* const* outputs, int32_t first, int32_t last, Error* e) {
  s->own_due = INT64_MAX;
  return clear(e), s->run(inputs, outputs, first, last, e);
}

// What a run that returned -2 waits for: the call, how many inputs and outputs; per input its address, bytes, dtype, rank and dims; per output
// its dtype, 0 where nobody wants it, and rank. nullptr: nothing. The addresses are valid until the next call.
EXPORT(pwx_asked) const i64* pwx_asked(Session* s) { return s->asked(); }

// Memory for output `output` of that, of these dims, which the host fills before it calls the run again; nullptr: see the error.
EXPORT(pwx_answer) void* pwx_answer(Session* s, int32_t output, const i64* dims, Error* e) { return clear(e), s->answer(output, dims, e); }

EXPORT(pwx_destroy) void pwx_destroy(Session* s) {
  if (!s) return;
  s->~Session();
  pwx_free(s);
}
