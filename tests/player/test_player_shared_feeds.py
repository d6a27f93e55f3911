"""Feeds that a page writes into the core's memory, where it is isolated: what it gives stays what it was when it gave it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cache_site import CACHE, check_growing, check_steps
from player_site import Run

pytestmark = pytest.mark.browser

# Runs that were sent, each by how many of its feeds lay in place; numbers of `pair.ponnx` for rows and columns of a size.
WATCH = """
const sent = [];
const { postMessage } = Worker.prototype;
Worker.prototype.postMessage = function (message, ...rest) {
  if (message.op === "run") sent.push(message.feeds.filter(({ placed }) => placed !== undefined).length);
  return postMessage.call(this, message, ...rest);
};
const filled = (rows, columns, v) => new Tensor("float32", new Float32Array(rows * columns).fill(v), [rows, columns]);
const feeds = (rows, columns, a, b) => ({ a: filled(rows, columns, a), b: filled(rows, columns, b) });
const told = ({ p, d }) => [p, d].map(({ data, dims }) => [dims, [...new Set(data)]]);
"""


def pair(rows: int, columns: int, a: float, b: float) -> list[list[list[float]]]:
    return [[[rows, columns], [v] if rows * columns else []] for v in (a * b, a - b)]


def test_copied_once_where_memory_is_shared(open_page: Callable[..., Run]) -> None:
    body = f"""
      {WATCH}
      const s = await create("pair.ponnx");
      const got = [];
      for (const v of [2, 3, 5, 7]) got.push(told(await s.run(feeds(40, 50, v, 1))));
      return [got, sent];
    """
    for isolated in (True, False):
        got, sent = open_page(isolated)(body)
        assert got == [pair(40, 50, v, 1) for v in (2, 3, 5, 7)]
        assert sent == ([0, 2, 2, 2] if isolated else [0] * 4)


def test_memory_of_feeds_that_are_new_is_given_up(open_page: Callable[..., Run]) -> None:
    """That of both, though they are as large; from the second run on it returns, to be used again."""
    got = open_page(False)(
        f"""
          {WATCH}
          const returned = [];
          const {{ set }} = Object.getOwnPropertyDescriptor(Worker.prototype, "onmessage");
          Object.defineProperty(Worker.prototype, "onmessage", {{
            set(hear) {{
              set.call(this, (event) => {{
                if (event.data.result) returned.push(event.data.read.map((b) => b.byteLength));
                hear(event);
              }});
            }},
          }});
          const s = await create("pair.ponnx");
          returned.length = 0;
          for (const v of [2, 3, 5]) await s.run(feeds(200, 300, v, 1));
          return returned;
        """
    )
    assert got == [[], [240_000] * 2, [240_000] * 2]


def test_sizes_that_grow_and_shrink(open_page: Callable[..., Run]) -> None:
    sizes = [(3, 5), (2, 5), (0, 5), (64, 70), (3, 5), (200, 300), (1, 1), (64, 70), (300, 300), (2, 2)]
    got, sent = open_page(True)(
        f"""
          {WATCH}
          const s = await create("pair.ponnx");
          const got = [];
          for (const [i, [rows, columns]] of arg.entries()) got.push(told(await s.run(feeds(rows, columns, i + 1, 3))));
          return [got, sent];
        """,
        sizes,
    )
    assert got == [pair(rows, columns, i + 1, 3) for i, (rows, columns) in enumerate(sizes)]
    assert sent == [0, 2, 2, 0, 2, 0, 2, 2, 0, 2]


def test_runs_under_way_keep_what_they_were_given(open_page: Callable[..., Run]) -> None:
    got, sent = open_page(True)(f"""
      {WATCH}
      const s = await create("pair.ponnx");
      await s.run(feeds(40, 50, 1, 1));
      const given = feeds(40, 50, 2, 1);
      const runs = [];
      for (const v of [2, 3, 4, 5]) {{
        given.a.data.fill(v);
        runs.push(s.run(given).then(told));
        given.a.data.fill(99);
      }}
      runs.push(s.run(feeds(90, 90, 6, 1)).then(told));
      given.a.data.fill(7);
      runs.push(s.run(given).then(told));
      given.a.data.fill(99);
      const got = await Promise.all(runs);
      got.push(told(await s.run(feeds(40, 50, 8, 1))));
      return [got, sent];
    """)
    assert got == [*(pair(40, 50, v, 1) for v in (2, 3, 4, 5)), pair(90, 90, 6, 1), pair(40, 50, 7, 1), pair(40, 50, 8, 1)]
    assert sent == [0, 2, 0, 0, 0, 0, 0, 2]


def test_after_errors_profiles_and_other_sessions(open_page: Callable[..., Run]) -> None:
    got, failed, sent = open_page(True)(f"""
      {WATCH}
      const s = await create("pair.ponnx"), other = await create("pair.ponnx"), picks = await create("pick.ponnx");
      const got = [];
      const go = async (session, ...sizes) => got.push(told(await session.run(feeds(...sizes))));
      await go(s, 4, 5, 2, 1);
      await go(other, 9, 9, 3, 1);
      await go(s, 4, 5, 4, 1);
      const pick = (at) => picks.run({{ x: new Tensor("float32", [1, 2, 3, 4, 5], [5]), i: new Tensor("int64", at, [at.length]) }});
      await pick([1n]);
      const failed = await error(pick([9n]));
      got.push([...(await pick([3n, 0n])).y.data]);
      await s.profile(feeds(80, 80, 1, 1));
      await go(s, 4, 5, 5, 1);
      await other.release();
      const fresh = await create("pair.ponnx");
      await go(fresh, 9, 9, 6, 1);
      await go(s, 4, 5, 7, 1);
      await go(fresh, 9, 9, 8, 1);
      return [got, failed, sent];
    """)
    assert failed.startswith("node pick_0")
    assert got == [
        pair(4, 5, 2, 1),
        pair(9, 9, 3, 1),
        pair(4, 5, 4, 1),
        [4, 1],
        pair(4, 5, 5, 1),
        pair(9, 9, 6, 1),
        pair(4, 5, 7, 1),
        pair(9, 9, 8, 1),
    ]
    assert sent == [0, 0, 2, 0, 2, 0, 0, 0, 2, 2]


def test_what_the_core_holds_and_must_copy_may_move_the_place_of_an_input(open_page: Callable[..., Run]) -> None:
    got, sent = open_page(True)(
        f"""
          {WATCH} {CACHE}
          const decoder = await create("cache.ponnx", {{ preferredOutputLocation: staying("wasm") }});
          const [stays] = (await step(decoder, token(64, 40), empty(64))).past;
          const s = await create("block.ponnx");
          const block = (v) => new Tensor("float32", new Float32Array(64).fill(v), [1, 4, 2, 8]);
          const got = [];
          sent.length = 0;
          for (const x of [block(1), block(2), stays, block(3), block(4)]) {{
            const {{ y }} = await s.run({{ x }});
            got.push(x === stays ? String(y.data) === String((await stays.getData()).map((v) => -v)) : [...new Set(y.data)]);
          }}
          return [got, sent];
        """
    )
    assert got == [[-1], [-2], True, [-3], [-4]]
    assert sent == [0, 1, 0, 1, 1]


def test_a_decoders_steps(open_page: Callable[..., Run]) -> None:
    check_steps(open_page(True), True, "wasm")


def test_pasts_of_other_lengths_are_not_taken_for_one_another(player_models: Path, open_page: Callable[..., Run]) -> None:
    check_growing(player_models, open_page(True), "wasm")


def test_random_runs_give_the_numbers_of_a_page_that_shares_nothing(open_page: Callable[..., Run]) -> None:
    """Sizes, pauses, concurrent runs, wrong feeds and profiles in any order."""
    rng = np.random.default_rng(5)
    plan = [
        {
            "kind": str(rng.choice(["run", "run", "run", "bad", "profile"])),
            "rows": int(rng.integers(0, 60)),
            "columns": int(rng.integers(1, 60)),
            "waits": bool(rng.random() < 0.6),
        }
        for _ in range(150)
    ]
    body = f"""
      {WATCH}
      const s = await create("pair.ponnx");
      const got = [];
      let last;
      for (const [i, {{ kind, rows, columns, waits }}] of arg.entries()) {{
        const given = feeds(rows, columns, i + 1, 2);
        const wrong = {{ a: given.a, b: filled(rows + 1, columns, 1) }};
        last = kind === "run" ? s.run(given).then(told) : kind === "bad" ? error(s.run(wrong)) : s.profile(given).then((t) => t.length);
        given.a.data.fill(-1);
        got.push(last);
        if (waits) await last;
      }}
      return [await Promise.all(got), sent];
    """
    want, plain = open_page(False)(body, plan)
    got, sent = open_page(True)(body, plan)
    assert got == want
    assert not any(plain)
    assert sent.count(2) > 20
