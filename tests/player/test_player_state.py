"""A decoder's cache stays in the engine from run to run, and every tensor of it stays what it was."""

from __future__ import annotations

import pytest
from cache_site import CACHE, check_steps
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
