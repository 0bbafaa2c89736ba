"""The input, queries, keys and values of one encoder layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.base import ModelInputs, Pretrained, PretrainedError
from core.pretrained.layers import layer_numbers
from core.pretrained.reading import encode, forward


@dataclass(frozen=True, eq=False)
class LayerQKV:
    """The input x of one layer on one text, and its queries, keys and values by head."""

    x: Float[Tensor, "1 T C"]
    q: Float[Tensor, "1 H T D"]
    k: Float[Tensor, "1 H T D"]
    v: Float[Tensor, "1 H T D"]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    cut: str | None


def layer_qkv(pretrained: Pretrained, text: str, layer: int) -> LayerQKV:
    """The queries, keys and values of one layer on a text, after any rotation.

    softmax(q·k/√D) is the attention that `read` returns. A long text is cut as there. PretrainedError when the
    text is empty, or the model has no such layer.
    """
    batch, line, _, cut = encode(pretrained, ModelInputs(text))
    with torch.no_grad():
        output, recorder = forward(pretrained, batch, with_qkv=True, output_hidden_states=True)
    if not 0 <= layer < len(recorder.calls):
        raise PretrainedError(f"{pretrained.name} shows no queries of a layer {layer}; it has {len(recorder.calls)} "
                              "layers whose attention can be read.")
    call = recorder.calls[layer]
    assert call.q is not None and call.k is not None and call.v is not None
    number = layer_numbers(pretrained.model, [one.name for one in recorder.calls])[layer]
    return LayerQKV(output.hidden_states[number], call.q, call.k, call.v, line.tokens, line.special, cut)
