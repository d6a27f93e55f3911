// A Program under way: its bindings, its stages, its memory.
#pragma once
#include <atomic>

#include "memory.h"
#include "plan.h"
#include "pool.h"
#include "written.h"

constexpr int BINDINGS = 4;
constexpr int32_t MORE = -1;  // a run stopped where the sizes of further outputs became known
constexpr int32_t WAIT = -2;  // a run stopped at a step that the host has to do
constexpr int32_t PAUSE = -3;  // a run stopped as it took the operations of a slice

constexpr i64 STEP_OPERATIONS = 512;  // what a step takes in time besides those of its kernel

constexpr i64 MAX_MEMORY = i64(1) << 40;      // unless the host says otherwise
constexpr i64 MAX_STATE_RANK = 8;
constexpr i64 MAX_OPERATIONS = i64(1) << 48;  // about an hour of a fast processor

// What steps need, and which of them need most.
struct Demand {
  Size operations, scratch;  // in all, at a time
  Size most_operations, most_bytes;
  i64 busiest = 0, widest = 0;

  void add(i64 step, Size work, Size bytes) {
    operations += work;
    if (!bytes.within(scratch.value())) scratch = bytes;
    if (!work.within(most_operations.value())) most_operations = work, busiest = step;
    hold(step, bytes);
  }
  // Memory that is taken at a step.
  void hold(i64 step, Size bytes) {
    if (!bytes.within(most_bytes.value())) most_bytes = bytes, widest = step;
  }
};

// Bytes of a storage that are cleared before a step, as something may read them that nothing was proved to write.
struct Clear {
  i64 step, storage, begin, end;
};

// What one set of input dims leads to; all arrays lie in one block.
struct Binding {
  Array<i64> block;
  bool valid = false;
  uint64_t used = 0;
  i64 arena = 0, scratch_at = 0;  // bytes of stage 0 in all, of which scratch begins at
  i64 until = -1;                 // the last step of anything in it
  i64 operations = 0;             // of the stages that are known
  i64 each = STEP_OPERATIONS;     // of a step, about
  i64 n_clears = 0;               // of stage 0
  i64 *key, *out_dims, *offset, *place, *size, *params;
  Clear* clears;
  Buf* bufs;
};

// Memory of the arena. A block holds what is born in one stage, until step `until`; then another stage may have it.
struct Block {
  char* data;
  i64 bytes, until;
};

// A tensor of the core's own, whose memory grows.
struct Tensor {
  char* data;
  i64 capacity, bytes;
  i64 dims[MAX_SLOT_RANK];
};

struct Session;

// A control step: the Programs that it runs, and what they need.
struct Control {
  Array<Tensor> tensors;  // loop: two per carried value, one per stacked one; if: one per output
  Array<i64> dims;
  Array<void*> inputs, outputs;
  bool waiting = false;  // for the host, at this step or within its body, which may also pause
  i64 trip;      // the body's first input
  uint8_t go[2];  // its second input, its first output
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
  Demand fixed;                   // of the fixed steps, whatever their stage
  Array<int32_t> touched;         // per storage: the first step that touches it; without one, the number of steps
  Written written;                // by the steps of `written_stages` stages
  i64 written_stages = 0;
  Array<Clear> clears;            // of stages behind the first
  Array<i64> clear_ends;          // per stage
  const Clear *clear = nullptr, *clear_end = nullptr;  // of the stage that runs, what is still to be done
  i64 max_memory = MAX_MEMORY, max_operations = MAX_OPERATIONS;
  std::atomic<int32_t> cancelled{0};
  Binding bindings[BINDINGS];
  Binding* current = nullptr;
  uint64_t clock = 0;
  i64 misses = 0;                 // of the last times, how often sizes were new
  Array<Block> blocks;            // the first is stage 0's
  i64 n_blocks = 0;
  Array<i64> reads;               // what READ instructions read
  i64 stage = 0;                  // the one that runs
  i64 valid_stages = 0;           // that are resolved for `reads` under the current binding
  i64 cursor = 0;                 // the step that the next run begins with
  bool paused = false;            // it stopped at a stage's begin
  bool waits = false;             // it stopped at the step `cursor` for the host, or pauses there
  Binding* resolved = nullptr;    // that the registers belong to
  Binding* proved = nullptr;      // likewise, when every step was proved for it
  Array<uint8_t> moved;           // per register: whether its value is another than before
  Array<i64> needs;               // per step: operations and scratch, where they are not fixed
  Array<i64> stage_at;            // per stage: where scratch begins, what it needs in all, the last step of what it holds, operations up to its end
  char* scratch = nullptr;        // of the stage that runs
  Array<Session*> parts;          // the Programs within
  Array<Control*> controls;       // per step; null: a kernel's
  Array<Tensor> slots;
  int depth = 0;
  i64 own_left = 0, *left = &own_left;  // operations that the bodies of control steps may still take in a run, shared with the Programs within
  i64 slice = INT64_MAX, own_due = INT64_MAX, *due = &own_due;  // operations of a slice, and until the run pauses, shared likewise
  i64 own_taken = 0, *taken = &own_taken;  // bytes of blocks, slots and carried values, shared likewise
  std::atomic<int32_t>* stop = &cancelled;  // shared likewise
  Session *own_waiter = nullptr, **waiter = &own_waiter;  // the Program whose step at `cursor` waits for the host, shared likewise
  Chance own_chance{}, *chance = &own_chance;  // likewise

  ~Session() {
    for (i64 i = 0; i < n_blocks; i++) pwx_free(blocks[i].data);
    drop();
  }

  int32_t create(const int32_t* code, i64 words, void* const* w, const i64* bytes, i64 n_weights, Error* e);
  int32_t bind(const i64* dims, void* const* inputs, bool fresh, Error* e);
  bool rebind(const i64* dims);  // bind where nothing has changed: true when that is so
  int32_t run(void* const* inputs, void* const* outputs, i64 first, i64 last, Error* e);
  int32_t go_on(void* const* inputs, void* const* outputs, Error* e);
  void limit(i64 memory, i64 operations);

  // apart.cpp
  int32_t evaluate_stage(i64 stage, const i64* values, const i64* slot_bytes, Error* e);
  int32_t run_step(i64 step, void* const* storages, Error* e);

  // control.cpp
  int32_t create_parts(const i64* bytes, Error* e);
  void drop();

  // host.cpp
  const i64* asked();
  void* answer(i64 output, const i64* dims, Error* e);

 private:
  int32_t read_key(const i64* dims, void* const* inputs, Error* e);
  int32_t resolve(Binding& b, i64 stage, Error* e, const Binding* before = nullptr);
  int32_t evaluate(i64 stage, Error* e);
  int32_t ranges(Binding& b, i64 stage, Error* e, const Binding* before);
  int32_t steps(Binding& b, i64 stage, Error* e, const Binding* before);
  bool stays(const Step& s) const;
  int32_t advance(Error* e);
  int32_t read_all(i64 stage, bool* same, Error* e);
  int32_t prove(const Step& s, i64 index, Buf* bufs, i64* params, Proof& proof, Demand& demand, Error* e);
  int32_t within_limits(Binding& b, i64 stage, Demand& demand, Error* e);
  bool wholly(const Step& s, const Proof& proof) const;
  Proof prove_again(Binding& b, const Step& s);
  bool follow(Binding& b, i64 stage, const Step& s, const Proof& proof, bool again = false);
  bool must_be_written(Binding& b, i64 stage, i64 buffer, bool again = false);
  bool settle(Binding& b, i64 stage, bool again = false);
  bool replay(Binding& b, i64 stages);
  void clear_until(i64 step);
  bool layout(Binding& b);
  void forget(Binding& b);
  const i64* tell(Binding& b, const Output& out);
  i64 held_bytes(const Output& out, const i64* dims);
  // Whether the host keeps an output from run to run, in memory that was zeros at first.
  bool resides(const StorageRow& s) const { return s.flags && !depth && (key[p.dim_at[state_input(s)]] || key[p.dim_at[state_input(s)] + 1]); }
  int32_t allow(i64 before, i64 bytes, Error* e);
  int32_t reserve(Block& block, i64 bytes, Error* e);
  int32_t reserve(Tensor& t, i64 room, bool keep, Error* e);
  int32_t place(i64 bytes, i64 step, Block** found, Error* e);
  int32_t create_control(const Step& s, i64 index, Control& c, Error* e);
  int32_t prove_control(const Step& s, i64 index, const Buf* bufs, const i64* params, Error* e) const;
  int32_t run_control(const Step& s, i64 index, const Buf* bufs, const i64* params, Error* e);
  int32_t run_if(const Step& s, i64 index, Control& c, const Buf* bufs, const i64* params, Error* e);
  int32_t run_loop(const Step& s, i64 index, Control& c, const Buf* bufs, const i64* params, Error* e);
  template <class Place> int32_t run_body(Session& body, i64 index, bool again, const i64* dims, void* const* inputs, void** outputs, Error* e, Place place);
  int32_t create_host(const Step& s, i64 index, Control& c, Error* e);
  int32_t prove_host(const Step& s, i64 index, const Buf* bufs, const i64* params, Error* e) const;
  int32_t run_host(const Step& s, i64 index, Control& c, const Buf* bufs, const i64* params, Error* e);
  bool overlaps(const BufferRow& a, const BufferRow& b, bool* equal) const;
};

constexpr const char* KINDS[] = {"the arena", "a weight", "an input", "an output", "a slot"};

inline int32_t no_memory(Error* e) { return fail(e, NO_MEMORY, -1, "no memory for the session's tables"); }

// Element `index` as a register holds it: an integer, or the bits of an f64.
i64 element(const char* at, i64 index, int32_t dtype);
