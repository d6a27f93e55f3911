// For hosts that run steps elsewhere: registers stage by stage, and single steps over memory of the host's.
#include "../small.h"
#include "guard.h"
#include "session.h"

// Goes on from the stage evaluated last, or goes back to an earlier one.
int32_t Session::evaluate_stage(i64 s, const i64* values, const i64* slot_bytes, Error* e) {
  if (!resolved || !resolved->valid || current || s < 1 || s > stage + 1 || s >= p.n_stages) return fail(e, MISUSE, -1, "stage ", s, " does not follow what was evaluated");
  bool same = s < valid_stages;
  for (i64 i = 0; i < p.n_slots; i++) slots[i].bytes = slot_bytes[i];
  for (i64 k = p.read_ends[s - 1], j = 0; k < p.read_ends[s]; k++, j++) {
    const Instr& c = p.reads[k];
    if (c.op == READ && c.b >= regs[p.buffers[c.a].size] / dtype_size(p.buffers[c.a].dtype)) return fail(e, BAD_BIND, -1, "buffer ", i64(c.a), " has no element ", i64(c.b));
    same &= values[j] == reads[k];
    reads[k] = values[j];
  }
  for (const int32_t* at = p.known_storages.begin(s); same && at < p.known_storages.end(s); at++)
    same = p.storages[*at].kind != SLOT || resolved->size[*at] <= slots[p.storages[*at].index].bytes;
  if (!same) {
    valid_stages = s;
    if (int32_t err = resolve(*resolved, s, e)) return err;
    valid_stages = s + 1;
  }
  stage = s;
  return 0;
}

// Runs step i; storages but those of weights lie where the host says.
int32_t Session::run_step(i64 i, void* const* storages, Error* e) {
  if (!resolved || !resolved->valid || current) return fail(e, MISUSE, -1, "a step before a successful evaluation");
  if (i < 0 || i >= p.stages[stage].steps) return fail(e, MISUSE, -1, "step ", i, " does not belong to what was evaluated");
  if (stop->load(std::memory_order_relaxed)) return fail(e, CANCELLED, int32_t(i), "the run was cancelled");
  Binding& b = *resolved;
  i64 s = 0;
  while (i >= p.stages[s].steps) s++;
  if (int32_t err = reserve(blocks[0], stage_at[4 * s + 1] - stage_at[4 * s], e)) return err;
  auto at = [&](i64 storage) { return p.storages[storage].kind == WEIGHT ? weights[p.storages[storage].index] : static_cast<char*>(storages[storage]); };
  const Clear *c = s ? clears.data + clear_ends[s - 1] : b.clears, *const end = s ? clears.data + clear_ends[s] : b.clears + b.n_clears;
  for (; c < end && c->step <= i; c++)
    if (c->step == i && at(c->storage)) __builtin_memset(at(c->storage) + c->begin, 0, size_t(c->end - c->begin));
  const Step& step = p.steps[i];
  if (step.elsewhere || step.control) return fail(e, MISUSE, int32_t(i), "step ", i, " (", step.kernel->name, "): the host runs it");
  Buf* bufs = (step.fixed ? fixed_bufs.data : b.bufs) + step.buf_at;
  for (int32_t k = 0; k < step.n_bufs; k++) {
    if (step.bufs[k] < 0) continue;
    const int32_t storage = p.buffers[step.bufs[k]].storage;
    if (b.size[storage] && !at(storage)) return fail(e, MISUSE, int32_t(i), "step ", i, " (", step.kernel->name, "): ", KINDS[p.storages[storage].kind], " has no memory");
    bufs[k].data = at(storage) + b.offset[step.bufs[k]];
  }
  const PoolRun running(depth ? nullptr : pool);
  Call call{(step.fixed ? fixed_params.data : b.params) + step.param_at, step.n_params, bufs, step.n_bufs, blocks[0].data, pool, nullptr, chance};
#if defined(PWX_GUARD)
  run_guarded(*step.kernel->kernel, call, step.n_outputs, &call.error);
#else
  step.kernel->kernel->run(call);
#endif
  return call.error ? fail(e, BAD_DATA, int32_t(i), "step ", i, " (", step.kernel->name, "): ", call.error) : 0;
}
