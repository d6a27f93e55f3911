"""A process of its own for what may take long, need much memory or crash: it can be ended at any time, and the server stays as it is.

Requests and answers are lines of JSON: ``[method, {argument: value}]``, then ``{"result": ...}`` or ``{"error": text}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any


class JobError(Exception):
    """The job failed through the model or its inputs; the text is for the user."""


class Worker:
    """Runs one job at a time in a process that starts with the first job and stays for the next."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = asyncio.Lock()

    async def call(self, method: str, limit: float, **arguments: Any) -> Any:
        """Runs a job for at most ``limit`` seconds; when it is cancelled or takes longer, the process ends.

        Raises:
            JobError: the job failed, took too long or took the process down.
        """
        async with self._turn:
            line = json.dumps([method, arguments]).encode() + b"\n"
            try:
                answer = await asyncio.wait_for(asyncio.to_thread(self._exchange, line), limit)
            except TimeoutError:
                self.close()
                raise JobError(f"this took more than {limit:g} seconds and was stopped") from None
            except asyncio.CancelledError:
                self.close()
                raise
        if not answer:
            code = self.close()
            raise JobError(f"the process that works for the viewer ended (exit code {code}); is there enough memory?")
        reply = json.loads(answer)
        if "error" in reply:
            raise JobError(reply["error"])
        return reply["result"]

    def _exchange(self, line: bytes) -> bytes:
        process = self._process
        if process is None or process.poll() is not None:
            command = [sys.executable, "-m", __name__]
            process = self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        except (OSError, ValueError):
            return b""

    def close(self) -> int | None:
        """Ends the process, whatever it does; returns its exit code, None where there was none."""
        process, self._process = self._process, None
        if process is None:
            return None
        with process:
            if process.poll() is None:
                process.kill()
            return process.wait()


@cache
def _methods() -> dict[str, Callable[..., Any]]:
    from . import contents, describe, execute, texts

    return {
        "graph": describe.graph,
        "shapes": describe.inferred,
        "weight": describe.weight,
        "plane": contents.plane,
        "npy": contents.npy_text,
        "digests": contents.digests,
        "operator": texts.operator,
        "run": execute.run,
    }


def main() -> None:
    """The process: answers on what was standard output; what others print goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        method, arguments = json.loads(line)
        answers.write(json.dumps(answer(method, arguments)).encode() + b"\n")
        answers.flush()


def answer(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request: ``{"result": ...}`` or ``{"error": text}``."""
    try:
        return {"result": _methods()[method](**arguments)}
    except KeyError as error:
        return {"error": f"there is no {error}"}
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        return {"error": _shown(error, arguments.get("path", ""))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _shown(error: BaseException, path: str) -> str:
    text = str(error) or type(error).__name__
    return text.replace(os.path.join(os.path.dirname(path), ""), "") if path else text


if __name__ == "__main__":
    main()
