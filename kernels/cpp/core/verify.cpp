#include <algorithm>

#include "../small.h"
#include "program.h"

#define ENTRY(name, ...) extern const Kernel kernel_##name;
#include "kernels.inc"
#undef ENTRY

namespace {

#define ENTRY(name, ...) {#name, &kernel_##name, __VA_ARGS__},
const KernelEntry entries[] = {
#include "kernels.inc"
    {nullptr, nullptr, 0, 0, false, false, nullptr}};
#undef ENTRY

// Control steps, which the session runs itself.
const KernelEntry controls[] = {{"if", nullptr, 1, N_CONTROL_PARAMS, true, false, ""}, {"loop", nullptr, 2, N_CONTROL_PARAMS, true, false, ""},
                                 {"host", nullptr, 1, N_CONTROL_PARAMS, true, false, ""}};

constexpr int32_t MAGIC = 0x50585057, VERSION = 2, HEADER = 24;
constexpr i64 MAX_WORDS = i64(1) << 28, MAX_RANK = 64;

struct Loader {
  Program& p;
  const i64* weight_bytes;
  Error* e;
  const int32_t* w;
  i64 n;
  Array<int32_t> known{};  // per register: the stage that it is known in
  Array<int32_t> ready{};  // per slot: the first stage that may read it

  template <class... Parts> int32_t bad(Parts... parts) { return fail(e, MALFORMED, -1, parts...); }
  int32_t no_memory() { return fail(e, NO_MEMORY, -1, "no memory for the program's tables"); }
  bool fits(i64 at, i64 count, i64 per) const { return at >= HEADER && count >= 0 && count <= n && at + count * per <= n; }
  bool is_register(i64 r) const { return r >= 0 && r < p.n_regs; }

  int32_t run() {
    if (n < HEADER) return bad("the program is cut short: ", n, " words");
    if (w[0] != MAGIC) return bad("not a program: its first word is wrong");
    if (w[1] != VERSION) return bad("program version ", i64(w[1]), ", this core runs version ", i64(VERSION));
    if (w[2] != n) return bad("the program says it has ", i64(w[2]), " words, there are ", n);
    p.n_inputs = w[5], p.n_regs = w[9], p.n_storages = w[11], p.n_buffers = w[13];
    static const struct { const char* name; int at, per; } tables[] = {{"kernel", 3, 0}, {"input", 5, 3},   {"output", 7, 0}, {"shape code", 9, 4},
                                                                       {"storage", 11, 6}, {"buffer", 13, 4}, {"step", 15, 0},   {"stage", 18, 2},
                                                                       {"part", 20, 2},  {"slot", 22, 2}};
    for (auto& t : tables)
      if (!fits(w[t.at + 1], w[t.at], t.per)) return bad("the ", t.name, " table leaves the program");
    if (w[17] != p.n_weights) return bad("the program has ", i64(w[17]), " weights, ", p.n_weights, " were given");
    p.inputs = reinterpret_cast<const InputRow*>(w + w[6]);
    p.code = reinterpret_cast<const Instr*>(w + w[10]);
    p.storages = reinterpret_cast<const StorageRow*>(w + w[12]);
    p.buffers = reinterpret_cast<const BufferRow*>(w + w[14]);
    p.stages = reinterpret_cast<const StageRow*>(w + w[19]);
    p.n_stages = w[18];
    p.parts = reinterpret_cast<const PartRow*>(w + w[21]);
    p.n_parts = w[20];
    p.slots = reinterpret_cast<const SlotRow*>(w + w[23]);
    p.n_slots = w[22];
    int32_t err = kernels();
    if (!err) err = stages();
    if (!err) err = inputs();
    if (!err) err = control();
    if (!err) err = storages();
    if (!err) err = shape_code();
    if (!err) err = outputs();
    if (!err) err = steps();
    if (!err) err = lives();
    return err;
  }

  // The registers and the steps of a Program fall into runs, one per stage.
  int32_t stages() {
    if (p.n_stages < 1) return bad("a program has a stage at least");
    if (!known.resize(p.n_regs)) return no_memory();
    i64 registers = 0, steps = 0;
    for (i64 s = 0; s < p.n_stages; s++) {
      const StageRow& row = p.stages[s];
      if (row.registers < registers || row.registers > p.n_regs || row.steps < steps || row.steps > w[15]) return bad("stage ", s, " is wrong");
      for (; registers < row.registers; registers++) known[registers] = p.code[registers].op == CONST ? 0 : int32_t(s);
      steps = row.steps;
    }
    return registers == p.n_regs && steps == w[15] ? 0 : bad("the stages do not hold all registers and steps");
  }

  // Slots, and the Programs within this one: one behind the other.
  int32_t control() {
    if (!ready.resize(p.n_slots)) return no_memory();
    for (i64 i = 0; i < p.n_slots; i++) {
      ready[i] = -1;
      if (dtype_bits(p.slots[i].dtype) <= 0 || p.slots[i].rank < 0 || p.slots[i].rank > MAX_SLOT_RANK) return bad("slot ", i, " has a bad dtype or rank");
    }
    i64 end = HEADER;
    for (i64 i = 0; i < p.n_parts; i++) {
      if (p.parts[i].at < end || !fits(p.parts[i].at, p.parts[i].words, 1)) return bad("part ", i, " leaves the program");
      end = i64(p.parts[i].at) + p.parts[i].words;
    }
    return writers();
  }

  // The stage in which each slot can be read: behind the step that gives it.
  int32_t writers() {
    i64 at = w[16];
    for (i64 i = 0; i < w[15]; i++) {
      if (at + 4 > n || w[at + 1] < 0 || w[at + 2] < 0 || at + 4 + w[at + 1] + i64(w[at + 2]) > n) return bad("step ", i, " leaves the program");
      if (w[at] >= 0 && w[at] < p.kernels.size && kind_of(*p.kernels[w[at]]) && w[at + 2] >= N_CONTROL_PARAMS) {
        i64 outputs;
        if (!constant(w[at + 4 + w[at + 1] + N_OUTPUTS], &outputs) || outputs < 0 || outputs > w[at + 1]) return bad("step ", i, " has a bad number of outputs");
        for (i64 o = 0; o < outputs; o++) {
          const int32_t slot = w[at + 4 + o];
          if (slot == -1) continue;
          if (slot < 0 || slot >= p.n_slots || ready[slot] >= 0) return bad("step ", i, " gives slot ", i64(slot));
          ready[slot] = int32_t(stage_of(i)) + 1;
        }
      }
      at += 4 + w[at + 1] + w[at + 2];
    }
    for (i64 i = 0; i < p.n_slots; i++)
      if (ready[i] < 0) return bad("slot ", i, " is given by no step");
    return 0;
  }

  static ControlKind kind_of(const KernelEntry& k) { return &k >= controls && &k <= controls + 2 ? ControlKind(IF + (&k - controls)) : PLAIN; }

  bool constant(i64 r, i64* value) const {
    if (!is_register(r) || p.code[r].op != CONST) return false;
    *value = i64(uint64_t(uint32_t(p.code[r].b)) << 32 | uint32_t(p.code[r].a));
    return true;
  }

  i64 stage_of(i64 step) const {
    const StageRow* end = p.stages + p.n_stages - 1;
    return std::upper_bound(p.stages, end, step, [](i64 at, const StageRow& s) { return at < s.steps; }) - p.stages;
  }

  int32_t kernels() {
    i64 count = w[3], at = w[4];
    if (!p.kernels.resize(count)) return no_memory();
    for (i64 i = 0; i < count; i++) {
      if (at + 2 > n) return bad("the kernel table leaves the program");
      uint32_t abi = uint32_t(w[at]);
      i64 length = w[at + 1], words = (length + 3) / 4;
      if (length < 1 || length > 64 || at + 2 + words > n) return bad("kernel ", i, " has a bad name");
      char name[65] = {};
      __builtin_memcpy(name, w + at + 2, size_t(length));
      const KernelEntry* k = entries;
      while (k->name && __builtin_strcmp(k->name, name)) k++;
      for (const KernelEntry& c : controls)
        if (!__builtin_strcmp(c.name, name)) k = &c;
      if (!k->name) return fail(e, UNKNOWN_KERNEL, -1, "unknown kernel ", name, ": the file needs a newer core");
      if (k->abi != abi) return fail(e, UNKNOWN_KERNEL, -1, "kernel ", name, " has another ABI here: compile the model again");
      p.kernels[i] = k;
      at += 2 + words;
    }
    return 0;
  }

  int32_t inputs() {
    if (!p.dim_at.resize(p.n_inputs)) return no_memory();
    p.n_dims = 0;
    for (i64 i = 0; i < p.n_inputs; i++) {
      const InputRow& in = p.inputs[i];
      if (dtype_bits(in.dtype) < 0 || in.rank < 0 || in.rank > MAX_RANK) return bad("input ", i, " has a bad dtype or rank");
      if (in.buffer < -1 - p.n_inputs || in.buffer >= p.n_buffers || (in.buffer < -1 && in.rank != 2)) return bad("input ", i, " names buffer ", i64(in.buffer));
      p.dim_at[i] = int32_t(p.n_dims);
      p.n_dims += in.rank;
    }
    return 0;
  }

  int32_t shape_code() {
    i64 live = 0, elems = 0, reads = 0;
    for (i64 i = 0; i < p.n_regs; i++) {
      const Instr& c = p.code[i];
      auto earlier = [&](int32_t r) { return r >= 0 && r < i; };
      bool ok;
      switch (c.op) {
        case CONST: ok = true; break;
        case DIM: ok = c.a >= 0 && c.a < p.n_inputs && c.b >= 0 && c.b < p.inputs[c.a].rank; break;
        case ELEM: ok = c.a >= 0 && c.a < p.n_inputs && c.b >= 0 && is_readable(p.inputs[c.a].dtype) && known[i] == 0; break;
        case READ: ok = may_read(c, i); break;
        case SIZE: ok = c.a >= 0 && c.a < p.n_slots && c.b >= 0 && c.b < p.slots[c.a].rank && ready[c.a] <= known[i]; break;
        case SELECT: ok = earlier(c.a) && earlier(c.b) && earlier(c.c); break;
        case CHECK: ok = earlier(c.a) && c.b >= 0; break;
        default: ok = c.op > 0 && c.op < N_SHAPE_OPS && earlier(c.a) && earlier(c.b);
      }
      if (!ok) return bad("shape instruction ", i, " (operation ", i64(c.op), ") is wrong");
      live += c.op != CONST;
      elems += c.op == ELEM;
      reads += c.op == READ || c.op == SIZE;
    }
    if (!p.live.resize(live) || !p.elems.resize(elems) || !p.reads.resize(reads) || !p.live_ends.resize(p.n_stages) || !p.read_ends.resize(p.n_stages))
      return no_memory();
    live = elems = reads = 0;
    for (i64 i = 0, s = 0; s < p.n_stages; s++) {
      for (; i < p.stages[s].registers; i++) {
        if (p.code[i].op != CONST) p.live[live++] = {p.code[i], int32_t(i)};
        if (p.code[i].op == ELEM) p.elems[elems++] = p.code[i];
        if (p.code[i].op == READ || p.code[i].op == SIZE) p.reads[reads++] = p.code[i];
      }
      p.live_ends[s] = int32_t(live), p.read_ends[s] = int32_t(reads);
    }
    return 0;
  }

  static bool is_readable(int32_t t) {
    switch (t) {
      case BOOL: case U8: case I8: case U16: case I16: case U32: case I32: case U64: case I64: case F16: case BF16: case F32: case F64: return true;
      default: return false;
    }
  }

  // Register i reads a buffer that earlier stages describe, of a storage that is alive where i's stage begins.
  bool may_read(const Instr& c, i64 i) const {
    const i64 stage = known[i];
    if (stage < 1 || c.a < 0 || c.a >= p.n_buffers || c.b < 0) return false;
    const BufferRow& b = p.buffers[c.a];
    const StorageRow& s = p.storages[b.storage];
    const i64 begun = p.stages[stage - 1].steps;
    if (s.kind == ARENA && (s.first >= begun || s.last < begun - 1)) return false;
    return is_readable(b.dtype) && buffer_stage(b) < stage;
  }

  int32_t storages() {
    Array<int32_t> home;  // per output: its storage
    if (!home.resize(w[7])) return no_memory();
    for (auto& h : home) h = -1;
    for (i64 i = 0; i < p.n_storages; i++) {
      const StorageRow& s = p.storages[i];
      const i64 limits[] = {HUGE_COUNT, p.n_weights, p.n_inputs, w[7], p.n_slots};
      if (s.kind < ARENA || s.kind > SLOT || !is_register(s.size)) return bad("storage ", i, " is wrong");
      if (s.kind != ARENA && (s.index < 0 || s.index >= limits[s.kind])) return bad("storage ", i, " has index ", i64(s.index), " out of range");
      if (s.kind == ARENA && (s.first < 0 || s.first > s.last || (s.last > 0 && s.last >= w[15]))) return bad("storage ", i, " has a bad lifetime");
      if (s.kind == SLOT && ready[s.index] >= p.n_stages) return bad("storage ", i, " is a slot that no stage may read");
      if (s.kind == OUTPUT && home[s.index] >= 0) return bad("output ", i64(s.index), " has two storages");
      if (s.kind == OUTPUT) home[s.index] = int32_t(i);
      if (s.flags && (s.kind != OUTPUT || s.flags < 16 || state_input(s) >= p.n_inputs || p.inputs[state_input(s)].buffer >= -1)) return bad("storage ", i, " has bad flags");
    }
    for (i64 i = 0; i < p.n_buffers; i++) {
      const BufferRow& b = p.buffers[i];
      if (b.storage < 0 || b.storage >= p.n_storages || !is_register(b.offset) || !is_register(b.size) || dtype_bits(b.dtype) < 0)
        return bad("buffer ", i, " is wrong");
    }
    for (i64 i = 0; i < p.n_inputs; i++) {
      if (p.inputs[i].buffer < 0) continue;
      const StorageRow& s = p.storages[p.buffers[p.inputs[i].buffer].storage];
      if (s.kind != INPUT || s.index != i) return bad("the buffer of input ", i, " lies elsewhere");
    }
    return 0;
  }

  int32_t outputs() {
    i64 count = w[7], at = w[8];
    if (!p.outputs.resize(count)) return no_memory();
    p.n_output_dims = 0;
    for (i64 i = 0; i < count; i++) {
      if (at + 3 > n) return bad("the output table leaves the program");
      Output o{w[at], w[at + 1], w[at + 2], w + at + 3, p.n_output_dims, 0};
      if (dtype_bits(o.dtype) < 0 || o.rank < 0 || o.rank > MAX_RANK || at + 3 + o.rank > n) return bad("output ", i, " has a bad dtype or rank");
      for (i64 d = 0; d < o.rank; d++)
        if (!is_register(o.dims[d])) return bad("output ", i, " names register ", i64(o.dims[d]));
      for (i64 d = 0; d < o.rank; d++) o.stage = std::max(o.stage, known[o.dims[d]]);
      if (o.buffer < 0 || o.buffer >= p.n_buffers) return bad("output ", i, " names buffer ", i64(o.buffer));
      const StorageRow& s = p.storages[p.buffers[o.buffer].storage];
      if (s.kind != OUTPUT || s.index != i) return bad("the buffer of output ", i, " lies elsewhere");
      if (s.flags && state_axis(s) >= o.rank) return bad("output ", i, " grows along axis ", i64(state_axis(s)));
      o.stage = std::max(o.stage, buffer_stage(p.buffers[o.buffer]));
      p.outputs[i] = o;
      p.n_output_dims += o.rank;
      at += 3 + o.rank;
    }
    return 0;
  }

  int32_t steps() {
    i64 count = w[15], at = w[16];
    if (!p.steps.resize(count)) return no_memory();
    p.fixed_bufs = p.fixed_params = p.live_bufs = p.live_params = 0;
    for (i64 i = 0; i < count; i++) {
      if (at + 4 > n) return bad("the step table leaves the program");
      const bool elsewhere = w[at] < 0;
      i64 kernel = elsewhere ? ~i64(w[at]) : w[at], n_bufs = w[at + 1], n_params = w[at + 2];
      if (kernel >= p.kernels.size) return bad("step ", i, " names kernel ", kernel);
      if (n_bufs < 0 || n_params < 0 || at + 4 + n_bufs + n_params > n) return bad("step ", i, " leaves the program");
      if (w[at + 3] < 0) return bad("step ", i, " has a negative origin");
      Step& s = p.steps[i];
      s = {p.kernels[kernel], w + at + 4, w + at + 4 + n_bufs, int32_t(n_bufs), int32_t(n_params), 0, true, elsewhere, false, kind_of(*p.kernels[kernel]), 0, 0};
      if (int32_t err = step(i, s)) return err;
      (s.fixed ? p.fixed_bufs : p.live_bufs) += n_bufs;
      (s.fixed ? p.fixed_params : p.live_params) += n_params;
      at += 4 + n_bufs + n_params;
    }
    return 0;
  }

  int32_t step(i64 i, Step& s) {
    const KernelEntry& k = *s.kernel;
    const i64 stage = stage_of(i);
    auto wrong = [&](auto... parts) { return fail(e, MALFORMED, int32_t(i), "step ", i, " (", k.name, "): ", parts...); };
    if (s.n_params < k.n_params || (s.n_params > k.n_params && !k.tail)) return wrong("has ", i64(s.n_params), " parameters, not ", i64(k.n_params));
    if (s.control) return control_step(s, stage, wrong);
    const char* spec = k.bufs;
    for (int32_t b = 0; b < s.n_bufs; b++) {
      if (!*spec) return wrong("has too many buffers");
      bool output = *spec == '>' || *spec == 'o';
      s.n_outputs += output;
      if (s.bufs[b] == -1) {
        if (*spec != '?' && *spec != 'o') return wrong("lacks buffer ", i64(b));
      } else {
        if (s.bufs[b] < 0 || s.bufs[b] >= p.n_buffers) return wrong("names buffer ", i64(s.bufs[b]));
        const BufferRow& row = p.buffers[s.bufs[b]];
        const StorageRow& storage = p.storages[row.storage];
        if (storage.kind == ARENA && (i < storage.first || i > storage.last)) return wrong("uses storage ", i64(row.storage), " outside its life");
        if (output && (storage.kind == INPUT || storage.kind == SLOT || (storage.kind == WEIGHT && weight_bytes[storage.index] < 0)))
          return wrong("writes to ", storage.kind == SLOT ? "a slot" : storage.kind == INPUT ? "an input" : "a read-only weight");
        if (storage_stage(storage) > stage || buffer_stage(row) > stage) return wrong("uses buffer ", i64(s.bufs[b]), " before its size is known");
        s.fixed &= p.code[row.offset].op == CONST && p.code[row.size].op == CONST && p.code[storage.size].op == CONST;
      }
      if (*spec != '*') spec++;
    }
    if (*spec && *spec != '*') return wrong("has too few buffers");
    for (int32_t j = 0; j < s.n_params; j++) {
      if (!is_register(s.params[j])) return wrong("names register ", i64(s.params[j]));
      if (known[s.params[j]] > stage) return wrong("uses register ", i64(s.params[j]), " before it is known");
      s.fixed &= p.code[s.params[j]].op == CONST;
    }
    s.buf_at = s.fixed ? p.fixed_bufs : p.live_bufs;
    s.param_at = s.fixed ? p.fixed_params : p.live_params;
    return 0;
  }

  template <class W> int32_t control_step(Step& s, i64 stage, W wrong) {
    if (s.elsewhere) return wrong("cannot run elsewhere");
    i64 value[N_CONTROL_PARAMS];
    for (int i = 0; i <= N_FIRST; i++)
      if (!constant(s.params[i], &value[i])) return wrong("has a parameter ", i64(i), " that is no constant");
    s.n_outputs = int32_t(value[N_OUTPUTS]);
    for (int i : {int(PROGRAM), int(OTHER_PROGRAM)})
      if (s.control != HOST && (i == PROGRAM || s.control == IF) && (value[i] < 0 || value[i] >= p.n_parts)) return wrong("names part ", value[i]);
    if (s.control == LOOP && (value[N_STACKED] < value[N_FIRST] || value[N_STACKED] > s.n_outputs)) return wrong("has a bad number of stacked outputs");
    if (value[N_FIRST] < 0 || value[N_FIRST] > s.n_bufs - s.n_outputs) return wrong("has a bad number of inputs");
    for (int32_t b = s.n_outputs; b < s.n_bufs; b++) {
      if (s.bufs[b] == -1) continue;
      if (s.bufs[b] < 0 || s.bufs[b] >= p.n_buffers) return wrong("names buffer ", i64(s.bufs[b]));
      const BufferRow& row = p.buffers[s.bufs[b]];
      const StorageRow& storage = p.storages[row.storage];
      const i64 at = &s - p.steps.data;
      if (storage.kind == ARENA && (at < storage.first || at > storage.last)) return wrong("uses storage ", i64(row.storage), " outside its life");
      if (storage_stage(storage) > stage || buffer_stage(row) > stage) return wrong("uses buffer ", i64(s.bufs[b]), " before its size is known");
    }
    for (int32_t j = 0; j < s.n_params; j++)
      if (!is_register(s.params[j]) || known[s.params[j]] > stage) return wrong("uses register ", i64(s.params[j]), " before it is known");
    s.fixed = false;
    s.buf_at = p.live_bufs, s.param_at = p.live_params;
    return 0;
  }

  // An output's memory is the caller's, who must know its size; a slot is there when its step has run.
  int32_t storage_stage(const StorageRow& s) const {
    if (s.kind == SLOT) return std::max(known[s.size], ready[s.index]);
    return s.kind == OUTPUT && s.index < p.outputs.size ? std::max(known[s.size], p.outputs[s.index].stage) : known[s.size];
  }
  int32_t buffer_stage(const BufferRow& b) const {
    const StorageRow& s = p.storages[b.storage];
    return std::max({known[b.offset], known[b.size], known[s.size], s.kind == SLOT ? ready[s.index] : 0});
  }

  // Storages of the arena are placed when the stage of their first step begins; what becomes known in which stage.
  int32_t lives() {
    for (i64 i = 0; i < p.n_storages; i++) {
      const StorageRow& s = p.storages[i];
      if (s.kind == ARENA && known[s.size] > stage_of(s.first)) return bad("storage ", i, " begins before its size is known");
    }
    bool ok = sort(p.known_outputs, p.outputs.size, [&](i64 i) { return p.outputs[i].stage; });
    ok = ok && sort(p.known_storages, p.n_storages, [&](i64 i) { return storage_stage(p.storages[i]); });
    ok = ok && sort(p.known_buffers, p.n_buffers, [&](i64 i) { return std::max(buffer_stage(p.buffers[i]), storage_stage(p.storages[p.buffers[i].storage])); });
    return ok ? 0 : no_memory();
  }

  template <class F> bool sort(ByStage& table, i64 count, F stage) {
    if (!table.rows.resize(count) || !table.ends.resize(p.n_stages)) return false;
    for (auto& end : table.ends) end = 0;
    for (i64 i = 0; i < count; i++) table.ends[stage(i)]++;
    for (i64 s = 1; s < p.n_stages; s++) table.ends[s] += table.ends[s - 1];
    for (i64 i = count - 1; i >= 0; i--) table.rows[--table.ends[stage(i)]] = int32_t(i);
    // Each end has become its stage's begin.
    for (i64 s = 0; s + 1 < p.n_stages; s++) table.ends[s] = table.ends[s + 1];
    table.ends[p.n_stages - 1] = int32_t(count);
    return true;
  }
};

}  // namespace

int32_t load(Program& p, const int32_t* words, i64 n, const i64* weight_bytes, i64 n_weights, Error* e) {
  if (n < 0 || n > MAX_WORDS) return fail(e, MALFORMED, -1, "a program of ", n, " words");
  if (!p.words.resize(n)) return fail(e, NO_MEMORY, -1, "no memory for a program of ", n, " words");
  if (n) __builtin_memcpy(p.words.data, words, size_t(n) * 4);
  p.n_weights = n_weights;
  Loader loader{p, weight_bytes, e, p.words.data, n};
  return loader.run();
}
