"""The tokens on the axes of a model's maps."""

from __future__ import annotations

from collections.abc import Sequence

from core.models.config import ModelConfig
from core.tokens import token_text

BEGIN, END, CLASS, ROW, AHEAD = "<bos>", "<eos>", "[class]", "row", "+"
SENTENCE, SENTENCE_END = "sentence", "."
Tokens = tuple[str, ...]


def map_tokens(
    config: ModelConfig, kind: str, source: Sequence[str], target: Sequence[str] | None
) -> tuple[Tokens, Tokens]:
    """The tokens of the rows and of the columns of a map of that kind (as in core.trace), and so its size. `target`
    is None where the model reads no target (a language model, a classifier); a forecaster's are its values."""
    source_tokens, target_tokens = (
        tuple(token_text(str(token)) for token in line) for line in (source, target or ())
    )
    if kind in ("words", "sentences"):
        sentences = tuple(f"{SENTENCE} {i + 1}" for i in range(len(sentence_spans(source))))
        return (sentences, source_tokens) if kind == "words" else ((CLASS,), sentences)
    if kind == "cross":
        return (*target_tokens, END), source_tokens
    if kind == "causal":
        fed_tokens = () if target is None else (BEGIN, *target_tokens)
        both = (*source_tokens, *fed_tokens) if config.kind == "decoder" else fed_tokens
        return both, both
    if config.kind == "one_token":
        return (ROW,), (ROW,)
    if config.kind == "classifier" and config.pool == "first":
        source_tokens = (CLASS, *source_tokens)
    if config.kind == "forecaster":
        source_tokens = (
            *source_tokens,
            *(f"{AHEAD}{step}" for step in range(1, len(target_tokens) + 1)),
        )
    return source_tokens, source_tokens


def sentence_spans(source: Sequence[str]) -> tuple[range, ...]:
    """The positions of each sentence's tokens; a sentence reaches up to its end mark, the last one to the end."""
    ends = [i + 1 for i, token in enumerate(source) if token == SENTENCE_END]
    starts = [0, *ends]
    return tuple(
        range(start, end)
        for start, end in zip(starts, [*ends, len(source)], strict=True)
        if start < end
    )
