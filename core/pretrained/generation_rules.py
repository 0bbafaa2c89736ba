"""What a model's own generation settings demand: where it starts, what ends it, what it must or must never say."""

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
    found = getattr(getattr(model, "generation_config", None), name, None)
    return getattr(model.config, name, None) if found is None else found


def end_tokens(pretrained: Pretrained) -> frozenset[int]:
    """The tokens that end an output; a model may have none."""
    found = generation_setting(pretrained, "eos_token_id")
    ids = () if found is None else (found,) if isinstance(found, int) else found
    if not isinstance(ids, list | tuple) or not all(isinstance(one, int) for one in ids):
        raise PretrainedError(f"{pretrained.name} has eos_token_id = {quote(found)} among its settings of generation; "
                              "a number or a list of numbers would fit.")
    return frozenset(ids)


def start_token(pretrained: Pretrained) -> int:
    """What a decoder is fed first; PretrainedError where the model does not say."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        found = generation_setting(pretrained, name)
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
    raise PretrainedError(f"{pretrained.name} does not say which token its decoder starts with "
                          "(decoder_start_token_id), so it cannot answer.")


def logit_rules(pretrained: Pretrained, begun: int, most: int) -> Rules:
    """What the model forces or forbids, by Hugging Face's own processors; `begun` tokens stand before the first.

    Its other habits (a temperature, a penalty on repeating) are settings of a search and not taken from it.
    """
    told = {name: generation_setting(pretrained, name) for name in (
        "bad_words_ids", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens")}
    with wrap_errors(f"{pretrained.name} has settings of generation that cannot be obeyed"):
        processors = _processors(pretrained, told, begun, most)

    def obeyed(logp: Tensor, said: Sequence[Sequence[int]]) -> Tensor:
        with wrap_errors(f"{pretrained.name} has settings of generation that do not fit its vocabulary"):
            return processors(torch.tensor(said), logp) if processors else logp

    return obeyed


def _processors(pretrained: Pretrained, told: dict[str, Any], begun: int, most: int) -> Any:
    """What obeys these settings; an empty list where there are none."""
    from transformers import generation as hf

    found: list[Any] = []
    if told["bad_words_ids"] is not None:
        found.append(hf.NoBadWordsLogitsProcessor(told["bad_words_ids"], sorted(end_tokens(pretrained)) or None))
    if told["forced_bos_token_id"] is not None:
        found.append(hf.ForcedBOSTokenLogitsProcessor(told["forced_bos_token_id"]))
    if told["forced_eos_token_id"] is not None:
        found.append(hf.ForcedEOSTokenLogitsProcessor(begun + most, told["forced_eos_token_id"]))
    if told["suppress_tokens"] is not None:
        found.append(hf.SuppressTokensLogitsProcessor(told["suppress_tokens"]))
    if told["begin_suppress_tokens"] is not None:
        after = begun + (begun == 1 and told["forced_bos_token_id"] is not None)
        found.append(hf.SuppressTokensAtBeginLogitsProcessor(told["begin_suppress_tokens"], after))
    return hf.LogitsProcessorList(found)
