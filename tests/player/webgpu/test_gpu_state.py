"""A decoder's cache stays on the GPU from run to run, and every tensor of it stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_site import CACHE, check_growing, check_steps
from gpu_site import LEDGER
from player_site import Run

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("worker", [True, False])
def test_steps_that_hand_tensors_on_give_the_numbers_of_those_that_hand_arrays_on(run: Run, worker: bool) -> None:
    check_steps(run, worker, "webgpu")


def test_pasts_of_other_lengths_are_not_taken_for_one_another(gpu_models: Path, run: Run) -> None:
    check_growing(gpu_models, run, "webgpu")


def test_a_step_makes_no_buffer_and_no_bind_group(run: Run) -> None:
    marks = run(
        CACHE
        + LEDGER
        + """
          const session = await gpu("cache.ponnx", { worker: false, preferredOutputLocation: staying("webgpu") });
          let { past } = await step(session, token(2, 20), empty(2));
          const marks = [];
          for (let i = 0; i < 30; i++) {
            const next = (await step(session, token(2), past)).past;
            for (const tensor of past) tensor.dispose();
            past = next;
            marks.push({ ...ledger });
          }
          const { dims } = past[0];
          const data = await past[0].getData();
          return { marks, dims, own: past[1].gpuBuffer.size >= data.length * 4 };
        """
    )
    assert marks["dims"] == [2, 4, 50, 8]
    assert marks["own"]
    assert marks["marks"][-1] == marks["marks"][10]
