"""From inputs to tensors, through the forward pass, to the attention maps of a reading."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import quote
from core.interpret.trace import AttentionTrace
from core.models.decoding import Rules
from core.pretrained.attention_recorder import (
    NO_HEADS,
    AttentionRecorder,
    HeadSet,
    Patch,
    layer_numbers,
    record_attention,
    to_cpu,
    to_device,
)
from core.pretrained.base import (
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    picture_line,
    reject_if,
    sound_line,
    text_config,
    text_line,
    wrap_errors,
)
from core.pretrained.maps import has_sinks, maps_of, not_taken, note_of

# A model's own generation settings: the start token, the end tokens, forced and forbidden tokens.


def generation_setting(pretrained: Pretrained, name: str) -> Any:
    """A setting of the model's generation_config, or of its config where that says nothing."""
    model = pretrained.model
    value = getattr(getattr(model, "generation_config", None), name, None)
    return getattr(model.config, name, None) if value is None else value


def end_tokens(pretrained: Pretrained) -> frozenset[int]:
    """The tokens that end an output; a model may have none."""
    value = generation_setting(pretrained, "eos_token_id")
    ids = () if value is None else (value,) if isinstance(value, int) else value
    reject_if(
        not isinstance(ids, list | tuple) or not all(isinstance(one, int) for one in ids),
        f"{pretrained.name} has eos_token_id = {quote(value)} in its generation settings; "
        "expected a number or a list of numbers.",
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
    from transformers import generation as hf

    setting = partial(generation_setting, pretrained)
    start = prefix_length + (prefix_length == 1 and setting("forced_bos_token_id") is not None)
    makers: dict[str, Callable[[Any], Any]] = {
        "bad_words_ids": lambda ids: hf.NoBadWordsLogitsProcessor(
            ids, sorted(end_tokens(pretrained)) or None
        ),
        "forced_bos_token_id": hf.ForcedBOSTokenLogitsProcessor,
        "forced_eos_token_id": partial(hf.ForcedEOSTokenLogitsProcessor, prefix_length + most),
        "suppress_tokens": hf.SuppressTokensLogitsProcessor,
        "begin_suppress_tokens": lambda ids: hf.SuppressTokensAtBeginLogitsProcessor(ids, start),
    }
    with wrap_errors(f"{pretrained.name} has generation settings that are not supported"):
        processors = hf.LogitsProcessorList(
            make(value) for name, make in makers.items() if (value := setting(name)) is not None
        )

    def apply(logp: Tensor, sequences: Sequence[Sequence[int]]) -> Tensor:
        with wrap_errors(
            f"{pretrained.name} has generation settings that do not fit its vocabulary"
        ):
            return processors(torch.tensor(sequences), logp) if processors else logp

    return apply


MAX_CHARACTERS = 20_000
MAX_PRODUCED = 64

Batch = dict[str, Tensor]


def read(pretrained: Pretrained, inputs: ModelInputs | str) -> Reading:
    """The attention of every layer and head on the inputs: text of at most 20,000 characters, a picture or sound.

    A text longer than `max_tokens` is cut, and `Reading.cut` says so. An encoder–decoder that is given no target
    decodes it first. PretrainedError when there is nothing to read, or the model has no attention to draw.
    """
    with wrap_errors(f"{pretrained.name} cannot read this"):
        inputs = ModelInputs(inputs) if isinstance(inputs, str) else inputs
        return _reading(pretrained, *encode(pretrained, inputs))


def read_ids(pretrained: Pretrained, ids: Sequence[int]) -> Reading:
    """The attention on a text of these token ids, between the special tokens that the tokenizer puts around a text.

    An encoder–decoder's decoder gets them too. PretrainedError as for `read`, or where there are more than
    `max_tokens`.
    """
    example = tokenized(pretrained, "a b", return_special_tokens_mask=True)
    ordinary = np.flatnonzero(np.equal(example["special_tokens_mask"], 0))
    first, last = (
        (ordinary[0], ordinary[-1] + 1) if len(ordinary) else (0, len(example["input_ids"]))
    )
    framed = [*example["input_ids"][:first], *ids, *example["input_ids"][last:]]
    reject_if(
        len(framed) > pretrained.max_tokens,
        f"{pretrained.name} reads at most {pretrained.max_tokens} tokens; these are {len(framed)}.",
    )
    batch = {
        "input_ids": torch.tensor([framed]),
        "attention_mask": torch.ones(1, len(framed), dtype=torch.long),
    }
    tokenizer, target = tokenizer_of(pretrained), None
    if pretrained.model.config.is_encoder_decoder:
        batch["decoder_input_ids"] = torch.tensor([[start_token(pretrained), *ids]])
        target = text_line(tokenizer, batch["decoder_input_ids"][0].tolist())
    with wrap_errors(f"{pretrained.name} cannot read this"):
        return _reading(pretrained, batch, text_line(tokenizer, framed), target, None)


def _reading(
    pretrained: Pretrained, batch: Batch, source: Line, target: Line | None, cut: str | None
) -> Reading:
    output, recorder = forward(pretrained, batch)
    produced = None
    if (
        target is not None
    ):  # shifted by one and closed by the end token: what each position predicts
        tokenizer = tokenizer_of(pretrained)
        end = target.ids[0] if tokenizer.eos_token_id is None else tokenizer.eos_token_id
        line = text_line(tokenizer, [*target.ids[1:], end])
        produced = replace(line, special=(*line.special[:-1], True), word=(*line.word[:-1], None))
    reading = Reading(AttentionTrace((), pretrained.name), source, target, produced, cut)
    trace = AttentionTrace(maps_of(pretrained, output, recorder, reading), pretrained.name)
    note = note_of(pretrained, recorder, trace.kinds)
    return replace(reading, trace=trace, note=note, sinks=has_sinks(recorder))


def encode(
    pretrained: Pretrained, inputs: ModelInputs
) -> tuple[Batch, Line, Line | None, str | None]:
    """The model's inputs, the lines it reads, and a sentence when something was cut.

    Without a target an encoder–decoder reads its own greedy output, of at most 64 tokens.
    """
    batch, source, cut = encode_source(pretrained, inputs)
    if not pretrained.model.config.is_encoder_decoder:
        return batch, source, None, cut
    ids, most = target_ids(pretrained, inputs.target), pretrained.max_tokens
    if len(ids) == 1:
        from core.models.decoding import SearchSettings
        from core.pretrained.generate import generate

        settings = SearchSettings(longest=MAX_PRODUCED)
        tree = generate(pretrained, replace(inputs, target=None), settings)
        tokens = tree.hypotheses[0].tokens
        ids += tokens[:-1] if tokens[-1] in end_tokens(pretrained) else tokens
    if len(ids) > most:
        long = f"The target has {len(ids) - 1:,} tokens; at most {most - 1} are read, so the rest is left out."
        ids, cut = ids[:most], long if cut is None else f"{cut} {long}"
    batch["decoder_input_ids"] = torch.tensor([ids])
    return batch, source, text_line(tokenizer_of(pretrained), ids), cut


def encode_source(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    """The same without the decoder's inputs: for the encoder, or a model with a single line."""
    with wrap_errors(f"{pretrained.name} cannot read this"):
        if pretrained.reads == "picture":
            return *_picture(pretrained, inputs), None
        return (
            _sound(pretrained, inputs) if pretrained.reads == "sound" else _text(pretrained, inputs)
        )


def forward(pretrained: Pretrained, batch: Batch, with_qkv: bool = False, off: HeadSet = NO_HEADS, probe: bool = False,
            uniform: HeadSet = NO_HEADS, patches: Sequence[Patch] = (),
            hooks: AbstractContextManager[Any] | None = None,
            **more: Any) -> tuple[Any, AttentionRecorder]:  # fmt: skip
    """One recorded forward pass under the model's lock; arguments as in `attention_recorder.record_attention`.

    `hooks` is entered once the lock is held: hooks on the model that it removes are seen by this pass alone.

    PretrainedError when the model does not accept the inputs, or when more than its weights is requested of a model
    that is not recordable.
    """
    if not pretrained.recordable:
        reject_if(
            with_qkv or off or probe or uniform or patches,
            f"The layers of {pretrained.name} can be drawn, but not opened or switched off: its "
            "family computes attention in its own code. Take one such as BERT or GPT-2.",
        )
        more.setdefault("output_attentions", True)
    if "use_cache" in inspect.signature(pretrained.model.forward).parameters:
        more.setdefault("use_cache", False)  # FSMT masks its decoder only then
    with (
        pretrained.lock,
        hooks or nullcontext(),
        record_attention(pretrained.model, with_qkv, off, probe, uniform, patches) as recorder,
        torch.set_grad_enabled(probe),
    ):
        try:
            output = pretrained.model(**to_device(pretrained.model, batch), **more)
            return to_cpu(output, recorder), recorder
        except Exception as error:  # any error of the family's own code
            raise PretrainedError(not_taken(pretrained, batch, error)) from error


def sampling_rate(pretrained: Pretrained) -> int:
    """How many samples of a second of sound a model takes."""
    return int(_extractor(pretrained).sampling_rate)


def _extractor(pretrained: Pretrained) -> Any:
    """The feature extractor, alone or in a processor beside a tokenizer."""
    return getattr(pretrained.tokenizer, "feature_extractor", pretrained.tokenizer)


def tokenizer_of(pretrained: Pretrained) -> Any:
    """The tokenizer alone, where a processor holds it."""
    return getattr(pretrained.tokenizer, "tokenizer", None) or pretrained.tokenizer


def tokenized(pretrained: Pretrained, *texts: str, **how: Any) -> Any:
    """The tokenizer's encoding of texts. Truncation settings persist between calls, so it holds the lock."""
    with pretrained.lock, wrap_errors(f"{pretrained.name} has a tokenizer that cannot read this"):
        return tokenizer_of(pretrained)(*texts, verbose=False, **how)


def _text(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    reject_if(
        not inputs.text.strip(),
        "There is nothing to read yet: write a sentence of one word or more.",
    )
    texts = tuple(text for text in (inputs.text, inputs.second) if text and text.strip())
    both, cut, longest = tuple(text[:MAX_CHARACTERS] for text in texts), None, max(map(len, texts))
    if longest > MAX_CHARACTERS:
        cut = f"The text has {longest:,} characters; the first {MAX_CHARACTERS:,} are read."
    tokenizer, most = tokenizer_of(pretrained), pretrained.max_tokens
    encoding = tokenized(pretrained, *both, truncation=False, return_tensors="pt")
    if (length := encoding["input_ids"].shape[1]) > most:
        long = f"{length:,} tokens" if cut is None else f"{longest:,} characters"
        cut = f"The text has {long}; {pretrained.name} reads at most {most} tokens, so the rest is left out."
        encoding = tokenized(
            pretrained, *both, truncation=True, max_length=most, return_tensors="pt"
        )
    reject_if(
        not encoding["input_ids"].shape[1],
        f"{pretrained.name} has no token for this text; write other words.",
    )
    line = text_line(tokenizer, encoding["input_ids"][0].tolist(), encoding)
    known = ("input_ids", "attention_mask", "token_type_ids")
    return {key: value for key, value in encoding.items() if key in known}, line, cut


def _picture(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line]:
    model = pretrained.model
    if inputs.picture is None:
        raise PretrainedError(f"{pretrained.name} reads pictures: give it one.")
    reject_if(
        hasattr(model.config, "num_frames") or hasattr(model.config, "tubelet_size"),
        f"{pretrained.name} reads videos, and this page has one picture. Take a model that "
        "reads one picture, such as ViT or DINOv2.",
    )
    channels = int(getattr(model.config, "num_channels", 3))
    pixels = pretrained.tokenizer.prepare(inputs.picture.numpy(), channels)
    batch = {"pixel_values": pixels}
    # A model that reads a picture and its caption in one pass, and needs no more, gets the caption's start token.
    start = getattr(text_config(model), "bos_token_id", None)
    ids = inspect.signature(model.forward).parameters.get("input_ids")
    optional = ids is not None and ids.default is None
    if optional and start is not None and not model.config.is_encoder_decoder:
        batch["input_ids"] = torch.tensor([[start]])
    return batch, picture_line(model, tuple(pixels.shape[-2:]))


def _sound(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    if inputs.sound is None:
        raise PretrainedError(f"{pretrained.name} reads sound: give it a sound.")
    model, name, extractor = (
        pretrained.model,
        pretrained.model.main_input_name,
        _extractor(pretrained),
    )
    sound, rate = inputs.sound.numpy(), extractor.sampling_rate
    features = extractor(sound, sampling_rate=rate, return_tensors="pt")
    seconds, cut, length = len(sound) / rate, None, 0
    cuts = getattr(model, "_get_feat_extract_output_lengths", None)
    most = getattr(extractor, "chunk_length", None)
    if name != "input_values" and most is not None:
        length = getattr(model.config, "max_source_positions", 0)
        if seconds > most:
            cut = f"The sound lasts {seconds:.1f} s; the first {most} s are read."
        seconds = most
    elif cuts is not None and name in features:
        # The wave itself is cut into stretches by the model's convolutions.
        taken = len(sound) if name == "input_values" else torch.tensor(features[name].shape[1])
        length = int(cuts(taken))
    reject_if(
        not length or name not in features,
        f"{pretrained.name} needs sound in a form that is not supported here. Take a Whisper or "
        "Wav2Vec2 model.",
    )
    return {name: features[name]}, sound_line(length, seconds), cut


def target_ids(pretrained: Pretrained, target: str | None) -> list[int]:
    """The start mark, and the tokens of the target, however many, without the marks that frame them."""
    start, end = start_token(pretrained), tokenizer_of(pretrained).eos_token_id
    if target is None or not target.strip():
        return [start]
    ids = tokenized(pretrained, text_target=target[:MAX_CHARACTERS], truncation=False)["input_ids"]
    return [start, *(one for one in ids if one not in (start, end))]


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
    output, recorder = forward(pretrained, batch, with_qkv=True, output_hidden_states=True)
    reject_if(
        not 0 <= layer < len(recorder.calls),
        f"{pretrained.name} has no readable queries in layer {layer}; it has "
        f"{len(recorder.calls)} layers whose attention can be read.",
    )
    call = recorder.calls[layer]
    assert call.q is not None and call.k is not None and call.v is not None
    number = layer_numbers(pretrained.model, [one.name for one in recorder.calls])[layer]
    return LayerQKV(
        output.hidden_states[number], call.q, call.k, call.v, line.tokens, line.special, cut
    )
