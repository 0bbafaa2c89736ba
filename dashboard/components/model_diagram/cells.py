"""The text of a part's columns, and which parts are attentions."""

from __future__ import annotations

from core.models.model_summary import Part
from core.trace import Kind
from dashboard.draw.formats import byte_size, number, operations

COLUMNS = ("output", "parameters", "FLOPs", "for backward", "mean ± std", "gradient")
_ATTENTIONS: dict[str, Kind] = {"attention": "self", "causal": "causal", "cross": "cross"}


def is_attention(path: str) -> bool:
    return path.rpartition(".")[2] in _ATTENTIONS


def kind_and_layer(path: str) -> tuple[Kind, int]:
    """The kind (self, causal, cross) and layer of the attention at a path; ValueError for another path."""
    above, _, last = path.rpartition(".")
    number = above.rpartition(".")[2]
    if last not in _ATTENTIONS or not number.isdecimal():
        raise ValueError(f"{path!r} is no attention of a layer.")
    return _ATTENTIONS[last], int(number)


def cells(part: Part) -> list[str]:
    """The columns of a part: output shape, parameters, FLOPs, bytes saved for backward, mean ± std, gradient."""
    shape = "" if part.shape is None else " × ".join(map(str, part.shape))
    spread = (
        "" if part.std is None or part.mean is None else f"{number(part.mean)} ± {number(part.std)}"
    )
    return [
        shape,
        f"{part.parameters:,}" if part.parameters else "",
        operations(part.flops) if part.flops else "",
        byte_size(part.bytes) if part.bytes else "",
        spread,
        "" if part.gradient is None else number(part.gradient),
    ]
