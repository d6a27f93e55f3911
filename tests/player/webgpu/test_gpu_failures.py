"""Where WebGPU is missing, refused, too small or lost: fallbacks, errors, and what is not fetched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gpu_site import NAME, runner
from player_site import DIST, Run
from playwright.sync_api import Page

from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser


def test_strict_content_security_policy(gpu_page: Page, gpu_server: Server) -> None:
    run = runner(gpu_page, f"{gpu_server.url}csp.html")
    assert run('const s = await gpu("soft.ponnx"); return [(await s.run({ x: x(2) })).y.dims, s.backend]') == [[2, 67], "webgpu"]


def test_wasm_does_not_fetch_what_it_does_not_need(gpu_page: Page, gpu_models: Path) -> None:
    with Server({"/": gpu_models, "/player": DIST}, isolated=False) as server:

        def fetched() -> bool:
            return any(t.path.endswith("gpu.mjs") for t in server.transfers)

        run = runner(gpu_page, f"{server.url}index.html")
        assert run('return (await create("soft.ponnx")).backend') == "wasm"
        assert not fetched()
        assert run('return (await gpu("soft.ponnx")).backend') == "webgpu"
        assert fetched()


FALLBACK = """
  const warnings = [];
  const warn = console.warn;
  console.warn = (text) => warnings.push(text);
  %s
  const session = await create("%s", { executionProviders: ["webgpu", "wasm"], worker: false });
  const { y } = await session.run({ x: x(2) });
  console.warn = warn;
  const alone = await error(gpu("%s", { worker: false }));
  return { backend: session.backend, fallback: session.fallback, warnings, alone, dims: y.dims };
"""


def fallen_back(run: Run, before: str = "", model: str = "dense.ponnx") -> str:
    got = run(FALLBACK % (before, model, model))
    assert (got["backend"], got["dims"]) == ("wasm", [2, 31])
    assert got["fallback"] in got["alone"]
    assert got["warnings"] == [f"pyonnx-wasm: running on wasm: {got['fallback']}"]
    return str(got["fallback"])


def test_fallback_without_an_adapter(run: Run) -> None:
    assert "no adapter" in fallen_back(run, "navigator.gpu.requestAdapter = async () => null;")


def test_fallback_without_a_part_for_gpus(run: Run) -> None:
    assert "compile it again, with --gpu" in fallen_back(run, model="core_only.ponnx")


def test_fallback_in_an_insecure_context(gpu_page: Page, gpu_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_server, "host", NAME)
    run = runner(gpu_page, gpu_server.url.replace("127.0.0.1", NAME) + "index.html")
    assert run("return isSecureContext") is False
    assert "https" in fallen_back(run)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            {"maxStorageBufferBindingSize": 4096, "maxBufferSize": 8192},
            'weight "w" needs 8320 bytes in one buffer, this GPU binds at most ',
        ),
        ({"maxStorageBuffersPerShaderStage": 2}, "buffers, this GPU binds at most 2 in one shader"),
    ],
)
def test_fallback_where_limits_are_too_small(run: Run, limits: dict[str, int], text: str) -> None:
    assert text in fallen_back(run, f"env.webgpu.limits = {json.dumps(limits)};")


def test_a_shader_that_does_not_compile_names_the_kernel(run: Run, gpu_models: Path) -> None:
    for model in ("dense", "soft"):
        whole = (gpu_models / f"{model}.ponnx").read_bytes()
        (gpu_models / f"broken_{model}.ponnx").write_bytes(whole.replace(b"fn main(", b"fn moin("))
    got = run("""
      // Which shader a product of open sizes takes is known when it runs.
      const open = await error(gpu("broken_dense.ponnx").then((session) => session.run({ x: x(3) })));
      return [await error(gpu("broken_soft.ponnx")), open, (await gpu("soft.ponnx")).backend];
    """)
    assert re.search("broken_soft.ponnx: kernel \\w+: the shader does not compile: .*main", got[0])
    assert "kernel matmul: the shader does not compile" in got[1]
    assert got[2] == "webgpu"


def test_sizes_that_do_not_fit_leave_the_session_usable(run: Run) -> None:
    got = run("""
      env.webgpu.limits = { maxStorageBufferBindingSize: 1 << 20, maxBufferSize: 1 << 20 };
      const session = await gpu("pair.ponnx");
      const square = (n) => floats(new Float32Array(n * n).fill(2), [n, n]);
      const [small, large] = [square(8), square(600)];
      const seen = [(await session.run({ a: small, b: small })).p.data[63]];
      seen.push(await error(session.run({ a: large, b: large })));
      seen.push((await session.run({ a: small, b: small })).p.data[63]);
      seen.push((await session.run({ a: square(500), b: square(500) })).d.data.length);
      return seen;
    """)
    assert got[0] == 4
    assert "input 0 needs 1440000 bytes in one buffer, this GPU binds at most 1048576" in got[1]
    assert got[2:] == [4, 250000]


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_lost_device_ends_the_session_and_a_new_one_works(run: Run, when: str) -> None:
    got = run(
        """
          const session = await gpu("soft.ponnx", { worker: false });
          const device = await env.webgpu.device;
          const first = (await session.run({ x: x(3) })).y.dims;
          if (arg === "before") device.destroy();
          const runs = [session.run({ x: x(3) }), session.run({ x: x(4) })];
          const destroyed = arg === "during" && new Promise((done) => setTimeout(() => done(device.destroy()), 0));
          const settled = await Promise.allSettled(runs.concat(arg === "during" ? [] : [session.run({ x: x(1) })]));
          await destroyed;
          const late = await session.run({ x: x(1) }).then(() => null, (e) => [e.name, e.message]);
          const again = await gpu("soft.ponnx", { worker: false });
          const { y } = await again.run({ x: x(2) });
          await Promise.all([session.release(), again.release()]);
          const reasons = settled.filter(({ status }) => status === "rejected").map(({ reason }) => [reason.name, reason.message]);
          const kept = settled.map(({ value }) => value?.y.dims[0] ?? null);
          return { first, reasons, kept, late, dims: y.dims, fresh: (await env.webgpu.device) !== device };
        """,
        when,
    )
    assert got["first"] == [3, 67]
    for name, message in [*got["reasons"], got["late"]]:
        assert name == "GpuError"
        assert "the GPU was lost" in message
        assert message.endswith("create the session again")
    # What was asked for before the loss may have been done; then it is what was asked for.
    assert len(got["reasons"]) + sum(rows is not None for rows in got["kept"]) == len(got["kept"])
    possible = [{None}, {None}, {None}] if when == "before" else [{None, 3}, {None, 4}]
    assert len(got["kept"]) == len(possible)
    assert all(rows in allowed for rows, allowed in zip(got["kept"], possible, strict=True))
    assert got["dims"] == [2, 67]
    assert got["fresh"]


def test_errors_of_the_worker_keep_their_class(run: Run) -> None:
    got = run("""
      env.webgpu.limits = { maxStorageBufferBindingSize: 4096 };
      return await gpu("dense.ponnx").then(() => null, (e) => [e.name, e instanceof Error]);
    """)
    assert got == ["GpuError", True]
