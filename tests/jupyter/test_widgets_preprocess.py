"""Pictures to tensors: the vectors hold for Python and for the browser's half, to the last bit."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pyonnx_wasm.jupyter.preprocess import Preprocess

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VECTORS = HERE / "preprocess_vectors.json"
FILTERS = ("nearest", "box", "bilinear", "bicubic", "lanczos")
CASES: dict[str, Preprocess] = {
    **{f"stretch, {f}": Preprocess(resize=(7, 9), filter=f) for f in FILTERS},
    **{f"shorter side, crop, grey, {f}": Preprocess(resize=11, crop=(10, 13), filter=f, color="L", layout="HW") for f in FILTERS},
    "imagenet": Preprocess.imagenet(8, 10),
    "letterbox": Preprocess.letterbox(12, 10),
    "cover, BGR, channels last, uint8": Preprocess(resize=(6, 6), fit="cover", color="BGR", layout="NHWC", dtype="uint8", scale=0.5),
    "float16, as it is": Preprocess(dtype="float16", mean=0.5, std=0.25),
    "ink, trimmed": Preprocess(trim=0.1, resize=(8, 8), filter="box", color="L", scale=16 / 255),
    "dark ink, trimmed": Preprocess(trim=0.2, resize=(8, 8), invert=True, color="L", layout="CHW"),
    "int8, clamped": Preprocess(resize=(3, 3), dtype="int8", scale=3, mean=200),
}


def pictures() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    ink = np.zeros((40, 30, 3), np.uint8)
    ink[8:30, 12:17] = 255
    return {
        "noise": rng.integers(0, 256, (13, 17, 3), dtype=np.uint8),
        "tall, transparent": rng.integers(0, 256, (31, 5, 4), dtype=np.uint8),
        "one pixel": rng.integers(0, 256, (1, 1, 3), dtype=np.uint8),
        "ink": ink,
        "dark ink": 255 - ink,
    }


def make() -> dict[str, Any]:
    """The vectors, as this Pillow computes them."""
    images = pictures()
    cases = []
    for name, spec in CASES.items():
        for picture, pixels in images.items():
            if pixels.size > 1000 and spec.resize is None:
                continue
            tensor = spec(pixels)
            cases.append(
                {"name": f"{name}: {picture}", "picture": picture, "spec": spec.spec(), "dims": tensor.shape, "hex": tensor.tobytes().hex()}
            )
    return {"pictures": {k: {"shape": v.shape, "hex": v.tobytes().hex()} for k, v in images.items()}, "cases": cases}


def test_python() -> None:
    vectors = json.loads(VECTORS.read_text())
    images = {k: np.frombuffer(bytes.fromhex(v["hex"]), np.uint8).reshape(v["shape"]) for k, v in vectors["pictures"].items()}
    for case in vectors["cases"]:
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in case["spec"].items()}
        tensor = Preprocess(**fields)(images[case["picture"]])
        assert list(tensor.shape) == case["dims"], case["name"]
        assert tensor.tobytes().hex() == case["hex"], case["name"]
    assert len(vectors["cases"]) > 80


def test_browser(tmp_path: Path) -> None:
    bundle = tmp_path / "preprocess.mjs"
    esbuild = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
    source = ROOT / "js/widget/ui/preprocess.ts"
    subprocess.run([esbuild, source, "--bundle", "--format=esm", f"--outfile={bundle}", "--log-level=warning"], check=True)
    done = subprocess.run(["node", HERE / "preprocess_vectors.mjs", bundle, VECTORS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_are_turned_upright_and_palettes_resolved() -> None:
    pixels = pictures()["noise"]
    upright = Preprocess()(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # taken on its side: to be turned clockwise
    file = io.BytesIO()
    Image.fromarray(np.rot90(pixels)).save(file, "PNG", exif=exif)
    assert np.array_equal(Preprocess()(Image.open(file)), upright)
    grey = Image.fromarray(pixels[..., 0])
    assert np.array_equal(Preprocess(color="L")(grey), Preprocess(color="L")(np.repeat(pixels[..., :1], 3, 2)))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"layout": "NCWX"}, "layout 'NCWX'"),
        ({"layout": "HW"}, "has no channels: use color='L'"),
        ({"mean": (1, 2)}, "mean has 2 values, RGB has 3 channels"),
        ({"std": (1.0, 0.0, 1.0)}, "std is 0"),
    ],
)
def test_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Preprocess(**fields)


@pytest.mark.parametrize("image", [np.zeros((2, 2), np.float32), np.zeros((2, 2, 2), np.uint8), np.zeros((0, 2, 3), np.uint8)])
def test_what_is_no_picture_is_refused(image: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"an image is uint8"):
        Preprocess()(image)


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(make()) + "\n")
    print(f"{VECTORS}: {VECTORS.stat().st_size} bytes", file=sys.stderr)
