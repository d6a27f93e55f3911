"""Firefox and WebKitGTK as Debian has them; ``python -m pyonnx_wasm.testing.webdriver`` installs them where they are missing.

Playwright drives builds of its own alone. Firefox speaks WebDriver BiDi without a helper; WebKitGTK comes with a WebDriver, and draws
on a virtual display. Both pages have the part of Playwright's interface that the tests use: ``goto``, ``evaluate``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from . import system

FIREFOX = ("firefox-esr", "firefox")
PACKAGES = {"firefox": ("firefox-esr",), "webkit": ("webkit2gtk-driver", "xvfb")}
LIMIT = 240  # seconds that one call may take, of a machine with much else to do
PREFERENCES = """
user_pref("app.update.auto", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("toolkit.telemetry.enabled", false);
"""


class PageError(RuntimeError):
    """A script in the page failed."""


class NoAnswer(PageError):
    """A browser did not answer in time; nothing more is to be had of it."""


class Page:
    """A page of a browser, for what ``send`` does with the body of an asynchronous function."""

    def __init__(self, goto: Callable[[str], None], send: Callable[[str], str], version: str) -> None:
        self.goto, self._send, self.version = goto, send, version

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """What a JavaScript function, awaited, gives for an argument; both go as JSON.

        Raises:
            PageError: it threw.
        """
        body = f"return JSON.stringify({{ value: await ({function})({json.dumps(argument)}) }})"
        answer = json.loads(self._send(f"try {{ {body} }} catch (error) {{ return JSON.stringify({{ error: String(error) }}) }}"))
        if "error" in answer:
            raise PageError(answer["error"])
        return answer.get("value")

    def wait_for_function(self, function: str) -> None:
        """Until the function gives something true."""
        end = time.monotonic() + LIMIT
        while not self.evaluate(f"async () => Boolean(await ({function})())"):
            if time.monotonic() > end:
                raise PageError(f"no answer within {LIMIT} s: {function}")
            time.sleep(0.05)


@contextmanager
def firefox() -> Iterator[Page]:
    """A page of headless Firefox with a fresh profile."""
    import websocket

    program = next((found for name in FIREFOX if (found := shutil.which(name))), None)
    if program is None:
        raise FileNotFoundError(f"no Firefox on PATH: install one (on Debian: apt install {' '.join(PACKAGES['firefox'])})")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True)))
        profile = home / "profile"
        profile.mkdir()
        (profile / "user.js").write_text(PREFERENCES)
        command = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0", "about:blank"]
        process = _started(stack, command, {**os.environ, "HOME": str(home)}, stderr=home / "stderr")
        address = _said(home / "stderr", process, r"WebDriver BiDi listening on (ws://\S+)")
        connection = websocket.create_connection(f"{address}/session", timeout=LIMIT, suppress_origin=True)
        stack.callback(connection.close)
        numbers = iter(range(1, 1 << 30))

        def call(method: str, **params: Any) -> Any:
            number = next(numbers)
            try:
                connection.send(json.dumps({"id": number, "method": method, "params": params}))
                while (answer := json.loads(connection.recv())).get("id") != number:
                    pass
            except websocket.WebSocketTimeoutException:
                raise NoAnswer(f"{method}: no answer within {LIMIT} s") from None
            if answer["type"] == "error":
                raise PageError(f"{method}: {answer['message']}")
            return answer["result"]

        capabilities = call("session.new", capabilities={})["capabilities"]
        context = call("browsingContext.getTree")["contexts"][0]["context"]

        def send(body: str) -> str:
            target = {"context": context}
            found = call("script.evaluate", expression=f"(async () => {{ {body} }})()", target=target, awaitPromise=True)
            if found["type"] != "success":
                raise PageError(found["exceptionDetails"]["text"])
            text: str = found["result"]["value"]
            return text

        yield Page(
            lambda url: call("browsingContext.navigate", context=context, url=url, wait="complete") and None,
            send,
            f"Firefox {capabilities['browserVersion']}",
        )


@contextmanager
def webkit() -> Iterator[Page]:
    """A page of WebKitGTK's test browser on a virtual display."""
    driver, display = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
    browser = next(iter(sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), reverse=True)), None)
    if driver is None or display is None or browser is None:
        raise FileNotFoundError(f"no WebKitGTK with its driver: install it (on Debian: apt install {' '.join(PACKAGES['webkit'])})")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="webkit-", ignore_cleanup_errors=True)))
        read, write = os.pipe()
        stack.callback(os.close, read)
        command = [display, "-displayfd", str(write), "-screen", "0", "1024x768x24", "-nolisten", "tcp"]
        screen = _started(stack, command, dict(os.environ), stderr=home / "xvfb", pass_fds=(write,))
        os.close(write)
        number = os.read(read, 16).decode().strip()
        if not number:
            raise PageError(f"Xvfb ended with {screen.wait()}: {(home / 'xvfb').read_text()[-500:]}")
        port = _free_port()
        environment = {**os.environ, "DISPLAY": f":{number}", "HOME": str(home), "LIBGL_ALWAYS_SOFTWARE": "1"}
        process = _started(stack, [driver, f"--port={port}"], environment, stderr=home / "stderr")

        def call(method: str, path: str, **body: Any) -> Any:
            data = json.dumps(body).encode() if method == "POST" else None
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method)
            try:
                with urllib.request.urlopen(request, timeout=LIMIT + 10) as answer:
                    return json.load(answer)["value"]
            except urllib.error.HTTPError as error:
                told = json.load(error)["value"]
                kind = NoAnswer if "timeout" in told["error"] else PageError
                raise kind(f"{path}: {told['message']}") from None
            except TimeoutError:
                raise NoAnswer(f"{path}: no answer within {LIMIT + 10} s") from None

        _until(lambda: call("GET", "/status"), process)
        options = {"binary": str(browser), "args": ["--automation"]}
        session = call("POST", "/session", capabilities={"alwaysMatch": {"webkitgtk:browserOptions": options}})
        at = f"/session/{session['sessionId']}"
        stack.callback(call, "DELETE", at)
        call("POST", f"{at}/timeouts", script=LIMIT * 1000, pageLoad=LIMIT * 1000)

        def send(body: str) -> str:
            text: str = call("POST", f"{at}/execute/async", script=f"(async () => {{ {body} }})().then(arguments[0])", args=[])
            return text

        yield Page(
            lambda url: call("POST", f"{at}/url", url=url),
            send,
            f"WebKitGTK {session['capabilities']['browserVersion']}",
        )


BROWSERS = {"firefox": firefox, "webkit": webkit}


def _started(stack: ExitStack, command: list[str], environment: dict[str, str], stderr: Path, **more: Any) -> subprocess.Popen[bytes]:
    """A process that ends with the stack."""
    log = stack.enter_context(stderr.open("wb"))
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log, **more)

    def end() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)
    return process


def _said(path: Path, process: subprocess.Popen[bytes], pattern: str) -> str:
    found: list[str] = []

    def look() -> bool:
        found.extend(re.findall(pattern, path.read_text(errors="replace")))
        return bool(found)

    _until(look, process)
    return found[0]


def _until(ready: Callable[[], Any], process: subprocess.Popen[bytes]) -> None:
    """Waits until a call gives something true and no connection is refused."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            if ready():
                return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > end:
            raise PageError(f"{process.args!r} did not start: {process.poll()}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> int:
    for name, start in BROWSERS.items():
        try:
            with start() as page:
                print(f"Browser: {page.version}", flush=True)
            continue
        except FileNotFoundError as error:
            missing = error
        if not system.apt(PACKAGES[name], name):
            print(missing, file=sys.stderr)
            return 1
        with start() as page:
            print(f"Browser: {page.version}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
