"""A decoder's cache stays in the engine from run to run, and every tensor of it stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_site import CACHE, check_growing, check_steps
from player_site import Run

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("worker", [True, False])
def test_steps_that_hand_tensors_on_give_the_numbers_of_those_that_hand_arrays_on(run: Run, worker: bool) -> None:
    check_steps(run, worker, "wasm")


def test_memory_stands_still_over_many_steps_and_goes_with_the_tensors(run: Run) -> None:
    got = run(
        CACHE
        + """
          const session = await create("cache.ponnx", { worker: false, preferredOutputLocation: staying('wasm') });
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


@pytest.mark.parametrize("worker", [True, False])
def test_steps_that_hand_arrays_on_give_the_numbers_of_the_whole_text(run: Run, worker: bool) -> None:
    """What is fed of a past is put where the run appends to it: of more and fewer rows, of other batches, and again."""
    got = run(
        CACHE
        + """
          const session = await create("cache.ponnx", { worker: arg });
          const near = (a, b) => a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) <= 1e-5 * (1 + Math.abs(b[i])));
          const last = ({ data, dims: [batch, count, size] }) =>
            Array.from({ length: batch }, (_, b) => [...data.subarray(((b + 1) * count - 1) * size, (b + 1) * count * size)]).flat();
          const begins = (past, present) => {
            const [batch, heads, rows, size] = past.dims;
            for (let i = 0; i < batch * heads; i++)
              if (!same(past.data.subarray(i * rows * size, (i + 1) * rows * size),
                present.data.subarray(i * present.dims[2] * size, i * present.dims[2] * size + rows * size))) return false;
            return true;
          };
          const wrong = [];
          let steps = 0;
          for (const batch of [1, 3, 2]) {
            const begun = Array.from({ length: batch }, () => [random(97), random(97)]);
            const states = [{ text: begun, ...(await step(session, ids(batch, begun.flat()), empty(batch))) }];
            for (let i = 0; i < 24; i++) {
              const from = random(10) < 7 ? states.at(-1) : states[random(states.length)];
              const count = [1, 1, 1, 2, 9, 14][random(6)];
              if (from.text[0].length + count > 60) continue;
              const more = from.text.map(() => Array.from({ length: count }, () => random(97)));
              const before = from.past.map(({ data }) => data.slice());
              const text = from.text.map((t, b) => [...t, ...more[b]]);
              const to = { text, ...(await step(session, ids(batch, more.flat()), from.past)) };
              const whole = await step(session, ids(batch, to.text.flat()), empty(batch));
              if (!near(last(to.logits), last(whole.logits))) wrong.push(["logits", batch, i]);
              for (const [k, past] of from.past.entries()) {
                if (!same(past.data, before[k])) wrong.push(["fed", batch, i, k]);
                if (!begins(past, to.past[k])) wrong.push(["begin", batch, i, k]);
                if (!near(to.past[k].data, whole.past[k].data)) wrong.push(["present", batch, i, k]);
              }
              states.push(to);
              steps++;
            }
          }
          const zeros = names.map(() => new Tensor("float32", new Float32Array(2 * 4 * 5 * 8), [2, 4, 5, 8]));
          const none = names.map(() => new Tensor("float32", new Float32Array(0), [0, 4, 5, 8]));
          const empties = await step(session, new Tensor("int64", new BigInt64Array(0), [0, 1]), none);
          if (String(empties.past[0].dims) !== "0,4,6,8") wrong.push(["none", String(empties.past[0].dims)]);
          const failed = await step(session, ids(2, [999, 1]), zeros).then(() => "", String);
          return { wrong, steps, failed };
        """,
        worker,
    )
    assert got["wrong"] == []
    assert got["steps"] > 30
    assert "out of range" in got["failed"]


def test_arrays_that_are_handed_on_take_the_memory_of_the_present_alone(run: Run) -> None:
    """A past of 40 rows takes no place of its own beside what the run makes of it; that is `present` with its spare rows."""
    got = run(
        CACHE
        + """
          const session = await create("cache.ponnx", { worker: false });
          const fed = (rows) => names.map(() => new Tensor("float32", new Float32Array(256 * 4 * rows * 8), [256, 4, rows, 8]));
          await step(session, token(256), empty(256));
          const before = await session.memoryBytes();
          await step(session, token(256), fed(40));
          return [before, await session.memoryBytes()];
        """
    )
    present = 4 * 256 * 4 * (40 + 8) * 8 * 4
    assert got[1] - got[0] < 1.5 * present


def test_pasts_of_other_lengths_are_not_taken_for_one_another(player_models: Path, run: Run) -> None:
    check_growing(player_models, run, "wasm")
