"""A wheel named ``onnxruntime`` whose one module is this package under that name, for Pyodide and JupyterLite, where there is no other.

``python -m pyonnx_wasm.shim FOLDER`` writes it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import sys
import zipfile
from importlib import metadata
from pathlib import Path

VERSION = "1.31.1"  # of onnxruntime, whose surface this is
MODULE = f'''"""pyonnx_wasm under onnxruntime's name."""

from pyonnx_wasm import *  # noqa: F403
from pyonnx_wasm import __all__

__version__ = "{VERSION}"
package_name = "pyonnx-wasm"


def get_version_string() -> str:
    return __version__
'''

CAPI = '''"""What programs catch, under onnxruntime's names: the exceptions that sessions raise here."""

from pyonnx_wasm import *  # noqa: F403
from pyonnx_wasm.ir import IRError as InvalidGraph
from pyonnx_wasm.onnxfile.reader import ReadError as InvalidProtobuf
from pyonnx_wasm.runtimes.errors import CoreError as RuntimeException

InvalidArgument = ValueError
NoSuchFile = FileNotFoundError
NotImplemented = InvalidGraph
Fail = RuntimeException
NoModel = ModelLoaded = EngineError = EPFail = RuntimeException
'''


def build(folder: Path) -> Path:
    """Writes the wheel into a folder, and gives its path."""
    files = {
        "onnxruntime/__init__.py": MODULE,
        "onnxruntime/capi/__init__.py": "",
        "onnxruntime/capi/_pybind_state.py": CAPI,
        "onnxruntime/capi/onnxruntime_pybind11_state.py": CAPI,
        "onnxruntime/py.typed": "",
        f"onnxruntime-{VERSION}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {VERSION}\n"
            "Summary: pyonnx-wasm under onnxruntime's name, for Pyodide\n"
            f"Requires-Dist: pyonnx-wasm=={metadata.version('pyonnx-wasm')}\n"
        ),
        f"onnxruntime-{VERSION}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: pyonnx-wasm\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"onnxruntime-{VERSION}.dist-info/RECORD"
    rows = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
    files[record] = "\n".join([*rows, f"{record},,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"onnxruntime-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyonnx_wasm.shim", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", default="dist", type=Path)
    print(build(parser.parse_args(arguments).folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
