"""The numbers behind each answer, computed on small tensors or in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.attention import attend
from core.models import ModelConfig, build_model
from core.models.base import Shape
from core.seeding import seeded_rng
from dashboard.charts.numbers import byte_size, number, operations, percent

SEED = 0


@dataclass(frozen=True)
class Evidence:
    """A small table of computed numbers, and the sentence that it shows."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentence: str


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))


def scaling() -> Evidence:
    """Standard deviation of q · k, and the largest softmax weight of 16 keys, with and without 1/√D."""
    rows, largest = [], {}
    for d in (4, 16, 64, 256):
        q, k = normal(1, 1, 216, d).split((200, 16), dim=2)
        plain, scaled = attend(q, k, k, scale=1.0), attend(q, k, k)
        largest[d] = [steps.weights.amax(-1).mean().item() for steps in (plain, scaled)]
        rows.append((str(d), number(plain.scores.std().item()), *map(number, largest[d])))
    return Evidence(("D", "std of q\u00a0·\u00a0k", "largest weight, no scaling", "largest weight, 1/√D"), tuple(rows),
                    f"At D = 256 the largest of 16 weights is {number(largest[256][0])} on average without the "
                    f"division and {number(largest[256][1])} with it.")


def lengths(d_model: int = 512, heads: int = 8) -> Evidence:
    """FLOPs of one layer's attention, split, and the bytes of its weights, by length."""
    rows = []
    for length in (128, 1024, 8192):
        maps, products = 8 * length * d_model**2, 4 * length**2 * d_model
        rows.append((f"{length:,}", operations(maps), operations(products), byte_size(4 * heads * length**2)))
    return Evidence(("tokens", "FLOPs of W_q, W_k, W_v, W_o", "FLOPs of q · k and weights · v", "weights, fp32"),
                    tuple(rows), f"The two are equal at {2 * d_model:,} tokens, twice d_model = {d_model}. "
                                 "Beyond that the quadratic part dominates.")


def addition() -> Evidence:
    """That a linear map of x + p is a linear map of the concatenation (x, p) with a shared matrix."""
    x, p, weight = normal(18, 8).split((5, 5, 8))
    added = (x + p) @ weight
    joined = torch.cat((x, p), 1) @ torch.cat((weight, weight))
    return Evidence(("form", "matrix", "numbers to learn at d_model = 512"),
                    (("add: W(x + p)", "512 × 512", f"{512**2:,}"),
                     ("concatenate: W₁x + W₂p", "512 × 1,024", f"{2 * 512**2:,}")),
                    "W(x + p) equals the concatenation with W₁ = W₂ = W; the largest difference here is "
                    f"{number((added - joined).abs().max().item())}.")


def feed_forward(d_model: int = 512) -> Evidence:
    """Parameters of a layer with an inner width of 4 · d_model, by part."""
    attention, forward = 4 * d_model * (d_model + 1), 2 * d_model * 4 * d_model + 5 * d_model
    whole = attention + forward
    rows = (("attention", f"{attention:,}", percent(attention / whole)),
            ("feed-forward", f"{forward:,}", percent(forward / whole)))
    return Evidence(("part", "parameters", "share"), rows,
                    f"Two thirds of a layer's parameters, {percent(forward / whole)}, are in the feed-forward network.")


def causality() -> Evidence:
    """What changes when the last of six tokens changes, with and without a causal mask."""
    x = normal(1, 1, 6, 8)
    changed = x.clone()
    changed[..., -1, :] += 1
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    rows, counts = [], []
    for name, mask in (("no mask", None), ("causal mask", causal)):
        difference = (attend(x, x, x, mask).out - attend(changed, changed, changed, mask).out).abs().amax((0, 1, 3))
        counts.append(int((difference[:-1] > 0).sum()))
        rows.append((name, *(number(value) for value in difference.tolist())))
    return Evidence(("mask", *(f"output {i}" for i in range(6))), tuple(rows),
                    f"Without a mask {counts[0]} of the 5 earlier outputs change when the last token changes; with the "
                    f"causal mask {counts[1]} do.")


def reshaping() -> Evidence:
    """Which token's numbers each head row gets, for view then transpose, and for view alone."""
    tokens, heads, size = 3, 2, 2
    x = torch.arange(tokens).repeat_interleave(heads * size).view(1, tokens, heads * size)
    right, wrong = x.view(1, tokens, heads, size).transpose(1, 2), x.view(1, heads, tokens, size)
    rows = [(f"head {head}, row {row}", *(" and ".join(sorted({f"token {i}" for i in way[0, head, row].tolist()}))
                                          for way in (right, wrong)))
            for head in range(heads) for row in range(tokens)]
    mixed = int((wrong != right).any(-1).sum())
    return Evidence(("row", "view(B, T, H, D).transpose(1, 2)", "view(B, H, T, D)"), tuple(rows),
                    f"view(B, H, T, D) puts the wrong token into {mixed} of {heads * tokens} rows.")


def padding() -> Evidence:
    """Outputs of two real tokens with and without a padded third, its key masked or not."""
    x = normal(1, 1, 3, 4)
    real = torch.tensor([True, True, False])
    alone = attend(x[..., :2, :], x[..., :2, :], x[..., :2, :]).out
    rows, errors = [], []
    for name, mask in (("no mask", None), ("padded key masked", real), ("padded key and query masked",
                                                                       real & real[:, None])):
        out = attend(x, x, x, mask).out
        errors.append((out[..., :2, :] - alone).abs().max().item())
        rows.append((name, number(errors[-1]), number(out[..., 2, :].abs().max().item())))
    return Evidence(("mask", "change of the real tokens' outputs", "size of the padded row's output"), tuple(rows),
                    f"With the key masked the real outputs change by {number(errors[1])}. Masking the query as well "
                    "changes only the padded row, which the loss leaves out anyway.")


def cache(layers: int = 32, heads: int = 32, head_dim: int = 128) -> Evidence:
    """Bytes of keys and values a token in bf16, for shared and latent forms, of a model of 32 layers."""
    forms = (("multi-head (32 key/value heads)", 2 * heads * head_dim), ("grouped (8)", 2 * 8 * head_dim),
             ("multi-query (1)", 2 * head_dim), ("latent (512 + 64)", 512 + 64))
    rows = tuple((name, byte_size(2 * layers * size), byte_size(2 * layers * size * 8192)) for name, size in forms)
    return Evidence(("keys and values", "a token", "8,192 tokens"), rows,
                    "Queries are not stored: the query of an earlier token is never used again.")


def one_row(length: int = 4096, head_dim: int = 64) -> Evidence:
    """What the fused kernel does not store, and what one row costs to compute again."""
    return Evidence(("what", "numbers", "FLOPs"),
                    (("all weights of one head", f"{length**2:,}", operations(2 * length**2 * head_dim)),
                     ("one row of weights", f"{length:,}", operations(2 * length * head_dim))),
                    f"The fused kernel never stores the {length**2:,} weights at once; one row is computed again for "
                    f"1/{length:,} of the cost.")


def families() -> Evidence:
    """Stacks and attentions of the three families, counted in models built here."""
    rows = []
    for name, kind, shape in (("BERT: encoder only", "classifier", Shape(9, 3, 8, output="label")),
                              ("GPT: decoder only", "decoder", Shape(9, 9, 8)),
                              ("T5: encoder–decoder", "transformer", Shape(9, 9, 8))):
        with seeded_rng(SEED):
            model = build_model(ModelConfig.transformer(kind=kind, layers=2), shape)
        names = [path.rpartition(".")[2] for path, _ in model.named_modules()]
        rows.append((name, *(str(names.count(part)) for part in ("attention", "causal", "cross"))))
    return Evidence(("family, 2 layers a stack", "self-attention", "causal", "cross-attention"), tuple(rows),
                    "The families differ in which of the three attentions their layers have.")
