"""The main job end to end: digits from the ONNX file to probabilities in a real browser."""

import numpy as np
from numpy.typing import NDArray


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """The UCI handwritten digits that ship with scikit-learn.

    Returns images `[1797, 1, 8, 8]` (ink per cell, 0 to 16), labels `[1797]` and the mask of the 360 held-out images,
    every fifth one, that training never sees.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    images = data.images.astype(np.float32)[:, None]
    return images, data.target.astype(np.int64), np.arange(len(images)) % 5 == 0
