"""Control flow, sizes from data, and the functions that exporters decompose in their own ways."""

from __future__ import annotations

import numpy as np
import torch
from networks import Feeds, Of, OfThree, OfTwo, add, floats, network, on
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = (3, 6), (5, 6)


@network("dynamo")
def cond(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 4), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.b(x), (x,))

    return Either(), [{"x": abs(f["x"]) * s} for f, s in zip(floats(rng, {"x": ROWS[0]}, {"x": ROWS[1]}), (1, -1), strict=True)]


@network("dynamo")
def cond_nested(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Nested(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def large(x: Tensor) -> Tensor:
                return torch.cond(x.max() > 2, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

            return torch.cond(x.sum() > 0, large, lambda x: x.relu() - 1, (x,)) + 1

    return Nested(), [{"x": abs(f["x"]) * s} for f, s in zip(floats(rng, {"x": ROWS[0]}, {"x": ROWS[1]}), (1, -1), strict=True)]


@network("dynamo")
def while_loop(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Until(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            def again(i: Tensor, x: Tensor) -> Tensor:
                return (i < 12) & (x.abs().sum() > 1)

            def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                return i + 1, self.step(x).tanh() * 0.5

            return torch._higher_order_ops.while_loop(again, step, (torch.tensor(0), x))

    return Until(), floats(rng, {"x": ROWS[0]}, {"x": ROWS[1]})


@network("dynamo")
def scan(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Running(nn.Module):
        def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                h = (h * 0.5 + x).tanh()
                return h, h * 2

            return torch._higher_order_ops.scan(step, h, x, dim=0)

    return Running(), floats(rng, {"x": (4, 2, 3), "h": (2, 3)}, {"x": (7, 2, 3), "h": (2, 3)})


class ScriptedLoop(nn.Module):
    """A trip count from a shape, a state carried, results kept in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.size(1), 6)
        found: list[Tensor] = []
        for i in range(x.size(0)):
            state = torch.tanh(self.cell(torch.cat([x[i], state], 1)))
            found.append(state)
        return torch.stack(found)


class ScriptedWhile(nn.Module):
    """Halves until it is small, or eight times."""

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        steps = 0
        while bool(x.abs().sum() > 4.0) and steps < 8:
            x = x * 0.5
            steps += 1
        return x, steps


class ScriptedIf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            y = x * 2
            if x.size(0) > 3:
                y = y + 1
        else:
            y = x[:1] - 1
        return y


class Viterbi(nn.Module):
    """The best path of tags, forwards and back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("move", torch.randn(4, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        score = x[0]
        back: list[Tensor] = []
        for i in range(1, x.size(0)):
            best, place = (score.unsqueeze(1) + self.move).max(0)
            score = best + x[i]
            back.append(place)
        tag = score.argmax(0)
        path = [tag]
        for i in range(x.size(0) - 1):
            tag = back[x.size(0) - 2 - i][tag]
            path.append(tag)
        return torch.stack(path), score


class Greedy(nn.Module):
    """A decoder in a loop: each token is what the last one led to."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(12, 6), nn.GRUCell(6, 6), nn.Linear(6, 12)

    def forward(self, x: Tensor) -> Tensor:
        token, h = (x[:, 0] * 0).long(), x
        found = token.unsqueeze(1)
        for _ in range(6):
            h = self.cell(self.embed(token), h)
            token = self.head(h).argmax(-1)
            found = torch.cat([found, token.unsqueeze(1)], 1)
        return found


for name, kind, shapes in (("loop", ScriptedLoop, ((4, 2, 6), (7, 3, 6))), ("while", ScriptedWhile, ROWS), ("if", ScriptedIf, ROWS),
                           ("viterbi", Viterbi, ((4, 4), (7, 4))), ("greedy", Greedy, ((2, 6), (3, 6)))):  # fmt: skip
    add(f"scripted_{name}", on(lambda kind=kind: torch.jit.script(kind().eval()), *shapes), ("script",))

FUNCTIONS = {
    "nonzero": lambda x: (x.nonzero(), x[x > 0]),
    "masked": lambda x: (x.masked_fill(x > 0.5, -1.0), torch.where(x > 0, x, -x)),
    "unique": lambda x: torch.unique((x * 2).round(), return_inverse=True, return_counts=True, sorted=True),
    "sorted": lambda x: (*x.sort(-1, descending=True), x.argsort(0), *x.topk(2, 0, largest=False)),
    "sums": lambda x: (x.cumsum(-1), x.cumprod(0), x.logcumsumexp(1), x.logsumexp(0)),
    "statistics": lambda x: (x.var(-1), x.std(0, correction=0), x.norm(p=1), x.norm(dim=1), torch.std_mean(x, 1)[1], x.amin(0)),
    "moved": lambda x: (x.roll((1, -2), (0, 1)), x.flip(1), x.rot90(1, (0, 1)), x.t().contiguous(), x.unfold(1, 3, 2), x.diagonal(),
        x.tril(1), x.triu(-1)),
    "tiled": lambda x: (x.repeat(2, 1), x.expand(2, -1, -1), x.repeat_interleave(2, 1), torch.tile(x, (1, 2)), F.pad(x, (1, -2),
        value=0.5)),
    "joined": lambda x: (torch.cat([x, x.new_ones(x.shape[0], 1)], 1), torch.stack([x, x * 2], 1), torch.hstack([x, x]), *x.split((2, 4),
        1), *x.chunk(3, 1)),
    "indexed": lambda x: (x[:, [2, 0]], x[-1], x[..., ::2], x[:, None], x.index_select(1, torch.tensor([1, 1]))),
    "rounded": lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac(), (x * 3) // 2, (x * 5) % 2, torch.fmod(x * 5, 2), x.sign(),
        x.round(decimals=1)),
    "trigonometry": lambda x: (x.sin(), x.atan(), torch.atan2(x, x + 1), x.sinh(), x.asinh(), x.erf(), x.tanh(), x.expm1(),
        (x * x).log1p(), (x * x).rsqrt()),
    "wide": lambda x: (x.double().exp() @ x.double().T, nn.functional.layer_norm(x.double(), (6,)), x.double().softmax(-1)),
    "half": lambda x: ((x.half() @ x.half().T).float(), x.half().softmax(-1).float(), F.layer_norm(x.half(), (6,)).float()),
    "bfloat": lambda x: (x.bfloat16().float(), x.bfloat16().float() * 3),
    "integers": lambda x: ((x * 9).int() // 4, (x * 9).long() % 5, (x * 9).int().bitwise_and(6), (x * 9).int() << 2, (x > 0) & (x < 1),
        (x > 0).logical_not().sum()),
    "grids": lambda x: (torch.arange(x.shape[0]) * 2, torch.linspace(0, 1, 7), torch.eye(4), torch.full((x.shape[0], 2), 0.5),
        torch.zeros_like(x).fill_(2)),
    "hot": lambda x: (F.one_hot((x.abs() * 2).long().clamp(0, 4), 5), x.argmax(-1), x.argmin(0), (x > 0).any(1), (x > -1).all(0)),
    "fake_quantised": lambda x: (torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255),
                                 torch.fake_quantize_per_channel_affine(x, torch.arange(1.0, 7.0) * 0.013, torch.zeros(6,
                                     dtype=torch.int32), 1, -128, 127)),
    "contracted": lambda x: (torch.einsum("ij,kj->ik", x, x), torch.einsum("ij->j", x), torch.tensordot(x, x, ([1], [1])),
        x.T.matmul(x).trace(), torch.outer(x[0], x[1])),
    "clamped": lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=x.mean()), torch.maximum(x, -x), torch.lerp(x, -x, 0.3), torch.addcmul(x, x, x),
        x.nan_to_num(0.0)),
    "distances": lambda x: (torch.cdist(x, x + 1), torch.cdist(x, x, p=1.0), F.cosine_similarity(x[:, None], x[None], dim=-1),
        torch.cross(x[:, :3], x[:, 3:], dim=-1)),
    "losses": lambda x: (F.cross_entropy(x, x.argmin(-1)), F.smooth_l1_loss(x, x * 2), F.binary_cross_entropy_with_logits(x, x.sigmoid()),
        F.kl_div(x.log_softmax(-1), (-x).softmax(-1), reduction="sum")),
    "bucketed": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
}  # fmt: skip
DYNAMO, SCRIPT = (
    ("moved", "rounded", "trigonometry", "contracted", "losses", "bucketed"),
    ("distances", "fake_quantised"),
)  # only these export them
HALVES = ("half", "bfloat", "fake_quantised")
for name, function in FUNCTIONS.items():
    add(
        f"f_{name}",
        on(lambda function=function: Of(function), *ROWS),
        ("dynamo",) * (name not in SCRIPT) + ("script",) * (name not in DYNAMO),
        (5e-3, 5e-3) if name in HALVES else (1e-4, 1e-4),
    )

PAIRS = {
    "scatter": lambda x, y: (torch.zeros(4, 6).scatter(0, y, x), x.scatter_add(0, y, x), x.gather(1, y)),
    "put": lambda x, y: (torch.zeros(8, 6).index_put((y[:, 0],), x), torch.zeros(8, 6).index_put((y[:, 0], y[:, 1]), x[:, 0],
        accumulate=True), torch.zeros(8, 6).index_add(0, y[:, 0], x)),
    "looked_up": lambda x, y: (F.embedding(y, x), x[y[:, 0], y[:, 1]], x[:, y[0]], torch.index_select(x, 0, y[:, 0])),
    "counted": lambda x, y: (torch.zeros(3, dtype=torch.long).scatter_add(0, y.flatten(), torch.ones_like(y.flatten())) + x.sum().long(),
        (y[:, :, None] == torch.arange(3)).sum((0, 1))),
}  # fmt: skip


def pair(function: object, rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    feeds = floats(rng, {"x": ROWS[0]}, {"x": ROWS[1]})
    for feed in feeds:
        feed["y"] = np.stack([rng.permutation(3) if i % 2 else np.arange(3) for i in range(2 * len(feed["x"]))]).reshape(-1, 6)[
            : len(feed["x"])
        ]
    return OfTwo(function), feeds


for name, function in PAIRS.items():
    add(f"g_{name}", lambda rng, function=function: pair(function, rng))

add("g_baddbmm", lambda rng: (OfThree(lambda x, y, z: (torch.baddbmm(x, y, z, beta=0.5, alpha=2.0), torch.addmm(x[0], y[0], z[0]),
    torch.bmm(y, z))),
                              floats(rng, *({"x": (b, 3, 5), "y": (b, 3, 4), "z": (b, 4, 5)} for b in (2, 4)))))  # fmt: skip
add(
    "f_frequencies",
    on(
        lambda: Of(lambda x: (torch.view_as_real(torch.fft.rfft(x)), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.fft(x).abs())),
        (2, 8),
        (5, 8),
    ),
    ("dynamo",),
)
add(
    "f_sizes",
    on(
        lambda: Of(
            lambda x: (
                x.reshape(x.shape[0] * 2, -1),
                x.view(-1, 2),
                x.unflatten(1, (2, 3)),
                torch.tensor(x.shape[0]) * 2,
                x[: x.shape[0] // 2],
            )
        ),
        (4, 6),
        (6, 6),
    ),
)
add("f_resized", on(lambda: Of(lambda x: (
    F.interpolate(x, (7, 9)), F.interpolate(x, scale_factor=1.5, mode="bilinear"), F.interpolate(x, (5, 5), mode="bilinear",
        align_corners=True),
    F.interpolate(x, scale_factor=2.0, mode="bicubic"), F.interpolate(x, (3, 3), mode="area"), F.interpolate(x, (5, 6),
        mode="nearest-exact"),
    F.interpolate(x, (3, 4), mode="bilinear", antialias=True))), (1, 2, 6, 8), (3, 2, 6, 8)), ("dynamo",))  # fmt: skip
add("f_resized_plain", on(lambda: Of(lambda x: (
    F.interpolate(x, (7, 9)), F.interpolate(x, scale_factor=1.5, mode="bilinear"), F.interpolate(x, (5, 5), mode="bilinear",
        align_corners=True),
    F.interpolate(x, scale_factor=2.0, mode="bicubic"))), (1, 2, 6, 8), (3, 2, 9, 8)))  # fmt: skip
