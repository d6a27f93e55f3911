"""Keras models, the same for every backend of Keras: ``NETWORKS`` holds makers and the shapes of one input, without the batch."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
from keras import Model, Sequential, layers, ops

Shape = tuple[int | None, ...]
NETWORKS: dict[str, tuple[Callable[[], Model], tuple[Shape, ...], tuple[int, ...], str]] = {}


def add(name: str, make: Callable[[], Model], *shapes: Shape, sizes: tuple[int, ...] = (2, 3), dtype: str = "float32") -> None:
    """Shapes of a first and a second run, without the batch, which is ``sizes``."""
    NETWORKS[name] = make, shapes * (2 // len(shapes)), sizes, dtype


def chain(shape: Shape, *parts: layers.Layer, dtype: str = "float32") -> Callable[[], Model]:
    return lambda: Sequential([keras.Input(shape, dtype=dtype), *(type(p).from_config(p.get_config()) for p in parts)])


def net(
    name: str, shape: Shape, *parts: layers.Layer, other: Shape | None = None, free: Shape | None = None, dtype: str = "float32"
) -> None:
    add(name, chain(free or shape, *parts, dtype=dtype), shape, other or shape, dtype=dtype)


L = layers
net("dense", (6,), L.Dense(16, "relu"), L.BatchNormalization(), L.Dropout(0.2), L.Dense(3, "softmax"))
net("activations", (6,), L.Dense(8, "elu"), L.Dense(8, "selu"), L.Dense(8, "swish"), L.Dense(8, "gelu"), L.LeakyReLU(0.1), L.PReLU(),
    L.Dense(8, "softplus"),
    L.Dense(8, "hard_sigmoid"), L.Dense(8, "mish"), L.Dense(8, "tanh"), L.Softmax())  # fmt: skip
net(
    "cnn",
    (16, 16, 3),
    L.Conv2D(8, 3, activation="relu"),
    L.MaxPooling2D(),
    L.Conv2D(8, 3, padding="same"),
    L.BatchNormalization(),
    L.ReLU(6.0),
    L.GlobalAveragePooling2D(),
    L.Dense(4),
)
net(
    "cnn_any_size",
    (16, 16, 3),
    L.Conv2D(8, 3, 2, padding="same", activation="relu"),
    L.AveragePooling2D(2, padding="same"),
    L.GlobalMaxPooling2D(),
    L.Dense(4),
    other=(24, 17, 3),
    free=(None, None, 3),
)
net(
    "separable",
    (16, 16, 3),
    L.SeparableConv2D(8, 3, padding="same"),
    L.DepthwiseConv2D(3, 2),
    L.LayerNormalization(),
    L.Flatten(),
    L.Dense(4),
)
net(
    "transposed",
    (4, 4, 6),
    L.Conv2DTranspose(8, 3, 2, padding="same", activation="relu"),
    L.Conv2DTranspose(3, 4, 2, padding="valid"),
    L.Cropping2D(1),
)
net(
    "padded",
    (10, 10, 3),
    L.ZeroPadding2D(2),
    L.Conv2D(4, 5, dilation_rate=2),
    L.UpSampling2D(2),
    L.UpSampling2D(2, interpolation="bilinear"),
    L.Cropping2D(((1, 0), (2, 1))),
)
net(
    "conv1d",
    (20, 4),
    L.Conv1D(8, 3, padding="causal", activation="relu"),
    L.MaxPooling1D(),
    L.Conv1D(8, 3, padding="same"),
    L.GlobalMaxPooling1D(),
    L.Dense(2),
)
net("conv3d", (8, 8, 8, 1), L.Conv3D(4, 3, padding="same"), L.MaxPooling3D(), L.GlobalAveragePooling3D(), L.Dense(2))
net(
    "grouped",
    (16, 16, 8),
    L.Conv2D(8, 3, groups=4),
    L.GroupNormalization(4),
    L.SpatialDropout2D(0.1),
    L.Reshape((-1, 8)),
    L.Permute((2, 1)),
    L.Dense(3),
)
net("lstm", (7, 5), L.LSTM(6, return_sequences=True), L.LSTM(4), L.Dense(2))
net("gru", (7, 5), L.GRU(6, return_sequences=True), L.GRU(4, reset_after=False), L.Dense(2))
net("rnn", (7, 5), L.SimpleRNN(6, return_sequences=True), L.SimpleRNN(4, go_backwards=True), L.Dense(2))
net("both_ways", (7, 5), L.Bidirectional(L.LSTM(6, return_sequences=True)), L.Bidirectional(L.GRU(4)), L.Dense(2))
net("distributed", (4, 8, 8, 3), L.TimeDistributed(L.Conv2D(4, 3)), L.TimeDistributed(L.Flatten()), L.LSTM(4), L.Dense(2))
net("embedding", (7,), L.Embedding(30, 8), L.GlobalAveragePooling1D(), L.Dense(3, "softmax"), other=(11,), free=(None,), dtype="int32")
net("masked_lstm", (7,), L.Embedding(30, 8, mask_zero=True), L.LSTM(6), L.Dense(3), dtype="int32")
net("text_cnn", (12,), L.Embedding(30, 8), L.Conv1D(8, 3, activation="relu"), L.GlobalMaxPooling1D(), L.Dense(3), dtype="int32")
net(
    "rescaled",
    (8, 8, 3),
    L.Rescaling(1 / 127.5, offset=-1.0),
    L.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0]),
    L.Resizing(12, 10),
    L.CenterCrop(8, 8),
)
net("unit_norm", (6,), L.Dense(8), L.UnitNormalization(), L.Dense(4, "sigmoid"), L.GaussianNoise(0.1), L.ActivityRegularization())
net("conv_lstm", (3, 6, 6, 2), L.ConvLSTM2D(4, 3, padding="same"), L.Flatten(), L.Dense(2))


def residual() -> Model:
    x = keras.Input((16, 16, 3))
    y = L.Conv2D(8, 3, padding="same")(x)
    for width in (8, 16):
        z = L.Conv2D(width, 3, 2 if width == 16 else 1, padding="same", use_bias=False)(y)
        z = L.Activation("relu")(L.BatchNormalization()(z))
        z = L.BatchNormalization()(L.Conv2D(width, 3, padding="same")(z))
        y = L.ReLU()(L.Add()([z, L.Conv2D(width, 1, 2 if width == 16 else 1)(y)]))
    return Model(x, L.Dense(5)(L.GlobalAveragePooling2D()(y)))


def inception() -> Model:
    x = keras.Input((16, 16, 3))
    parts = [L.Conv2D(4, k, padding="same", activation="relu")(x) for k in (1, 3, 5)] + [L.MaxPooling2D(3, 1, padding="same")(x)]
    y = L.Concatenate()(parts)
    gate = L.Reshape((1, 1, 15))(L.Dense(15, "sigmoid")(L.GlobalAveragePooling2D()(y)))
    return Model(x, L.Dense(4)(L.Flatten()(L.Multiply()([y, gate]))))


def unet() -> Model:
    x = keras.Input((16, 16, 1))
    a = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    b = L.Conv2D(8, 3, padding="same", activation="relu")(L.MaxPooling2D()(a))
    c = L.Conv2DTranspose(4, 2, 2)(b)
    return Model(x, L.Conv2D(1, 1, activation="sigmoid")(L.Concatenate()([a, c])))


def transformer() -> Model:
    x = keras.Input((9,), dtype="int32")
    y = L.Embedding(30, 16)(x) + L.Embedding(9, 16)(ops.arange(9))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(2, 8)(y, y))
    y = L.LayerNormalization()(y + L.Dense(16)(L.Dense(32, "gelu")(y)))
    return Model(x, L.Dense(3, "softmax")(L.GlobalAveragePooling1D()(y)))


def decoder() -> Model:
    x = keras.Input((9, 16))
    y = x + L.MultiHeadAttention(4, 4)(x, x, use_causal_mask=True)
    y = y + L.GroupQueryAttention(4, 4, 2)(y, y)
    return Model(x, L.Dense(30)(L.RMSNormalization()(y)))


def vit() -> Model:
    x = keras.Input((16, 16, 3))
    y = L.Reshape((16, 16))(L.Conv2D(16, 4, 4)(x))
    y = y + L.MultiHeadAttention(2, 8)(L.LayerNormalization()(y), L.LayerNormalization()(y))
    return Model(x, L.Dense(4)(ops.mean(y, 1)))


def operations() -> Model:
    x = keras.Input((6, 4))
    y = ops.concatenate(
        [ops.softmax(x), ops.sort(x, 1), ops.cumsum(x, 1), ops.where(x > 0, x, -x), ops.roll(x, 1, 1), ops.clip(x, -1, 1)], -1
    )
    z = ops.einsum("bij,bkj->bik", y, y)
    return Model(x, [ops.max(z, 1), ops.logsumexp(z, -1), ops.take(x, [0, 2], 1), ops.argmax(x, -1), ops.top_k(x, 2)[0], ops.tril(z)])


def attention_over_time() -> Model:
    x = keras.Input((7, 5))
    y = L.GRU(6, return_sequences=True)(x)
    return Model(x, L.Dense(2)(ops.squeeze(L.Dot(1)([L.Softmax(1)(L.Dense(1)(y)), y]), 1)))


for make, shape in ((residual, (16, 16, 3)), (inception, (16, 16, 3)), (unet, (16, 16, 1)), (decoder, (9, 16)), (vit, (16, 16, 3)),
    (operations, (6, 4)),
                    (attention_over_time, (7, 5))):  # fmt: skip
    add(make.__name__, make, shape)
add("transformer", transformer, (9,), dtype="int32")
add("mobilenet", lambda: keras.applications.MobileNet((64, 64, 3), 0.25, weights=None, classes=5), (64, 64, 3))
add(
    "mobilenet_v3", lambda: keras.applications.MobileNetV3Small((64, 64, 3), 0.75, weights=None, classes=5, minimalistic=False), (64, 64, 3)
)
add("efficientnet_v2", lambda: keras.applications.EfficientNetV2B0(weights=None, input_shape=(64, 64, 3), classes=5), (64, 64, 3))


def made(name: str) -> tuple[Model, list[np.ndarray]]:
    make, shapes, sizes, dtype = NETWORKS[name]
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    model, rng = make(), np.random.default_rng(2)
    whole = [(n, *s) for n, s in zip(sizes, shapes, strict=True)]
    return model, [rng.integers(1, 30, s).astype(dtype) if "int" in dtype else rng.normal(size=s).astype(dtype) for s in whole]
