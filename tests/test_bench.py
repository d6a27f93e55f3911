import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyonnx_wasm import InferenceSession, cli
from pyonnx_wasm.bench import cases, dawn, graphs, render, report, tables, web
from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.program import Signature
from pyonnx_wasm.testing.chromium import launch_options

DIGITS = Path(__file__).parents[1] / "js" / "pages" / "digits" / "digits.onnx"
QUICK = ["--runs", "3", "--seconds", "0", "--warm-up", "0"]


@pytest.fixture(autouse=True)
def few_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in each order."""
    monkeypatch.setattr(web, "STARTS", 2)


def bench(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert cli.main(["bench", *QUICK, *args, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_native(capsys: pytest.CaptureFixture[str]) -> None:
    document = bench(capsys, str(DIGITS), "--native", "--dim", "batch=3", "--steps", "2", "--cpu-time")
    assert (document["mode"], document["clock"], document["threads"]) == ("native", "cpu", 1)
    assert {"pyonnx-wasm", "onnxruntime"} <= document["versions"].keys()
    assert document["machine"]["cpu"]
    (row,) = document["cases"]
    assert row["case"] == "digits"
    assert row["agree"]
    assert row["error"] < 1e-5
    assert row["pairs"] == 3
    for key in ("ours_ms", "theirs_ms", "ratio", "compile_ms", "ours_create_ms", "theirs_create_ms", "rebind_us"):
        assert row[key] > 0, key
    assert len(row["steps"]) == 2
    assert row["steps"][0]["ms"] >= row["steps"][1]["ms"]
    assert all(step["kernel"] and step["name"] for step in row["steps"])
    assert document["summary"] == {
        "cases": 1, "geomean": row["ratio"], "start_geomean": None, "worst": "digits", "worst_ratio": row["ratio"]
    }  # fmt: skip
    text = render(document)
    assert "digits" in text
    assert "onnxruntime ms" in text


def test_what_is_quantised_at_run_time_is_judged_by_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    lines, weights = ['<ir_version: 8, opset_import: ["": 17]> agraph (float[b, 64] x) => (float[b, 64] y) {'], []
    for i in range(3):
        source = "x" if i == 0 else f"t{i}"
        lines += [f"q{i}, s{i}, z{i} = DynamicQuantizeLinear({source})", f"p{i} = MatMulInteger(q{i}, w{i}, z{i})"]
        lines += [f"f{i} = Cast<to=1>(p{i})", f"m{i} = Mul(f{i}, s{i})", f"{'y' if i == 2 else f't{i + 1}'} = Tanh(m{i})"]
        weights.append(onnx.numpy_helper.from_array(rng.integers(-128, 128, (64, 64), np.int8), f"w{i}"))
    model = onnx.parser.parse_model("\n".join([*lines, "}"]))
    model.graph.initializer.extend(weights)
    onnx.save(model, path := tmp_path / "chain.onnx")
    document = bench(capsys, str(path), "--native", "--dim", "b=9")
    (row,) = document["cases"]
    assert row["agree"]
    assert row["error"] < 1e-5
    assert row["parts"] == 3  # x is no result: it is given anyway
    assert "in 3 parts" in render(document)


def test_compile(capsys: pytest.CaptureFixture[str]) -> None:
    document = bench(capsys, str(DIGITS), "--compile")
    (row,) = document["cases"]
    assert row["case"] == "digits"
    for key in ("nodes", "import_ms", "first_ms", "gpu_ms", "core_ms", "us_per_node"):
        assert row[key] > 0, key


def test_models_made_for_compiling_run(tmp_path: Path) -> None:
    import onnxruntime

    rng = np.random.default_rng(0)
    past = rng.standard_normal((4, 1, 4, 3, 2)).astype(np.float32)
    feeds: dict[str, Any] = {"input_ids": np.array([[1, 2, 3]])} | {
        f"past_{i}_{kv}": past[2 * i + k] for i in (0, 1) for k, kv in enumerate("kv")
    }
    for model, feed in (
        (graphs.decoder(layers=2, width=8, heads=4, words=16), feeds),
        (graphs.chain(7), {"t0": rng.standard_normal((5, 4)).astype(np.float32)}),
    ):
        want = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)
        for got, expected in zip(InferenceSession(model).run(None, feed), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def agreed(document: dict[str, Any]) -> dict[str, Any]:
    """The row of the only case: both sides were timed three times, agree, and two steps are shown."""
    (row,) = document["cases"]
    assert row["agree"]
    assert row["error"] < 1e-5
    assert row["pairs"] == 3
    assert len(row["steps"]) == 2
    assert all(row[f"{side}_ms"] > 0 and row[f"{side}_start_ms"]["all"] > 0 for side in ("ours", "theirs"))
    return dict(row)


@pytest.mark.browser
@pytest.mark.parametrize("where", [[], ["--in-page", "--cpu-time"]], ids=["worker", "page"])
def test_web(where: list[str], capsys: pytest.CaptureFixture[str], apart: Callable[..., Any]) -> None:
    document = apart(bench, capsys, str(DIGITS), "--steps", "2", *where)
    assert document["against"] == "onnxruntime-web"
    assert {"chromium", "onnxruntime-web"} <= document["versions"].keys()
    row = agreed(document)
    for side in ("ours", "theirs"):
        assert row["downloads"][side]["bytes"] > row["downloads"][side]["gzip"] > 0
        assert row["model_bytes"][side] > 0
    assert row["ours_wasm_bytes"] >= row["needed_bytes"] > row["model_bytes"]["ours"] // 2
    assert row["theirs_wasm_bytes"] >= 1 << 20
    assert "Download before the model" in render(document)


def test_dawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "STARTS", 1)  # onnxruntime-web's takes ten seconds of each core
    document = bench(capsys, str(DIGITS), "--ep", "webgpu", "--dawn", "--steps", "2")
    assert (document["mode"], document["against"], document["backend"]) == ("dawn", "onnxruntime-web", "webgpu")
    assert {"node", "onnxruntime-web", "adapter"} <= document["versions"].keys()
    assert document["versions"]["webgpu"] == dawn.VERSION
    row = agreed(document)
    assert row["ours_wasm_bytes"] > 0
    assert row["theirs_wasm_bytes"] > 0
    assert "start ratio" in render(document)


def test_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    document = bench(capsys, "--kernels", "--native", "--case", "matmul_1x768x3072", "--case", "depthwise3x3_144_56")
    assert [row["case"] for row in document["cases"]] == ["matmul_1x768x3072", "depthwise3x3_144_56"]
    assert all(row["agree"] and row["ours_gflops"] > 0 and row["theirs_gflops"] > 0 for row in document["cases"])
    assert "GFLOPS" in render(document)


def test_a_model_that_fails_is_a_row_and_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(DIGITS.read_bytes()[:1000])
    assert cli.main(["bench", str(broken), str(DIGITS), "--native", *QUICK]) == 1
    out, err = capsys.readouterr()
    assert "broken: FAILED: " in out
    assert "\ndigits " in out
    assert "1 of 2 cases failed: broken" in err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["missing.onnx", "--native"], "there is no model missing.onnx"),
        ([str(DIGITS), "--native", "--dim", "batch"], "--dim 'batch' must look like symbol=size"),
        ([str(DIGITS), "--native", "--threads", "0"], "--threads must be at least 1, not 0"),
        ([str(DIGITS), "--native", "--runs", "0"], "--runs must be at least 1, not 0"),
        ([str(DIGITS), "--rate", "-1"], "--rate must be a number of MB/s, not -1.0"),
        ([str(DIGITS), "--rate", "nan"], "--rate must be a number of MB/s, not nan"),
        ([str(DIGITS), "--rate", "5", "--native"], "--rate is of both sides' pages: it goes without --native"),
        ([str(DIGITS), "--native", "--threads", "2", "--cpu-time"], "--cpu-time needs --threads 1"),
        ([str(DIGITS), "--onnxruntime-web", "nowhere"], "nowhere holds no onnxruntime-web"),
        ([str(DIGITS), "--dawn"], "--dawn needs --ep webgpu"),
        ([str(DIGITS), "--ep", "webgpu", "--dawn", "--cpu-time"], "goes without --cpu-time"),
        ([str(DIGITS), "--ep", "webgpu", "--dawn", "--onnxruntime-web", "nowhere"], "npm install webgpu@"),
        (["--native", "--kernels", "--case", "convolution"], "there is no case 'convolution'; the cases are matmul_384x384x512"),
        (["--native", "--zoo", ".", "--case", "alexnet"], "there is no case 'alexnet'; the cases are resnet50"),
        (["--native", "--zoo", ".", "--case", "vit_tiny"], "build it with tests/models/make_zoo.py"),
    ],
)
def test_refusals_name_the_cure(
    args: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", *args]) == 1
    assert text in capsys.readouterr().err


def test_feeds_fill_symbols_and_keep_to_ranges() -> None:
    case = cases.Case("c", Path("c.onnx"), {"seq": 5}, {"ids": (7, 9)})
    inputs = [
        Signature("ids", DType.int64, ("batch", "seq")),
        Signature("mask", DType.bool, ("seq",)),
        Signature("x", DType.float32, (2, 0)),
    ]
    feed = case.feed(inputs)
    assert {name: (a.shape, str(a.dtype)) for name, a in feed.items()} == {
        "ids": ((1, 5), "int64"),
        "mask": ((5,), "bool"),
        "x": ((2, 0), "float32"),
    }
    assert set(feed["ids"].ravel()) <= {7, 8}
    assert all(np.array_equal(a, b) for a, b in zip(feed.values(), case.feed(inputs).values(), strict=True))


def test_every_zoo_case_is_read(tmp_path: Path) -> None:
    table = json.loads(cases.ZOO.read_text())
    for row in table.values():
        (tmp_path / row["file"]).touch()
    found = {case.name: case for case in cases.zoo(tmp_path)}
    assert list(found) == list(table)
    assert found["gpt2_decode_p128"].dims == {"seq": 1, "past": 128}
    assert [name for name, case in found.items() if case.quantised] == [name for name, row in table.items() if row.get("quantised")]


def test_pairs_alternate_and_repeat_what_is_short() -> None:
    calls: list[tuple[str, int]] = []

    def side(name: str, ms: float) -> Any:
        def run(repeat: int) -> float:
            calls.append((name, repeat))
            return ms

        return run

    times = report.pairs([side("a", 10.0), side("b", 100.0)], report.Limits(runs=4, seconds=60, warm_up=0))
    assert times == [[10.0] * 4, [100.0] * 4]
    a, b = [("a", 1), ("a", 5)], [("b", 1), ("b", 1)]  # a run that does not count, and the block
    assert calls == [("a", 1), ("b", 1), ("a", 5), *a, *b, *b, *a, *a, *b, *b, *a]
    row = report.paired(*times)
    assert (row["ours_ms"], row["theirs_ms"], row["ratio"], row["pairs"]) == (10.0, 100.0, 10.0, 4)


def test_a_block_is_filled_although_one_run_alone_is_mostly_its_clock() -> None:
    repeats = []

    def run(repeat: int) -> float:
        repeats.append(repeat)
        return max(0.0, 10.0 / repeat - 0.05) if repeat < 1000 else 0.1

    ((first, *_),) = report.pairs([run], report.Limits(runs=3, seconds=60, warm_up=0))
    assert first == 0.1
    assert repeats == [1, 5, 26, 149, 1000, *[1, 1000] * 3]


NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize(
    ("ours", "theirs", "error", "agree"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, True),
        ([1.0, 2.0001], [1.0, 2.0], 5e-5, True),
        ([1.0, 2.01], [1.0, 2.0], 5e-3, False),
        ([0.0001, 2.0], [0.0, 2.0], 5e-5, True),
        ([NAN, INF], [NAN, INF], 0.0, True),
        ([NAN, 1.0], [1.0, 1.0], None, False),
        ([1.0, INF], [1.0, 1.0], None, False),
        ([1.0, 1.0], [1.0, INF], None, False),
        ([], [], 0.0, True),
    ],
)
def test_difference(ours: list[float], theirs: list[float], error: float | None, agree: bool) -> None:
    found = report.difference([np.array(ours)], [np.array(theirs)])
    assert found["agree"] is agree
    assert found["error"] == (None if error is None else pytest.approx(error, rel=1e-6))


def test_difference_of_other_shapes_or_dtypes() -> None:
    a = np.zeros(2, np.float32)
    for b in (np.zeros(3, np.float32), np.zeros(2, np.int32)):
        assert report.difference([a], [b]) == {"error": None, "agree": False}
    assert not report.difference([a], [])["agree"]


def test_mean_leaves_out_wrong_and_quantised_cases() -> None:
    def row(case: str, ratio: float, agree: bool = True, quantised: bool = False) -> report.Row:
        return {"case": case, "ratio": ratio, "agree": agree, "quantised": quantised}

    rows = [row("a", 4.0), row("b", 1.0), row("c", 100.0, agree=False), row("d", 9.0, quantised=True), {"case": "e", "quantised": False}]
    for start, other in zip((8.0, 2.0, 1.0), rows, strict=False):
        other["start_ratio"] = start
    assert report.summary(rows) == {"cases": 2, "geomean": 2.0, "start_geomean": 4.0, "worst": "b", "worst_ratio": 1.0}
    assert report.summary([]) == {"cases": 0, "geomean": None, "start_geomean": None, "worst": None}


def test_table_is_aligned() -> None:
    text = report.table([{"case": "a", "ms": "1.00"}, {"case": "longer", "ms": "10.00", "more": "x"}])
    assert text.splitlines() == ["case       ms  more", "------  -----  ----", "a        1.00", "longer  10.00     x"]


def test_slow_kernels_have_gflops_too() -> None:
    assert [report.gflops(value) for value in (1234.56, 1.0, 0.0432)] == ["1234.6", "1.0", "0.043"]


def test_arguments_have_help() -> None:
    parser = argparse.ArgumentParser()
    from pyonnx_wasm import bench as module

    module.arguments(parser)
    assert all(action.help for action in parser._actions)


def row(case: str, ratio: float, **others: Any) -> dict[str, Any]:
    return {"case": case, "quantised": False, "agree": True, "ours_ms": 1234.5, "theirs_ms": 12.3 * ratio, "ratio": ratio, **others}


def test_tables_are_written_from_documents(tmp_path: Path) -> None:
    text = tmp_path / "README.md"
    kinds = ("web wasm", "web webgpu", "web wasm kernels")
    text.write_text("before\n" + "".join(f"<!-- bench: {kind} -->\nold {kind}\n<!-- /bench -->\nbetween\n" for kind in kinds))
    rows = [row("resnet50", 2.0, start_ratio=3.0), row("gpt2_decode_p128", 8.0, start_ratio=12.0)]
    rows += [row("minilm_int8_s128", 5.0, start_ratio=1.0, quantised=True)]
    rows += [row("matmul_384x384x512", 1.75, ours_gflops=35.04, theirs_gflops=20.0)]
    document = {"mode": "web", "backend": "wasm", "against": "onnxruntime-web", "cases": rows}
    (tmp_path / "bench.json").write_text(json.dumps(document))
    assert tables.main([str(text), str(tmp_path / "bench.json")]) == 0
    written = text.read_text()
    assert "old web webgpu" in written, "what was not measured stays"
    assert written.count("between") == 3
    models, kernels = written.split("<!-- bench: web wasm -->\n")[1], written.split("<!-- bench: web wasm kernels -->\n")[1]
    assert models.split("<!-- /bench -->")[0].splitlines() == [
        "| model | ours ms | onnxruntime-web ms | speed | start |",
        "|---|---|---|---|---|",
        "| resnet50, 224² | 1,234 | 25 | 2.00 × | 3.0 × |",
        "| gpt2, one token, past 128 | 1,234 | 98 | 8.00 × | 12.0 × |",
        "| geometric mean | | | **4.00 ×** | **6.0 ×** |",
        "| MiniLM int8, 128 tokens | 1,234 | 62 | 5.00 × | 1.0 × |",
    ]
    assert "| matmul 384×384 · 384×512 | 35.0 | 20.0 | 1.75 × |" in kernels.split("<!-- /bench -->")[0]
    assert tables.write(written, [document]) == written, "again gives the same"


def test_tables_refuse_what_they_cannot_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"mode": "native", "backend": "native", "against": "onnxruntime", "cases": [row("resnet50", 2.0)]}
    with pytest.raises(ValueError, match="no table '<!-- bench: native -->'"):
        tables.write("nothing", [good])
    bad = good | {"cases": [row("resnet50", 2.0) | {"agree": False}]}
    with pytest.raises(ValueError, match="resnet50: failed"):
        tables.write("<!-- bench: native -->\n<!-- /bench -->", [bad])
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "b.json").write_text(json.dumps(good))
    assert tables.main([str(tmp_path / "a.md"), str(tmp_path / "b.json")]) == 1
    assert "no table" in capsys.readouterr().err
    assert (tmp_path / "a.md").read_text() == "text"


def test_every_table_of_the_readme_has_a_document_that_fills_it() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert {"web wasm", "web webgpu", "web wasm kernels"} <= set(re.findall(r"<!-- bench: ([a-z0-9 ]+) -->\n\|", readme))


def test_a_decode_step_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row of a table, a product over it, and a cache that it goes on: each byte told by hand."""
    info, node = helper.make_tensor_value_info, helper.make_node
    tensors = {"table": np.zeros((50, 8), np.float32), "w": np.zeros((8, 4), np.float32), "bias": np.zeros(4, np.float32)}
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("MatMul", ["x", "w"], ["t"]),
        node("Add", ["t", "bias"], ["y"]),
        node("Concat", ["past", "y"], ["present"], axis=0),
    ]
    inputs = [info("ids", TensorProto.INT64, ["m"]), info("past", TensorProto.FLOAT, ["p", 4])]
    outputs = [info("present", TensorProto.FLOAT, ["q", 4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, name) for name, a in tensors.items()])
    path = tmp_path / "step.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert cli.main(["bench", "--count", str(path), "-d", "p=10", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["cases"]
    assert row["kernels"] == {
        "concat": {"dispatches": 1, "read": 160 + 16, "written": 176, "flops": 44},
        "matmul": {"dispatches": 1, "read": 32 + 128 + 16, "written": 16, "flops": 2 * 8 * 4},
        "gather": {"dispatches": 1, "read": 32 + 8, "written": 32, "flops": 8},
    }
    assert (row["dispatches"], row["barriers"]) == (3, 2)
    assert row["least_bytes"] == (32 + 128 + 16) + (8 + 160) + 176, "the row, the weights, the inputs, the output"
    assert row["of_least"] == round((176 + 176 + 176 + 16 + 40 + 32) / row["least_bytes"], 4)
    assert cli.main(["bench", "--count", str(path), "-d", "p=10"]) == 0
    assert "3 dispatches, 2 barriers" in capsys.readouterr().out
    assert cli.main(["bench", "--count", "--ep", "webgpu", str(path), "-d", "p=10", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["cases"]
    grown = row["kernels"]["concat"]
    assert (grown["read"], grown["written"]) == (16, 16), "the ten rows of the past are where they were"
    assert row["least_bytes"] == (32 + 128 + 16) + 8 + 176, "the weights, the input, and the rows of the present once"
    assert row["on_core"] == 0
    assert row["groups"] == sum(one["groups"] for one in row["kernels"].values())


@pytest.mark.browser
def test_narrower_weights_beside_float32(capsys: pytest.CaptureFixture[str], apart: Callable[..., Any]) -> None:
    decoder = Path(__file__).parent / "data" / "decoder.onnx"
    document = apart(bench, capsys, str(decoder), "--weights", "int8", "--weights", "f16", "--dim", "past=4", "--steps", "1")
    assert (document["mode"], document["against"], document["summary"]["cases"]) == ("narrow", "float32", 0)
    assert [row["case"] for row in document["cases"]] == ["decoder, int8", "decoder, f16"]
    for row in document["cases"]:
        assert row["agree"]
        assert 0 < row["error"] < 0.02
        assert row["ours_bytes"] < row["theirs_bytes"]
        assert min(row["ours_ms"], row["theirs_ms"], row["ratio"]) > 0
        assert len(row["steps"]) == 1
    assert "float32 ms" in render(document)


@pytest.mark.browser
def test_a_wrong_size_of_what_is_narrowed_is_told(capsys: pytest.CaptureFixture[str], apart: Callable[..., Any]) -> None:
    decoder = Path(__file__).parent / "data" / "decoder.onnx"
    assert apart(cli.main, ["bench", *QUICK, str(decoder), "--weights", "int8", "--dim", "p=4"]) == 1
    told = capsys.readouterr()
    assert "decoder, int8: FAILED: no dimension is named 'p'; the model has batch, past, seq" in told.out
    assert "1 of 1 cases failed: decoder, int8" in told.err


@pytest.mark.browser
def test_visits_of_pages_with_a_raw_model(capsys: pytest.CaptureFixture[str], apart: Callable[..., Any]) -> None:
    document = apart(bench, capsys, str(DIGITS), "--raw", "--runs", "1")
    assert (document["mode"], document["against"]) == ("raw", "onnxruntime-web")
    (row,) = document["cases"]
    assert row["agree"]
    for visit in ("first", "second"):
        for side in ("ours", "theirs"):
            assert row[f"{side}_{visit}_ms"] > 0
            assert row[f"{side}_{visit}_cpu_ms"] > 0
        assert row[f"{visit}_ms_ratio"] == pytest.approx(row[f"theirs_{visit}_ms"] / row[f"ours_{visit}_ms"], rel=0.01)
    assert row["theirs_peak_bytes"] > 1e6
    assert "first visit ms" in render(document)


def test_the_middle_of_peaks_is_unknown_where_one_is() -> None:
    assert web.middle([5, 1, 3]) == 3
    assert web.middle([5, None, 3]) is None


@pytest.mark.browser
def test_memory_is_that_of_the_page(apart: Callable[..., Any]) -> None:
    """And not of the browser's own window, which is a process of the same kind."""

    def measure() -> list[int]:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(**launch_options())
            try:
                page = browser.new_page()
                page.goto("data:text/html,")
                page.wait_for_load_state()
                peaks = [web.peak_of(browser)]
                page.evaluate("() => { window.kept = new Uint8Array(2 ** 27).fill(1); }")
                peaks.append(web.peak_of(browser))
                assert not any(b"--top-chrome-webui" in (r / "cmdline").read_bytes() for r in web.renderers(browser))
                return [peak for peak in peaks if peak is not None]
            finally:
                browser.close()

    empty, full = apart(measure)
    assert full - empty >= 0.9 * 2**27  # a little may have gone before
