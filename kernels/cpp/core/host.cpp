// Steps that the host does: the run stops, the host reads the inputs, gives the outputs and calls again.
// Parameters behind the fixed ones: per input its rank, a constant, and its dims.
#include "../small.h"
#include "session.h"

namespace {

// Words of the description: the call, how many inputs and outputs; per input its address, bytes, dtype, rank and dims; per output its
// dtype, 0 where nobody wants it, and rank.
constexpr i64 HEAD = 3, PER_INPUT = 4, PER_OUTPUT = 2;

i64 constant(const Program& p, int32_t r) { return i64(uint64_t(uint32_t(p.code[r].b)) << 32 | uint32_t(p.code[r].a)); }

}  // namespace

int32_t Session::create_host(const Step& s, i64 index, Control& c, Error* e) {
  auto wrong = [&](auto... texts) { return fail(e, MALFORMED, int32_t(index), "step ", index, " (", s.kernel->name, "): ", texts...); };
  i64 at = N_CONTROL_PARAMS, dims = 0;
  for (i64 i = s.n_outputs; i < s.n_bufs; i++) {
    if (at >= s.n_params || p.code[s.params[at]].op != CONST) return wrong("input ", i - s.n_outputs, " has no rank");
    const i64 rank = constant(p, s.params[at]);
    if (rank < 0 || rank > MAX_SLOT_RANK || rank > s.n_params - at - 1) return wrong("input ", i - s.n_outputs, " has a bad rank");
    if (s.bufs[i] >= 0 && dtype_bits(p.buffers[s.bufs[i]].dtype) < 8) return wrong("input ", i - s.n_outputs, " is packed or no tensor");
    at += 1 + rank, dims += rank;
  }
  if (at != s.n_params || constant(p, s.params[PROGRAM]) < 0) return wrong("has ", i64(s.n_params), " parameters");
  for (i64 o = 0; o < s.n_outputs; o++)
    if (s.bufs[o] >= 0 && dtype_bits(p.slots[s.bufs[o]].dtype) < 8) return wrong("output ", o, " is packed or no tensor");
  if (!c.dims.resize(HEAD + PER_INPUT * (s.n_bufs - s.n_outputs) + dims + PER_OUTPUT * s.n_outputs) || !c.outputs.resize(s.n_outputs)) return no_memory(e);
  return 0;
}

int32_t Session::prove_host(const Step& s, i64 index, const Buf* bufs, const i64* params, Error* e) const {
  i64 at = N_CONTROL_PARAMS;
  for (i64 i = s.n_outputs; i < s.n_bufs; i++) {
    const i64 rank = params[at];
    const i64 bytes = bufs[i] ? tensor_bytes(params + at + 1, rank, bufs[i].dtype) : 0;
    if (bytes < 0 || bytes != bufs[i].bytes) return fail(e, BAD_BIND, int32_t(index), "step ", index, " (host): input ", i - s.n_outputs, " has ", bufs[i].bytes, " bytes, not ", bytes);
    at += 1 + rank;
  }
  return 0;
}

// Stops, and goes on when all outputs that are wanted have been given.
int32_t Session::run_host(const Step& s, i64 index, Control& c, const Buf* bufs, const i64* params, Error* e) {
  if (c.waiting) {
    for (i64 o = 0; o < s.n_outputs; o++)
      if (s.bufs[o] >= 0 && !c.outputs[o]) return fail(e, MISUSE, int32_t(index), "step ", index, " (host): the host gave no output ", o);
    return 0;
  }
  for (auto& given : c.outputs) given = nullptr;
  i64 *word = c.dims.data, at = N_CONTROL_PARAMS;
  *word++ = params[PROGRAM], *word++ = s.n_bufs - s.n_outputs, *word++ = s.n_outputs;
  for (i64 i = s.n_outputs; i < s.n_bufs; i++) {
    const i64 rank = params[at++];
    *word++ = i64(uintptr_t(bufs[i].data)), *word++ = bufs[i].bytes, *word++ = bufs[i].dtype, *word++ = rank;
    for (i64 d = 0; d < rank; d++) *word++ = params[at++];
  }
  for (i64 o = 0; o < s.n_outputs; o++) {
    *word++ = s.bufs[o] < 0 ? 0 : p.slots[s.bufs[o]].dtype;
    *word++ = s.bufs[o] < 0 ? 0 : p.slots[s.bufs[o]].rank;
  }
  *waiter = this;
  return WAIT;
}

const i64* Session::asked() { return own_waiter ? own_waiter->controls[own_waiter->cursor]->dims.data : nullptr; }

// Memory for an output of what is asked; the host fills it. Null: see the error.
void* Session::answer(i64 output, const i64* dims, Error* e) {
  Session* w = own_waiter;
  const Step* s = w ? &w->p.steps[w->cursor] : nullptr;
  if (!s || output < 0 || output >= s->n_outputs || s->bufs[output] < 0) return fail(e, MISUSE, -1, "nobody waits for output ", output), nullptr;
  const SlotRow& row = w->p.slots[s->bufs[output]];
  Tensor& t = w->slots[s->bufs[output]];
  const i64 bytes = tensor_bytes(dims, row.rank, row.dtype);
  if (bytes < 0) return fail(e, BAD_DATA, int32_t(w->cursor), "output ", output, " has a negative or an absurd size"), nullptr;
  if (w->reserve(t, bytes, false, e)) return nullptr;
  t.bytes = bytes;
  for (i64 d = 0; d < row.rank; d++) t.dims[d] = dims[d];
  return w->controls[w->cursor]->outputs[output] = t.data;
}
