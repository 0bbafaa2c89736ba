"""The contribution of each weight: the norm of what it adds (Kobayashi et al. 2020), and its gradient × weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.pretrained.attention_recorder import AttentionCall, repeat_kv
from core.pretrained.evidence.question import Baseline
from core.pretrained.layers import weight_by_head
from core.pretrained.load import maps_bytes
from core.pretrained.model_storage import free_memory
from core.pretrained.reading import forward
from core.trace import Kind, to_numpy

GRADIENT_MEMORY = 9  # times the memory of the maps: measured with GPT-2's 144 heads on 512 tokens

MIXES = "ExclusiveSelfAttention"  # takes the part along v out of a head's output

LayerKey = tuple[Kind, int]


@dataclass(frozen=True, eq=False)
class Contributions:
    """By (kind, layer): `norms` (H, T, S) are ‖v·W_O‖ of keys, `gradients` (H, T, S) are α·∂answer/∂α of weights.

    Norms differ between rows (else T is 1) where a gate or a norm with the row's scale stands before W_O. There are
    none for a layer whose heads have no rows of W_O of their own. `gradients` is empty where there is no gradient, and
    with `out_of_memory` because computing it takes more memory than is free.
    """

    norms: dict[LayerKey, np.ndarray]
    gradients: dict[LayerKey, np.ndarray]
    out_of_memory: bool = False

    def norm_map(self, kind: Kind, layer: int,
                 weights: Float[np.ndarray, "H T S"]) -> Float[np.ndarray, "H T S"] | None:  # fmt: skip
        """‖α·v·W_O‖, the length of the vector that a head adds at a row for a key; None where it is unknown."""
        norms = self.norms.get((kind, layer))
        if norms is None or len(norms) != len(weights):
            return None
        return np.abs(weights) * _as_wide(norms, weights.shape[-1])

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
    output, recorder = forward(
        baseline.pretrained, baseline.batch, with_qkv=True, probe=with_gradients
    )
    norms = {
        (call.kind, call.layer): lengths
        for call in recorder.calls
        if (lengths := value_norms(call)) is not None
    }
    gradients: dict[LayerKey, np.ndarray] = {}
    if with_gradients:
        target = baseline.target_value(baseline.answer_in(baseline.batch, output))
        probes = [call.probe for call in recorder.calls if call.probe is not None]
        slopes = torch.autograd.grad(target, probes, allow_unused=True)
        gradients = {
            (call.kind, call.layer): to_numpy((call.weights.detach() * slope.cpu())[0])
            for call, slope in zip(recorder.calls, slopes, strict=True)
            if slope is not None
        }
    return Contributions(norms, gradients, out_of_memory)


def value_norms(
    call: AttentionCall,
) -> (
    Float[
        np.ndarray,
        (
            H  # T S
        ),
    ]
    | None
):
    """‖v·W_O‖ of each head and key. Kobayashi et al. 2020, equation 6. None where W_O is unknown.

    What stands between the heads and W_O multiplies each dimension of a row: a gate by its value, a norm by its gain
    and the scale that it has there. v is multiplied by the same. None where it mixes dimensions.
    """
    matrix = output_matrix(call)
    if matrix is None or call.v is None or call.out is None or call.gated is None:
        return None
    values, out, gated = (
        repeat_kv(call.v, len(matrix))[0].detach(),
        call.out[0].detach(),
        call.gated[0].detach(),
    )
    if torch.equal(out, gated):
        return to_numpy(torch.einsum("hse,hec->hsc", values, matrix).norm(dim=-1)[:, None])
    if any(
        isinstance(one, nn.LayerNorm) or type(one).__name__.endswith(MIXES)
        for one in call.module.children()
    ):
        return None
    factors = torch.where(out == 0, 0.0, gated / out).transpose(0, 1)  # (H, T, E)
    root = torch.linalg.qr(matrix.mT).R.mT  # (H, E, E), which keeps the lengths of x W_O
    rows = [((factor[:, None] * values) @ root).norm(dim=-1) for factor in factors.unbind(1)]
    return to_numpy(torch.stack(rows, 1))


def output_matrix(call: AttentionCall) -> Float[Tensor, "H E C"] | None:
    """W_O by head; None where it was not found, or does not get the heads side by side."""
    return None if call.gated is None else weight_by_head(call.output, call.gated.shape[2])


def _as_wide(values: np.ndarray, keys: int) -> np.ndarray:
    """Pad the keys with zeros: a sink column has no value and no token."""
    more = [(0, 0)] * (values.ndim - 1) + [(0, max(0, keys - values.shape[-1]))]
    return np.pad(values, more)
