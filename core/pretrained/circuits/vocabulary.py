"""Tokens at both ends of a head: what its circuits make of the embedding of one token for all others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from core.pretrained.base import Pretrained
from core.pretrained.circuits.heads import HeadMatrices, NormCalls, blank_batch, fold_gain, watch_norms
from core.pretrained.reading import forward
from core.trace import Kind


@dataclass(frozen=True, eq=False)
class Vocabularies:
    """The embedding of each stream that heads read, and the unembedding of each that they write.

    The gain of the norm before the unembedding is folded in. A stream in `by_embedding` has no unembedding and is read
    through its embedding, transposed.
    """

    embeddings: dict[Kind, Float[Tensor, "V C"]]
    unembeddings: dict[Kind, Float[Tensor, "C V"]]
    by_embedding: frozenset[Kind]
    _between: dict[tuple[Kind, Kind], Float[Tensor, "C X"]] = field(default_factory=dict, repr=False)

    def serves(self, heads: HeadMatrices) -> bool:
        """Whether tokens can be put in and read out; pictures and sound have none."""
        source, target = self.embeddings.get(heads.reads), self.unembeddings.get(heads.writes)
        return (source is not None and target is not None and source.shape[1] == heads.w_v.shape[1]
                and target.shape[0] == heads.w_o.shape[2] and len(source) == target.shape[1])

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
        """The score of this query with each key by content: x W_Q W_Kᵀ W_Eᵀ/√D; None without these matrices."""
        queries = self.embeddings.get(heads.writes)
        if heads.w_q is None or heads.w_k is None or queries is None:
            return None
        key = heads.w_k[head] @ (queries[token] @ heads.w_q[head])
        return self.embeddings[heads.reads] @ key * heads.w_q.shape[-1] ** -0.5


def read_vocabularies(pretrained: Pretrained) -> Vocabularies:
    """The vocabularies of a model's streams. PretrainedError as in `forward`."""
    model, norms = pretrained.model, NormCalls()
    forward(pretrained, blank_batch(pretrained), hooks=watch_norms(model, norms))
    two = model.config.is_encoder_decoder
    parts: dict[Kind, Any] = {"self": model, "causal": model}
    if two:
        parts = {"self": model.get_encoder(), "causal": model.get_decoder()}
    tables = {kind: _table(part.get_input_embeddings()) for kind, part in parts.items()}
    embeddings = {kind: table for kind, table in tables.items() if table is not None}
    unembeddings = {kind: table.T for kind, table in embeddings.items()}
    output = _table(model.get_output_embeddings())
    if output is not None:
        last = norms.calls[-1][0] if norms.calls else None
        unembeddings |= dict.fromkeys(("causal",) if two else embeddings, fold_gain(output.T, last))
    by_embedding = {kind for kind in embeddings if output is None or (two and kind == "self")}
    return Vocabularies(embeddings, unembeddings, frozenset(by_embedding))


def _table(module: Any) -> Float[Tensor, "V C"] | None:
    """The rows of an embedding or of an output layer; None of anything else."""
    return module.weight.detach().cpu().float() if isinstance(module, nn.Embedding | nn.Linear) else None
