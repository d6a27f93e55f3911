// Binding and running of Programs, and the C API. Pointers are of the host's size; see error.h for `Error`.
#include <cstdlib>
#include <new>

#include "guard.h"
#include "heap.h"
#include "plan.h"
#include "pool.h"

namespace {

constexpr int BINDINGS = 4;

// What one set of input dims leads to; all arrays lie in one block.
struct Binding {
  Array<i64> block;
  bool valid = false;
  uint64_t used = 0;
  i64 arena = 0, scratch_at = 0;  // bytes in all, of which scratch begins at
  i64 *key, *out_dims, *offset, *place, *size, *params;
  Buf* bufs;
};

struct Session {
  Program p;
  Planner planner;
  Pool* pool;
  Array<char*> weights;
  Array<i64> weight_bytes;
  Array<i64> key;  // all input dims, then the elements that shape code reads
  Array<i64> regs, input_bytes, input_count, out_bytes;
  Array<i64> fixed_params;
  Array<Buf> fixed_bufs;
  Array<char*> base;  // per storage, while running
  i64 fixed_scratch = 0;
  Binding bindings[BINDINGS];
  Binding* current = nullptr;
  uint64_t clock = 0;
  char* arena = nullptr;
  i64 arena_bytes = 0;

  ~Session() { pwx_free(arena); }

  int32_t create(const int32_t* code, i64 words, void* const* w, const i64* bytes, i64 n_weights, Error* e);
  int32_t bind(const i64* dims, void* const* inputs, bool fresh, Error* e);
  int32_t run(void* const* inputs, void* const* outputs, i64 first, i64 last, Error* e);

 private:
  int32_t read_key(const i64* dims, void* const* inputs, Error* e);
  int32_t resolve(Binding& b, Error* e);
  int32_t evaluate(Error* e);
  int32_t ranges(Binding& b, Error* e);
  int32_t steps(Binding& b, Error* e);
  int32_t prove(const Step& s, i64 index, Buf* bufs, i64* params, i64* scratch, Error* e);
  bool layout(Binding& b);
  int32_t reserve(Binding& b, Error* e);
  bool overlaps(const BufferRow& a, const BufferRow& b, bool* equal) const;
};

int32_t no_memory(Error* e) { return fail(e, NO_MEMORY, -1, "no memory for the session's tables"); }

int32_t Session::create(const int32_t* code, i64 words, void* const* w, const i64* bytes, i64 n_weights, Error* e) {
  if (!weights.resize(n_weights) || !weight_bytes.resize(n_weights)) return no_memory(e);
  for (i64 i = 0; i < n_weights; i++) {
    weights[i] = static_cast<char*>(w[i]), weight_bytes[i] = bytes[i];
    if (bytes[i] < -HUGE_COUNT || bytes[i] > HUGE_COUNT) return fail(e, MISUSE, -1, "weight ", i, " has ", bytes[i], " bytes");
  }
  if (int32_t err = load(p, code, words, weight_bytes.data, n_weights, e)) return err;
  if (!planner.init(p.storages, p.n_storages) || !key.resize(p.n_dims + p.elems.size) || !regs.resize(p.n_regs) || !input_bytes.resize(p.n_inputs) ||
      !input_count.resize(p.n_inputs) || !out_bytes.resize(p.outputs.size) || !fixed_params.resize(p.fixed_params) ||
      !fixed_bufs.resize(p.fixed_bufs) || !base.resize(p.n_storages))
    return no_memory(e);
  for (i64 r = 0; r < p.n_regs; r++) {
    const Instr& c = p.code[r];
    regs[r] = c.op == CONST ? i64(uint64_t(uint32_t(c.b)) << 32 | uint32_t(c.a)) : 0;
  }
  for (i64 i = 0; i < p.steps.size; i++) {
    const Step& s = p.steps[i];
    if (!s.fixed) continue;
    if (int32_t err = prove(s, i, fixed_bufs.data + s.buf_at, fixed_params.data + s.param_at, &fixed_scratch, e)) return err;
  }
  return 0;
}

// Copies dims and the elements that matter into `key`; proves that every input is a tensor of sane size.
int32_t Session::read_key(const i64* dims, void* const* inputs, Error* e) {
  if (p.n_dims) __builtin_memcpy(key.data, dims, size_t(p.n_dims) * 8);
  for (i64 i = 0; i < p.n_inputs; i++) {
    const InputRow& in = p.inputs[i];
    const i64* d = key.data + p.dim_at[i];
    input_count[i] = product(d, in.rank);
    input_bytes[i] = tensor_bytes(d, in.rank, in.dtype);
    if (input_bytes[i] < 0) return fail(e, BAD_BIND, -1, "input ", i, " has a negative or an absurd size");
  }
  i64* out = key.data + p.n_dims;
  for (const Instr& c : p.elems) {
    if (c.b >= input_count[c.a]) return fail(e, BAD_BIND, -1, "input ", i64(c.a), " has no element ", i64(c.b));
    const char* at = inputs ? static_cast<const char*>(inputs[c.a]) : nullptr;
    if (!at) return fail(e, MISUSE, -1, "the content of input ", i64(c.a), " decides shapes and was not given to bind");
    auto read = [&](auto v) {
      __builtin_memcpy(&v, at + c.b * i64(sizeof v), sizeof v);
      return i64(v);
    };
    switch (p.inputs[c.a].dtype) {
      case I64: *out = read(int64_t()); break;
      case U64: *out = read(uint64_t()); break;
      case I32: *out = read(int32_t()); break;
      case U32: *out = read(uint32_t()); break;
      case I16: *out = read(int16_t()); break;
      case U16: *out = read(uint16_t()); break;
      case I8: *out = read(int8_t()); break;
      case U8: *out = read(uint8_t()); break;
      default: *out = read(uint8_t()) != 0;
    }
    out++;
  }
  return 0;
}

int32_t Session::bind(const i64* dims, void* const* inputs, bool fresh, Error* e) {
  if (!dims && p.n_dims) return fail(e, MISUSE, -1, "bind needs the dims of the inputs");
  if (int32_t err = read_key(dims, inputs, e)) return current = nullptr, err;
  auto same = [&](const Binding& b) { return b.valid && !(key.size && __builtin_memcmp(b.key, key.data, size_t(key.size) * 8)); };
  if (!fresh && current && same(*current)) return 0;
  current = nullptr;
  Binding* slot = bindings;
  for (Binding& b : bindings) {
    if (same(b)) {
      slot = &b;
      break;
    }
    if (b.used < slot->used) slot = &b;
  }
  if (fresh || !same(*slot)) {
    slot->valid = false;
    slot->used = 0;
    if (int32_t err = resolve(*slot, e)) return err;
    slot->valid = true;
  }
  slot->used = ++clock;
  if (fresh) return 0;
  if (int32_t err = reserve(*slot, e)) return err;
  current = slot;
  return 0;
}

// Allocates the block on first use and divides it.
bool Session::layout(Binding& b) {
  static_assert(sizeof(Buf) == 24);
  if (b.block.data) return true;
  const i64 words = key.size + p.n_output_dims + p.n_buffers + 2 * p.n_storages + p.live_params + 3 * p.live_bufs;
  if (!b.block.resize(words)) return false;
  i64* at = b.block.data;
  auto take = [&](i64 n) { return (at += n) - n; };
  b.key = take(key.size), b.out_dims = take(p.n_output_dims), b.offset = take(p.n_buffers), b.place = take(p.n_storages), b.size = take(p.n_storages);
  b.params = take(p.live_params), b.bufs = reinterpret_cast<Buf*>(at);
  return true;
}

int32_t Session::resolve(Binding& b, Error* e) {
  if (!layout(b)) return no_memory(e);
  if (key.size) __builtin_memcpy(b.key, key.data, size_t(key.size) * 8);
  int32_t err = evaluate(e);
  if (!err) err = ranges(b, e);
  if (!err) err = steps(b, e);
  return err;
}

int32_t Session::evaluate(Error* e) {
  const i64* elem = key.data + p.n_dims;
  i64* r = regs.data;
  for (const LiveInstr& l : p.live) {
    const Instr c = l.instr;
    i64 v = 0;
    switch (c.op) {
      case DIM: v = key[p.dim_at[c.a] + c.b]; break;
      case ELEM: v = *elem++; break;
      case ADD: __builtin_add_overflow(r[c.a], r[c.b], &v); break;
      case SUB: __builtin_sub_overflow(r[c.a], r[c.b], &v); break;
      case MUL: __builtin_mul_overflow(r[c.a], r[c.b], &v); break;
      case FLOORDIV: case CEILDIV: case MOD: {
        const i64 a = r[c.a], d = r[c.b];
        if (d == 0) return fail(e, BAD_BIND, -1, "division by zero in the shape of a tensor (register ", i64(l.reg), ")");
        if (d == -1) {
          if (c.op != MOD) __builtin_sub_overflow(i64(0), a, &v);
          break;
        }
        const i64 q = a / d, rest = a % d;
        const bool below = rest && (rest < 0) != (d < 0);
        v = c.op == MOD ? (below ? rest + d : rest) : c.op == FLOORDIV ? q - below : q + (rest && !below);
        break;
      }
      case MIN: v = r[c.a] < r[c.b] ? r[c.a] : r[c.b]; break;
      case MAX: v = r[c.a] > r[c.b] ? r[c.a] : r[c.b]; break;
      case EQ: v = r[c.a] == r[c.b]; break;
      case LT: v = r[c.a] < r[c.b]; break;
      case LE: v = r[c.a] <= r[c.b]; break;
      case SELECT: v = r[c.a] ? r[c.b] : r[c.c]; break;
      default:
        v = r[c.a];
        if (!v) {
          fail(e, CHECK_FAILED, -1, "these input shapes do not fit the model");
          if (e) e->message = c.b, e->detail = l.reg;
          return CHECK_FAILED;
        }
    }
    r[l.reg] = v;
  }
  return 0;
}

// Sizes of outputs, storages and buffers; the plan of the arena.
int32_t Session::ranges(Binding& b, Error* e) {
  i64* dims = b.out_dims;
  for (i64 o = 0; o < p.outputs.size; o++) {
    const Output& out = p.outputs[o];
    for (i64 d = 0; d < out.rank; d++) dims[d] = regs[out.dims[d]];
    out_bytes[o] = tensor_bytes(dims, out.rank, out.dtype);
    if (out_bytes[o] < 0) return fail(e, BAD_BIND, -1, "output ", o, " has a negative or an absurd size");
    const BufferRow& row = p.buffers[out.buffer];
    if (regs[row.offset] != 0 || regs[row.size] != out_bytes[o])
      return fail(e, BAD_BIND, -1, "output ", o, " has ", out_bytes[o], " bytes, its buffer ", regs[row.size]);
    dims += out.rank;
  }
  for (i64 i = 0; i < p.n_storages; i++) {
    const StorageRow& s = p.storages[i];
    const i64 size = b.size[i] = regs[s.size];
    const i64 most = s.kind == ARENA    ? HUGE_COUNT
                     : s.kind == WEIGHT ? (weight_bytes[s.index] < 0 ? -weight_bytes[s.index] : weight_bytes[s.index])
                     : s.kind == INPUT  ? input_bytes[s.index]
                                        : out_bytes[s.index];
    if (size < 0 || size > most) return fail(e, BAD_BIND, -1, "storage ", i, " of ", size, " bytes: there are ", most);
  }
  for (i64 i = 0; i < p.n_buffers; i++) {
    const BufferRow& row = p.buffers[i];
    const i64 offset = b.offset[i] = regs[row.offset], size = regs[row.size], room = b.size[row.storage];
    if (offset < 0 || size < 0 || offset > room || size > room - offset)
      return fail(e, BAD_BIND, -1, "buffer ", i, " of ", size, " bytes at ", offset, " leaves its storage of ", room);
  }
  b.scratch_at = planner.plan(b.size, b.place);
  if (b.scratch_at < 0) return fail(e, NO_MEMORY, -1, "these input shapes need an absurd amount of memory");
  return 0;
}

int32_t Session::steps(Binding& b, Error* e) {
  i64 scratch = fixed_scratch;
  for (i64 i = 0; i < p.steps.size; i++) {
    const Step& s = p.steps[i];
    if (s.fixed) continue;
    if (int32_t err = prove(s, i, b.bufs + s.buf_at, b.params + s.param_at, &scratch, e)) return err;
  }
  b.arena = b.scratch_at + scratch;
  return 0;
}

bool Session::overlaps(const BufferRow& a, const BufferRow& b, bool* equal) const {
  i64 a0 = regs[a.offset], b0 = regs[b.offset];
  if (a.storage != b.storage) {
    const StorageRow &s = p.storages[a.storage], &t = p.storages[b.storage];
    if (s.kind != WEIGHT || t.kind != WEIGHT) return false;  // storages of other kinds are apart
    if (s.index != t.index && (!weights[s.index] || !weights[t.index])) return false;  // nothing can run without their memory
    a0 += i64(uintptr_t(weights[s.index])), b0 += i64(uintptr_t(weights[t.index]));
  }
  const i64 a1 = a0 + regs[a.size], b1 = b0 + regs[b.size];
  *equal = a0 == b0 && a1 == b1;
  return a0 < b1 && b0 < a1;
}

// Resolves a step's buffers and parameters and proves that its kernel stays inside them.
int32_t Session::prove(const Step& s, i64 index, Buf* bufs, i64* params, i64* scratch, Error* e) {
  const KernelEntry& k = *s.kernel;
  auto wrong = [&](Code code, auto... parts) { return fail(e, code, int32_t(index), "step ", index, " (", k.name, "): ", parts...); };
  for (int32_t i = 0; i < s.n_params; i++) params[i] = regs[s.params[i]];
  for (int32_t i = 0; i < s.n_bufs; i++) {
    if (s.bufs[i] < 0) {
      bufs[i] = {nullptr, 0, 0};
      continue;
    }
    const BufferRow& row = p.buffers[s.bufs[i]];
    bufs[i] = {nullptr, regs[row.size], row.dtype};
    if (bufs[i].bytes < 0 || bufs[i].bytes > HUGE_COUNT) return wrong(BAD_BIND, "a buffer of ", bufs[i].bytes, " bytes");
  }
  for (int32_t o = 0; o < s.n_bufs && o < s.n_outputs; o++)
    for (int32_t i = o + 1; i < s.n_bufs && s.bufs[o] >= 0; i++) {
      bool equal;
      if (s.bufs[i] < 0 || !overlaps(p.buffers[s.bufs[o]], p.buffers[s.bufs[i]], &equal)) continue;
      if (i < s.n_outputs || !equal || !k.in_place) return wrong(BAD_BIND, "buffers ", i64(o), " and ", i64(i), " overlap");
    }
  if (s.elsewhere) return 0;
  Call call{params, s.n_params, bufs, s.n_bufs, nullptr, pool, nullptr};
  if (const char* text = k.kernel->check(call)) return wrong(BAD_BIND, text);
  const i64 need = k.kernel->scratch(call, pool_threads(pool));
  if (need < 0 || need > HUGE_COUNT) return wrong(NO_MEMORY, "needs an absurd amount of scratch memory");
  if (need > *scratch) *scratch = need;
  return 0;
}

// One arena serves all bindings; it only grows.
int32_t Session::reserve(Binding& b, Error* e) {
  if (b.arena <= arena_bytes) return 0;
  pwx_free(arena);
  arena = static_cast<char*>(allocate(b.arena));
  arena_bytes = arena ? b.arena : 0;
  return arena ? 0 : fail(e, NO_MEMORY, -1, "no memory for ", b.arena, " bytes of intermediate tensors");
}

constexpr const char* KINDS[] = {"the arena", "a weight", "an input", "an output"};

int32_t Session::run(void* const* inputs, void* const* outputs, i64 first, i64 last, Error* e) {
  if (!current) return fail(e, MISUSE, -1, "run before a successful bind");
  if (first < 0 || first > last || last > p.steps.size) return fail(e, MISUSE, -1, "there are no steps ", first, " to ", last);
  Binding& b = *current;
  for (i64 i = 0; i < p.n_storages; i++) {
    const StorageRow& s = p.storages[i];
    switch (s.kind) {
      case ARENA: base[i] = arena + b.place[i]; break;
      case WEIGHT: base[i] = weights[s.index]; break;
      case INPUT: base[i] = inputs ? static_cast<char*>(inputs[s.index]) : nullptr; break;
      default: base[i] = outputs ? static_cast<char*>(outputs[s.index]) : nullptr;
    }
  }
  pool_check_fork(pool);
  for (i64 i = first; i < last; i++) {
    const Step& s = p.steps[i];
    if (s.elsewhere) return fail(e, MISUSE, int32_t(i), "step ", i, " (", s.kernel->name, "): only a GPU runs it");
    Buf* bufs = (s.fixed ? fixed_bufs.data : b.bufs) + s.buf_at;
    for (int32_t k = 0; k < s.n_bufs; k++) {
      if (s.bufs[k] < 0) continue;
      const int32_t at = p.buffers[s.bufs[k]].storage;
      if (b.size[at] && !base[at]) return fail(e, MISUSE, int32_t(i), "step ", i, " (", s.kernel->name, "): ", KINDS[p.storages[at].kind], " has no memory");
      bufs[k].data = base[at] + b.offset[s.bufs[k]];
    }
    Call call{(s.fixed ? fixed_params.data : b.params) + s.param_at, s.n_params, bufs, s.n_bufs, arena + b.scratch_at, pool, nullptr};
#if defined(PWX_GUARD)
    run_guarded(*s.kernel->kernel, call, s.n_outputs, &call.error);
#else
    s.kernel->kernel->run(call);
#endif
    if (call.error) return fail(e, BAD_DATA, int32_t(i), "step ", i, " (", s.kernel->name, "): ", call.error);
  }
  return 0;
}

int32_t clear(Error* e) {
  if (e) *e = Error{0, -1, -1, -1, {}};
  return 0;
}

}  // namespace

EXPORT(pwx_version) int32_t pwx_version() { return 1; }

// 64-byte aligned; nullptr when out of memory. Only the coordinating thread may call it in WebAssembly.
EXPORT(pwx_alloc) void* pwx_alloc(size_t bytes) {
  if (bytes > SIZE_MAX - 64) return nullptr;
  bytes = bytes ? (bytes + 63) & ~size_t(63) : 64;
#if defined(__wasm__)
  return heap_alloc(bytes);
#elif defined(_WIN32)
  return _aligned_malloc(bytes, 64);
#else
  return aligned_alloc(64, bytes);
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

// Evaluates and proves like bind and hands out all registers, for hosts that run the steps elsewhere. It takes no memory; there is no
// binding afterwards.
EXPORT(pwx_evaluate) int32_t pwx_evaluate(Session* s, const i64* dims, void* const* inputs, i64* registers, i64 n, Error* e) {
  clear(e);
  if (int32_t err = s->bind(dims, inputs, true, e)) return err;
  if (n != s->p.n_regs) return fail(e, MISUSE, -1, "the program has ", s->p.n_regs, " registers");
  if (n) __builtin_memcpy(registers, s->regs.data, size_t(n) * 8);
  return 0;
}

// Where a storage of the arena lies under the current binding; nullptr for others.
EXPORT(pwx_storage) void* pwx_storage(Session* s, i64 index) {
  const bool known = s->current && index >= 0 && index < s->p.n_storages && s->p.storages[index].kind == ARENA;
  return known ? s->arena + s->current->place[index] : nullptr;
}

// nullptr without a binding.
EXPORT(pwx_output_dims) const i64* pwx_output_dims(Session* s) { return s->current ? s->current->out_dims : nullptr; }

// Arena and scratch memory of the current binding.
EXPORT(pwx_arena_bytes) i64 pwx_arena_bytes(Session* s) { return s->current ? s->current->arena : 0; }

EXPORT(pwx_step_count) int32_t pwx_step_count(Session* s) { return int32_t(s->p.steps.size); }

EXPORT(pwx_run) int32_t pwx_run(Session* s, void* const* inputs, void* const* outputs, Error* e) {
  return clear(e), s->run(inputs, outputs, 0, s->p.steps.size, e);
}

// Runs steps [first, last), so that hosts can time them.
EXPORT(pwx_run_steps) int32_t pwx_run_steps(Session* s, void* const* inputs, void* const* outputs, int32_t first, int32_t last, Error* e) {
  return clear(e), s->run(inputs, outputs, first, last, e);
}

EXPORT(pwx_destroy) void pwx_destroy(Session* s) {
  if (!s) return;
  s->~Session();
  pwx_free(s);
}
