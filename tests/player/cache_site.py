"""A decoder in pages whose cache stays in the engine, and one that is handed arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from growing import Growing
from player_site import Run

import pyonnx_wasm

CACHE = """
  const names = ["0_k", "0_v", "1_k", "1_v"];
  const place = (backend) => (backend === "webgpu" ? "gpu-buffer" : "cpu-pinned");
  const staying = (backend) => Object.fromEntries(names.map((n) => [`present_${n}`, place(backend)]));
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


def check_steps(run: Run, worker: bool, backend: str) -> None:
    """Steps that hand tensors on give the numbers of those that hand arrays on: from the newest, from ones before, from nothing."""
    got: dict[str, Any] = run(
        CACHE
        + """
          const [worker, backend] = arg;
          const options = { worker, executionProviders: [backend] };
          const keeping = await create("cache.ponnx", { ...options, preferredOutputLocation: staying(backend) });
          const bare = await create("cache.ponnx", options);
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
          seen.failed = await step(keeping, ids(1, [999]), past).then(() => '', String);
          const mine = past[2];
          const before = await mine.getData();
          before.fill(0);
          const zeroed = (await step(keeping, ids(1, [5]), past)).past[2];
          seen.written = (await zeroed.getData()).filter((v) => v === 0).length >= before.length;
          past[0].dispose();
          seen.disposed = await error(step(keeping, ids(1, [5]), past));
          return { wrong, ...seen };
        """,
        [worker, backend],
    )
    assert got["wrong"] == []
    assert got["locations"] == ["gpu-buffer" if backend == "webgpu" else "cpu-pinned"] * 4
    assert "await getData()" in got["early"]
    assert got["swapped"]
    if backend == "wasm":  # a GPU gives 0 for an index out of range
        assert "out of range" in got["failed"]
    assert got["written"]
    assert "disposed" in got["disposed"] or "the feed is" in got["disposed"]


def check_growing(root: Path, run: Run, backend: str) -> None:
    """Random models of several pasts, fed now as tensors that stay and now as arrays."""
    models = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = Growing(rng)
        pyonnx_wasm.save(pyonnx_wasm.compile(model.model.SerializeToString(), gpu=backend == "webgpu"), root / f"growing{seed}.ponnx")
        types = [np.dtype(dtype).name for dtype in model.dtype]
        models.append({"path": f"growing{seed}.ponnx", "axis": model.axis, "dims": model.dims, "types": types})
    got = run(
        CACHE
        + """
          const [models, backend] = arg;
          const made = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array };
          const wrong = [];
          let runs = 0;
          for (const { path, axis, dims, types } of models) {
            const rows = (k, count) => {
              const shape = dims[k].map((n, a) => (a === axis[k] ? count : n));
              const size = shape.reduce((a, b) => a * b);
              const values = Array.from({ length: size }, () => random(199) - 99);
              return new Tensor(types[k], made[types[k]].from(types[k] === "int64" ? values.map(BigInt) : values), shape);
            };
            const joined = (k, a, b) => {
              const inner = (dims) => dims.slice(axis[k]).reduce((x, y) => x * y, 1);
              const [na, nb] = [inner(a.dims), inner(b.dims)];
              const outer = dims[k].slice(0, axis[k]).reduce((x, y) => x * y, 1);
              const part = ({ data }, n, i) => [...data.subarray(i * n, (i + 1) * n)];
              return Array.from({ length: outer }, (_, i) => [...part(a, na, i), ...part(b, nb, i)]).flat();
            };
            const preferredOutputLocation = Object.fromEntries(axis.map((_, k) => [`present${k}`, place(backend)]));
            for (const stays of [true, false]) {
              const session = await create(path, { executionProviders: [backend], ...(stays && { preferredOutputLocation }) });
              let pasts = axis.map((_, k) => rows(k, random(9)));
              for (let i = 0; i < 10; i++) {
                const more = axis.map((_, k) => rows(k, random(4)));
                const arrays = [];
                for (const past of pasts) arrays.push(new Tensor(past.type, (await past.reshape(past.dims).getData()).slice(), past.dims));
                const fed = pasts.map((past, k) => (random(10) < 3 ? arrays[k] : past));
                const feeds = Object.fromEntries(axis.flatMap((_, k) => [[`past${k}`, fed[k]], [`x${k}`, more[k]]]));
                const found = await session.run(feeds);
                pasts = axis.map((_, k) => found[`present${k}`]);
                for (const [k, past] of pasts.entries())
                  if (!same([...(await past.reshape(past.dims).getData())], joined(k, arrays[k], more[k]))) wrong.push([path, stays, i, k]);
                runs++;
              }
            }
          }
          return [runs, wrong];
        """,
        [models, backend],
    )
    assert got == [240, []]
