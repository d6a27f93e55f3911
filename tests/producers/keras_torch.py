"""Keras' own ``model.export(format="onnx")``, on its torch backend."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

from keras_cases import cases

if __name__ == "__main__":
    from case import main

    main(lambda rng: cases("torch"))
