// A Program taken apart into its tables, damaged there, and put together again.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "../kernel.h"

struct Random {  // splitmix64
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  i64 below(i64 n) { return n > 0 ? i64(next() % uint64_t(n)) : 0; }
};

using Row = std::vector<int32_t>;

struct Tables {
  enum { KERNELS, INPUTS, OUTPUTS, CODE, STORAGES, BUFFERS, STEPS, STAGES, SLOTS, N };
  std::vector<Row> rows[N];
  std::vector<Tables> parts;  // the Programs within
  Row head_words;

  Tables() = default;
  explicit Tables(const int32_t* w) : head_words(w, w + HEADER) {
    for (int t = 0; t < N; t++) {
      size_t at = size_t(w[head(t) + 1]);
      for (int32_t i = 0; i < w[head(t)]; i++) {
        const size_t length = size_of(t, w + at);
        rows[t].emplace_back(w + at, w + at + length);
        at += length;
      }
    }
    for (int32_t i = 0; i < w[PARTS]; i++) parts.emplace_back(w + w[w[PARTS + 1] + 2 * i]);
  }

  Row words() const {
    Row w = head_words;
    for (int t = 0; t < N; t++) {
      w[head(t)] = int32_t(rows[t].size()), w[head(t) + 1] = int32_t(w.size());
      for (const Row& row : rows[t]) w.insert(w.end(), row.begin(), row.end());
    }
    Row table;
    for (const Tables& part : parts) {
      const Row within = part.words();
      table.push_back(int32_t(w.size())), table.push_back(int32_t(within.size()));
      w.insert(w.end(), within.begin(), within.end());
    }
    w[PARTS] = int32_t(parts.size()), w[PARTS + 1] = int32_t(w.size());
    w.insert(w.end(), table.begin(), table.end());
    w[2] = int32_t(w.size());
    return w;
  }

  // Where the heads of the Programs begin in words, those within too.
  static void heads(const Row& w, size_t at, std::vector<size_t>& found) {
    found.push_back(at);
    for (int32_t i = 0; i < w[at + PARTS]; i++) heads(w, at + size_t(w[at + size_t(w[at + PARTS + 1]) + 2 * size_t(i)]), found);
  }
  static constexpr size_t HEADER = 24, PARTS = 20;

  // A register of its own for a number.
  int32_t constant(i64 v) {
    rows[CODE].push_back({0, int32_t(uint64_t(v)), int32_t(uint64_t(v) >> 32), 0});
    if (!rows[STAGES].empty()) rows[STAGES].back()[0] = int32_t(uint32_t(rows[STAGES].back()[0]) + 1);
    return int32_t(rows[CODE].size()) - 1;
  }

 private:
  static size_t head(int table) { return table == STAGES ? 18 : table == SLOTS ? 22 : size_t(3 + 2 * table); }
  static size_t size_of(int table, const int32_t* row) {
    switch (table) {
      case KERNELS: return 2 + (size_t(row[1]) + 3) / 4;
      case INPUTS: return 3;
      case OUTPUTS: return 3 + size_t(row[1]);
      case CODE: case BUFFERS: return 4;
      case STORAGES: return 6;
      case STEPS: return 4 + size_t(row[1]) + size_t(row[2]);
      default: return 2;
    }
  }
};

inline i64 odd_number(Random& random, i64 near) {
  static const i64 extremes[] = {0, 1, -1, 2, 3, 5, 7, 8, 16, 63, 64, 65, 255, 256, 4096, 65535, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  switch (random.below(5)) {
    case 0: return extremes[random.below(i64(sizeof extremes / 8))];
    case 1: return (i64(1) << random.below(63)) + random.below(3) - 1;
    case 2: return i64(uint64_t(near) + uint64_t(random.below(9) - 4));
    case 3: return i64(uint64_t(near) * uint64_t(random.below(5) - 1));
    default: return random.below(16);
  }
}

template <class T> T& any(std::vector<T>& of, Random& random) { return of[size_t(random.below(i64(of.size())))]; }

inline void mutate(Tables& p, Random& random) {
  if (!p.parts.empty() && random.below(2)) {
    if (random.below(20)) return mutate(any(p.parts, random), random);
    std::swap(any(p.parts, random), any(p.parts, random));
    return;
  }
  static const int32_t dtypes[] = {F32, F32, F32, U8, I8, I32, I64, I64, BOOL, F16, F64, BF16, STRING, U4, 99};
  auto registers = [&] { return i64(p.rows[Tables::CODE].size()); };
  auto number = [&](i64 reg) {
    const bool known = reg >= 0 && reg < registers() && p.rows[Tables::CODE][size_t(reg)][0] == 0;
    const Row zero{0, 0, 0, 0}, &row = known ? p.rows[Tables::CODE][size_t(reg)] : zero;
    return i64(uint64_t(uint32_t(row[1])) | uint64_t(uint32_t(row[2])) << 32);
  };
  // Another register, of a number near the one before.
  auto other = [&](int32_t reg) { return random.below(4) ? p.constant(odd_number(random, number(reg))) : int32_t(random.below(registers())); };
  const int table = int(random.below(100)) < 55 ? int(Tables::STEPS) : int(random.below(Tables::N));
  if (p.rows[table].empty()) return;
  if (random.below(40) == 0) {  // a row more, or less
    auto& rows = p.rows[table];
    const Row more = any(rows, random);
    if (random.below(2)) rows.insert(rows.begin() + random.below(i64(rows.size()) + 1), more);
    else rows.erase(rows.begin() + random.below(i64(rows.size())));
    return;
  }
  Row& row = any(p.rows[table], random);
  if (random.below(20) == 0) {  // a word, or a row, as it comes
    if (random.below(4) == 0) return void(row = any(p.rows[table], random));
    if (row.empty()) return;
    int32_t& word = any(row, random);
    return void(word = random.below(2) ? word ^ int32_t(1u << random.below(32)) : int32_t(odd_number(random, word)));
  }
  switch (table) {
    case Tables::KERNELS: std::swap(row, any(p.rows[table], random)); break;
    case Tables::INPUTS: row[size_t(random.below(3))] = random.below(2) ? dtypes[random.below(15)] : int32_t(random.below(5)); break;
    case Tables::OUTPUTS:
      if (random.below(2) && row.size() > 3) row[size_t(3 + random.below(i64(row.size()) - 3))] = other(row[3]);
      else row[random.below(2) ? 0 : 2] = random.below(2) ? dtypes[random.below(15)] : int32_t(random.below(i64(p.rows[Tables::BUFFERS].size())));
      break;
    case Tables::CODE:
      if (row[0] == 0) {
        const i64 v = odd_number(random, i64(uint64_t(uint32_t(row[1])) | uint64_t(uint32_t(row[2])) << 32));
        row[1] = int32_t(uint64_t(v)), row[2] = int32_t(uint64_t(v) >> 32);
      } else if (random.below(2)) {
        row[0] = int32_t(1 + random.below(17));
      } else {
        row[size_t(1 + random.below(3))] = int32_t(random.below(registers()));
      }
      break;
    case Tables::STORAGES:
      switch (random.below(5)) {
        case 0: row[0] = int32_t(random.below(5)); break;
        case 1: row[1] = int32_t(random.below(4)); break;
        case 2: row[2] = other(row[2]); break;
        default: row[size_t(3 + random.below(2))] = int32_t(random.below(i64(p.rows[Tables::STEPS].size()) + 1));
      }
      break;
    case Tables::BUFFERS:
      switch (random.below(4)) {
        case 0: row[0] = int32_t(random.below(i64(p.rows[Tables::STORAGES].size()))); break;
        case 1: row[1] = other(row[1]); break;
        case 2: row[2] = other(row[2]); break;
        default: row[3] = dtypes[random.below(15)];
      }
      break;
    case Tables::STEPS: {
      const i64 room = i64(row.size()) - 4, bufs = row[1] < 0 ? 0 : row[1] < room ? row[1] : room, params = room - bufs;
      const i64 what = random.below(10);
      if (what < 7 && params > 0) row[size_t(4 + bufs + random.below(params))] = other(row[size_t(4 + bufs + random.below(params))]);
      else if (what < 9 && bufs > 0) row[size_t(4 + random.below(bufs))] = int32_t(random.below(i64(p.rows[Tables::BUFFERS].size()) + 1) - 1);
      else if (random.below(2)) std::swap(row, any(p.rows[table], random));
      else row[0] = int32_t(random.below(i64(p.rows[Tables::KERNELS].size())));
      break;
    }
    case Tables::SLOTS: row[size_t(random.below(2))] = random.below(2) ? dtypes[random.below(15)] : int32_t(random.below(5)); break;
    default: {
      int32_t& end = row[size_t(random.below(2))];
      end = int32_t(uint32_t(end) + uint32_t(random.below(5) - 2));
    }
  }
}

// A word of a head, or of the table of the Programs within: counts, places, sizes.
inline void mutate_head(Row& words, Random& random) {
  std::vector<size_t> heads;
  Tables::heads(words, 0, heads);
  const size_t head = any(heads, random);
  size_t at = head + size_t(random.below(Tables::HEADER));
  if (const i64 parts = words[head + Tables::PARTS]; parts && random.below(4) == 0)
    at = head + size_t(words[head + Tables::PARTS + 1]) + size_t(random.below(2 * parts));
  words[at] = random.below(4) ? int32_t(odd_number(random, words[at])) : words[head + size_t(random.below(Tables::HEADER))];
}

// The words of a damaged Program, at sizes that may be damaged, too.
inline Row mutated(Tables program, Random& random, std::vector<i64>& dims) {
  do mutate(program, random);
  while (random.below(3) == 0);
  if (!dims.empty() && random.below(8) == 0) any(dims, random) = odd_number(random, 2);
  Row words = program.words();
  if (random.below(40) == 0) mutate_head(words, random);
  if (random.below(50) == 0) any(words, random) = int32_t(odd_number(random, 4));
  if (random.below(200) == 0) words.resize(size_t(random.below(i64(words.size()))));
  return words;
}

// A number of a weight that is another.
struct Edit {
  i64 weight, at, size, value;  // size: its bytes, 1, 2, 4 or 8

  void put(char* data) const { __builtin_memcpy(data + at, &value, size_t(size)); }
};

inline std::vector<Edit> edited(const std::vector<std::vector<char>>& weights, Random& random) {
  std::vector<Edit> edits;
  if (weights.empty()) return edits;
  do {
    Edit e{random.below(i64(weights.size())), 0, i64(1) << random.below(4), 0};
    const std::vector<char>& data = weights[size_t(e.weight)];
    const i64 places = i64(data.size()) / e.size;
    if (!places) continue;
    e.at = e.size * random.below(places);
    i64 before = 0;
    __builtin_memcpy(&before, data.data() + e.at, size_t(e.size));
    static const i64 floats[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x00000001, 0x7ff8000000000000, 0x7ff0000000000000, 0x7e00, 0x7c00};
    e.value = random.below(8) == 0 ? floats[random.below(8)] : random.below(4) == 0 ? before ^ i64(1) << random.below(8 * e.size - 1) : odd_number(random, before);
    edits.push_back(e);
  } while (random.below(3) == 0);
  return edits;
}
