"""A model behind OpenAI's API, asked by OpenAI's own client and by hand."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from gguf_models import TEMPLATE, talking
from waiting import until

from pyonnx_wasm.cli import main
from pyonnx_wasm.endpoint import application
from pyonnx_wasm.generate import Generator


class Site:
    """An application on a port, and what it writes with."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.generator = Generator(path, several=True)
        self.generator.ends = frozenset()
        self.app = application(self.generator, "tiny", **options)
        self.engine = self.app.state.engine
        self.server = uvicorn.Server(uvicorn.Config(self.app, port=0, log_level="warning", ws="none"))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]}, daemon=True)
        self.thread.start()
        until(lambda: self.server.started)
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def close(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(60)
        self.listener.close()
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking(tmp_path_factory.mktemp("endpoint") / "tiny.gguf")


@pytest.fixture(scope="module")
def site(path: Path) -> Iterator[Site]:
    made = Site(path, at_once=3, queue=5)
    yield made
    made.close()


def wanted(site: Site, prompt: Any, limit: int, seed: int, **settings: Any) -> str:
    """What a generator of its own writes."""
    alone = Generator(site.generator.decoder.session, site.generator.tokenizer, template=TEMPLATE, context=32)
    alone.ends = frozenset()
    return alone(prompt, max_new_tokens=limit, seed=seed, **({"temperature": 0.9, "top_k": 0, "top_p": 1.0} | settings))


def test_models_are_listed(site: Site) -> None:
    assert [m.id for m in site.client.models.list()] == ["tiny"]
    assert site.client.models.retrieve("tiny").owned_by == "pyonnx-wasm"
    with pytest.raises(openai.NotFoundError, match="'other' is not here"):
        site.client.models.retrieve("other")


def test_completions(site: Site) -> None:
    made = site.client.completions.create(model="tiny", prompt="the cat", max_tokens=6, seed=4, temperature=0.9)
    assert made.choices[0].text == wanted(site, "the cat", 6, 4)
    assert made.choices[0].finish_reason == "length"
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (5, 6, 11)
    both = site.client.completions.create(model="tiny", prompt=["the", "a dog"], n=2, max_tokens=4, seed=4, temperature=0.9)
    assert [c.text for c in both.choices] == [wanted(site, p, 4, s) for p in ("the", "a dog") for s in (4, 5)]
    assert [c.index for c in both.choices] == [0, 1, 2, 3]
    ids = site.generator.encode("the cat")
    assert site.client.completions.create(model="tiny", prompt=ids, max_tokens=6, seed=4, temperature=0.9).choices == made.choices
    whole = wanted(site, "the cat", 20, 4)
    stopped = site.client.completions.create(model="tiny", prompt="the cat", max_tokens=20, seed=4, temperature=0.9, stop=whole[4:6])
    assert stopped.choices[0].text == whole[: whole.index(whole[4:6])]
    assert stopped.choices[0].finish_reason == "stop"


def test_completions_stream_and_tell_likely_tokens(site: Site) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "the cat", "max_tokens": 6, "seed": 4, "temperature": 0.9, "logprobs": 3}
    whole = site.client.completions.create(**asked).choices[0]
    parts = list(site.client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(p.choices[0].text for p in parts if p.choices) == whole.text
    assert parts[-2].choices[0].finish_reason == "length"
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens == 6
    assert whole.logprobs is not None
    assert whole.logprobs.tokens is not None
    assert "".join(whole.logprobs.tokens) == whole.text
    likely = [p.choices[0].logprobs.top_logprobs[0] for p in parts[:6] if p.choices[0].logprobs and p.choices[0].logprobs.top_logprobs]
    assert likely == whole.logprobs.top_logprobs
    assert all(len(x) == 3 for x in likely)


def test_chats(site: Site) -> None:
    messages: list[Any] = [{"role": "system", "content": "be a cat"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    asked: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 6, "seed": 1, "temperature": 0.9}
    made = site.client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    message = made.choices[0].message
    assert message.role == "assistant"
    assert message.content == wanted(site, "system: be a cat user: hi ", 6, 1)
    assert made.choices[0].logprobs is not None
    assert made.choices[0].logprobs.content is not None
    assert [len(t.top_logprobs) for t in made.choices[0].logprobs.content] == [2] * 6
    parts = list(site.client.chat.completions.create(**asked, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(p.choices[0].delta.content or "" for p in parts) == message.content
    assert [p.choices[0].finish_reason for p in parts] == [None] * 7 + ["length"]
    again = site.client.chat.completions.create(**asked)
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1, "what is known is not read again"
    longest = site.client.chat.completions.create(**(asked | {"max_tokens": None}))
    assert longest.choices[0].finish_reason == "length"
    assert longest.usage is not None
    assert longest.usage.total_tokens == 32, "as far as the model reads"


def test_many_at_once_get_what_each_gets_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["the", "a cat sat.", "dog", "the dog and a", "x", "yes: no", "a", "the the the"]
    assert site.engine._together.shares
    steps, step = [], site.engine._together._joined.step

    def counted(tokens: list[int], *needs: str) -> Any:
        if not steps:
            until(lambda: site.engine.waiting == len(prompts))  # all have asked before the first has ended
        steps.append(len(tokens))
        return step(tokens, *needs)

    monkeypatch.setattr(site.engine._together._joined, "step", counted)

    async def ask(client: openai.AsyncOpenAI, k: int) -> str:
        stream = await client.completions.create(model="tiny", prompt=prompts[k], max_tokens=12, seed=k, temperature=0.9, stream=True)
        return "".join([p.choices[0].text async for p in stream])

    async def everyone() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, k) for k in range(len(prompts))))

    with ThreadPoolExecutor(1) as alone:
        found = alone.submit(lambda: asyncio.run(everyone())).result()
    assert found == [wanted(site, p, 12, k) for k, p in enumerate(prompts)]
    assert max(steps) == 3, "three in a run"


def test_more_than_may_wait_are_sent_away(site: Site) -> None:
    ask: dict[str, Any] = {"model": "tiny", "prompt": "the", "max_tokens": 1}
    with pytest.raises(openai.RateLimitError, match="8 may: try again later") as told:
        site.client.completions.create(**ask, n=9)
    assert told.value.code == "rate_limit_exceeded"
    assert told.value.response.headers["retry-after"] == "1"
    assert site.client.completions.create(**ask, n=8).choices[7].finish_reason == "length"


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_frees_the_place(path: Path, stream: bool) -> None:
    here = Site(path, at_once=1, queue=0)
    here.generator.context = None
    body = {"model": "tiny", "prompt": "the", "max_tokens": 100_000, "stream": stream}
    if stream:
        with httpx.Client(base_url=here.url) as client, client.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_lines())
    else:
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(here.url.rpartition(":")[2]))) as asking:
            asking.sendall(head.encode() + data)
            until(lambda: here.engine.waiting == 1)
    until(lambda: here.engine.waiting == 0)
    here.generator.context = 32
    assert here.client.completions.create(model="tiny", prompt="the", max_tokens=1).choices[0].finish_reason == "length"
    here.close()


REFUSED: list[tuple[str, dict[str, Any], int, str, str | None]] = [
    ("completions", {"prompt": ""}, 400, "the prompt is empty", "prompt"),
    ("completions", {"prompt": [99]}, 400, "token 99 is none of the model's", "prompt"),
    ("completions", {"prompt": [[]]}, 400, "prompt must be", "prompt"),
    ("completions", {"prompt": "the" * 60}, 400, "the model reads 32", "prompt"),
    ("completions", {}, 400, "prompt must be", "prompt"),
    ("completions", {"prompt": "a", "temperature": -1}, 400, "temperature is -1", "temperature"),
    ("completions", {"prompt": "a", "top_p": "x"}, 400, "top_p is 'x'", "top_p"),
    ("completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens is 0", "max_tokens"),
    ("completions", {"prompt": "a", "n": 17}, 400, "n is 17", "n"),
    ("completions", {"prompt": "a", "presence_penalty": 1}, 400, "presence_penalty is not supported", "presence_penalty"),
    ("completions", {"prompt": "a", "colour": 1}, 400, "'colour' is not known", "colour"),
    ("completions", {"prompt": "a", "model": "x"}, 404, "'x' is not here", "model"),
    ("completions", {"prompt": "a", "stream": "yes"}, 400, "stream is 'yes'", "stream"),
    ("completions", {"prompt": "a", "stop": [1]}, 400, "stop must be", "stop"),
    ("chat/completions", {"messages": []}, 400, "messages must be", "messages"),
    ("chat/completions", {"messages": [{"content": "a"}]}, 400, "has no role", "messages"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "no text", "messages"),
    ("chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, 400, "tools is not supported", "tools"),
    ("chat/completions", {"messages": [{"role": "user", "content": "a" * 60}]}, 400, "the model reads 32", "messages"),
]


@pytest.mark.parametrize(("route", "given", "status", "message", "param"), REFUSED)
def test_what_is_refused(site: Site, route: str, given: dict[str, Any], status: int, message: str, param: str | None) -> None:
    answer = httpx.post(f"{site.url}/v1/{route}", json={"model": "tiny", **given})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"


def test_what_is_no_request(site: Site) -> None:
    def error(method: str, path: str, **more: Any) -> tuple[int, str]:
        answer = httpx.request(method, f"{site.url}{path}", **more)
        return answer.status_code, answer.json()["error"]["message"]

    typed = {"Content-Type": "application/json"}
    assert error("GET", "/v1/completions") == (405, "GET /v1/completions: Method Not Allowed")
    assert error("GET", "/other") == (404, "GET /other: Not Found")
    assert error("POST", "/v1/completions", content=b"{", headers=typed) == (400, "the request is no JSON")
    assert error("POST", "/v1/completions", content=b"[" * 100_000, headers=typed) == (400, "the request is no JSON")
    assert error("POST", "/v1/completions", content=b"[]", headers=typed) == (400, "the request is no JSON object")
    status, _ = error("POST", "/v1/completions", content=b" " * (5 << 20), headers=typed)
    assert status == 413
    plain = json.dumps({"model": "tiny", "prompt": "a"})
    status, text = error("POST", "/v1/completions", content=plain, headers={"Content-Type": "text/plain"})
    assert (status, "text/plain" in text) == (415, True), "what a foreign page may send unasked"
    status, text = error("GET", "/v1/models", headers={"Host": "evil.example"})
    assert (status, "ask for it by its address" in text) == (421, True)


def test_a_text_that_fails_is_told_and_the_others_go_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ask: dict[str, Any] = {"model": "tiny", "prompt": "the", "max_tokens": 3}
    decode = site.generator.tokenizer

    class Broken:
        def encode(self, text: str) -> Any:
            return decode.encode(text)

        def decode(self, ids: Any, **_: Any) -> str:
            raise RuntimeError("no words")

    monkeypatch.setattr(site.generator, "tokenizer", Broken())
    with pytest.raises(openai.InternalServerError, match="no words"):
        site.client.completions.create(**ask)
    with pytest.raises(openai.APIError, match="no words"):
        list(site.client.completions.create(**ask, stream=True))
    monkeypatch.undo()
    assert site.client.completions.create(**ask).choices[0].text


def test_the_command_serves_a_model(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pyonnx_wasm", "serve"]
    with subprocess.Popen([*command, "--model", str(path), "--port", str(port)], stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            assert served.stdout.readline().startswith(f"serving tiny at http://127.0.0.1:{port}/v1")
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=120, max_retries=5)
            assert client.completions.create(model="tiny", prompt="the", max_tokens=2, temperature=0).choices[0].text
            client.close()
        finally:
            served.terminate()
    for given, message in (
        ([str(tmp_path), "--model", str(path)], "say what is served: a directory, or --model"),
        ([], "say what is served"),
        (["--model", str(path)], 'pip install "pyonnx-wasm[serve]"'),
    ):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "starlette.applications", None)
            assert main(["serve", *given]) == 1
        assert message in capsys.readouterr().err
