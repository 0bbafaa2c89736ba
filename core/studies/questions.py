"""The numbers behind each answer, on small tensors or in closed form: a row for each line of its table.

The page shows the source of these functions, and its script contains it: they use core and torch alone.
"""

import torch

from core.attention import attend
from core.models import ModelConfig, Shape, build_model
from core.seeding import seeded_rng


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def scaling() -> list[dict]:
    """The standard deviation of q · k, and the largest softmax weight of 16 keys, with and without 1/√D."""
    rows = []
    for d in (4, 16, 64, 256):
        q, k = normal(1, 1, 216, d).split((200, 16), dim=2)
        plain, scaled = attend(q, k, k, scale=1.0), attend(q, k, k)
        rows.append(
            {
                "D": d,
                "std": plain.scores.std().item(),
                "plain": plain.weights.amax(-1).mean().item(),
                "scaled": scaled.weights.amax(-1).mean().item(),
            }
        )
    return rows


D_MODEL = 512  # of the layers that are counted


def lengths(d_model: int = D_MODEL, heads: int = 8) -> list[dict]:
    """FLOPs of one layer's attention, split, and the bytes of its weights in fp32, by length."""
    return [
        {
            "tokens": length,
            "maps": 8 * length * d_model**2,
            "products": 4 * length**2 * d_model,
            "bytes": 4 * heads * length**2,
        }
        for length in (128, 1024, 8192)
    ]


def addition(d_model: int = D_MODEL) -> list[dict]:
    """A linear map of x + p is a linear map of the concatenation (x, p) with a shared matrix."""
    x, p, weight = normal(18, 8).split((5, 5, 8))
    return [
        {"form": "add: W(x + p)", "columns": d_model, "numbers": d_model**2, "difference": 0.0},
        {
            "form": "concatenate: W₁x + W₂p",
            "columns": 2 * d_model,
            "numbers": 2 * d_model**2,
            "difference": (
                ((x + p) @ weight) - (torch.cat((x, p), 1) @ torch.cat((weight, weight)))
            )
            .abs()
            .max()
            .item(),
        },
    ]


def feed_forward(d_model: int = D_MODEL) -> list[dict]:
    """Parameters of a layer with an inner width of 4 · d_model, by part."""
    parts = {
        "attention": 4 * d_model * (d_model + 1),
        "feed-forward": 2 * d_model * 4 * d_model + 5 * d_model,
    }
    return [
        {"part": part, "parameters": count, "share": count / sum(parts.values())}
        for part, count in parts.items()
    ]


def causality() -> list[dict]:
    """What changes when the last of six tokens changes, with and without a causal mask."""
    x = normal(1, 1, 6, 8)
    changed = x.clone()
    changed[..., -1, :] += 1
    differences = {
        name: attend(x, x, x, mask).out - attend(changed, changed, changed, mask).out
        for name, mask in {
            "no mask": None,
            "causal mask": torch.ones(6, 6, dtype=torch.bool).tril(),
        }.items()
    }
    return [
        {"mask": name}
        | {f"output {i}": row for i, row in enumerate(each.abs().amax((0, 1, 3)).tolist())}
        for name, each in differences.items()
    ]


def reshaping() -> list[dict]:
    """Which tokens' numbers each head row gets, for view then transpose, and for view alone."""
    tokens, heads, size = 3, 2, 2
    x = torch.arange(tokens).repeat_interleave(heads * size).view(1, tokens, heads * size)
    right, wrong = x.view(1, tokens, heads, size).transpose(1, 2), x.view(1, heads, tokens, size)
    return [
        {"row": f"head {head}, row {row}"}
        | {
            f"{name} {at}": int(way[0, head, row, at])
            for name, way in (("right", right), ("wrong", wrong))
            for at in range(size)
        }
        for head in range(heads)
        for row in range(tokens)
    ]


def padding() -> list[dict]:
    """Outputs of two real tokens with and without a padded third, its key masked or not."""
    x = normal(1, 1, 3, 4)
    real = torch.tensor([True, True, False])
    alone = attend(x[..., :2, :], x[..., :2, :], x[..., :2, :]).out
    outs = {
        name: attend(x, x, x, mask).out
        for name, mask in {
            "no mask": None,
            "padded key masked": real,
            "padded key and query masked": real & real[:, None],
        }.items()
    }
    return [
        {
            "mask": name,
            "change": (out[..., :2, :] - alone).abs().max().item(),
            "padded": out[..., 2, :].abs().max().item(),
        }
        for name, out in outs.items()
    ]


def cache(layers: int = 32, heads: int = 32, head_dim: int = 128) -> list[dict]:
    """Bytes of keys and values a token in bf16, for shared and latent forms, of a model of 32 layers."""
    return [
        {"keys and values": name, "token": 2 * layers * size, "text": 2 * layers * size * 8192}
        for name, size in {
            f"multi-head ({heads} key/value heads)": 2 * heads * head_dim,
            "grouped (8)": 2 * 8 * head_dim,
            "multi-query (1)": 2 * head_dim,
            "latent (512 + 64)": 512 + 64,
        }.items()
    ]


def one_row(length: int = 4096, head_dim: int = 64) -> list[dict]:
    """What the fused kernel does not store, and what one row costs to compute again."""
    return [
        {
            "what": "all weights of one head",
            "numbers": length**2,
            "FLOPs": 2 * length**2 * head_dim,
        },
        {"what": "one row of weights", "numbers": length, "FLOPs": 2 * length * head_dim},
    ]


def families() -> list[dict]:
    """Stacks and attentions of the three families, counted in models built here."""
    rows = []
    for name, kind, shape in (
        ("BERT: encoder only", "classifier", Shape(9, 3, 8, output="label")),
        ("GPT: decoder only", "decoder", Shape(9, 9, 8)),
        ("T5: encoder–decoder", "transformer", Shape(9, 9, 8)),
    ):
        with seeded_rng(0):
            model = build_model(ModelConfig.transformer(kind=kind, layers=2), shape)
        names = [path.rpartition(".")[2] for path, _ in model.named_modules()]
        rows.append(
            {"family": name}
            | {part: names.count(part) for part in ("attention", "causal", "cross")}
        )
    return rows
