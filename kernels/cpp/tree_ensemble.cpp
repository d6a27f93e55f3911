// Decision trees: every tree over a block of rows, eight rows in step, what the leaves hold summed per target.
// The tables are data: each index is proved before it is followed, and `depth` bounds every path.
#include "params.h"

#include <algorithm>

namespace {

constexpr i64 BLOCK = 64;
constexpr int LANES = 4;
constexpr uint32_t FEATURE = (1u << 24) - 1;

// `what`: bits 0 to 23 the feature, 24 to 27 the Branch, 28 whether NaN goes to `yes`.
// Of a leaf both ways lead to itself, and `split` holds the bits of the place of its first weight, -1 for none.
template <class T> struct Node {
  T split;
  uint32_t what, yes, no;
};

inline Branch branch_of(uint32_t what) { return Branch(what >> 24 & 15); }

template <class T> i64 first_weight(T split) {
  if constexpr (sizeof(T) == 4) return __builtin_bit_cast(int32_t, split);
  else return __builtin_bit_cast(i64, split);
}

template <class T> struct Trees {
  const Node<T>* nodes;
  const T* sets;
  i64 n_nodes, n_sets, features, depth;

  // Whether v is in the set at `at`: a count and as many ascending numbers.
  bool member(T v, i64 at, bool& bad) const {
    const double count = at >= 0 && at < n_sets ? double(sets[at]) : -1;
    if (!(count >= 0) || count >= double(n_sets - at)) return bad = true;
    const i64 end = at + 1 + i64(count);
    i64 low = at + 1, high = end;
    while (low < high) {
      const i64 middle = (low + high) / 2;
      if (sets[middle] < v) low = middle + 1;
      else high = middle;
    }
    return low < end && sets[low] == v;
  }
};

struct Leq {
  template <class T> static bool yes(const Trees<T>&, T v, const Node<T>& n, bool&) { return v <= n.split; }
};
struct Lt {
  template <class T> static bool yes(const Trees<T>&, T v, const Node<T>& n, bool&) { return v < n.split; }
};
struct Mixed {
  template <class T> static bool yes(const Trees<T>& trees, T v, const Node<T>& n, bool& bad) {
    switch (branch_of(n.what)) {
      case Branch::LEQ: return v <= n.split;
      case Branch::LT: return v < n.split;
      case Branch::GTE: return v >= n.split;
      case Branch::GT: return v > n.split;
      case Branch::EQ: return v == n.split;
      case Branch::NEQ: return v != n.split;
      case Branch::MEMBER: return trees.member(v, first_weight(n.split), bad);
      default: return false;
    }
  }
};

// Follows one tree for `lanes` rows; false where the tables lead outside.
template <class Rule, class T, int lanes> bool walk_lanes(const Trees<T>& trees, const T* const* rows, uint32_t* at) {
  for (i64 step = 0; step < trees.depth; step++) {
    bool open = false, bad = false;
    for (int l = 0; l < lanes; l++) {
      const Node<T> node = trees.nodes[at[l]];
      const uint32_t feature = node.what & FEATURE;
      if (feature >= trees.features) return false;
      const T v = rows[l][feature];
      const bool yes = Rule::yes(trees, v, node, bad) | (bool(node.what >> 28 & 1) & (v != v));
      at[l] = yes ? node.yes : node.no;
      if (at[l] >= trees.n_nodes) return false;
      open |= branch_of(node.what) != Branch::LEAF;
    }
    if (bad) return false;
    if (!open) return true;
  }
  return true;
}
template <class Rule, class T> bool walk(const Trees<T>& trees, const T* const* rows, uint32_t* at, i64 n) {
  if (n == LANES) return walk_lanes<Rule, T, LANES>(trees, rows, at);
  for (i64 l = 0; l < n; l++)
    if (!walk_lanes<Rule, T, 1>(trees, rows + l, at + l)) return false;
  return true;
}
template <class T> using Walk = bool (*)(const Trees<T>& trees, const T* const* rows, uint32_t* at, i64 n);

template <class T> struct Leaves {
  const int32_t* target;  // negative (all bits above its own set): the last of its leaf
  const T* weight;
  i64 count, targets, widest;
  Aggregate aggregate;

  // Adds what the leaf holds to the scores of a row; false where the tables lead outside.
  bool add(i64 at, T* scores, uint8_t* has) const {
    if (at == -1) return true;
    for (i64 n = 0; n < widest; n++, at++) {
      if (at < 0 || at >= count) return false;
      const int32_t entry = target[at];
      const i64 t = entry & INT32_MAX;
      if (t >= targets) return false;
      const T w = weight[at];
      if (aggregate == Aggregate::SUM) scores[t] += w;
      else if (!has[t] || (aggregate == Aggregate::MIN ? w < scores[t] : w > scores[t])) scores[t] = w;
      if (has) has[t] = 1;
      if (entry < 0) return true;
    }
    return false;
  }
};

constexpr i64 node_words(int32_t dtype) { return dtype == F64 ? 6 : 4; }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const TreeEnsembleParams*>(call.params);
  auto& b = *reinterpret_cast<const TreeEnsembleBufs*>(call.bufs);
  if (!known(p.aggregate) || !known(p.branch)) return "unknown aggregate or branch";
  if (b.x.dtype != F32 && b.x.dtype != F64) return "x is not float32 or float64";
  if (b.y.dtype != b.x.dtype || b.weights.dtype != b.x.dtype || (b.sets && b.sets.dtype != b.x.dtype)) return "dtypes differ";
  if (b.nodes.dtype != I32 || b.roots.dtype != I32 || b.targets.dtype != I32) return "a table is not int32";
  if (b.has ? b.has.dtype != BOOL : p.aggregate != Aggregate::SUM) return "has must be bool, and be there for min and max";
  const i64 in[] = {p.rows, p.features}, out[] = {p.rows, p.n_targets}, n = product(out, 2);
  if (product(in, 2) < 0 || product(in, 2) > b.x.count()) return "x is too small";
  if (n < 0 || n > b.y.count() || (b.has && n > b.has.count())) return "y is too small";
  if (p.trees < 0 || p.trees > b.roots.count()) return "roots are too few";
  if (p.depth < 0 || p.widest < 0 || p.depth > INT32_MAX || p.widest > INT32_MAX) return "depth or widest is out of range";
  if (b.nodes.count() / 4 > INT32_MAX) return "nodes are too many";
  proof.operations = Size(p.rows) * p.trees * (Size(p.depth) * depth_of(b.sets ? b.sets.count() : 0) + p.widest + 1) + n;
  proof.writes(0, {0, n});
  if (b.has) proof.writes(1, {0, n});
  return nullptr;
}

template <class T> void trees_of(Call& call) {
  const auto& p = *reinterpret_cast<const TreeEnsembleParams*>(call.params);
  auto& b = *reinterpret_cast<const TreeEnsembleBufs*>(call.bufs);
  const i64 n_weights = std::min(b.weights.count(), b.targets.count());
  const Trees<T> trees{b.nodes.as<Node<T>>(), b.sets.as<T>(), b.nodes.count() / node_words(b.x.dtype), b.sets ? b.sets.count() : 0,
                       p.features, p.depth};
  const Leaves<T> leaves{b.targets.as<int32_t>(), b.weights.as<T>(), n_weights, p.n_targets, p.widest, p.aggregate};
  const Walk<T> walk_tree = p.branch == Branch::LEQ ? walk<Leq, T> : p.branch == Branch::LT ? walk<Lt, T> : walk<Mixed, T>;
  const T* x = b.x.as<T>();
  T* y = b.y.as<T>();
  uint8_t* has = b.has ? b.has.as<uint8_t>() : nullptr;
  std::fill(y, y + p.rows * p.n_targets, T(0));
  if (has) std::fill(has, has + p.rows * p.n_targets, uint8_t(0));
  parallel_for(call.pool, (p.rows + BLOCK - 1) / BLOCK, 1, [&](i64 begin, i64 end, int) {
    for (i64 block = begin; block < end; block++)
      for (i64 tree = 0; tree < p.trees; tree++) {
        const uint32_t root = uint32_t(b.roots.as<int32_t>()[tree]);
        if (root >= trees.n_nodes) return call.fail("a root lies outside of the nodes");
        const i64 last = std::min((block + 1) * BLOCK, p.rows);
        for (i64 row = block * BLOCK; row < last; row += LANES) {
          const T* rows[LANES];
          uint32_t at[LANES];
          const i64 n = std::min(last - row, i64(LANES));
          for (i64 l = 0; l < n; l++) rows[l] = x + (row + l) * p.features, at[l] = root;
          if (!walk_tree(trees, rows, at, n)) return call.fail("a tree leads outside of its tables");
          for (i64 l = 0; l < n; l++) {
            const Node<T>& leaf = trees.nodes[at[l]];
            if (branch_of(leaf.what) != Branch::LEAF) return call.fail("a path of a tree is longer than its depth");
            const i64 to = (row + l) * p.n_targets;
            if (!leaves.add(first_weight(leaf.split), y + to, has ? has + to : nullptr)) return call.fail("a leaf leads outside of its tables");
          }
        }
      }
  });
}

void run(Call& call) {
  if (reinterpret_cast<const TreeEnsembleBufs*>(call.bufs)->x.dtype == F32) trees_of<float>(call);
  else trees_of<double>(call);
}

}  // namespace

KERNEL(tree_ensemble, check, no_scratch, run)
