"""tf2onnx over functions of TensorFlow, and Keras on its TensorFlow backend, which exports through tf2onnx, too."""

from __future__ import annotations

import os

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tf2onnx
from case import Case, main
from keras_cases import cases

Function = Callable[..., object]
W = np.random.default_rng(5).normal(size=(3, 3, 3, 4)).astype(np.float32)


def counted(x: tf.Tensor) -> tf.Tensor:
    i = tf.constant(0)
    while tf.reduce_sum(tf.abs(x)) > 1.0 and i < 10:
        x, i = x * 0.5, i + 1
    return x, i


def chosen(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: tf.nn.relu(x) - 1.0)


def gathered(x: tf.Tensor) -> tf.Tensor:
    found = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=(4,))
    state = tf.zeros(4)
    for i in tf.range(tf.shape(x)[0]):
        state = tf.tanh(state + x[i])
        found = found.write(i, state)
    return found.stack()


def suppressed(x: tf.Tensor) -> tf.Tensor:
    boxes = tf.concat([x[:, :2], x[:, :2] + tf.abs(x[:, 2:]) + 0.1], 1)
    kept = tf.image.non_max_suppression(boxes, tf.sigmoid(tf.reduce_sum(x, 1)), 4, 0.3)
    return tf.gather(boxes, kept), kept


# By name: a function, shapes of its inputs at two runs.
FUNCTIONS: dict[str, tuple[Function, list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    "matmul": (lambda x, y: tf.nn.relu(tf.matmul(x, y, transpose_b=True)), [(2, 4), (3, 4)], [(5, 4), (6, 4)]),
    "while": (counted, [(3, 4)], [(5, 4)]),
    "cond": (chosen, [(3, 4)], [(5, 4)]),
    "tensor_array": (gathered, [(3, 4)], [(6, 4)]),
    "suppression": (suppressed, [(8, 4)], [(12, 4)]),
    "conv": (lambda x: tf.nn.bias_add(tf.nn.conv2d(x, W, 2, "SAME"), [0.1, 0.2, 0.3, 0.4]), [(1, 8, 8, 3)], [(2, 9, 7, 3)]),
    "depthwise": (lambda x: tf.nn.depthwise_conv2d(x, W, [1, 1, 1, 1], "VALID"), [(1, 8, 8, 3)], [(2, 9, 7, 3)]),
    "pool": (lambda x: (tf.nn.max_pool2d(x, 3, 2, "SAME"), tf.nn.avg_pool2d(x, 2, 2, "VALID")), [(1, 8, 8, 3)], [(2, 9, 7, 3)]),
    "resize": (lambda x: (tf.image.resize(x, (12, 10)), tf.image.resize(x, (5, 7), "nearest")), [(1, 8, 8, 3)], [(2, 8, 8, 3)]),
    "crop_and_resize": (lambda x: tf.image.crop_and_resize(x, [[0.1, 0.1, 0.8, 0.9], [0.0, 0.2, 1.0, 0.7]], [0, 0], (4, 4)), [(1, 8, 8,
        3)], [(2, 9, 7, 3)]),
    "space": (lambda x: (tf.nn.space_to_depth(x, 2), tf.nn.depth_to_space(tf.concat([x, x[..., :1]], -1), 2)), [(1, 8, 8, 3)], [(2, 6, 4,
        3)]),
    "gather": (lambda x: (tf.gather(x, [0, 2], axis=1), tf.gather_nd(x, [[0, 1], [1, 2]]), tf.boolean_mask(x, x > 0), tf.where(x > 0)),
        [(3, 4)], [(5, 4)]),
    "scatter": (lambda x: (tf.tensor_scatter_nd_update(x, [[0], [1]], x[1:3] * 2), tf.scatter_nd([[0], [2]], x[:2], (4, 4))), [(3, 4)],
        [(5, 4)]),
    "segments": (lambda x: (tf.math.segment_sum(x, [0, 0, 1, 2]), tf.math.unsorted_segment_max(x, [1, 0, 1, 2], 3)), [(4, 4)], [(4, 4)]),
    "slices": (lambda x: (x[1:, ::2], x[..., tf.newaxis], tf.reverse(x, [1]), *tf.split(x, 2, 1), *tf.unstack(x, axis=1),
        tf.strided_slice(x, [0, 0], tf.shape(x), [1, 2])), [(3, 4)], [(5, 4)]),
    "sorting": (lambda x: (*tf.math.top_k(x, 2), tf.sort(x), tf.argsort(x, direction="DESCENDING"), tf.argmax(x, 1),
        tf.unique(tf.reshape(tf.round(x), [-1]))[0]), [(3, 4)], [(5, 4)]),
    "sums": (lambda x: (tf.cumsum(x, 1, exclusive=True), tf.cumsum(x, 1, reverse=True), tf.reduce_logsumexp(x, 1), tf.nn.moments(x, 0),
        tf.norm(x, axis=1), tf.linalg.trace(x[:3, :3])), [(3, 4)], [(5, 4)]),
    "shapes": (lambda x: (tf.reshape(x, [-1, 2]), tf.tile(x, [2, tf.shape(x)[0]]), tf.fill(tf.shape(x), 2.0), tf.range(tf.size(x)),
        tf.broadcast_to(x, (2, *x.shape[:0], tf.shape(x)[0], 4)), tf.pad(x, [[1, 0], [0, 2]], "REFLECT"),
        tf.one_hot(tf.range(tf.shape(x)[0]), 5)), [(3, 4)], [(5, 4)]),
    "band": (lambda x: (tf.linalg.band_part(x, 1, -1), tf.linalg.diag(x[0]), tf.linalg.diag_part(x[:3, :3]), tf.eye(3)), [(3, 4)], [(5,
        4)]),
    "rounding": (lambda x: (tf.math.floormod(x, 0.7), tf.math.floordiv(x, 0.7), tf.round(x * 3), tf.math.rint(x), tf.sign(x),
        tf.math.erf(x), tf.atan2(x, x + 1)), [(3, 4)], [(5, 4)]),
    "integers": (lambda x: (tf.cast(x * 9, tf.int32) // 4, tf.bitwise.bitwise_and(tf.cast(x * 9, tf.int32), 6), tf.logical_and(x > 0,
        x < 1), tf.reduce_any(x > 0, 1), tf.cast(x, tf.int64) % 3), [(3, 4)], [(5, 4)]),
    "activations": (lambda x: (tf.nn.leaky_relu(x), tf.nn.crelu(x), tf.nn.selu(x), tf.nn.softplus(x), tf.nn.silu(x), tf.nn.log_softmax(x),
        tf.nn.softsign(x)), [(3, 4)], [(5, 4)]),
    "normalised": (lambda x: (tf.nn.l2_normalize(x, 1), tf.nn.local_response_normalization(x[:, None, None], 2),
        tf.nn.batch_normalization(x, 0.1, 1.5, 0.2, 0.9, 1e-3)), [(3, 4)], [(5, 4)]),
    "products": (lambda x, y: (tf.einsum("ij,kj->ik", x, y), tf.tensordot(x, y, [[1], [1]]), tf.matmul(x[None], y, transpose_b=True),
        tf.linalg.matvec(x, y[0])), [(2, 4), (3, 4)], [(5, 4), (6, 4)]),
    "spectrum": (lambda x: tf.abs(tf.signal.rfft(x)), [(3, 8)], [(5, 8)]),
}  # fmt: skip


def functions() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    for name, (function, *shapes) in FUNCTIONS.items():
        feeds = [{k: rng.normal(size=s).astype(np.float32) for k, s in zip("xy", run, strict=False)} for run in shapes]

        def make(function: Function = function, shapes: list[list[tuple[int, ...]]] = shapes) -> bytes:
            free = [tuple(a if a == b else None for a, b in zip(*pair, strict=True)) for pair in zip(*shapes, strict=True)]
            signature = [tf.TensorSpec(s, tf.float32, name=k) for k, s in zip("xy", free, strict=False)]
            model, _ = tf2onnx.convert.from_function(tf.function(function), signature, opset=18)
            return bytes(model.SerializeToString())

        yield Case(f"tf-{name}", make, feeds, group="tf2onnx")


def models(rng: np.random.Generator) -> Iterator[Case]:
    yield from functions()
    yield from cases("tensorflow")


if __name__ == "__main__":
    main(models)
