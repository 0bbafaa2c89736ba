"""What a person gave → what the model takes → every map of attention that it made of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.pretrained.base import Given, Line, Pretrained, PretrainedError, Reading
from core.pretrained.lines import mark, picture_line, sound_line, text_line
from core.pretrained.watch import NOTHING, Off, Watch, watching
from core.trace import AttentionMap, AttentionTrace, Kind

MAX_CHARACTERS = 20_000
MOST_PRODUCED = 64

Batch = dict[str, Tensor]
KINDS: tuple[Kind, ...] = ("self", "causal", "cross")


def read(pretrained: Pretrained, given: Given | str) -> Reading:
    """The attention of every layer and head on what was given: text of at most 20,000 characters, a picture or sound.

    A text longer than `max_tokens` is cut, and `Reading.cut` says so. An encoder–decoder that is given no target
    decodes it first. PretrainedError when there is nothing to read, or the model has no attention to draw.
    """
    given = Given(given) if isinstance(given, str) else given
    batch, source, target, cut = encode(pretrained, given)
    output, watch = forward(pretrained, batch)
    weights = weights_of(output, watch)
    if not any(weights.values()):
        raise PretrainedError(f"{pretrained.name} returned no attention: its layers mix tokens in another way. Take a "
                              "model whose layers attend, such as BERT or GPT-2.")
    produced = None if target is None else _produced(pretrained, target)
    reading = Reading(AttentionTrace((), pretrained.name), source, target, produced, cut)
    maps = [_map(reading, kind, layer, one) for kind in KINDS for layer, one in enumerate(weights[kind])]
    return Reading(AttentionTrace(tuple(maps), pretrained.name), source, target, produced, cut)


def encode(pretrained: Pretrained, given: Given) -> tuple[Batch, Line, Line | None, str | None]:
    """The model's inputs, the lines it reads, and a sentence when something was cut."""
    batch, source, cut = encode_source(pretrained, given)
    if not pretrained.model.config.is_encoder_decoder:
        return batch, source, None, cut
    ids = _target_ids(pretrained, given, batch)
    batch["decoder_input_ids"] = ids
    return batch, source, text_line(_tokenizer(pretrained), ids[0].tolist()), cut


def encode_source(pretrained: Pretrained, given: Given) -> tuple[Batch, Line, str | None]:
    """The same without a decoder's: what an encoder, or a model that has only one line, reads."""
    if pretrained.reads == "picture":
        return *_picture(pretrained, given), None
    if pretrained.reads == "sound":
        return _sound(pretrained, given)
    return _text(pretrained, given)


def forward(pretrained: Pretrained, batch: Batch, whole: bool = False, off: Off = NOTHING, probe: bool = False,
            **more: Any) -> tuple[Any, Watch]:  # fmt: skip
    """One forward pass under the model's lock, watched; `probe` keeps what gradients need (see `watch.watching`)."""
    if not pretrained.watched:
        more.setdefault("output_attentions", True)
    with pretrained.lock, watching(pretrained.model, whole, off, probe) as watch, torch.set_grad_enabled(probe):
        return pretrained.model(**batch, **more), watch


def weights_of(output: Any, watch: Watch) -> dict[Kind, list[Tensor]]:
    """The weights (B, H, T, S) of each layer by kind: those that were watched, else those that the model returned."""
    return _watched(watch) if watch.seen else _returned(output)


def _watched(watch: Watch) -> dict[Kind, list[Tensor]]:
    found: dict[Kind, list[Tensor]] = {kind: [] for kind in KINDS}
    for seen in watch.seen:
        found[seen.kind].append(seen.weights)
    return found


def _returned(output: Any) -> dict[Kind, list[Tensor]]:
    """The attentions of a model that is not called through `watch`, as it returned them."""
    both = getattr(output, "encoder_attentions", None)
    own = [one for one in getattr(output, "attentions", None) or () if one is not None]
    causal = bool(own) and all(one.shape[-1] > 1 and not bool(one.triu(1).any()) for one in own)
    return {"self": list(both or ()) or ([] if causal else own),
            "causal": list(getattr(output, "decoder_attentions", None) or ()) or (own if causal else []),
            "cross": list(getattr(output, "cross_attentions", None) or ())}


def _map(reading: Reading, kind: Kind, layer: int, weights: Tensor) -> AttentionMap:
    rows, columns = reading.lines(kind)
    mask = None
    if kind == "causal":
        mask = torch.ones(weights.shape[-2:], dtype=torch.bool).tril()[None].numpy()
    return AttentionMap(kind, layer, weights[0].detach().float().numpy(), rows.tokens, columns.tokens, mask)


def _tokenizer(pretrained: Pretrained) -> Any:
    return getattr(pretrained.tokenizer, "tokenizer", pretrained.tokenizer)


def _text(pretrained: Pretrained, given: Given) -> tuple[Batch, Line, str | None]:
    text, cut = given.text, None
    if not text.strip():
        raise PretrainedError("There is nothing to read yet: write a sentence of one word or more.")
    if len(text) > MAX_CHARACTERS:
        cut = f"The text has {len(text):,} characters; the first {MAX_CHARACTERS:,} are read."
        text = text[:MAX_CHARACTERS]
    tokenizer, most = _tokenizer(pretrained), pretrained.max_tokens
    both = (text,) if not (given.second or "").strip() else (text, given.second)
    whole = tokenizer(*both, truncation=False, verbose=False)["input_ids"]
    if len(whole) > most:
        cut = (f"The text has {len(whole):,} tokens; {pretrained.name} reads at most {most}, "
               f"so the rest is left out.")
    found = tokenizer(*both, truncation=True, max_length=most, return_tensors="pt", verbose=False)
    if not found["input_ids"].shape[1]:
        raise PretrainedError(f"{pretrained.name} knows no token of this text; write other words.")
    line = text_line(tokenizer, found["input_ids"][0].tolist(), found)
    known = ("input_ids", "attention_mask", "token_type_ids")
    return {key: value for key, value in found.items() if key in known}, line, cut


def _picture(pretrained: Pretrained, given: Given) -> tuple[Batch, Line]:
    if given.picture is None:
        raise PretrainedError(f"{pretrained.name} reads pictures: give it one.")
    channels = int(getattr(pretrained.model.config, "num_channels", 3))
    pixels = pretrained.tokenizer.prepare(given.picture.numpy(), channels)
    return {"pixel_values": pixels}, picture_line(pretrained.model.config, tuple(pixels.shape[-2:]))


def _sound(pretrained: Pretrained, given: Given) -> tuple[Batch, Line, str | None]:
    if given.sound is None:
        raise PretrainedError(f"{pretrained.name} reads sound: give it some.")
    extractor = pretrained.tokenizer.feature_extractor
    features = extractor(given.sound.numpy(), sampling_rate=extractor.sampling_rate, return_tensors="pt")
    places = int(pretrained.model.config.max_source_positions)
    return {"input_features": features["input_features"]}, sound_line(places, extractor.chunk_length), None


def _target_ids(pretrained: Pretrained, given: Given, batch: Batch) -> Tensor:
    """What the decoder reads: the start mark and the target, or what the model itself decodes (at most 64 tokens)."""
    tokenizer, start = _tokenizer(pretrained), pretrained.model.config.decoder_start_token_id
    if given.target is not None and given.target.strip():
        ids = tokenizer(text_target=given.target, truncation=True, max_length=pretrained.max_tokens - 1)["input_ids"]
        ids = [one for one in ids if one != tokenizer.eos_token_id and one != start]
        return torch.tensor([[start, *ids]])
    with pretrained.lock, torch.inference_mode():
        made = pretrained.model.generate(**batch, max_new_tokens=MOST_PRODUCED, do_sample=False, num_beams=1)
    ids = made[0].tolist()
    return torch.tensor([ids[:-1] if ids[-1] == tokenizer.eos_token_id and len(ids) > 1 else ids])


def _produced(pretrained: Pretrained, target: Line) -> Line:
    """The target one place on, closed by the end mark: what each place of the decoder answers."""
    tokenizer = _tokenizer(pretrained)
    end = tokenizer.eos_token_id
    ids = (*target.ids[1:], end if end is not None else target.ids[0])
    return mark(text_line(tokenizer, list(ids)), last_is_special=True)
