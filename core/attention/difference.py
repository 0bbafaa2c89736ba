"""first_difference: the first step in which an attention of one's own and a choice of the lab part.

Every tensor that the other code computes is seen while it runs, without a change of it: where one of them equals a step of
the lab, the two agree up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.base import Steps
from core.attention.config import AttentionConfig
from core.attention.layer import Attention
from core.attention.subjects import SEED, B, Recorder, T, of_heads, of_tokens, tried, undisturbed
from core.entries import refuse_if

STEPS = "q", "k", "raw", "scores", "masked", "weights", "out", "merged"
MEANINGS = {
    "q": "the queries (projected and rotated)",
    "k": "the keys (projected and rotated)",
    "raw": "q·k",
    "scores": "the scores (scaled, with their biases)",
    "masked": "the masked scores",
    "weights": "the weights",
    "out": "weights · v",
    "merged": "the output (heads merged and projected)",
}
HIDDEN = -1e4  # a score that is less is as good as −∞


@dataclass(frozen=True, eq=False)
class Difference:
    """The first of STEPS in which two attentions part, "" where none does, and the steps before it that are equal.

    `mine` and `ours` are the two maps, rows of queries (of keys, for k), of the head that holds the `largest` difference.
    """

    step: str
    equal: tuple[str, ...]
    largest: float = 0.0
    cell: tuple[int, int] = (0, 0)
    mine: Float[Tensor, "T N"] | None = None
    ours: Float[Tensor, "T N"] | None = None

    @property
    def text(self) -> str:
        return self.sentence()

    def sentence(self, ours: str = "ours") -> str:
        """The first difference and its cell; `ours` names the choice of the lab."""
        if not self.step or self.mine is None or self.ours is None:
            return f"No step differs: {', '.join(map(MEANINGS.__getitem__, self.equal))} are equal."
        row, column = self.cell
        values = [float(one[row, column]) for one in (self.mine, self.ours)]
        numbers = [
            "−∞ (hidden)" if one <= HIDDEN else f"{one:.3g}".replace("-", "−") for one in values
        ]
        most = "" if min(values) <= HIDDEN else f", by up to {self.largest:.3g}"
        until = f"They agree up to {MEANINGS[self.equal[-1]]}; the" if self.equal else "The"
        factor = (self.mine / self.ours)[(self.ours.abs() > 1e-3) & self.ours.isfinite()]
        same = factor.numel() and factor.std(correction=0) < 1e-3 * factor.mean().abs()
        times = f" Mine is {float(factor.mean()):.3g} times {ours}." if same else ""
        return (
            f"{until} first difference is in {MEANINGS[self.step]}{most}: at row {row}, column {column} mine has "
            f"{numbers[0]} and {ours} {numbers[1]}.{times}"
        )

    def __repr__(self) -> str:
        return self.text


def first_difference(mine: Any, config: AttentionConfig, *, seed: int = SEED) -> Difference:
    """Where `mine` and the layer of `config` part first, on the same seeded numbers.

    `mine` is another config, or what `check` takes: a function of q, k and v gets those of the config's layer before
    they are rotated, and its mask; an nn.Module of x gives the layer its weights (linear maps of C to 3C and C to C, or
    four of C to C, in this order). ConfigError as in `check`, and where the weights of a module cannot be told.
    """
    x = torch.randn(B, T, config.d_model, generator=torch.Generator().manual_seed(seed))
    recorder, given, results = Recorder(), list[Tensor](), dict[str, Tensor]()
    with undisturbed(mine, seed):
        layer = Attention(config, add_positions=True).eval()
        if isinstance(mine, AttentionConfig):
            torch.default_generator.manual_seed(seed)
            other, own = Attention(mine, add_positions=True).eval(), layer.state_dict()
            shapes = {name: one.shape for name, one in other.state_dict().items()}
            shared = {name: one for name, one in own.items() if shapes.get(name) == one.shape}
            other.load_state_dict(shared, strict=False)
            steps, results = layer(x), _tensors(other(x))
        elif isinstance(mine, nn.Module):
            tokens = of_tokens(mine, x)
            _copy_weights(mine, layer)
            steps = layer(x)
            with recorder:
                results["merged"] = tokens(x)
        else:
            run = tried(mine, of_heads(mine, config.score_heads))
            q, k, v = given = layer.projection(x, x)
            steps = layer.attend_heads(q, k, v, x, x)
            causal = run.causal and steps.mask is not None
            mask = steps.mask if run.forms and not causal else None
            with recorder:
                out = run(q, k, v, mask=mask, causal=causal)
            results["weights"] = run.weights(q, k, mask, causal, size=v.shape[-1])
            results["out"] = out
    seen = [*given[:2], *(tensor for _, tensor in recorder.results)]
    return _compared(steps, [*(("", one) for one in seen), *results.items()])


def _tensors(steps: Steps) -> dict[str, Tensor]:
    return {name: one for name in STEPS if (one := getattr(steps, name)) is not None}


def _shaped(one: Tensor, like: Tensor) -> Tensor | None:
    """A tensor in the shape of another: as it is, with heads after tokens, or with heads and sequences in one."""
    if like.dim() == 4 and one.shape == like.flatten(0, 1).shape:
        return one.view(like.shape)
    views = (one, one.transpose(1, 2)) if one.dim() == 4 else (one,)
    return next((view for view in views if view.shape == like.shape), None)


def _compared(steps: Steps, others: Sequence[tuple[str, Tensor]]) -> Difference:
    """The first step that none of the other's tensors equals, and none after it; beside it the tensor that comes next.

    `others` are in order, each with its step, or with "" where it may be any but the last: that is what was returned.
    """
    ours, last = _tensors(steps), others[-1][0]
    candidates = {
        name: [
            (at, other)
            for at, (step, tensor) in enumerate(others)
            if (step == name or not step and name != last)
            and (other := tensor if step else _shaped(tensor, one)) is not None
        ]
        for name, one in ours.items()
    }
    places = {
        name: next((at for at, other in candidates[name] if _equal(other, one)), -1)
        for name, one in ours.items()
    }
    names = [*ours]
    # q and k may be scaled on their way to scores that are equal, and a later step may be equal again
    first = 1 + max(
        (at for at, name in enumerate(names) if places[name] >= 0 and at > 1), default=-1
    )
    equal, after = tuple(name for name in names if places[name] >= 0), max(places.values())
    for name in (name for name in names[first:] if places[name] < 0):
        later = [other for at, other in candidates[name] if at > after or name in "qk"]
        if later:
            mine, own = (
                (one.clamp(min=HIDDEN) if one.dim() > 3 else one[:, None]).flatten(0, 1)
                for one in (later[-1] if name in "qk" else later[0], ours[name])
            )
            apart = (mine - own).abs()
            head, cell = divmod(int(apart.argmax()), apart[0].numel())
            place = divmod(cell, apart.shape[-1])
            return Difference(name, equal, float(apart.max()), place, mine[head], own[head])
    return Difference("", equal)


def _equal(one: Tensor, other: Tensor) -> bool:
    visible = other[other > HIDDEN]
    size = float(visible.abs().max()) if visible.numel() else 0.0
    return torch.allclose(one.clamp(min=HIDDEN), other.clamp(min=HIDDEN), 1e-4, 1e-4 * size)


def _copy_weights(module: nn.Module, layer: Attention) -> None:
    """Give a layer the four maps of a module."""
    size, maps = layer.config.d_model, list[tuple[Tensor, Tensor | None]]()
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
        maps = [(module.in_proj_weight, module.in_proj_bias)]
    maps += [(one.weight, one.bias) for one in module.modules() if isinstance(one, nn.Linear)]
    parts = [part for one, _ in maps if one.shape[1] == size for part in one.split(size)]
    biases = [torch.zeros(len(one)) if bias is None else bias for one, bias in maps]
    own = layer.projection
    targets = own.query, own.key, own.value, own.output
    refuse_if(
        [one.shape for one in parts] != [one.weight.shape for one in targets]
        or (own.query.bias is None and any(bias.any() for bias in biases)),
        f"The weights of {type(module).__name__} cannot be told: expected linear maps of {size} to {3 * size} and of "
        f"{size} to {size}, or four of {size} to {size}, with a bias only where the config has one; give first_difference "
        "a function of q, k and v.",
    )
    for target, weight, bias in zip(targets, parts, torch.cat(biases).split(size), strict=True):
        target.weight.copy_(weight)
        if target.bias is not None:
            target.bias.copy_(bias)
