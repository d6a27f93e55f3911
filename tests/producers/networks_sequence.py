"""Recurrent networks, transformers and networks over graphs, points and sound."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from networks import Feeds, Of, OfThree, OfTwo, add, floats, network, on, spread, tokens
from torch import Tensor, nn
from torch.nn import functional as F

TURNS = (5, 3, 6), (9, 4, 6)  # time, batch, features
STEPS = (5, 3, 6), (5, 4, 6)  # of a fixed number: torch.export unrolls the loop over time


class Recurrent(nn.Module):
    """States as outputs, and as inputs where they are given."""

    def __init__(self, kind: type[nn.RNNBase], **given: object) -> None:
        super().__init__()
        self.cell, self.head = kind(6, 7, **given), nn.Linear(14 if given.get("bidirectional") else given.get("proj_size", 7), 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, state = self.cell(x)
        return self.head(y), *(state if isinstance(state, tuple) else (state,))


FORMS: dict[str, dict[str, object]] = {
    "": {}, "two_layers": {"num_layers": 2}, "both_ways": {"bidirectional": True}, "batch_first": {"batch_first": True, "bias": False},
    "deep_both_ways": {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.1},
}  # fmt: skip
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    for form, given in FORMS.items():
        shapes = [(b, t, f) for t, b, f in STEPS] if given.get("batch_first") else STEPS
        for exporter, runs in (("script", TURNS), ("dynamo", shapes)):
            add(
                f"{kind.__name__.lower()}_{form}".rstrip("_") + "_steps" * (exporter == "dynamo"),
                on(partial(Recurrent, kind, **given), *runs),
                (exporter,),
            )
add("rnn_relu", on(partial(Recurrent, nn.RNN, nonlinearity="relu"), *TURNS), ("script",))
add("lstm_any_length", on(partial(Recurrent, nn.LSTM), *TURNS), ("dynamo",))


class Packed(nn.Module):
    """Sequences of unequal lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(6, 7, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=True)
        y, (h, _) = self.cell(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], h


@network("script")
def packed_lstm(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    feeds = floats(rng, {"x": (2, 5, 6)}, {"x": (3, 8, 6)})
    for feed, lengths in zip(feeds, ((5, 3), (8, 4, 2)), strict=True):
        feed["lengths"] = np.array(lengths)
    return Packed(), feeds


class Cells(nn.Module):
    """A cell, step by step, over a fixed number of steps."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, lstm = torch.zeros(x.shape[1], 7), isinstance(self.cell, nn.LSTMCell)
        held = state
        for i in range(5):
            state, held = self.cell(x[i], (state, held)) if lstm else (self.cell(x[i], state), held)
        return state


add("lstm_cells", on(lambda: Cells(nn.LSTMCell(6, 7)), (5, 2, 6), (5, 4, 6)))
add("gru_cells", on(lambda: Cells(nn.GRUCell(6, 7)), (5, 2, 6), (5, 4, 6)))


class Speller(nn.Module):
    """Characters to classes: embedding, convolution, both ways, attention over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Embedding(40, 8, padding_idx=0), nn.Conv1d(8, 8, 3, padding=1)
        self.cell, self.score, self.head = nn.GRU(8, 6, bidirectional=True, batch_first=True), nn.Linear(12, 1), nn.Linear(12, 4)

    def forward(self, ids: Tensor) -> Tensor:
        y = self.conv(self.embed(ids).transpose(1, 2)).relu().transpose(1, 2)
        y = self.cell(y)[0]
        weight = self.score(y).masked_fill((ids == 0)[..., None], -1e9).softmax(1)
        return self.head((y * weight).sum(1)).log_softmax(-1)


add("speller", lambda rng: (Speller(), tokens(rng, 40, (2, 7), (3, 11))))
add(
    "embedding_bag_mean", lambda rng: (nn.EmbeddingBag(40, 8, mode="mean"), [{"input": f["ids"]} for f in tokens(rng, 40, (2, 7), (3, 11))])
)

for norm_first in (False, True):
    for act in ("relu", "gelu"):
        layer = partial(nn.TransformerEncoderLayer, 16, 4, 32, activation=act, batch_first=True, norm_first=norm_first)
        add(f"encoder_{act}{'_norm_first' if norm_first else ''}",
            on(lambda layer=layer: nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False), (2, 5, 16), (3, 9, 16)), ("dynamo",
                ))  # fmt: skip


@network()
def seq2seq_transformer(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            n = y.shape[1]
            mask = torch.full((n, n), float("-inf")).triu(1)
            return self.inner(x, y, tgt_mask=mask)

    return Both(), floats(rng, {"x": (2, 5, 16), "y": (2, 4, 16)}, {"x": (3, 9, 16), "y": (3, 7, 16)})


@network()
def masked_attention(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(16, 4, kdim=8, vdim=12, batch_first=True)

        def forward(self, x: Tensor, y: Tensor, z: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            return self.inner(x, y, z, key_padding_mask=hidden)

    feeds = floats(rng, {"x": (2, 5, 16), "y": (2, 4, 8), "z": (2, 4, 12)}, {"x": (3, 9, 16), "y": (3, 7, 8), "z": (3, 7, 12)})
    for feed in feeds:
        feed["hidden"] = np.arange(feed["y"].shape[1])[None] >= np.arange(2, 2 + len(feed["y"]))[:, None]
    return Masked(), feeds


def rotated(x: Tensor, base: int = 0) -> Tensor:
    n, d = x.shape[-2], x.shape[-1]
    angles = torch.arange(n)[:, None] / 100.0 ** (torch.arange(0, d, 2) / d)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Llama(nn.Module):
    """RMS norms, rotary positions, grouped queries, gated linear units, a tied head."""

    def __init__(self, window: int | None = None) -> None:
        super().__init__()
        self.embed, self.q, self.kv, self.o = (
            nn.Embedding(50, 16),
            nn.Linear(16, 16, False),
            nn.Linear(16, 16, False),
            nn.Linear(16, 16, False),
        )
        self.gate, self.down, self.norms = (
            nn.Linear(16, 64, False),
            nn.Linear(32, 16, False),
            nn.ModuleList(nn.RMSNorm(16) for _ in range(3)),
        )
        self.window = window

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        y = self.norms[0](x)
        b, n, _ = y.shape
        q = rotated(self.q(y).view(b, n, 4, 4).transpose(1, 2))
        k, v = self.kv(y).view(b, n, 2, 2, 4).unbind(2)
        k, v = rotated(k.transpose(1, 2)).repeat_interleave(2, 1), v.transpose(1, 2).repeat_interleave(2, 1)
        if self.window is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            apart = torch.arange(n)[:, None] - torch.arange(n)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=(apart >= 0) & (apart < self.window))
        x = x + self.o(y.transpose(1, 2).reshape(b, n, 16))
        a, g = self.gate(self.norms[1](x)).chunk(2, -1)
        x = x + self.down(F.silu(a) * g)
        return self.norms[2](x) @ self.embed.weight.T


add("llama", lambda rng: (Llama(), tokens(rng, 50, (1, 6), (2, 9))))
add("llama_window", lambda rng: (Llama(3), tokens(rng, 50, (1, 6), (2, 9))))


class Cached(nn.Module):
    """One step of a decoder: what was seen grows along time."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        k, v = torch.cat([key, k], 2), torch.cat([value, v], 2)
        weight = (q @ k.transpose(-1, -2) / 2).softmax(-1)
        return self.o((weight @ v).transpose(1, 2).flatten(2)), k, v


@network()
def cached_decoder(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    shapes = ({"x": (b, 1, 16), "key": (b, 4, n, 4), "value": (b, 4, n, 4)} for b, n in ((2, 5), (3, 8)))
    return Cached(), floats(rng, *shapes)


class Experts(nn.Module):
    """A mixture: two of four experts for each token, by index."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(8, 4),
            nn.Parameter(torch.randn(4, 8, 16) * 0.3),
            nn.Parameter(torch.randn(4, 16, 8) * 0.3),
        )

    def forward(self, x: Tensor) -> Tensor:
        weight, which = self.gate(x).softmax(-1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        y = torch.einsum("nd,nkdh->nkh", x, self.up[which]).relu()
        return torch.einsum("nkh,nkhd,nk->nd", y, self.down[which], weight)


add("experts", on(Experts, (5, 8), (9, 8)))


class Routed(nn.Module):
    """The same by scattering: each expert sees the tokens that chose it, however many."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 3), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores, which = self.gate(x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (which == i).nonzero().squeeze(1)
            y = y.index_add(0, rows, expert(x[rows]) * scores[rows, None])
        return y


add("routed_experts", on(Routed, (5, 8), (9, 8)))
add(
    "wave_net",
    on(
        lambda: nn.Sequential(*(m for d in (1, 2, 4) for m in (nn.ConstantPad1d((d, 0), 0.0), nn.Conv1d(4, 4, 2, dilation=d), nn.ELU()))),
        (1, 4, 16),
        (2, 4, 25),
    ),
)
add("sound_encoder", on(lambda: nn.Sequential(
    nn.Conv1d(1, 8, 10, 5), nn.GroupNorm(8, 8), nn.GELU(), nn.Conv1d(8, 8, 3, 2), nn.GELU(), nn.ConvTranspose1d(8, 4, 4, 2, 1),
        nn.Softplus()),
    (1, 1, 200), (2, 1, 331)))  # fmt: skip


class Spectrum(nn.Module):
    """Mel-like energies of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mel", torch.rand(10, 33))
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.stft(x, 64, 16, window=self.window, center=False, return_complex=True)
        return (self.mel @ torch.view_as_real(y).square().sum(-1)).clamp(1e-6).log()


add("spectrum", on(Spectrum, (1, 256), (2, 320)))


class Graph(nn.Module):
    """Messages along edges, added where they arrive, then the largest and the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(8, 6), nn.Linear(4 + 18, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        a, b = edges[0], edges[1]
        m = self.message(torch.cat([x[a], x[b]], 1)).relu()
        wide = b[:, None].expand(-1, 6)
        zero = torch.zeros(x.shape[0], 6)
        found = [zero.scatter_add(0, wide, m), zero.scatter_reduce(0, wide, m, "amax"), zero.index_add(0, b, m)]
        return self.update(torch.cat([x, *found], 1))


@network()
def graph(rng: np.random.Generator) -> tuple[nn.Module, Feeds]:
    feeds = floats(rng, {"x": (5, 4)}, {"x": (8, 4)})
    for feed, count in zip(feeds, (7, 15), strict=True):
        feed["edges"] = rng.integers(0, len(feed["x"]), (2, count))
    return Graph(), feeds


class Points(nn.Module):
    """Neighbours by distance, features over them."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = spread(nn.Sequential(nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8), nn.ReLU())), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        near = torch.cdist(x, x).topk(3, -1, largest=False).indices
        _, n, k = near.shape
        of = torch.gather(x[:, None].expand(-1, n, -1, -1), 2, near[..., None].expand(-1, -1, -1, 3))
        y = torch.cat([of - x[:, :, None], x[:, :, None].expand(-1, -1, k, -1)], -1)
        return self.head(self.each(y.permute(0, 3, 1, 2)).amax(-1).amax(-1))


add("points", on(Points, (1, 8, 3), (2, 12, 3)))


class Relative(nn.Module):
    """Attention with a bias by distance, as T5 has it, and shifted scores, as Transformer-XL."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(16, 48), nn.Embedding(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        n = x.shape[1]
        apart = (torch.arange(n)[:, None] - torch.arange(n)).clamp(-4, 3) + 4
        scores = q @ k.transpose(-1, -2) + self.bias(apart).permute(2, 0, 1)
        padded = F.pad(scores, (1, 0)).reshape(x.shape[0], 4, n + 1, n)[:, :, 1:]
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2), padded.reshape(x.shape[0], 4, n, n).softmax(-1)


add("relative_attention", on(Relative, (1, 6, 16), (2, 9, 16)))


class StateSpace(nn.Module):
    """A selective state: decay and input by token, summed up in closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.conv, self.leave = nn.Linear(8, 16), nn.Conv1d(8, 8, 4, groups=8, padding=3), nn.Linear(8, 8)
        self.decay, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        log = -F.softplus(self.decay(u))
        total = log.cumsum(1)
        state = (total.exp() * ((u * (-total).exp()).cumsum(1))).tanh()
        return x + self.leave(state * torch.sigmoid(gate))


add("state_space", on(StateSpace, (1, 6, 8), (2, 9, 8)))
add("perceiver", lambda rng: (
    OfTwo(lambda x, y: F.scaled_dot_product_attention(x, y, y).mean(1)),
    floats(rng, {"x": (1, 4, 8), "y": (1, 20, 8)}, {"x": (2, 4, 8), "y": (2, 30, 8)})))  # fmt: skip
add(
    "bilinear",
    lambda rng: (
        nn.Bilinear(4, 5, 3),
        [{"input1": f["x"], "input2": f["y"]} for f in floats(rng, {"x": (2, 4), "y": (2, 5)}, {"x": (6, 4), "y": (6, 5)})],
    ),
)
add("triplet", lambda rng: (
    OfThree(lambda x, y, z: nn.functional.triplet_margin_loss(x, y, z, reduction="none")),
    floats(rng, *(dict.fromkeys("xyz", (n, 6)) for n in (3, 5)))))  # fmt: skip
add("spectral_norm", on(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)), (2, 6), (5, 6)))
add("activations", on(lambda: Of(lambda x: torch.cat([
    f(x) for f in (F.celu, F.selu, F.mish, F.softsign, F.hardtanh, F.logsigmoid, F.tanhshrink, F.softshrink, F.hardshrink, F.relu6, F.glu,
        F.gelu,
                   partial(F.gelu, approximate="tanh"), partial(F.threshold, threshold=0.2, value=3.0), partial(F.normalize, dim=-1))],
                       -1)),
    (2, 6), (5, 6)))  # fmt: skip
