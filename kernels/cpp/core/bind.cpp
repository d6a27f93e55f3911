// Binding: registers, sizes, proofs.
#include <algorithm>

#include "../half.h"
#include "../small.h"
#include "../sort.h"
#include "session.h"

int32_t Session::create(const int32_t* code, i64 words, void* const* w, const i64* bytes, i64 n_weights, Error* e) {
  if (!weights.resize(n_weights) || !weight_bytes.resize(n_weights)) return no_memory(e);
  for (i64 i = 0; i < n_weights; i++) {
    weights[i] = static_cast<char*>(w[i]), weight_bytes[i] = bytes[i];
    if (bytes[i] < -HUGE_COUNT || bytes[i] > HUGE_COUNT) return fail(e, MISUSE, -1, "weight ", i, " has ", bytes[i], " bytes");
  }
  if (int32_t err = load(p, code, words, weight_bytes.data, n_weights, e)) return err;
  if (!planner.init(p.storages, p.n_storages, p.stages, p.n_stages) || !blocks.resize(p.n_stages) || !reads.resize(p.reads.size) || !stage_at.resize(4 * p.n_stages) ||
      !key.resize(p.n_dims + p.elems.size) || !regs.resize(p.n_regs) || !moved.resize(p.n_regs) || !needs.resize(2 * p.steps.size) || !input_bytes.resize(p.n_inputs) ||
      !input_count.resize(p.n_inputs) || !out_bytes.resize(p.outputs.size) || !fixed_params.resize(p.fixed_params) ||
      !fixed_bufs.resize(p.fixed_bufs) || !base.resize(p.n_storages) || !touched.resize(p.n_storages) || !clear_ends.resize(p.n_stages) ||
      !written.init(p.n_storages, 2 * (p.n_buffers + p.steps.size)) || !clears.resize(p.n_stages > 1 ? p.n_storages + p.n_buffers : 0))
    return no_memory(e);
  std::fill(touched.begin(), touched.end(), int32_t(p.steps.size));
  std::fill(moved.begin(), moved.end(), uint8_t(0));
  for (i64 r = 0; r < p.n_regs; r++) {
    const Instr& c = p.code[r];
    regs[r] = c.op == CONST ? i64(uint64_t(uint32_t(c.b)) << 32 | uint32_t(c.a)) : 0;
  }
  for (auto& b : base) b = nullptr;
  if (int32_t err = create_parts(bytes, e)) return err;
  blocks[n_blocks++] = {nullptr, 0, -1};
  for (i64 i = 0; i < p.steps.size; i++) {
    Step& s = p.steps[i];
    for (int32_t k = s.control ? s.n_outputs : 0; k < s.n_bufs; k++)
      if (s.bufs[k] >= 0) touched[p.buffers[s.bufs[k]].storage] = std::min(touched[p.buffers[s.bufs[k]].storage], int32_t(i));
    if (!s.fixed) continue;
    Proof proof;
    if (int32_t err = prove(s, i, fixed_bufs.data + s.buf_at, fixed_params.data + s.param_at, proof, fixed, e)) return err;
    s.whole = wholly(s, proof);
  }
  return 0;
}

void Session::limit(i64 memory, i64 operations) {
  max_memory = memory, max_operations = operations;
  for (Session* part : parts) part->limit(memory, operations);
  for (Binding& b : bindings) b.valid = false;
  current = resolved = proved = nullptr;
}

// Element `index` as a register holds it: an integer, or the bits of an f64.
i64 element(const char* at, i64 index, int32_t dtype) {
  auto read = [&](auto v) {
    __builtin_memcpy(&v, at + index * i64(sizeof v), sizeof v);
    return v;
  };
  auto bits = [](double v) { return __builtin_bit_cast(i64, v); };
  switch (dtype) {
    case I64: return read(int64_t());
    case U64: return i64(read(uint64_t()));
    case I32: return read(int32_t());
    case U32: return read(uint32_t());
    case I16: return read(int16_t());
    case U16: return read(uint16_t());
    case I8: return read(int8_t());
    case U8: return read(uint8_t());
    case F64: return bits(read(double()));
    case F32: return bits(double(read(float())));
    case F16: return bits(double(half_to_float(read(uint16_t()))));
    case BF16: return bits(double(bf16_to_float(read(uint16_t()))));
    default: return read(uint8_t()) != 0;
  }
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
    if (in.buffer < -1) input_count[i] = input_bytes[i] = 0;  // dims without a tensor: they tell of state
  }
  i64* out = key.data + p.n_dims;
  for (const Instr& c : p.elems) {
    if (c.b >= input_count[c.a]) return fail(e, BAD_BIND, -1, "input ", i64(c.a), " has no element ", i64(c.b));
    const char* at = inputs ? static_cast<const char*>(inputs[c.a]) : nullptr;
    if (!at) return fail(e, MISUSE, -1, "the content of input ", i64(c.a), " decides shapes and was not given to bind");
    *out++ = element(at, c.b, p.inputs[c.a].dtype);
  }
  return 0;
}

int32_t Session::bind(const i64* dims, void* const* inputs, bool fresh, Error* e) {
  if (!dims && p.n_dims) return fail(e, MISUSE, -1, "bind needs the dims of the inputs");
  if (int32_t err = read_key(dims, inputs, e)) return current = nullptr, err;
  stage = cursor = 0;
  paused = waits = false;
  auto same = [&](const Binding& b) { return b.valid && !(key.size && __builtin_memcmp(b.key, key.data, size_t(key.size) * 8)); };
  if (!fresh && current && same(*current)) return misses = 0, forget(*current), 0;
  current = nullptr;
  Binding* slot = bindings;
  for (Binding& b : bindings) {
    if (same(b)) {
      slot = &b;
      break;
    }
    if (b.used < slot->used) slot = &b;
  }
  misses = same(*slot) ? 0 : misses + 1;
  if (misses > BINDINGS && proved) slot = proved;  // sizes that grow: none of them comes again
  // Later stages go on from the registers of stage 0.
  if (!same(*slot) || ((fresh || p.n_stages > 1) && resolved != slot)) {
    slot->valid = false;
    slot->used = 0;
    resolved = slot;
    valid_stages = 1;
    if (!layout(*slot)) return no_memory(e);
    if (key.size) __builtin_memcpy(slot->key, key.data, size_t(key.size) * 8);
    const Binding* const before = proved;
    proved = nullptr;
    if (int32_t err = resolve(*slot, 0, e, before)) return err;
    slot->valid = true;
    if (p.n_stages == 1) proved = slot;  // later stages move registers
  }
  slot->used = ++clock;
  if (fresh) return 0;
  if (int32_t err = reserve(blocks[0], slot->arena, e)) return err;
  current = slot;
  forget(*current);
  return 0;
}

// Allocates the block on first use and divides it.
bool Session::layout(Binding& b) {
  static_assert(sizeof(Buf) == 24 && sizeof(Clear) == 32);
  if (b.block.data) return true;
  const i64 words = key.size + p.n_output_dims + p.n_buffers + 2 * p.n_storages + p.live_params + 3 * p.live_bufs + 4 * p.n_storages;
  if (!b.block.resize(words)) return false;
  i64* at = b.block.data;
  auto take = [&](i64 n) { return (at += n) - n; };
  b.key = take(key.size), b.out_dims = take(p.n_output_dims), b.offset = take(p.n_buffers), b.place = take(p.n_storages), b.size = take(p.n_storages);
  b.params = take(p.live_params), b.bufs = reinterpret_cast<Buf*>(take(3 * p.live_bufs)), b.clears = reinterpret_cast<Clear*>(at);
  return true;
}

// `before`: what the registers belonged to so far, and all steps were proved for.
int32_t Session::resolve(Binding& b, i64 s, Error* e, const Binding* before) {
  int32_t err = evaluate(s, e);
  if (!err) err = ranges(b, s, e, before);
  if (!err) err = steps(b, s, e, before);
  return err;
}

int32_t Session::evaluate(i64 s, Error* e) {
  const i64 *elem = key.data + p.n_dims, *read = reads.data + (s ? p.read_ends[s - 1] : 0);
  i64* r = regs.data;
  const LiveInstr* const end = p.live.data + p.live_ends[s];
  for (const LiveInstr* at = p.live.data + (s ? p.live_ends[s - 1] : 0); at < end; at++) {
    const LiveInstr& l = *at;
    const Instr c = l.instr;
    i64 v = 0;
    switch (c.op) {
      case DIM: v = key[p.dim_at[c.a] + c.b]; break;
      case ELEM: v = *elem++; break;
      case READ: case SIZE: v = *read++; break;
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
    moved[l.reg] = r[l.reg] != v;
    r[l.reg] = v;
  }
  return 0;
}

const i64* Session::tell(Binding& b, const Output& out) {
  i64* dims = b.out_dims + out.dims_at;
  for (i64 d = 0; d < out.rank; d++) dims[d] = regs[out.dims[d]];
  return dims;
}

// Bytes of an output, the rows that the host keeps room for included.
i64 Session::held_bytes(const Output& out, const i64* dims) {
  const StorageRow& s = p.storages[p.buffers[out.buffer].storage];
  if (!resides(s) || out.rank > MAX_STATE_RANK) return tensor_bytes(dims, out.rank, out.dtype);
  i64 held[MAX_STATE_RANK];
  for (i64 d = 0; d < out.rank; d++) held[d] = dims[d];
  held[state_axis(s)] = std::max(held[state_axis(s)], key[p.dim_at[state_input(s)]]);
  return tensor_bytes(held, out.rank, out.dtype);
}

// Sizes of outputs, storages and buffers; the plan of the arena.
int32_t Session::ranges(Binding& b, i64 stage, Error* e, const Binding* before) {
  bool same = before;  // sizes of the arena
  for (const int32_t* at = p.known_outputs.begin(stage); at < p.known_outputs.end(stage); at++) {
    const i64 o = *at;
    const Output& out = p.outputs[o];
    const i64* dims = tell(b, out);
    out_bytes[o] = held_bytes(out, dims);
    if (out_bytes[o] < 0) return fail(e, BAD_BIND, -1, "output ", o, " has a negative or an absurd size");
    const BufferRow& row = p.buffers[out.buffer];
    if (regs[row.offset] != 0 || regs[row.size] != out_bytes[o])
      return fail(e, BAD_BIND, -1, "output ", o, " has ", out_bytes[o], " bytes, its buffer ", regs[row.size]);
  }
  for (const int32_t* at = p.known_storages.begin(stage); at < p.known_storages.end(stage); at++) {
    const i64 i = *at;
    const StorageRow& s = p.storages[i];
    const i64 size = b.size[i] = regs[s.size];
    same &= s.kind != ARENA || !moved[s.size];
    const i64 most = s.kind == ARENA    ? HUGE_COUNT
                     : s.kind == WEIGHT ? (weight_bytes[s.index] < 0 ? -weight_bytes[s.index] : weight_bytes[s.index])
                     : s.kind == INPUT  ? input_bytes[s.index]
                     : s.kind == SLOT   ? slots[s.index].bytes
                                        : out_bytes[s.index];
    if (size < 0 || size > most) return fail(e, BAD_BIND, -1, "storage ", i, " of ", size, " bytes: there are ", most);
  }
  for (const int32_t* at = p.known_buffers.begin(stage); at < p.known_buffers.end(stage); at++) {
    const i64 i = *at;
    const BufferRow& row = p.buffers[i];
    const i64 offset = b.offset[i] = regs[row.offset], size = regs[row.size], room = b.size[row.storage];
    if (offset < 0 || size < 0 || offset > room || size > room - offset)
      return fail(e, BAD_BIND, -1, "buffer ", i, " of ", size, " bytes at ", offset, " leaves its storage of ", room);
  }
  i64* const plan = stage_at.data + 4 * stage;
  if (same && before != &b) std::copy_n(before->place, p.n_storages, b.place);
  if (!same) plan[0] = planner.plan(stage, b.size, b.place, plan + 2);
  if (plan[0] < 0) return fail(e, NO_MEMORY, -1, "these input shapes need an absurd amount of memory");
  return 0;
}

// Whether a proof says what the one before it did.
bool Session::stays(const Step& s) const {
  if (s.control || s.elsewhere) return false;
  for (int32_t i = 0; i < s.n_params; i++)
    if (moved[s.params[i]]) return false;
  for (int32_t i = 0; i < s.n_bufs; i++)
    if (s.bufs[i] >= 0 && (moved[p.buffers[s.bufs[i]].offset] || moved[p.buffers[s.bufs[i]].size])) return false;
  return true;
}

int32_t Session::steps(Binding& b, i64 stage, Error* e, const Binding* before) {
  auto unwritten = [&](i64 step) { return fail(e, BAD_BIND, int32_t(step), "step ", step, ": reads too many pieces that no step writes"); };
  Demand demand = fixed;
  if (stage) demand.operations = stage_at[4 * stage - 1];
  if ((stage == 0 || written_stages != stage) && !replay(b, stage)) return unwritten(-1);
  written_stages = -1;
  if (stage) clear_ends[stage] = clear_ends[stage - 1];
  else b.n_clears = clear_ends[0] = 0;
  for (i64 i = stage ? p.stages[stage - 1].steps : 0; i < p.stages[stage].steps; i++) {
    Step& s = p.steps[i];
    Proof proof;
    const bool known = !s.fixed && before && stays(s);
    if (known && before != &b) {
      std::copy_n(before->params + s.param_at, s.n_params, b.params + s.param_at);
      std::copy_n(before->bufs + s.buf_at, s.n_bufs, b.bufs + s.buf_at);
    }
    if (known) {
      demand.add(i, needs[2 * i], needs[2 * i + 1]);
    } else if (!s.fixed) {
      if (int32_t err = prove(s, i, b.bufs + s.buf_at, b.params + s.param_at, proof, demand, e)) return err;
      s.whole = wholly(s, proof);
    }
    if ((s.fixed || known) && !s.whole) {
      proof = prove_again(b, s);
    }
    if (!follow(b, stage, s, proof)) return unwritten(i);
  }
  if (stage + 1 < p.n_stages) {
    for (i64 k = p.read_ends[stage]; k < p.read_ends[stage + 1]; k++)
      if (p.reads[k].op == READ && !must_be_written(b, stage, p.reads[k].a)) return unwritten(-1);
    if (!settle(b, stage)) return unwritten(-1);
  } else {
    for (i64 o = 0; o < p.outputs.size; o++)
      if (!must_be_written(b, stage, p.outputs[o].buffer)) return unwritten(-1);
  }
  written_stages = stage + 1;
  auto order = [](const Clear& x, const Clear& y) { return x.step < y.step; };
  Clear* const first = stage ? clears.data + clear_ends[stage - 1] : b.clears;
  Clear* const last = stage ? clears.data + clear_ends[stage] : b.clears + b.n_clears;
  sort_inside(first, last, order);
  for (const Clear* at = first; at < last; at++) demand.add(at->step, ceil_div(at->end - at->begin, 8), 0);
  return within_limits(b, stage, demand, e);
}

// Sums up what a stage takes.
int32_t Session::within_limits(Binding& b, i64 stage, Demand& demand, Error* e) {
  auto over = [&](i64 step, auto... parts) {
    const char* kernel = step < p.steps.size ? p.steps[step].kernel->name : "none";
    return fail(e, LIMIT, int32_t(step), "step ", step, " (", kernel, "): ", parts...);
  };
  i64* const plan = stage_at.data + 4 * stage;
  Size memory = Size(plan[0]) + demand.scratch;
  plan[1] = memory.value();
  for (const int32_t* at = planner.begin(stage); at < planner.end(stage); at++) demand.hold(touched[*at], b.size[*at]);
  for (const int32_t* at = p.known_outputs.begin(0); at < p.known_outputs.end(stage); at++) memory += out_bytes[*at];
  if (!memory.within(max_memory))
    return over(demand.widest, "intermediate tensors and outputs of ", memory.value(), " bytes, most of them here; the limit is ", max_memory, " (max_memory)");
  if (!demand.operations.within(max_operations))
    return over(demand.busiest, demand.most_operations.value(), " of ", demand.operations.value(), " operations; the limit is ", max_operations, " (max_operations)");
  b.operations = plan[3] = demand.operations.value();
  b.each = b.operations / std::max<i64>(p.steps.size, 1) + STEP_OPERATIONS;
  if (stage == 0) b.scratch_at = plan[0], b.arena = plan[1], b.until = plan[2];
  return 0;
}

// Whether a step writes all of the buffers that it writes to.
bool Session::wholly(const Step& s, const Proof& proof) const {
  if (s.control) return true;
  for (int32_t o = 0; o < s.n_outputs && o < s.n_bufs; o++) {
    if (s.bufs[o] < 0) continue;
    const BufferRow& row = p.buffers[s.bufs[o]];
    bool all = s.elsewhere || regs[row.size] == 0;
    for (int r = 0; r < proof.n_written; r++) {
      const Range range = proof.written[r].range;
      all |= proof.written[r].buffer == o && range.begin == 0 && range.count * dtype_size(row.dtype) == regs[row.size];
    }
    if (!all) return false;
  }
  return true;
}

// What a proved step told.
Proof Session::prove_again(Binding& b, const Step& s) {
  Proof proof;
  Buf* bufs = (s.fixed ? fixed_bufs.data : b.bufs) + s.buf_at;
  if (!s.elsewhere && !s.control) s.kernel->kernel->check({(s.fixed ? fixed_params.data : b.params) + s.param_at, s.n_params, bufs, s.n_bufs, nullptr, pool, nullptr, nullptr}, proof);
  return proof;
}

// `written` becomes what the steps of these stages wrote.
bool Session::replay(Binding& b, i64 stages) {
  written.clear();
  bool fits = true;
  for (i64 s = 0, i = 0; fits && s < stages; s++) {
    for (; fits && i < p.stages[s].steps; i++) fits = follow(b, s, p.steps[i], p.steps[i].whole ? Proof() : prove_again(b, p.steps[i]), true);
    fits = fits && settle(b, s, true);
  }
  return fits;
}

// At the end of a stage: what its steps were not proved to write whole is cleared before them, since no later stage may clear it any more.
bool Session::settle(Binding& b, i64 stage, bool again) {
  for (i64 i = stage ? p.stages[stage - 1].steps : 0; i < p.stages[stage].steps; i++)
    for (int32_t o = 0; !p.steps[i].whole && o < p.steps[i].n_outputs && o < p.steps[i].n_bufs; o++)
      if (p.steps[i].bufs[o] >= 0 && !must_be_written(b, stage, p.steps[i].bufs[o], again)) return false;
  return true;
}

// Where nothing was proved to write a buffer that is read, its bytes are cleared: the whole storage before the first step that touches it
// or, when that ran in an earlier stage, what is missing before this one, whose steps wrote none of it (`settle`). False when that is too much to remember. `again`: it is known.
bool Session::must_be_written(Binding& b, i64 stage, i64 buffer, bool again) {
  const i64 storage = p.buffers[buffer].storage, begin = b.offset[buffer], end = begin + regs[p.buffers[buffer].size];
  if ((p.storages[storage].kind != ARENA && p.storages[storage].kind != OUTPUT) || resides(p.storages[storage])) return true;
  while (!written.covers(storage, begin, end)) {
    Range gap{0, b.size[storage]};
    i64 step = touched[storage];
    const i64 first = stage > 0 ? p.stages[stage - 1].steps : 0;
    if (step < first) step = first, gap = written.gap(storage, begin, end);
    if (!written.add(storage, gap.begin, gap.begin + gap.count)) return false;
    if (again) continue;
    const Clear clear{step, storage, gap.begin, gap.begin + gap.count};
    if (stage == 0) b.clears[b.n_clears++] = clear;
    else if (clear_ends[stage] == clears.size) return false;
    else clears[clear_ends[stage]++] = clear;
  }
  return true;
}

// Goes on to the next step: what it reads must have been written, and what it writes is.
bool Session::follow(Binding& b, i64 stage, const Step& s, const Proof& proof, bool again) {
  for (int32_t k = s.n_outputs; k < s.n_bufs; k++)
    if (s.bufs[k] >= 0 && !must_be_written(b, stage, s.bufs[k], again)) return false;
  for (int32_t o = 0; o < s.n_outputs && o < s.n_bufs && !s.control; o++) {
    if (s.bufs[o] < 0) continue;
    const BufferRow& row = p.buffers[s.bufs[o]];
    const i64 begin = b.offset[s.bufs[o]], each = dtype_size(row.dtype);
    if (s.whole || s.elsewhere) written.add(row.storage, begin, begin + regs[row.size]);
    for (int r = 0; r < proof.n_written; r++) {
      const Range range = proof.written[r].range;
      if (proof.written[r].buffer == o) written.add(row.storage, begin + range.begin * each, begin + (range.begin + range.count) * each);
    }
  }
  return true;
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
int32_t Session::prove(const Step& s, i64 index, Buf* bufs, i64* params, Proof& proof, Demand& demand, Error* e) {
  const KernelEntry& k = *s.kernel;
  auto wrong = [&](Code code, auto... parts) { return fail(e, code, int32_t(index), "step ", index, " (", k.name, "): ", parts...); };
  for (int32_t i = 0; i < s.n_params; i++) params[i] = regs[s.params[i]];
  for (int32_t i = 0; i < s.n_bufs; i++) {
    if (s.bufs[i] < 0 || (s.control && i < s.n_outputs)) {
      bufs[i] = {nullptr, 0, 0};
      continue;
    }
    const BufferRow& row = p.buffers[s.bufs[i]];
    bufs[i] = {nullptr, regs[row.size], row.dtype};
    if (bufs[i].bytes < 0 || bufs[i].bytes > (s.elsewhere ? HUGE_COUNT : MAX_BYTES)) return wrong(BAD_BIND, "a buffer of ", bufs[i].bytes, " bytes");
    if (regs[row.offset] < 0 || regs[row.offset] > HUGE_COUNT) return wrong(BAD_BIND, "a buffer at byte ", regs[row.offset]);
  }
  if (s.control) {
    demand.add(index, 1, 0);
    return prove_control(s, index, bufs, params, e);
  }
  for (int32_t o = 0; o < s.n_bufs && o < s.n_outputs; o++)
    for (int32_t i = o + 1; i < s.n_bufs && s.bufs[o] >= 0; i++) {
      bool equal;
      if (s.bufs[i] < 0 || !overlaps(p.buffers[s.bufs[o]], p.buffers[s.bufs[i]], &equal)) continue;
      if (i < s.n_outputs || !equal || !k.in_place) return wrong(BAD_BIND, "buffers ", i64(o), " and ", i64(i), " overlap");
    }
  if (s.elsewhere) return 0;
  Call call{params, s.n_params, bufs, s.n_bufs, nullptr, pool, nullptr, nullptr};
  if (const char* text = k.kernel->check(call, proof)) return wrong(BAD_BIND, text);
  const Size need = k.kernel->scratch(call, pool_threads(pool));
  if (!need.within(MAX_BYTES)) return wrong(NO_MEMORY, "needs an absurd amount of scratch memory");
  demand.add(index, proof.operations, need);
  needs[2 * index] = proof.operations.value(), needs[2 * index + 1] = need.value();
  return 0;
}
