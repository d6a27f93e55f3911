// Runs damaged Programs: fuzz SEED FIRST COUNT FILE... Built by `python -m pyonnx_wasm.toolchain sanitize`, fed by testing/damage.py.
// A case is bound and run twice within small limits over memory that held other bytes before, the second time after bindings of other
// sizes. It must end in an error of the core or in the same outputs both times.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include <unistd.h>

#include "../core/guard.h"
#include "../core/session.h"
#include "seeds.h"

extern "C" void __sanitizer_set_death_callback(void (*)());
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=16:allocator_may_return_null=1:handle_abort=1"; }
int pwx_poison = 0;  // what fresh memory is filled with; core/core.cpp

EXPORT(pwx_create) Session* pwx_create(const int32_t*, i64, void* const*, const i64*, i64, Pool*, Error*);
EXPORT(pwx_bind) int32_t pwx_bind(Session*, const i64*, void* const*, Error*);
EXPORT(pwx_output_dims) const i64* pwx_output_dims(Session*);
EXPORT(pwx_run) int32_t pwx_run(Session*, void* const*, void* const*, Error*);
EXPORT(pwx_asked) const i64* pwx_asked(Session*);
EXPORT(pwx_answer) void* pwx_answer(Session*, int32_t, const i64*, Error*);
EXPORT(pwx_limit) void pwx_limit(Session*, i64, i64);
EXPORT(pwx_slice) void pwx_slice(Session*, i64);
EXPORT(pwx_destroy) void pwx_destroy(Session*);

namespace {

constexpr i64 MEMORY = 1 << 24, OPERATIONS = 1 << 21;
constexpr i64 LARGEST = 1 << 20;  // bytes of an input
constexpr unsigned PATIENCE = 120;  // seconds for a case: it takes milliseconds within the limits

uint64_t seed, at;
const char* title;
void say_where() { std::fprintf(stderr, "seed %llu case %llu (%s)\n", static_cast<unsigned long long>(seed), static_cast<unsigned long long>(at), title); }
void too_long(int) {
  std::fprintf(stderr, "does not end: "), say_where();
  std::_Exit(1);
}

// Memory of exactly these bytes, so that AddressSanitizer sees the first one behind.
struct Exact {
  char* data;
  size_t bytes;
  Exact(size_t n, int fill) : data(static_cast<char*>(std::malloc(n ? n : 1))), bytes(n) { std::memset(data, fill, n); }
  Exact(Exact&& o) : data(o.data), bytes(o.bytes) { o.data = nullptr; }
  ~Exact() { std::free(data); }
};

// Small numbers as the input's dtype, so that they may be indices and sizes.
void fill(Exact& to, int32_t dtype, uint64_t content) {
  Random random(content);
  const i64 each = dtype_size(dtype) ? dtype_size(dtype) : 1;
  for (size_t i = 0; i + size_t(each) <= to.bytes; i += size_t(each)) {
    const i64 v = random.below(40) ? random.below(4) : random.below(64) - 32;
    const float f = float(v);
    const double d = double(v);
    if (dtype == F32) std::memcpy(to.data + i, &f, 4);
    else if (dtype == F64) std::memcpy(to.data + i, &d, 8);
    else if (dtype == BOOL) to.data[i] = char(v & 1);
    else std::memcpy(to.data + i, &v, size_t(each));
  }
}

// What a host does: reads the inputs that a step gives it, and gives outputs of some size; now and then too few.
int32_t answer(Session* s, Random& random, Error& error) {
  const i64* word = pwx_asked(s);
  const i64 inputs = word[1], outputs = word[2];
  word += 3;
  volatile char read = 0;
  for (i64 i = 0; i < inputs; i++) {
    const char* data = reinterpret_cast<const char*>(uintptr_t(word[0]));
    for (i64 b = 0; b < word[1]; b++) read = char(read ^ data[b]);
    word += 4 + word[3];
  }
  for (int32_t o = 0; o < outputs; o++, word += 2) {
    if (!word[0] || random.below(50) == 0) continue;
    i64 dims[MAX_SLOT_RANK];
    for (i64 d = 0; d < word[1]; d++) dims[d] = random.below(40) ? random.below(4) + 2 : odd_number(random, 2);
    char* to = static_cast<char*>(pwx_answer(s, o, dims, &error));
    if (!to) return error.code;
    const i64 bytes = tensor_bytes(dims, word[1], int32_t(word[0]));
    for (i64 b = 0; b < bytes; b++) to[b] = char(b % 3);
  }
  return 0;
}

// What a host keeps from run to run: outputs whose memory has room for more rows, zeros at first, in which rows of an input may lie already.
struct Kept {
  const Program& p;
  const std::vector<i64>& dims;

  const StorageRow* state(const Output& out) const {
    const StorageRow& s = p.storages[p.buffers[out.buffer].storage];
    const i64* told = s.flags ? &dims[size_t(p.dim_at[state_input(s)])] : nullptr;
    return told && (told[0] || told[1]) ? &s : nullptr;
  }
  // The input of which rows lie in the output's memory; or -1.
  i64 in_place(const Output& out) const {
    const StorageRow* s = state(out);
    const i64 past = s ? -2 - i64(p.inputs[state_input(*s)].buffer) : -1;
    return past >= 0 && past < p.n_inputs && dims[size_t(p.dim_at[state_input(*s)] + 1)] ? past : -1;
  }
  i64 bytes(const Output& out, const i64* rows) const {
    std::vector<i64> shape(rows, rows + out.rank);
    if (const StorageRow* s = state(out)) {
      i64& along = shape[size_t(state_axis(*s))];
      along = std::max(along, dims[size_t(p.dim_at[state_input(*s)])]);
    }
    return tensor_bytes(shape.data(), out.rank, out.dtype);
  }
};

// Makes inputs of these sizes; false where they are too large.
bool make_inputs(const Program& p, const std::vector<i64>& dims, uint64_t content, std::vector<Exact>& memory, std::vector<void*>& inputs, std::vector<i64>& bytes) {
  inputs.clear(), bytes.clear();
  i64 first = 0;
  for (i64 i = 0; i < p.n_inputs; i++) {
    const InputRow& in = p.inputs[i];
    const i64 n = in.buffer < -1 ? 0 : tensor_bytes(dims.data() + first, in.rank, in.dtype);
    first += in.rank;
    if (n > LARGEST) return false;
    memory.emplace_back(size_t(n < 0 ? 0 : n), 0);
    fill(memory.back(), in.dtype, content + uint64_t(i));
    inputs.push_back(memory.back().data);
    bytes.push_back(n);
  }
  return true;
}

// Binds sizes that are like these, some of them several times.
void bind_others(Session* s, const std::vector<i64>& dims, uint64_t content) {
  Random random(content);
  std::vector<i64> others(dims);
  for (i64 n = random.below(2 * BINDINGS + 2); n > 0; n--) {
    if (random.below(3) == 0) others = dims;
    for (i64& d : others)
      if (random.below(4) == 0) d = random.below(8) ? d + random.below(3) - 1 : random.below(12);
    std::vector<Exact> memory;
    std::vector<void*> inputs;
    std::vector<i64> bytes;
    Error error{};
    if (make_inputs(s->p, others, content, memory, inputs, bytes)) pwx_bind(s, others.data(), inputs.data(), &error);
  }
}

// Runs once; the outputs' bytes, or the code of the error.
int32_t run(const File& file, const Case& c, int poison, bool after_others, std::vector<std::vector<char>>& results) {
  pwx_poison = poison;
  guard_left = i64(1) << 26;
  std::vector<Exact> memory;
  std::vector<void*> weights;
  std::vector<i64> bytes;
  for (const auto& w : file.weights) {
    memory.emplace_back(w.size(), 0);
    std::memcpy(memory.back().data, w.data(), w.size());
    weights.push_back(memory.back().data);
    bytes.push_back(i64(w.size()));
  }
  for (const Edit& e : c.edits) e.put(memory[size_t(e.weight)].data);
  Error error{};
  Exact words(c.words.size() * 4, 0);
  std::memcpy(words.data, c.words.data(), words.bytes);
  Session* s = pwx_create(reinterpret_cast<int32_t*>(words.data), i64(c.words.size()), weights.data(), bytes.data(), i64(weights.size()), nullptr, &error);
  if (!s) return error.code;
  struct End {
    Session* s;
    ~End() { pwx_destroy(s); }
  } end{s};
  pwx_limit(s, MEMORY, OPERATIONS);
  std::vector<i64> dims(c.dims);
  dims.resize(size_t(s->p.n_dims), 2);
  std::vector<void*> inputs, outputs;
  std::vector<i64> input_bytes;
  if (!make_inputs(s->p, dims, c.content, memory, inputs, input_bytes)) return 100;
  if (after_others) bind_others(s, dims, c.content);
  if (int32_t code = pwx_bind(s, dims.data(), inputs.data(), &error)) return code;
  Kept kept(s->p, dims);
  Random answers(c.content);
  pwx_slice(s, answers.below(3) ? 0 : i64(answers.below(4096)));
  std::vector<size_t> where(size_t(s->p.outputs.size), 0);
  outputs.resize(where.size());
  for (;;) {
    const i64* out = pwx_output_dims(s);
    for (size_t o = 0; o < where.size(); o++) {
      const Output& row = s->p.outputs[i64(o)];
      bool known = true;
      for (i64 d = 0; d < row.rank; d++) known &= out[row.dims_at + d] >= 0;
      if (!known || where[o]) continue;
      const i64 bytes = kept.bytes(row, out + row.dims_at);
      if (bytes > LARGEST * 16) return 100;
      memory.emplace_back(size_t(bytes), kept.state(row) ? 0 : poison);
      where[o] = memory.size();
      outputs[o] = memory.back().data;
      if (const i64 past = kept.in_place(row); past >= 0 && bytes >= input_bytes[size_t(past)]) inputs[size_t(past)] = outputs[o];
    }
    const int32_t code = pwx_run(s, inputs.data(), outputs.data(), &error);
    if (code == PAUSE) continue;
    if (code == WAIT) {
      // A host may also drop what waits for it, and begin anew.
      if (answers.below(20) == 0) {
        if (int32_t none = pwx_bind(s, dims.data(), inputs.data(), &error)) return none;
        std::fill(where.begin(), where.end(), 0), std::fill(outputs.begin(), outputs.end(), nullptr);
      } else if (int32_t none = answer(s, answers, error)) {
        return none;
      }
      continue;
    }
    if (code != MORE) {
      if (code) return code;
      break;
    }
  }
  for (size_t w : where)
    if (w) results.emplace_back(memory[w - 1].data, memory[w - 1].data + memory[w - 1].bytes);
  return 0;
}

}  // namespace

int main(int n, char** arguments) {
  if (n < 5) return std::fprintf(stderr, "fuzz SEED FIRST COUNT FILE...\n"), 2;
  seed = std::strtoull(arguments[1], nullptr, 10), at = std::strtoull(arguments[2], nullptr, 10);
  const uint64_t last = at + std::strtoull(arguments[3], nullptr, 10);
  const std::vector<File> files = read_all(arguments + 4, n - 4);
  __sanitizer_set_death_callback(say_where);
  std::signal(SIGALRM, too_long);
  uint64_t counts[128] = {}, slowest = 0;
  std::clock_t longest = 0;
  for (; at < last; at++) {
    const File& file = files[at % files.size()];
    title = arguments[4 + at % files.size()];
    alarm(PATIENCE);
    const Case c = damaged(files, seed, at);
    const std::clock_t begin = std::clock();
    std::vector<std::vector<char>> once, again;
    const int32_t code = run(file, c, 0x11, false, once);
    counts[code]++;
    if (code == 0 && (run(file, c, 0xee, true, again) != 0 || once != again))
      return std::fprintf(stderr, "what was not written, or other sizes before, decide outputs: "), say_where(), 1;
    if (const std::clock_t took = std::clock() - begin; took > longest) longest = took, slowest = at;
  }
  const char* names[] = {"ran", "malformed", "unknown kernel", "check failed", "bad bind", "no memory", "bad data", "misuse", "limit", "cancelled"};
  for (int i = 0; i < 128; i++)
    if (counts[i]) std::printf("%s %llu\n", i < 10 ? names[i] : "too large", static_cast<unsigned long long>(counts[i]));
  std::printf("the longest: case %llu, %.0f ms\n", static_cast<unsigned long long>(slowest), 1e3 * double(longest) / CLOCKS_PER_SEC);
}
