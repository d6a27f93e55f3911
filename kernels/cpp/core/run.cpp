// Running: stages, their memory, their steps.
#include <algorithm>

#include "guard.h"
#include "session.h"

// Whether memory may grow from `before` bytes to `bytes`; both are there for a moment where before is 0.
int32_t Session::allow(i64 before, i64 bytes, Error* e) {
  const Size all = Size(*taken - before) + Size(bytes);
  return all.within(max_memory) ? 0 : fail(e, LIMIT, -1, "intermediate tensors of ", all.value(), " bytes; the limit is ", max_memory, " (max_memory)");
}

// Makes a block one of so many bytes.
int32_t Session::reserve(Block& block, i64 bytes, Error* e) {
  if (bytes <= block.bytes) return 0;
  if (int32_t err = allow(block.bytes, bytes, e)) return err;
  pwx_free(block.data);
  *taken -= block.bytes;
  block.data = static_cast<char*>(allocate(bytes));
  *taken += block.bytes = block.data ? bytes : 0;
  return block.data ? 0 : fail(e, NO_MEMORY, -1, "no memory for ", bytes, " bytes of intermediate tensors");
}

// Of the blocks whose contents are dead when `step` begins the tightest that is large enough, else the largest, made larger, else another.
int32_t Session::place(i64 bytes, i64 step, Block** found, Error* e) {
  Block* best = nullptr;
  for (i64 i = 0; i < n_blocks; i++) {
    Block& b = blocks[i];
    if (b.until >= step) continue;
    if (!best || (best->bytes < bytes ? b.bytes > best->bytes : b.bytes >= bytes && b.bytes < best->bytes)) best = &b;
  }
  if (!best) *(best = &blocks[n_blocks++]) = {nullptr, 0, -1};
  *found = best;
  return reserve(*best, bytes, e);
}

// Reads what the registers of a stage ask for; `same`: it is what the stage was resolved for.
int32_t Session::read_all(i64 s, bool* same, Error* e) {
  const i64 begin = p.read_ends[s - 1], end = p.read_ends[s];
  *same = s < valid_stages;
  for (i64 k = begin; k < end; k++) {
    const Instr& c = p.reads[k];
    if (c.op == SIZE) {
      const i64 v = slots[c.a].dims[c.b];
      *same &= v == reads[k];
      reads[k] = v;
      continue;
    }
    const BufferRow& row = p.buffers[c.a];
    const i64 each = dtype_size(row.dtype);
    if (c.b >= regs[row.size] / each) return fail(e, BAD_BIND, -1, "buffer ", i64(c.a), " has no element ", i64(c.b));
    if (!base[row.storage]) return fail(e, MISUSE, -1, KINDS[p.storages[row.storage].kind], " has no memory");
    const i64 v = element(base[row.storage] + regs[row.offset], c.b, row.dtype);
    *same &= v == reads[k];
    reads[k] = v;
  }
  return 0;
}

// Resolves the next stage and finds memory for it. MORE: outputs became known.
int32_t Session::advance(Error* e) {
  Binding& b = *current;
  const i64 s = stage + 1;
  bool same;
  if (int32_t err = read_all(s, &same, e)) return valid_stages = std::min(valid_stages, s), err;
  if (!same) {
    valid_stages = s;
    if (int32_t err = resolve(b, s, e)) return err;
    valid_stages = s + 1;
  } else {
    for (const int32_t* at = p.known_outputs.begin(s); at < p.known_outputs.end(s); at++) tell(b, p.outputs[*at]);
  }
  const i64* const plan = stage_at.data + 4 * s;
  Block* block;
  if (int32_t err = place(plan[1], p.stages[s - 1].steps, &block, e)) return current = nullptr, err;
  block->until = plan[2];
  scratch = block->data + plan[0];
  for (const int32_t* at = planner.begin(s); at < planner.end(s); at++) base[*at] = block->data + b.place[*at];
  clear = clears.data + clear_ends[s - 1], clear_end = clears.data + clear_ends[s];
  for (const int32_t* at = p.known_storages.begin(s); at < p.known_storages.end(s); at++) {
    const StorageRow& row = p.storages[*at];
    if (row.kind != SLOT) continue;
    if (b.size[*at] > slots[row.index].bytes) return fail(e, BAD_BIND, -1, "slot ", i64(row.index), " has ", slots[row.index].bytes, " bytes, not ", b.size[*at]);
    base[*at] = slots[row.index].data;
  }
  stage = s;
  return p.known_outputs.begin(s) < p.known_outputs.end(s) ? MORE : 0;
}

// Goes on with the run that stopped for memory, or begins one.
int32_t Session::go_on(void* const* inputs, void* const* outputs, Error* e) {
  const int32_t err = run(inputs, outputs, cursor, p.steps.size, e);
  if (err >= 0) cursor = 0;
  return err;
}

void Session::clear_until(i64 step) {
  for (; clear < clear_end && clear->step <= step; clear++)
    if (char* at = base[clear->storage]) __builtin_memset(at + clear->begin, 0, size_t(clear->end - clear->begin));
}

// Runs steps [first, last) and, with the last step, the stages behind it. `cursor` is the step where it stopped.
int32_t Session::run(void* const* inputs, void* const* outputs, i64 first, i64 last, Error* e) {
  if (!current) return fail(e, MISUSE, -1, "run before a successful bind");
  if (first < 0 || first > last || last > p.steps.size) return fail(e, MISUSE, -1, "there are no steps ", first, " to ", last);
  Binding& b = *current;
  const bool again = first == cursor && waits;
  const bool restart = !again && (stage == 0 || first < p.stages[stage - 1].steps || (first == 0 && !paused));
  paused = waits = false;
  for (i64 i = 0; i < controls.size && !again; i++)
    if (controls[i]) controls[i]->waiting = false;
  if (!depth) own_waiter = nullptr;
  if (restart) {
    stage = 0;
    scratch = blocks[0].data + b.scratch_at;
    clear = b.clears, clear_end = b.clears + b.n_clears;
    while (clear < clear_end && clear->step < first) clear++;
    for (i64 i = 0; i < n_blocks; i++) blocks[i].until = i ? -1 : b.until;
    if (!depth) own_left = max_operations;
  }
  for (i64 i = 0; i < p.n_storages; i++) {
    const StorageRow& s = p.storages[i];
    switch (s.kind) {
      case ARENA:
        if (restart && s.first < p.stages[0].steps) base[i] = blocks[0].data + b.place[i];
        break;
      case WEIGHT: base[i] = weights[s.index]; break;
      case SLOT: break;
      case INPUT: base[i] = inputs ? static_cast<char*>(inputs[s.index]) : nullptr; break;
      default: base[i] = outputs ? static_cast<char*>(outputs[s.index]) : nullptr;
    }
  }
  const PoolRun running(depth ? nullptr : pool);
  for (i64 i = first; i < last || (i == p.steps.size && stage + 1 < p.n_stages); i++) {
    while (stage + 1 < p.n_stages && i >= p.stages[stage].steps)
      if (int32_t err = advance(e)) return cursor = i, paused = err == MORE, err;
    if (i == last) break;
    if (stop->load(std::memory_order_relaxed)) return fail(e, CANCELLED, int32_t(i), "the run was cancelled");
    const Step& s = p.steps[i];
    if (!s.control || !controls[i]->waiting) {
      if (*due <= 0) return cursor = i, waits = true, PAUSE;
      *due -= b.each;
    }
    clear_until(i);
    if (s.elsewhere) return fail(e, MISUSE, int32_t(i), "step ", i, " (", s.kernel->name, "): only a GPU runs it");
    Buf* bufs = (s.fixed ? fixed_bufs.data : b.bufs) + s.buf_at;
    for (int32_t k = 0; k < s.n_bufs; k++) {
      if (s.bufs[k] < 0 || (s.control && k < s.n_outputs)) continue;
      const int32_t at = p.buffers[s.bufs[k]].storage;
      if (b.size[at] && !base[at]) return fail(e, MISUSE, int32_t(i), "step ", i, " (", s.kernel->name, "): ", KINDS[p.storages[at].kind], " has no memory");
      bufs[k].data = base[at] + b.offset[s.bufs[k]];
    }
    if (s.control) {
      if (int32_t err = run_control(s, i, bufs, b.params + s.param_at, e)) return cursor = i, waits = err < 0, err;
      continue;
    }
    Call call{(s.fixed ? fixed_params.data : b.params) + s.param_at, s.n_params, bufs, s.n_bufs, scratch, pool, nullptr, chance};
#if defined(PWX_GUARD)
    run_guarded(*s.kernel->kernel, call, s.n_outputs, &call.error);
#else
    s.kernel->kernel->run(call);
#endif
    if (call.error) return fail(e, BAD_DATA, int32_t(i), "step ", i, " (", s.kernel->name, "): ", call.error);
  }
  if (last == p.steps.size) clear_until(last);
  return 0;
}
