"""Memory for large outputs, made while the run before is awaited."""

import pytest
from player_site import Run

pytestmark = pytest.mark.browser

SPY = """
  const asked = [];
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (message, transfer) {
    if (message.op === "run") asked.push(message.spares.map((spare) => spare.byteLength));
    return postMessage.call(this, message, transfer);
  };
  const session = await create("block.ponnx");
  const step = (past, value) =>
    session.run({ x: new Tensor("float32", new Float32Array(32 * past).fill(value), [1, 4, past, 8]) });
  const right = ({ y }, past, value) =>
    y.data.length === 32 * past && y.data.buffer.byteLength === 128 * past && y.data.every((v) => v === -value);
"""


def test_sizes_that_stay_and_that_grow(run: Run) -> None:
    got = run(
        SPY
        + """
      const sizes = [...Array(6).fill(1024), ...[0, 1, 2, 3, 4, 5].map((i) => 2048 + i), 700, 3000, 100];
      const results = [];
      for (const [i, past] of sizes.entries()) results.push([await step(past, i + 1), past, i + 1]);
      return { asked, right: results.map((result) => right(...result)) };
    """
    )
    stay, grow = 128 * 1024, 128 * 2048
    assert got["asked"][:6] == [[], [], [], [], [stay], [stay]]
    assert got["asked"][9:12] == [[], [grow + 4 * 128], [grow + 5 * 128]]
    assert all(got["right"])  # what was made for a run of another size is passed over


def test_runs_at_once_and_errors(run: Run) -> None:
    got = run(
        SPY
        + """
      for (let i = 0; i < 4; i++) await step(1024, 1);
      const values = [2, 3, 4, 5];
      const together = await Promise.all(values.map((value) => step(1024, value)));
      const pick = await create("pick.ponnx");
      const feeds = { x: new Tensor("float32", [1, 2, 3, 4, 5], [5]), i: new Tensor("int64", [99n], [1]) };
      const [wrong, after] = await Promise.all([error(pick.run(feeds)), step(1024, 7)]);
      const others = await Promise.all([create("block.ponnx"), create("dense.ponnx")]);
      await session.release();
      await others[0].run({ x: new Tensor("float32", new Float32Array(32768), [1, 4, 1024, 8]) });
      return { all: together.map((result, i) => right(result, 1024, values[i])), wrong, after: right(after, 1024, 7), asked };
    """
    )
    assert all(got["all"])
    assert got["after"]
    assert "pick_0" in got["wrong"]
    assert got["asked"][-1] == []  # another session's


def test_small_outputs_have_none(run: Run) -> None:
    got = run(
        SPY
        + """
      for (let i = 0; i < 6; i++) await step(100, 1);
      return asked;
    """
    )
    assert got == [[]] * 6
