"""Tokens at both ends of a head: what its circuits make of the embedding of one token for all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from core.hooks import hooked
from core.pretrained.base import Pretrained
from core.pretrained.circuits.heads import (
    LINEAR,
    HeadMatrices,
    NormCalls,
    blank_batch,
    fold_gain,
    watch_norms,
)
from core.pretrained.layers import STACK, output_embeddings
from core.pretrained.reading import forward
from core.trace import Kind

INPUT = methodcaller("get_input_embeddings")


@dataclass(frozen=True, eq=False)
class Vocabularies:
    """The embedding of each stream that heads read, and the unembedding of each that they write.

    The gain of the norm before the unembedding is folded in. A stream in `by_embedding` has no unembedding and is read
    through its embedding, transposed.
    """

    embeddings: dict[Kind, Float[Tensor, "V C"]]
    unembeddings: dict[
        Kind, Float[Tensor, "W U"]
    ]  # W is 2C where a model reads its two streams together
    by_embedding: frozenset[Kind]
    _between: dict[tuple[Kind, Kind], Float[Tensor, "C X"]] = field(
        default_factory=dict, repr=False
    )

    def serves(self, heads: HeadMatrices) -> bool:
        """Whether tokens can be put in and read out; pictures and sound have none."""
        source, target = self.embeddings.get(heads.reads), self.unembeddings.get(heads.writes)
        return (
            source is not None
            and target is not None
            and source.shape[1] == heads.w_v.shape[1]
            and target.shape[0] == heads.w_o.shape[2]
            and len(source) == target.shape[1]
        )

    def between(self, writes: Kind, reads: Kind) -> Float[Tensor, "C X"]:
        """W_U W_E, from the stream that a head writes to the one that it reads; the same for all layers."""
        if (writes, reads) not in self._between:
            self._between[writes, reads] = self.unembeddings[writes] @ self.embeddings[reads]
        return self._between[writes, reads]

    def written(self, heads: HeadMatrices, head: int, token: int) -> Float[Tensor, " V"]:
        """What the head adds to the logit of each token where it attends to this one: x W_V W_O W_U."""
        x = self.embeddings[heads.reads][token]
        return x @ heads.w_v[head] @ heads.w_o[head] @ self.unembeddings[heads.writes]

    def attended(self, heads: HeadMatrices, head: int, token: int) -> Float[Tensor, " V"] | None:
        """The scaled score of this query with each key by content: x W_Q W_Kᵀ W_Eᵀ/√D; None without these matrices."""
        queries = self.embeddings.get(heads.writes)
        if heads.w_q is None or heads.w_k is None or queries is None:
            return None
        key = heads.w_k[head] @ (queries[token] @ heads.w_q[head])
        scale = heads.w_q.shape[-1] ** -0.5 if heads.scale is None else heads.scale
        return self.embeddings[heads.reads] @ key * scale


def read_vocabularies(pretrained: Pretrained) -> Vocabularies:
    """The vocabularies of a model's streams. PretrainedError as in `forward`.

    An embedding is multiplied by the number by which the model multiplies it, as √C in Gemma.
    """
    model, norms = pretrained.model, NormCalls()
    forward(pretrained, blank_batch(pretrained), hooks=watch_norms(model, norms))
    two = model.config.is_encoder_decoder
    parts: dict[Kind, Any] = {"self": model, "causal": model}
    if two:
        parts = {"self": model.get_encoder(), "causal": model.get_decoder()}
    embeddings = {
        kind: table if (scale := _scale(pretrained, parts[kind])) == 1 else table * scale
        for kind, part in parts.items()
        if (table := _table(partial(INPUT, part))) is not None
    }
    unembeddings = {kind: table.T for kind, table in embeddings.items()}
    output = _table(partial(output_embeddings, model))
    if output is not None:
        last = next(
            (norm for norm, _, out in reversed(norms.calls) if out.shape[-1] == output.shape[1]),
            None,
        )
        unembeddings |= dict.fromkeys(("causal",) if two else embeddings, fold_gain(output.T, last))
    by_embedding = {kind for kind in embeddings if output is None or (two and kind == "self")}
    return Vocabularies(embeddings, unembeddings, frozenset(by_embedding))


def _table(getter: Callable[[], Any]) -> Float[Tensor, "V C"] | None:
    """The rows of an embedding or of an output layer; None where there is none."""
    try:
        module = getter()
    except (AttributeError, NotImplementedError):  # classes without words
        return None
    return (
        module.weight.detach().cpu().float()
        if isinstance(module, nn.Embedding | nn.Linear)
        else None
    )


def _scale(pretrained: Pretrained, part: Any) -> float:
    """By what an embedding is multiplied before the first layer: how the layer's input moves as it is doubled.

    1 where it moves in another direction, as where a norm comes first.
    """
    embedding, batch = part.get_input_embeddings(), blank_batch(pretrained)
    firsts = [
        module
        for name, module in part.named_modules()
        if (match := STACK.fullmatch(name)) is not None and match["number"] == "0"
    ]
    rows: list[Tensor] = []
    inputs: list[dict[Any, Tensor]] = []

    def doubled(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        rows.extend(module.weight[one] for one in args[:1])
        return output * len(inputs)

    def enter(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        states = args[0] if args else options.get("hidden_states")
        if isinstance(states, Tensor):
            inputs[-1].setdefault(module, states)

    def hooks() -> Iterator[Any]:
        yield embedding.register_forward_hook(doubled)
        yield from (one.register_forward_pre_hook(enter, with_kwargs=True) for one in firsts)

    for _ in range(2):
        inputs.append({})
        forward(pretrained, batch, hooks=hooked(hooks()))
    for first, before in inputs[0].items():
        moved = inputs[1][first] - before
        row = next((one for one in rows if one.shape == moved.shape), None)
        if row is not None and bool(moved.any()):
            scale = float((moved * row).sum() / row.square().sum())
            linear = (moved - scale * row).norm() <= LINEAR * moved.norm() and abs(
                scale - 1
            ) > LINEAR
            return scale if linear else 1.0
    return 1.0
