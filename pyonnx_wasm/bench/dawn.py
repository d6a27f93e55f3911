"""Ours against onnxruntime-web on WebGPU in one Node.js process, by way of Dawn: for machines with a GPU and no browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from ..testing.chromium import executable
from .web import HERE, ONNXRUNTIME_WEB, Web, resident_peak

VERSION = "0.4.0"
# As a page sees them, timestamps are rounded to 0.1 ms, longer than most steps take.
OPTIONS = ("disable-dawn-features=timestamp_quantization",)
NO_ADAPTER = "Dawn finds no GPU: install its Vulkan driver and loader (libvulkan1 on Debian), or Chromium, which brings a software driver"


class Process:
    """Node.js with a module of functions, without the libraries yet.

    Args:
        log: takes what it prints, of which an error tells.
    Raises:
        RuntimeError: it ended, or what it was told to do failed.
    """

    def __init__(self, command: list[str], environment: dict[str, str], log: IO[str]) -> None:
        self._log = log
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, args: list[Any]) -> Any:
        """The result of one of the functions."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps([name, args]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Node.js ended with exit code {self._process.wait()}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return next((line for line in lines if "Error:" in line), lines[-1] if lines else "it said nothing")

    def close(self) -> None:
        """Ends it at once: with a device open, Dawn would keep it from exiting."""
        self._process.kill()
        self._process.communicate()


class Host:
    """How Node.js processes come to a GPU: that of the machine or, where Dawn finds none, Chromium's software driver.

    Args:
        package: the folder of the npm package ``webgpu``.
        page: the module whose functions are called.
        real_gpu: refuse software drivers.
    Attributes:
        versions: of Node.js and the package and, once it is found, the adapter's name.
    Raises:
        ValueError: Node.js or the package is missing; the text says how to get it.
    """

    def __init__(self, package: Path, page: Path, real_gpu: bool = False) -> None:
        node = shutil.which("node")
        if not node:
            raise ValueError("--dawn needs Node.js 20 or newer: install it")
        if not (package / "index.js").exists():
            raise ValueError(f"{package} is not there: run `npm ci`, or `npm install webgpu@{VERSION}` beside onnxruntime-web")
        self.real_gpu = real_gpu
        self._command = [node, str(HERE / "dawn.mjs"), (package / "index.js").as_uri(), page.as_uri(), *OPTIONS]
        self._environment = dict(os.environ)
        number = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip().lstrip("v")
        self.versions = {"node": number, "webgpu": json.loads((package / "package.json").read_text())["version"]}

    @contextmanager
    def process(self) -> Iterator[Process]:
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            process = Process(self._command, self._environment, log)
            try:
                yield process
            finally:
                process.close()

    def find(self, ask: Callable[[Process], Any] = lambda process: process.call("adapter", [])) -> None:
        """Looks for an adapter.

        Raises:
            ValueError: there is none, or only a software driver; the text says how to get one.
        """

        def asked() -> Any:
            with self.process() as process:
                return ask(process)

        adapter = asked()
        driver = swiftshader()
        if not adapter and driver and not self.real_gpu and "VK_DRIVER_FILES" not in os.environ:
            self._environment["VK_DRIVER_FILES"] = str(driver)
            adapter = asked()
        if not adapter:
            raise ValueError(NO_ADAPTER)
        if self.real_gpu and adapter["isFallbackAdapter"]:
            raise ValueError(f"--real-gpu: Dawn finds {adapter['name']} alone, which is software: install the GPU's Vulkan driver")
        self.versions["adapter"] = adapter["name"]


class Dawn(Web):
    """Node.js processes with both libraries, each on a device of its own.

    Args:
        onnxruntime_web: the npm package's folder, beside which ``webgpu`` is.
        real_gpu: refuse software drivers.
    Raises:
        ValueError: player, onnxruntime-web, Node.js, the npm package ``webgpu`` or a GPU is missing; the text says how to get it.
    """

    def __init__(self, onnxruntime_web: Path | None = None, real_gpu: bool = False) -> None:
        package = (onnxruntime_web or ONNXRUNTIME_WEB).resolve().parent / "webgpu"
        self._host = Host(package, HERE / "page.mjs", real_gpu)
        super().__init__(1, onnxruntime_web, in_page=True, backend="webgpu", real_gpu=real_gpu)

    def __enter__(self) -> Dawn:
        try:
            self._host.find(self._adapter)
        except BaseException:
            self._stack.close()
            raise
        self.versions |= self._host.versions
        return self

    def _adapter(self, process: Process) -> Any:
        """Asks for it and measures the process that holds neither library."""
        found = self._call(process, "adapter")
        self._empty_page = self._peak(process)
        return found

    def _serve(self, models: Path) -> AbstractContextManager[None]:
        self._mounts["/models/"] = models
        return nullcontext()

    @contextmanager
    def _page(self, server: None) -> Iterator[Process]:
        with self._host.process() as process:
            yield process

    def _call(self, page: Process, name: str, *args: Any) -> Any:
        return page.call(name, list(args))

    def _address(self, path: str) -> str:
        mount = next(m for m in self._mounts if path.startswith(m))
        return (self._mounts[mount].resolve() / path.removeprefix(mount)).as_uri()

    def _peak(self, page: Process) -> int | None:
        return resident_peak(Path("/proc") / str(page.pid))

    def _downloads(self, server: None) -> dict[str, Any]:
        return {}


def swiftshader() -> Path | None:
    """The Vulkan driver for processors that Chromium brings along."""
    try:
        program = Path(executable()).resolve()
    except (FileNotFoundError, ImportError):
        return None
    # Debian's /usr/bin/chromium is a script, the browser lies in a folder of its own.
    found = (folder / "vk_swiftshader_icd.json" for folder in (program.parent, Path("/usr/lib", program.name)))
    return next((driver for driver in found if driver.exists()), None)
