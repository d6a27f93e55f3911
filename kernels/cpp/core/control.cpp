// Control steps: branches and loops over the Programs within a Program's words, made and proved once.
#include <algorithm>
#include <new>

#include "../small.h"
#include "session.h"

int32_t Session::create_parts(const i64* bytes, Error* e) {
  if (!slots.resize(p.n_slots)) return no_memory(e);
  for (auto& t : slots) t = {};
  if (!std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.control != PLAIN; })) return 0;
  if (depth >= MAX_DEPTH) return fail(e, MALFORMED, -1, "programs lie more than ", MAX_DEPTH, " deep in each other");
  bool fits = parts.resize(p.n_parts);
  fits = controls.resize(p.steps.size) && fits;
  for (auto& part : parts) part = nullptr;
  for (auto& control : controls) control = nullptr;
  if (!fits) return no_memory(e);
  // An input of a body may be a weight: what a body wrote there would change under a kernel that has read it.
  Array<i64> sealed;
  if (!sealed.resize(weights.size)) return no_memory(e);
  for (i64 i = 0; i < weights.size; i++) sealed[i] = bytes[i] < 0 ? bytes[i] : -bytes[i];
  for (i64 i = 0; i < p.n_parts; i++) {
    void* memory = pwx_alloc(sizeof(Session));
    if (!memory) return no_memory(e);
    Session* part = parts[i] = new (memory) Session;
    part->pool = pool, part->depth = depth + 1, part->left = left, part->due = due, part->taken = taken, part->stop = stop, part->chance = chance, part->waiter = waiter;
    part->max_memory = max_memory, part->max_operations = max_operations;
    if (int32_t err = part->create(p.words.data + p.parts[i].at, p.parts[i].words, reinterpret_cast<void* const*>(weights.data), sealed.data, weights.size, e)) {
      if (e) e->step = -1;  // it is none of this Program's
      return err;
    }
  }
  for (i64 i = 0; i < p.steps.size; i++) {
    if (!p.steps[i].control) continue;
    void* memory = pwx_alloc(sizeof(Control));
    if (!memory) return no_memory(e);
    controls[i] = new (memory) Control;
    if (int32_t err = create_control(p.steps[i], i, *controls[i], e)) return err;
  }
  return 0;
}

void Session::drop() {
  for (auto& t : slots) pwx_free(t.data);
  for (Control* c : controls) {
    if (!c) continue;
    for (auto& t : c->tensors) pwx_free(t.data);
    c->~Control();
    pwx_free(c);
  }
  for (Session* part : parts) {
    if (!part) continue;
    part->~Session();
    pwx_free(part);
  }
}

namespace {

i64 constant(const Session& s, const Step& step, ControlParam at) {
  const Instr& c = s.p.code[step.params[at]];
  return i64(uint64_t(uint32_t(c.b)) << 32 | uint32_t(c.a));
}

}  // namespace

// Proves once that the bodies take what the step gives and give what its slots take.
int32_t Session::create_control(const Step& s, i64 index, Control& c, Error* e) {
  auto wrong = [&](auto... texts) { return fail(e, MALFORMED, int32_t(index), "step ", index, " (", s.kernel->name, "): ", texts...); };
  if (s.control == HOST) return create_host(s, index, c, e);
  const bool loop = s.control == LOOP;
  const i64 n_first = constant(*this, s, N_FIRST), n_stacked = loop ? constant(*this, s, N_STACKED) : 0, n_inputs = s.n_bufs - s.n_outputs;
  i64 n_dims = 0, most = 0, results = 0;
  for (int k = 0; k < (loop ? 1 : 2); k++) {
    const Program& body = parts[constant(*this, s, k ? OTHER_PROGRAM : PROGRAM)]->p;
    const i64 lead = loop ? 2 : 0, given = loop ? n_inputs : k ? n_inputs - n_first : n_first, shift = loop ? 1 : 0;
    if (body.n_inputs != given + lead || body.outputs.size != s.n_outputs + shift) return wrong("its program takes or gives another number of values");
    for (i64 i = 0; i < lead; i++)
      if (body.inputs[i].dtype != (i ? BOOL : I64) || body.inputs[i].rank > 1) return wrong("its program does not begin with trip and condition");
    if (loop && (body.outputs[0].dtype != BOOL || body.outputs[0].rank > 1)) return wrong("its program does not give a condition first");
    n_dims += ranks(body, lead, body.n_inputs);
    most = std::max(most, std::max(body.n_inputs, body.outputs.size));
    results = std::max(results, ranks(body, 0, body.n_inputs));
    for (i64 o = 0; o < s.n_outputs; o++) {
      const Output& out = body.outputs[o + shift];
      const bool carried = loop && o < n_first, stacked = loop && !carried && o < n_stacked;
      if (loop && o >= n_stacked && out.rank < 1) return wrong("output ", o, " has no axis to lie one behind the other along");
      if (out.rank + stacked > MAX_SLOT_RANK) return wrong("output ", o, " has too many dimensions");
      if (carried && (body.inputs[o + 2].dtype != out.dtype || body.inputs[o + 2].rank != out.rank)) return wrong("carries another type out than in");
      if (s.bufs[o] >= 0 && (p.slots[s.bufs[o]].dtype != out.dtype || p.slots[s.bufs[o]].rank != out.rank + stacked)) return wrong("output ", o, " is no such slot");
      if (dtype_bits(out.dtype) < 8) return wrong("output ", o, " is packed");
    }
  }
  if (loop && n_first > s.n_outputs) return wrong("carries more than it gives");
  if (s.n_params != N_CONTROL_PARAMS + n_dims) return wrong("has ", i64(s.n_params), " parameters");
  const bool fits = c.tensors.resize(2 * s.n_outputs);
  for (auto& t : c.tensors) t = {};
  if (!fits || !c.dims.resize(results + 2) || !c.inputs.resize(most) || !c.outputs.resize(most)) return no_memory(e);
  return 0;
}

// The buffers are the inputs of the bodies: of the dims that the parameters hold.
int32_t Session::prove_control(const Step& s, i64 index, const Buf* bufs, const i64* params, Error* e) const {
  if (s.control == HOST) return prove_host(s, index, bufs, params, e);
  const i64* dims = params + N_CONTROL_PARAMS;
  const i64 n_first = constant(*this, s, N_FIRST);
  for (i64 i = 0; i < s.n_bufs - s.n_outputs; i++) {
    const bool other = s.control == IF && i >= n_first;
    const Program& body = parts[constant(*this, s, other ? OTHER_PROGRAM : PROGRAM)]->p;
    const InputRow& in = body.inputs[s.control == LOOP ? i + 2 : other ? i - n_first : i];
    const Buf& b = bufs[s.n_outputs + i];
    const i64 bytes = tensor_bytes(dims, in.rank, in.dtype);
    dims += in.rank;
    if (bytes < 0) return fail(e, BAD_BIND, int32_t(index), "step ", index, " (", s.kernel->name, "): input ", i, " has a negative or an absurd size");
    if (b && (b.bytes != bytes || dtype_bits(b.dtype) != dtype_bits(in.dtype)))
      return fail(e, BAD_BIND, int32_t(index), "step ", index, " (", s.kernel->name, "): input ", i, " has ", b.bytes, " bytes, not ", bytes);
    if (!b && in.buffer >= 0) return fail(e, BAD_BIND, int32_t(index), "step ", index, " (", s.kernel->name, "): lacks input ", i);
  }
  return 0;
}
