// The Programs that are damaged, as testing/damage.py writes them. A case is decided by (seed, its number): one of the files, its words or
// its weights damaged with knowledge of the format.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "mutate.h"

struct File {
  Tables program;
  std::vector<std::vector<char>> weights;
  std::vector<std::vector<i64>> dims;  // sets of all input dims
};

struct Case {
  Row words;
  std::vector<i64> dims;
  uint64_t content;  // of the inputs
  std::vector<Edit> edits;
};

inline File read(const char* path) {
  std::FILE* f = std::fopen(path, "rb");
  if (!f) std::perror(path), std::exit(2);
  auto number = [&] { i64 n = 0; if (std::fread(&n, 8, 1, f) != 1) std::exit(2); return n; };
  File file;
  std::vector<int32_t> words(static_cast<size_t>(number()));
  if (std::fread(words.data(), 4, words.size(), f) != words.size()) std::exit(2);
  file.program = Tables(words.data());
  for (i64 n = number(); n-- > 0;) {
    std::vector<char> weight(static_cast<size_t>(number()));
    if (std::fread(weight.data(), 1, weight.size(), f) != weight.size()) std::exit(2);
    file.weights.push_back(weight);
  }
  for (i64 n = number(); n-- > 0;) {
    std::vector<i64> dims(static_cast<size_t>(number()));
    for (i64& d : dims) d = number();
    file.dims.push_back(dims);
  }
  std::fclose(f);
  return file;
}

inline std::vector<File> read_all(char** paths, int n) {
  std::vector<File> files;
  for (int i = 0; i < n; i++) files.push_back(read(paths[i]));
  return files;
}

// The first cases are the files as they are.
inline Case damaged(const std::vector<File>& files, uint64_t seed, uint64_t at) {
  Random random(seed * 0x9e3779b97f4a7c15 + at);
  const File& file = files[at % files.size()];
  Case c{{}, file.dims[size_t(random.below(i64(file.dims.size())))], random.next(), {}};
  if (at >= files.size() && random.below(5) == 0) c.edits = edited(file.weights, random);
  if (at >= files.size() && (c.edits.empty() || random.below(2))) c.words = mutated(file.program, random, c.dims);
  else c.words = file.program.words();
  return c;
}
