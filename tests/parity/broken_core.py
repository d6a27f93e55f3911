"""What the broken build is made of."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Broken:
    """Cores whose softmax kernel adds up to 1.01: the native library, and the folder of the WebAssembly modules."""

    library: Path
    folder: Path
