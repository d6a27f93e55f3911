// Running the bodies of branches and loops: what a trip costs by itself.
#include <algorithm>

#include "../small.h"
#include "session.h"

// Room for so many bytes; what is there stays with `keep`, and more may come. Never less than a byte, so that there is an address.
int32_t Session::reserve(Tensor& t, i64 room, bool keep, Error* e) {
  if (t.data && room <= t.capacity) return 0;
  room = std::max<i64>(room, 1);
  i64 wanted = keep ? std::max(room, 2 * t.capacity) : room;
  if (allow(keep ? 0 : t.capacity, wanted, nullptr)) wanted = room;
  if (int32_t err = allow(keep ? 0 : t.capacity, wanted, e)) return err;
  char* fresh = static_cast<char*>(allocate(wanted));
  if (!fresh) fresh = static_cast<char*>(allocate(wanted = room));
  if (!fresh) return fail(e, NO_MEMORY, -1, "no memory for ", wanted, " bytes of a value");
  if (keep && t.data) __builtin_memcpy(fresh, t.data, size_t(t.bytes));
  pwx_free(t.data);
  *taken += wanted - t.capacity;
  t.data = fresh, t.capacity = wanted;
  return 0;
}

bool Session::rebind(const i64* dims) {
  if (!current || p.elems.size || (p.n_dims && __builtin_memcmp(current->key, dims, size_t(p.n_dims) * 8))) return false;
  stage = cursor = 0;
  paused = waits = false;
  forget(*current);
  return true;
}

void Session::forget(Binding& b) {
  for (const int32_t* at = p.known_outputs.end(0); at < p.known_outputs.end(p.n_stages - 1); at++)
    for (i64 d = 0; d < p.outputs[*at].rank; d++) b.out_dims[p.outputs[*at].dims_at + d] = -1;
}

int32_t Session::run_control(const Step& s, i64 index, const Buf* bufs, const i64* params, Error* e) {
  Control& c = *controls[index];
  const int32_t err = s.control == HOST ? run_host(s, index, c, bufs, params, e) : s.control == IF ? run_if(s, index, c, bufs, params, e) : run_loop(s, index, c, bufs, params, e);
  c.waiting = err == WAIT || err == PAUSE;
  if (err > 0 && e) e->step = int32_t(index);  // the step of this Program; the text names the one within
  return err;
}

// Binds and runs a body, or goes on with one that waited; place(o, dims, bytes, to) gives the memory of an output whose dims are known.
template <class Place>
int32_t Session::run_body(Session& body, i64 index, bool again, const i64* dims, void* const* inputs, void** outputs, Error* e, Place place) {
  if (!again && !body.rebind(dims))
    if (int32_t err = body.bind(dims, inputs, false, e)) return err;
  for (i64 o = 0; o < body.p.outputs.size && !again; o++) outputs[o] = nullptr;
  int32_t err = MORE;
  while (err == MORE) {
    for (i64 o = 0; o < body.p.outputs.size; o++) {
      const Output& out = body.p.outputs[o];
      const i64* at = body.current->out_dims + out.dims_at;
      if (out.stage > body.stage || (outputs[o] && out.stage < body.stage)) continue;
      const i64 bytes = tensor_bytes(at, out.rank, out.dtype);
      if (bytes < 0) return fail(e, BAD_BIND, -1, "output ", o, " has a negative or an absurd size");
      if (int32_t none = place(o, at, bytes, &outputs[o])) return none;
    }
    err = body.go_on(inputs, outputs, e);
  }
  if (err == WAIT || err == PAUSE) return err;
  // What binding and each step take by themselves counts, too.
  *left -= body.current ? body.current->operations + body.p.steps.size + body.p.live.size + 1 : 0;
  if (!err && *left < 0)
    return fail(e, LIMIT, -1, "step ", index, " (", p.steps[index].kernel->name, "): takes more than ", max_operations, " operations, the limit (max_operations)");
  return err;
}

namespace {

void set_dims(Tensor& t, const i64* dims, i64 rank, i64 bytes) {
  t.bytes = bytes;
  for (i64 d = 0; d < rank; d++) t.dims[d] = dims[d];
}

}  // namespace

int32_t Session::run_if(const Step& s, i64 index, Control& c, const Buf* bufs, const i64* params, Error* e) {
  const i64 n_first = params[N_FIRST];
  const bool other = params[CONDITION] == 0;
  const Buf* in = bufs + s.n_outputs + (other ? n_first : 0);
  const i64* dims = params + N_CONTROL_PARAMS;
  if (other) dims += ranks(parts[params[PROGRAM]]->p, 0, parts[params[PROGRAM]]->p.n_inputs);
  Session& body = *parts[params[other ? OTHER_PROGRAM : PROGRAM]];
  for (i64 i = 0; i < body.p.n_inputs; i++) c.inputs[i] = in[i].data;
  return run_body(body, index, c.waiting, dims, c.inputs.data, c.outputs.data, e, [&](i64 o, const i64* at, i64 bytes, void** to) {
    Tensor& t = s.bufs[o] < 0 ? c.tensors[o] : slots[s.bufs[o]];
    const int32_t err = reserve(t, bytes, false, e);
    if (!err) set_dims(t, at, body.p.outputs[o].rank, bytes), *to = t.data;
    return err;
  });
}

int32_t Session::run_loop(const Step& s, i64 index, Control& c, const Buf* bufs, const i64* params, Error* e) {
  Session& body = *parts[params[PROGRAM]];
  const i64 n = params[N_FIRST], stacked = params[N_STACKED], limit = params[TRIPS];
  i64* dims = c.dims.data;
  i64 at = 0;
  bool again = c.waiting;
  for (i64 i = 0; i < 2 && !again; i++)
    for (i64 d = 0; d < body.p.inputs[i].rank; d++) dims[at++] = 1;
  for (i64 i = N_CONTROL_PARAMS; i < s.n_params && !again; i++) dims[at++] = params[i];
  i64* const carried_dims = dims + ranks(body.p, 0, 2);
  c.inputs[0] = &c.trip, c.inputs[1] = &c.go[0];
  for (i64 i = again && c.trip ? 2 + n : 2; i < body.p.n_inputs; i++) c.inputs[i] = bufs[s.n_outputs + i - 2].data;
  // Carried value k lies in tensors 2k and 2k + 1 by turns, what is stacked or appended in tensor 2k, of a step's part of that the sizes in 2k + 1.
  auto wrong = [&](auto... texts) { return fail(e, BAD_DATA, -1, "step ", index, " (", s.kernel->name, "): ", texts...); };
  auto place = [&](i64 o, const i64* out, i64 bytes, void** to) -> int32_t {
    if (o == 0) return *to = &c.go[1], bytes == 1 ? 0 : wrong("its condition is no single value");
    const i64 k = o - 1, rank = body.p.outputs[o].rank;
    if (k < n) {
      Tensor& t = c.tensors[2 * k + (c.trip & 1)];
      if (int32_t err = reserve(t, bytes, false, e)) return err;
      set_dims(t, out, rank, bytes);
      return *to = t.data, 0;
    }
    Tensor& t = c.tensors[2 * k];
    const i64 axis = k < stacked ? 1 : 0;  // of `t` that the body's axis 0 is
    if (c.trip == 0) t.bytes = t.dims[0] = 0;
    for (i64 d = 1 - axis; d < rank; d++) {
      if (c.trip && t.dims[d + axis] != out[d]) return wrong("what is stacked or appended changes its shape from step to step");
      t.dims[d + axis] = out[d];
    }
    const i64 begin = t.bytes;
    const Size whole = Size(begin) + Size(bytes), along = Size(t.dims[0]) + Size(axis ? 1 : out[0]);
    if (!whole.within(MAX_BYTES) || !along.within(HUGE_COUNT)) return wrong("what is stacked or appended needs an absurd amount of memory");
    if (int32_t err = reserve(t, whole.value(), true, e)) return err;
    Tensor& part = c.tensors[2 * k + 1];
    part.bytes = bytes, part.dims[0] = axis ? 1 : out[0];
    return *to = t.data + begin, 0;
  };
  bool go = again || params[CONDITION] != 0;
  for (c.trip = again ? c.trip : 0; go && c.trip < limit; c.trip++, again = false) {
    if (stop->load(std::memory_order_relaxed)) return fail(e, CANCELLED, -1, "the run was cancelled");
    if (!again) c.go[0] = 1;
    if (int32_t err = run_body(body, index, again, dims, c.inputs.data, c.outputs.data, e, place)) return err;
    for (i64 k = n; k < s.n_outputs; k++) {
      Tensor &t = c.tensors[2 * k], &part = c.tensors[2 * k + 1];
      t.bytes += part.bytes, t.dims[0] += part.dims[0];
    }
    i64* d = carried_dims;
    for (i64 k = 0; k < n; k++) {
      const Tensor& t = c.tensors[2 * k + (c.trip & 1)];
      c.inputs[2 + k] = t.data;
      for (i64 i = 0; i < body.p.inputs[2 + k].rank; i++) *d++ = t.dims[i];
    }
    go = c.go[1];
  }
  const i64 trips = c.trip;
  const i64* d = carried_dims;
  for (i64 k = 0; k < n; k++) {
    const InputRow& in = body.p.inputs[2 + k];
    if (s.bufs[k] >= 0) {
      Tensor& slot = slots[s.bufs[k]];
      const i64 bytes = tensor_bytes(d, in.rank, in.dtype);
      if (trips) {
        std::swap(slot, c.tensors[2 * k + ((trips - 1) & 1)]);
      } else {
        if (int32_t err = reserve(slot, bytes, false, e)) return err;
        if (bytes) __builtin_memcpy(slot.data, c.inputs[2 + k], size_t(bytes));
        set_dims(slot, d, in.rank, bytes);
      }
    }
    d += in.rank;
  }
  // Without a trip the shape of what would be stacked is what binding tells of it.
  const bool told = !trips && s.n_outputs > n && !body.bind(dims, c.inputs.data, false, nullptr);
  for (i64 k = n; k < s.n_outputs; k++) {
    Tensor& t = c.tensors[2 * k];
    const Output& out = body.p.outputs[k + 1];
    if (!trips) {
      if (int32_t err = reserve(t, 0, false, e)) return err;
      const i64 axis = k < stacked ? 1 : 0;
      t.bytes = t.dims[0] = 0;
      for (i64 i = 1 - axis; i < out.rank; i++) t.dims[i + axis] = told ? std::max<i64>(body.current->out_dims[out.dims_at + i], 0) : 0;
    }
    if (s.bufs[k] >= 0) std::swap(slots[s.bufs[k]], t);
  }
  return 0;
}
