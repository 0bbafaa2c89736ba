"""A model's own generation settings: the start token, the end tokens, forced and forbidden tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from core.decoding.prefix import Rules
from core.entries import quote
from core.pretrained.base import Pretrained, PretrainedError, wrap_errors


def generation_setting(pretrained: Pretrained, name: str) -> Any:
    """A setting of the model's generation_config, or of its config where that says nothing."""
    model = pretrained.model
    value = getattr(getattr(model, "generation_config", None), name, None)
    return getattr(model.config, name, None) if value is None else value


def end_tokens(pretrained: Pretrained) -> frozenset[int]:
    """The tokens that end an output; a model may have none."""
    value = generation_setting(pretrained, "eos_token_id")
    ids = () if value is None else (value,) if isinstance(value, int) else value
    if not isinstance(ids, list | tuple) or not all(isinstance(one, int) for one in ids):
        raise PretrainedError(
            f"{pretrained.name} has eos_token_id = {quote(value)} in its generation settings; "
            "expected a number or a list of numbers."
        )
    return frozenset(ids)


def start_token(pretrained: Pretrained) -> int:
    """The first token of a decoder; PretrainedError where the model names none."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        value = generation_setting(pretrained, name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    raise PretrainedError(
        f"{pretrained.name} does not say which token its decoder starts with "
        "(decoder_start_token_id), so it cannot generate."
    )


def logit_rules(pretrained: Pretrained, prefix_length: int, most: int) -> Rules:
    """The forced and forbidden tokens, by Hugging Face's own processors, after a prefix of `prefix_length` tokens.

    The model's other settings (temperature, repetition penalty) are not used: a search has its own.
    """
    settings = {
        name: generation_setting(pretrained, name)
        for name in (
            "bad_words_ids",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "suppress_tokens",
            "begin_suppress_tokens",
        )
    }
    with wrap_errors(f"{pretrained.name} has generation settings that are not supported"):
        processors = _processors(pretrained, settings, prefix_length, most)

    def apply(logp: Tensor, sequences: Sequence[Sequence[int]]) -> Tensor:
        with wrap_errors(
            f"{pretrained.name} has generation settings that do not fit its vocabulary"
        ):
            return processors(torch.tensor(sequences), logp) if processors else logp

    return apply


def _processors(
    pretrained: Pretrained, settings: dict[str, Any], prefix_length: int, most: int
) -> Any:
    """The logits processors of these settings; an empty list for none."""
    from transformers import generation as hf

    processors: list[Any] = []
    if settings["bad_words_ids"] is not None:
        processors.append(
            hf.NoBadWordsLogitsProcessor(
                settings["bad_words_ids"], sorted(end_tokens(pretrained)) or None
            )
        )
    if settings["forced_bos_token_id"] is not None:
        processors.append(hf.ForcedBOSTokenLogitsProcessor(settings["forced_bos_token_id"]))
    if settings["forced_eos_token_id"] is not None:
        processors.append(
            hf.ForcedEOSTokenLogitsProcessor(prefix_length + most, settings["forced_eos_token_id"])
        )
    if settings["suppress_tokens"] is not None:
        processors.append(hf.SuppressTokensLogitsProcessor(settings["suppress_tokens"]))
    if settings["begin_suppress_tokens"] is not None:
        after = prefix_length + (prefix_length == 1 and settings["forced_bos_token_id"] is not None)
        processors.append(
            hf.SuppressTokensAtBeginLogitsProcessor(settings["begin_suppress_tokens"], after)
        )
    return hf.LogitsProcessorList(processors)
