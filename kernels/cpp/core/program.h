// A verified Program. The tables of fixed-size rows are the words themselves; PROGRAM.md explains them.
#pragma once
#include "error.h"
#include "memory.h"

struct KernelEntry {
  const char* name;
  const Kernel* kernel;
  uint32_t abi;
  int32_t n_params;  // the fixed ones
  bool tail;         // more may follow
  bool in_place;     // an output may be exactly an input
  const char* bufs;  // per buffer: '>' output, 'o' optional output, '.' input, '?' optional input, '*' any number of inputs
};

enum StorageKind : int32_t { ARENA, WEIGHT, INPUT, OUTPUT, SLOT };
enum ControlKind : int32_t { PLAIN, IF, LOOP, HOST };
enum ShapeOp : int32_t { CONST, DIM, ELEM, ADD, SUB, MUL, FLOORDIV, CEILDIV, MOD, MIN, MAX, EQ, LT, LE, SELECT, CHECK, READ, SIZE, N_SHAPE_OPS };

struct InputRow { int32_t dtype, rank, buffer; };
struct Instr { int32_t op, a, b, c; };
struct StorageRow { int32_t kind, index, size, first, last, flags; };
struct BufferRow { int32_t storage, offset, size, dtype; };

// The flags of an output that is state: the axis that it grows along, and the input whose dims are its capacity and what it holds already.
inline int32_t state_axis(const StorageRow& s) { return s.flags % 16; }
inline int32_t state_input(const StorageRow& s) { return s.flags / 16 - 1; }

// Registers and steps up to these, from where the stage before ended.
struct StageRow { int32_t registers, steps; };

// What a control step gives: its memory is the core's, its sizes show when the step has run.
struct SlotRow { int32_t dtype, rank; };

// A Program within a Program's words.
struct PartRow { int32_t at, words; };

struct Output {
  int32_t dtype, rank, buffer;
  const int32_t* dims;  // registers
  i64 dims_at;          // where its dims lie among those of all outputs
  int32_t stage;        // that they are known in
};

struct Step {
  const KernelEntry* kernel;
  const int32_t *bufs, *params;  // buffer indices, registers
  int32_t n_bufs, n_params, n_outputs;
  bool fixed;             // nothing in it depends on a binding
  bool elsewhere;         // a GPU runs it
  bool whole;             // it writes all of its outputs' buffers
  ControlKind control;    // its first buffers are then slots
  i64 buf_at, param_at;   // where its resolved values lie among those of the fixed or of the other steps
};

struct LiveInstr {
  Instr instr;
  int32_t reg;
};

// Rows of a table in the order of the stages in which they become known.
struct ByStage {
  Array<int32_t> rows, ends;  // ends: per stage
  const int32_t* begin(i64 stage) const { return rows.data + (stage ? ends[stage - 1] : 0); }
  const int32_t* end(i64 stage) const { return rows.data + ends[stage]; }
};

// The fixed parameters of a control step; the dims of its inputs follow. Those up to `first` are constants.
enum ControlParam : int32_t { N_OUTPUTS, PROGRAM, OTHER_PROGRAM, N_STACKED = OTHER_PROGRAM, N_FIRST, CONDITION, TRIPS, N_CONTROL_PARAMS };
constexpr i64 MAX_SLOT_RANK = 16, MAX_DEPTH = 16;

struct Program {
  Array<int32_t> words;
  Array<const KernelEntry*> kernels;
  const InputRow* inputs;
  const Instr* code;
  const StorageRow* storages;
  const BufferRow* buffers;
  const StageRow* stages;
  const SlotRow* slots;
  const PartRow* parts;
  Array<int32_t> dim_at;  // per input: its first dim among all input dims
  Array<Output> outputs;
  Array<Step> steps;
  Array<LiveInstr> live;      // the shape code without constants
  Array<int32_t> live_ends;   // per stage
  Array<Instr> elems;         // its ELEM instructions
  Array<Instr> reads;         // its READ and SIZE instructions
  Array<int32_t> read_ends;   // per stage
  ByStage known_outputs, known_storages, known_buffers;
  i64 n_inputs, n_regs, n_storages, n_buffers, n_weights, n_stages, n_slots, n_parts;
  i64 n_dims, n_output_dims;
  i64 fixed_bufs, fixed_params, live_bufs, live_params;
};

// Fills `p` from untrusted words: afterwards every index in it is in range. weight_bytes as in pwx_create.
int32_t load(Program& p, const int32_t* words, i64 n, const i64* weight_bytes, i64 n_weights, Error* e);

// Bits per element, 0 for strings, -1 for unknown codes.
inline i64 dtype_bits(int32_t t) {
  if (i64 s = dtype_size(t)) return s * 8;
  switch (t) {
    case STRING: return 0;
    case 14: return 64;    // complex64
    case 15: return 128;   // complex128
    case U4: case I4: case F4E2M1: return 4;
    case U2: case I2: return 2;
    case F6E2M3: case F6E3M2: return 6;
    default: return -1;
  }
}

// Bytes of a packed tensor, -1 when a size is negative or it passes HUGE_COUNT.
inline i64 tensor_bytes(const i64* dims, i64 rank, int32_t dtype) {
  i64 n = product(dims, rank), bits;
  if (n < 0 || mul_over(n, dtype_bits(dtype), &bits)) return -1;
  i64 bytes = (bits + 7) / 8;
  return bytes > HUGE_COUNT ? -1 : bytes;
}

// Dimensions of inputs [first, last) together.
inline i64 ranks(const Program& p, i64 first, i64 last) {
  i64 n = 0;
  for (i64 i = first; i < last; i++) n += p.inputs[i].rank;
  return n;
}
