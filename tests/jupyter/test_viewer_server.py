"""The Jupyter server's part of the viewer, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer import viewer_lab
from viewer_models import blocks, hostile
from waiting import until

from pyonnx_wasm.lab import server
from pyonnx_wasm.testing.lab import Lab

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("server")
    with viewer_lab(home) as lab:
        folder = lab.folder
        shutil.copy(ROOT / "js/pages/digits/digits.onnx", folder)
        (folder / "sub" / ".hidden").mkdir(parents=True)
        shutil.copy(folder / "digits.onnx", folder / "sub" / ".hidden" / "digits.onnx")
        shutil.copy(folder / "digits.onnx", home / "outside.onnx")
        (folder / "broken.onnx").write_bytes((folder / "digits.onnx").read_bytes()[:5000])
        np.save(folder / "sub" / "ink.npy", np.zeros((2, 1, 8, 8), np.float32))
        np.save(home / "outside.npy", np.zeros((2, 1, 8, 8), np.float32))
        hostile(folder / "hostile.onnx")
        blocks(folder / "large.onnx", 40, lambda layer, k, op: "")
        yield lab


def ask(lab: Lab, what: str, body: Any = None, token: str | None = None, **query: str) -> tuple[int, Any]:
    """Status and answer of a request."""
    address = f"{lab.url}pyonnx-wasm/{what}?{urllib.parse.urlencode(query)}"
    headers = {"Authorization": f"token {lab.token if token is None else token}"}
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else text.decode()


def test_graph_shapes_and_statistics(lab: Lab) -> None:
    status, graph = ask(lab, "graph", path="digits.onnx")
    assert (status, graph["name"], len(graph["nodes"])) == (200, "digits.onnx", 11)
    status, shapes = ask(lab, "shapes", path="digits.onnx")
    assert (status, shapes["failures"]) == (200, {})
    assert shapes["values"]["probabilities"][:2] == ["float32", ["batch", 10]]
    status, statistics = ask(lab, "weight", path="/digits.onnx", name="model.head.weight")
    assert (status, statistics["count"], sum(statistics["histogram"])) == (200, 6400, 6400)


def test_a_run_with_inputs_from_files(lab: Lab) -> None:
    status, told = ask(lab, "run", {"path": "digits.onnx", "sizes": {}, "inputs": {"ink": {"file": "sub/ink.npy"}}})
    assert (status, told["outputs"][0]["shape"]) == (200, [2, 10])
    assert told["steps"]
    status, told = ask(lab, "run", {"path": "digits.onnx", "sizes": {"batch": 1 << 50}, "inputs": {}})
    assert status == 422
    assert "'ink'" in told["message"]


@pytest.mark.parametrize("what", ["graph", "shapes", "weight", "run"])
def test_strangers_are_refused(lab: Lab, what: str) -> None:
    body = {"path": "digits.onnx"} if what == "run" else None
    assert ask(lab, what, body, token="wrong", path="digits.onnx", name="model.head.weight")[0] == 403


UNSERVED = (
    *("../outside.onnx", "sub/../../outside.onnx", "/../outside.onnx", "..\\outside.onnx"),
    *("sub/.hidden/digits.onnx", "sub", "absent.onnx", ""),
)


@pytest.mark.parametrize("path", UNSERVED)
def test_only_files_that_the_contents_manager_serves(lab: Lab, path: str) -> None:
    for what in ("graph", "shapes", "weight"):
        status, told = ask(lab, what, path=path, name="model.head.weight")
        assert status == 404, told
        assert str(lab.home) not in json.dumps(told)
    assert ask(lab, "run", {"path": path})[0] == 404
    assert ask(lab, "run", {"path": "digits.onnx", "inputs": {"ink": {"file": path}}})[0] == 404
    absolute = str(lab.home / "outside.npy")
    assert ask(lab, "run", {"path": "digits.onnx", "inputs": {"ink": {"file": absolute}}})[0] == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", {}, {"path": 3}, {"path": "digits.onnx", "sizes": []},
                                  {"path": "digits.onnx", "sizes": {"batch": "x"}}, {"path": "digits.onnx", "inputs": {"ink": 1}},
                                  {"path": "digits.onnx", "inputs": {"ink": {}}}])  # fmt: skip
def test_malformed_requests(lab: Lab, body: Any) -> None:
    assert ask(lab, "run", body)[0] == 400


def test_what_is_wrong_with_a_model_is_said(lab: Lab) -> None:
    status, told = ask(lab, "graph", path="broken.onnx")
    assert status == 422
    assert "truncated" in told["message"]
    assert str(lab.home) not in told["message"]
    status, told = ask(lab, "run", {"path": "hostile.onnx"})
    assert status == 422
    assert "own.Unheard is not supported" in told["message"]
    status, told = ask(lab, "weight", path="digits.onnx", name="absent")
    assert (status, told["message"]) == (422, "there is no 'absent'")
    shapes = ask(lab, "shapes", path="hostile.onnx")[1]
    assert list(shapes["failures"]) == ["unheard"]


def test_a_request_that_is_given_up_ends_its_process(lab: Lab) -> None:
    """The server closes the worker of a run that nobody waits for."""
    children = Path(f"/proc/{lab._process.pid}/task/{lab._process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not list the children of a process")
    before = children.read_text().split()
    body = json.dumps({"path": "large.onnx", "sizes": {"n": 1 << 18}, "inputs": {}}).encode()
    request = urllib.request.Request(f"{lab.url}pyonnx-wasm/run", body, {"Authorization": f"token {lab.token}"})

    def give_up() -> None:
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(request, timeout=0.7)

    thread = threading.Thread(target=give_up)
    thread.start()
    thread.join()
    until(lambda: set(children.read_text().split()) <= set(before))
    assert ask(lab, "graph", path="digits.onnx")[0] == 200


def test_a_symbolic_link_in_the_folder_is_followed_as_the_contents_manager_does(lab: Lab) -> None:
    os.symlink(lab.home / "outside.onnx", lab.folder / "linked.onnx")
    assert ask(lab, "graph", path="linked.onnx")[0] == 200


def test_runs_wait_for_their_turn_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch, apart: Callable[..., Any]) -> None:
    monkeypatch.setattr(server, "RUNS", 2)
    monkeypatch.setattr(server, "WAITING", 3)

    async def go() -> tuple[int, int, int]:
        turns, inside, most = server.Turns(), 0, 0
        refused: list[str] = []
        done = asyncio.Event()

        async def run() -> None:
            nonlocal inside, most
            try:
                async with turns:
                    inside += 1
                    most = max(most, inside)
                    await done.wait()
                    inside -= 1
            except server.JobError as error:
                refused.append(str(error))

        tasks = [asyncio.ensure_future(run()) for _ in range(9)]
        await asyncio.sleep(0)
        tasks[3].cancel()  # one that waits gives its place up
        await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(run()))
        await asyncio.sleep(0)
        waiting = turns.waiting
        done.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert set(refused) == {"3 runs are waiting already: try again when they are done"}
        return most, len(refused), waiting

    assert apart(asyncio.run, go()) == (2, 4, 3)
