"""Beside each weight: how much the head writes with it (Kobayashi et al. 2020), and its gradient times itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.attention_recorder import AttentionCall, repeat_kv
from core.pretrained.evidence.question import Baseline
from core.pretrained.load import maps_bytes
from core.pretrained.model_storage import free_memory
from core.pretrained.reading import forward
from core.trace import Kind, to_numpy

# What the library's families call the matrix that brings the heads together.
OUTPUT_NAMES = ("o_proj", "out_proj", "out_lin", "c_proj", "dense", "o", "Wo", "wo", "proj")

SLOPES_TAKE = 9  # times the memory of the maps: measured with GPT-2's 144 heads on 512 tokens

Place = tuple[Kind, int]


@dataclass(frozen=True, eq=False)
class Contributions:
    """By (kind, layer): `norms` (H, S) are ‖v·W_O‖ of each key, `slopes` (H, T, S) are α·∂answer/∂α of each weight.

    `whole` says whether W_O was found: where it was not, norms are ‖v‖. `slopes` is empty where there is no gradient,
    and where it was left out because it takes more memory than is free, which `cramped` says.
    """

    norms: dict[Place, np.ndarray]
    slopes: dict[Place, np.ndarray]
    whole: bool
    cramped: bool = False

    def written(self, kind: Kind, layer: int,
                weights: Float[np.ndarray, "H T S"]) -> Float[np.ndarray, "H T S"] | None:  # fmt: skip
        """‖α·v·W_O‖, how long the vector is that a head writes at the row for the key; None where v is not known."""
        norms = self.norms.get((kind, layer))
        if norms is None or len(norms) != len(weights):
            return None
        return np.abs(weights) * _as_wide(norms, weights.shape[-1])[:, None]

    def sloped(self, kind: Kind, layer: int, keys: int) -> Float[np.ndarray, "H T S"] | None:
        """α·∂answer/∂α: what the answer would lose, to first order, without that weight."""
        slopes = self.slopes.get((kind, layer))
        return None if slopes is None else _as_wide(slopes, keys)


def measure_contributions(asked: Baseline) -> Contributions:
    """One forward pass and, where the answer has a gradient, one backward pass; the model is only read.

    A head's slopes sum to the first-order estimate of what switching it off takes away (Michel et al. 2019, section 4).
    """
    if not asked.pretrained.watched:
        return Contributions({}, {}, False)
    free, maps = free_memory(), maps_bytes(asked.pretrained.model, len(asked.source))
    cramped = asked.sloped and free is not None and SLOPES_TAKE * maps > free
    sloped = asked.sloped and not cramped
    output, watch = forward(asked.pretrained, asked.batch, whole=True, probe=sloped)
    norms: dict[Place, np.ndarray] = {}
    whole = True
    for seen in watch.seen:
        norms[seen.kind, seen.layer], known = value_norms(asked.pretrained.model, seen)
        whole = whole and known
    slopes = _slopes(asked.followed(asked.answer_in(asked.batch, output)), watch.seen) if sloped else {}
    return Contributions(norms, slopes, whole, cramped)


def _slopes(followed: Tensor, every: list[AttentionCall]) -> dict[Place, np.ndarray]:
    probes = [seen.probe for seen in every if seen.probe is not None]
    gradients = torch.autograd.grad(followed, probes, allow_unused=True)
    return {(seen.kind, seen.layer): to_numpy((seen.weights.detach() * gradient.cpu())[0])
            for seen, gradient in zip(every, gradients, strict=True) if gradient is not None}


def value_norms(model: Any, seen: AttentionCall) -> tuple[Float[np.ndarray, "H S"], bool]:
    """‖v·W_O‖ of each head and key, and whether W_O was found; without it ‖v‖. Kobayashi et al. 2020, equation 6."""
    assert seen.v is not None
    heads = seen.weights.shape[1]
    values = repeat_kv(seen.v, heads)[0].detach()
    matrix = output_matrix(model, seen)
    if matrix is not None:
        values = torch.einsum("hse,hec->hsc", values, matrix)
    return to_numpy(values.norm(dim=-1)), matrix is not None


def output_matrix(model: Any, seen: AttentionCall) -> Float[Tensor, "H E C"] | None:
    """The rows of W_O that each head's output goes through; None where the family keeps it somewhere unknown."""
    linear = output_layer(model, seen)
    if linear is None:
        return None
    weight = linear.weight if _is_transposed(linear) else linear.weight.T
    return weight.unflatten(0, (seen.weights.shape[1], -1)).detach().cpu()


def output_layer(model: Any, seen: AttentionCall) -> Any:
    """The layer that brings a layer's heads together: in the attention itself, or beside it, as BERT has it."""
    assert seen.v is not None
    wide = seen.weights.shape[1] * seen.v.shape[-1]
    name = next(name for name, module in model.named_modules() if module is seen.module)
    for room in (seen.module, model.get_submodule(name.rpartition(".")[0])):
        for inside, module in room.named_modules():
            if inside.rpartition(".")[2] in OUTPUT_NAMES and _inputs(module) == wide:
                return module
    return None


def _is_transposed(linear: Any) -> bool:
    """GPT-2 keeps its matrices as (in, out)."""
    return type(linear).__name__ == "Conv1D"


def _inputs(module: Any) -> int | None:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return None
    return weight.shape[0 if _is_transposed(module) else 1]


def _as_wide(values: np.ndarray, keys: int) -> np.ndarray:
    """The values with a zero for each key that a trace has beyond them: a sink has no value and no token."""
    more = [(0, 0)] * (values.ndim - 1) + [(0, max(0, keys - values.shape[-1]))]
    return np.pad(values, more)
