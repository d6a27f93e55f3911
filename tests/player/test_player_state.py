"""A decoder's cache stays in the engine from run to run, and every tensor of it stays what it was."""

from __future__ import annotations

from typing import Any

import pytest
from player_site import Run

pytestmark = pytest.mark.browser

CACHE = """
  const names = ["0_k", "0_v", "1_k", "1_v"];
  const presents = Object.fromEntries(names.map((n) => [`present_${n}`, "cpu-pinned"]));
  const ids = (batch, list) => new Tensor("int64", BigInt64Array.from(list, BigInt), [batch, list.length / batch]);
  const empty = (batch) => names.map(() => new Tensor("float32", [], [batch, 4, 0, 8]));
  const step = async (session, tokens, past) => {
    const feeds = { ids: tokens };
    names.forEach((n, i) => (feeds[`past_${n}`] = past[i]));
    const found = await session.run(feeds);
    return { logits: found.logits, past: names.map((n) => found[`present_${n}`]) };
  };
  const same = (a, b) => a.length === b.length && a.every((x, i) => Object.is(x, b[i]));
  const held = async (tensor, array) => {
    const copy = tensor.reshape(tensor.dims);
    return same(await copy.getData(), array.data) && same(tensor.dims, array.dims);
  };
  let seed = 1;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const token = (batch, count = 1) => ids(batch, Array.from({ length: batch * count }, () => random(97)));
"""


@pytest.mark.parametrize("worker", [True, False])
def test_steps_that_hand_tensors_on_give_the_numbers_of_those_that_hand_arrays_on(run: Run, worker: bool) -> None:
    got: dict[str, Any] = run(
        CACHE
        + """
          const keeping = await create("cache.ponnx", { worker: arg, preferredOutputLocation: presents });
          const bare = await create("cache.ponnx", { worker: arg });
          const wrong = [];
          for (const batch of [1, 2]) {
            const first = token(batch, 3);
            const states = [[await step(keeping, first, empty(batch)), await step(bare, first, empty(batch))]];
            for (let i = 0; i < 40; i++) {
              let [a, b] = random(10) < 7 ? states.at(-1) : states[random(states.length)];
              if (b.past[0].dims[2] > 58) [a, b] = [{ past: empty(batch) }, { past: empty(batch) }];
              const t = token(batch, 1 + random(3));
              const next = [await step(keeping, t, a.past), await step(bare, t, b.past)];
              if (!same(next[0].logits.data, next[1].logits.data)) wrong.push([batch, i]);
              states.push(next);
            }
            for (const [i, [a, b]] of states.entries())
              for (const [k, tensor] of a.past.entries()) if (!(await held(tensor, b.past[k]))) wrong.push([batch, i, k]);
          }
          const { past } = await step(keeping, token(1), empty(1));
          const seen = { locations: past.map(({ location }) => location) };
          seen.early = await error(Promise.resolve().then(() => past[0].data));
          seen.swapped = same(
            (await step(keeping, ids(1, [5]), [past[1], past[1], past[0], past[2]])).logits.data,
            (await step(bare, ids(1, [5]), await Promise.all([1, 1, 0, 2].map(async (k) =>
              new Tensor("float32", await past[k].reshape(past[k].dims).getData(), past[k].dims))))).logits.data);
          seen.failed = await error(step(keeping, ids(1, [999]), past));
          const mine = past[2];
          const before = await mine.getData();
          before.fill(0);
          const zeroed = (await step(keeping, ids(1, [5]), past)).past[2];
          seen.written = (await zeroed.getData()).filter((v) => v === 0).length >= before.length;
          past[0].dispose();
          seen.disposed = await error(step(keeping, ids(1, [5]), past));
          return { wrong, ...seen };
        """,
        worker,
    )
    assert got["wrong"] == []
    assert got["locations"] == ["cpu-pinned"] * 4
    assert "await getData()" in got["early"]
    assert got["swapped"]
    assert "out of range" in got["failed"]
    assert got["written"]
    assert "disposed" in got["disposed"] or "the feed is" in got["disposed"]


def test_memory_stands_still_over_many_steps_and_goes_with_the_tensors(run: Run) -> None:
    got = run(
        CACHE
        + """
          const session = await create("cache.ponnx", { worker: false, preferredOutputLocation: presents });
          const sizes = [];
          for (let turn = 0; turn < 20; turn++) {
            let past = (await step(session, token(64, 4), empty(64))).past;
            for (let i = 0; i < 8; i++) {
              const next = (await step(session, token(64), past)).past;
              for (const tensor of past) tensor.dispose();
              past = next;
            }
            for (const tensor of past) tensor.dispose();
            sizes.push(await session.memoryBytes());
          }
          return sizes;
        """
    )
    assert got[-1] == got[1]
