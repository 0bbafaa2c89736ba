"""The contribution of each weight: the norm of what it adds (Kobayashi et al. 2020), and its gradient × weight."""

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

# Names of the output projection W_O in the library's families.
OUTPUT_NAMES = ("o_proj", "out_proj", "out_lin", "c_proj", "dense", "o", "Wo", "wo", "proj")

GRADIENT_MEMORY = 9  # times the memory of the maps: measured with GPT-2's 144 heads on 512 tokens

LayerKey = tuple[Kind, int]


@dataclass(frozen=True, eq=False)
class Contributions:
    """By (kind, layer): `norms` (H, S) are ‖v·W_O‖ of each key, `gradients` (H, T, S) are α·∂answer/∂α of each weight.

    Norms are ‖v‖ where W_O is unknown. `gradients` is empty where there is no gradient, and with `out_of_memory`
    because computing it takes more memory than is free.
    """

    norms: dict[LayerKey, np.ndarray]
    gradients: dict[LayerKey, np.ndarray]
    out_of_memory: bool = False

    def norm_map(self, kind: Kind, layer: int,
                 weights: Float[np.ndarray, "H T S"]) -> Float[np.ndarray, "H T S"] | None:  # fmt: skip
        """‖α·v·W_O‖, the length of the vector that a head adds at a row for a key; None where v is unknown."""
        norms = self.norms.get((kind, layer))
        if norms is None or len(norms) != len(weights):
            return None
        return np.abs(weights) * _as_wide(norms, weights.shape[-1])[:, None]

    def gradient_map(self, kind: Kind, layer: int, keys: int) -> Float[np.ndarray, "H T S"] | None:
        """α·∂answer/∂α: what the answer would lose without that weight, to first order."""
        gradients = self.gradients.get((kind, layer))
        return None if gradients is None else _as_wide(gradients, keys)


def measure_contributions(baseline: Baseline) -> Contributions:
    """Contributions from one forward pass and, where the answer has a gradient, one backward pass.

    A head's gradients sum to the first-order estimate of the effect of ablating it (Michel et al. 2019, section 4).
    """
    if not baseline.pretrained.recordable:
        return Contributions({}, {})
    free, maps = free_memory(), maps_bytes(baseline.pretrained.model, len(baseline.source))
    out_of_memory = baseline.has_gradient and free is not None and GRADIENT_MEMORY * maps > free
    with_gradients = baseline.has_gradient and not out_of_memory
    output, recorder = forward(baseline.pretrained, baseline.batch, with_qkv=True, probe=with_gradients)
    norms = {(call.kind, call.layer): value_norms(baseline.pretrained.model, call) for call in recorder.calls}
    gradients: dict[LayerKey, np.ndarray] = {}
    if with_gradients:
        target = baseline.target_value(baseline.answer_in(baseline.batch, output))
        probes = [call.probe for call in recorder.calls if call.probe is not None]
        slopes = torch.autograd.grad(target, probes, allow_unused=True)
        gradients = {(call.kind, call.layer): to_numpy((call.weights.detach() * slope.cpu())[0])
                     for call, slope in zip(recorder.calls, slopes, strict=True) if slope is not None}
    return Contributions(norms, gradients, out_of_memory)


def value_norms(model: Any, call: AttentionCall) -> Float[np.ndarray, "H S"]:
    """‖v·W_O‖ of each head and key, or ‖v‖ where W_O is unknown. Kobayashi et al. 2020, equation 6."""
    assert call.v is not None
    heads = call.weights.shape[1]
    values = repeat_kv(call.v, heads)[0].detach()
    matrix = output_matrix(model, call)
    if matrix is not None:
        values = torch.einsum("hse,hec->hsc", values, matrix)
    return to_numpy(values.norm(dim=-1))


def output_matrix(model: Any, call: AttentionCall) -> Float[Tensor, "H E C"] | None:
    """W_O by head; None where it was not found."""
    linear = output_layer(model, call)
    return None if linear is None else weight_by_head(linear, call.weights.shape[1])


def weight_by_head(linear: Any, heads: int) -> Float[Tensor, "H E C"]:
    """The weight of an output projection by head."""
    weight = linear.weight if _is_transposed(linear) else linear.weight.T
    return weight.unflatten(0, (heads, -1)).detach().cpu()


def output_layer(model: Any, call: AttentionCall) -> Any:
    """The output projection W_O as a module: inside the attention module, or beside it, as in BERT."""
    assert call.v is not None
    wide = call.weights.shape[1] * call.v.shape[-1]
    name = next(name for name, module in model.named_modules() if module is call.module)
    for room in (call.module, model.get_submodule(name.rpartition(".")[0])):
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
    """Pad the keys with zeros: a sink column has no value and no token."""
    more = [(0, 0)] * (values.ndim - 1) + [(0, max(0, keys - values.shape[-1]))]
    return np.pad(values, more)
