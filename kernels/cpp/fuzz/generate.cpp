// Writes damaged Programs to standard output: generate SEED FIRST COUNT FILE... Per case, each with its count in front: words, input dims; the
// number that its inputs are filled from; what changes in weights, four numbers each (mutate.h, Edit).
#include "seeds.h"

int main(int n, char** arguments) {
  if (n < 5) return std::fprintf(stderr, "generate SEED FIRST COUNT FILE...\n"), 2;
  const uint64_t seed = std::strtoull(arguments[1], nullptr, 10), first = std::strtoull(arguments[2], nullptr, 10);
  const uint64_t last = first + std::strtoull(arguments[3], nullptr, 10);
  const std::vector<File> files = read_all(arguments + 4, n - 4);
  auto put = [](const void* data, size_t each, size_t count) {
    if (count && std::fwrite(data, each, count, stdout) != count) std::exit(2);
  };
  for (uint64_t at = first; at < last; at++) {
    const Case c = damaged(files, seed, at);
    const i64 words = i64(c.words.size()), dims = i64(c.dims.size());
    put(&words, 8, 1), put(c.words.data(), 4, c.words.size());
    put(&dims, 8, 1), put(c.dims.data(), 8, c.dims.size());
    put(&c.content, 8, 1);
    const i64 edits = 4 * i64(c.edits.size());
    put(&edits, 8, 1), put(c.edits.data(), 8, size_t(edits));
  }
}
