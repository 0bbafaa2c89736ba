"""From inputs to tensors, through the forward pass, to the attention maps of a reading."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.entries import Cost, quote
from core.interpret.trace import AttentionMap, AttentionTrace, Kind, to_numpy
from core.models.base import hooked
from core.models.decoding import Rules, SearchSettings
from core.pretrained.attention_recorder import (
    NO_HEADS,
    AttentionRecorder,
    HeadSet,
    Patch,
    bool_mask,
    is_lower_triangular,
    layer_numbers,
    numbers_by_layer,
    other_layers,
    record_attention,
    to_cpu,
    to_device,
)
from core.pretrained.base import (
    WITHOUT_WEIGHTS,
    Array,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    Reads,
    first_line,
    patch_size,
    picture_line,
    refuse_too_much,
    reject_if,
    sound_line,
    text_config,
    text_line,
    wrap_errors,
)
from core.pretrained.load import image_of, maps_bytes
from core.threads import CORES, num_threads

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


def logit_rules(pretrained: Pretrained, prefix_length: int, max_tokens: int) -> Rules:
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
        "forced_eos_token_id": partial(
            hf.ForcedEOSTokenLogitsProcessor, prefix_length + max_tokens
        ),
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
PATCHES = 256  # that a picture is cut into where its model leaves it open
TEXT_INPUTS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
)  # of a tokenizer's, what models read

Batch = dict[str, Tensor]


def read(pretrained: Pretrained, inputs: ModelInputs | str) -> Reading:
    """The attention of every layer and head on the inputs: text of at most 20,000 characters, a picture or sound.

    A text longer than `max_tokens` is cut, and `Reading.cut` says so. An encoder–decoder that is given no target
    decodes it first. PretrainedError when there is nothing to read, or the model has no attention to draw.
    """
    with wrap_errors(f"{pretrained.name} cannot read this"):
        inputs = ModelInputs(inputs) if isinstance(inputs, str) else inputs
        return _reading(pretrained, *encode(pretrained, inputs))


def read_lines(pretrained: Pretrained, inputs: ModelInputs) -> Reading:
    """What a model reads, without its attention. PretrainedError as in `encode`."""
    _, source, target, cut = encode(pretrained, inputs)
    return Reading(AttentionTrace((), pretrained.name), source, target, target, cut)


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
        if pretrained.head != "seq2seq":  # which predicts no token
            produced = target
    reading = Reading(AttentionTrace((), pretrained.name), source, target, produced, cut)
    trace = AttentionTrace(maps_of(pretrained, output, recorder, reading), pretrained.name)
    return replace(
        reading,
        trace=trace,
        note=note_of(pretrained, recorder, trace.kinds),
        sinks=has_sinks(recorder),
    )


def encode(
    pretrained: Pretrained, inputs: ModelInputs
) -> tuple[Batch, Line, Line | None, str | None]:
    """The model's inputs, the lines it reads, and a sentence when something was cut.

    Without a target an encoder–decoder reads its own greedy output, of at most 64 tokens. One that writes nothing, as a
    classifier, gives its decoder what its own code makes of the source, if it uses its decoder.
    """
    batch, source, cut = encode_source(pretrained, inputs)
    model, max_tokens = pretrained.model, pretrained.max_tokens
    if not (
        model.config.is_encoder_decoder
        and "decoder_input_ids" in inspect.signature(model.forward).parameters
    ):
        return batch, source, None, cut
    ids, fed = target_ids(pretrained, inputs.target), list[Tensor]()
    if pretrained.head != "seq2seq" and (len(ids) == 1 or pretrained.reads == "text"):
        note = model.get_decoder().register_forward_pre_hook(
            lambda module, _, named: fed.append(named["input_ids"]), with_kwargs=True
        )
        try:
            forward(pretrained, batch, hooks=hooked([note]))
        except PretrainedError:
            if pretrained.reads == "text":
                raise
        reject_if(
            not fed or fed[0] is None,
            f"{pretrained.name} writes no target: give it one, the text that its decoder reads.",
        )
        ids = fed[0][0].tolist()
    elif len(ids) == 1:
        from core.pretrained.generate import generate

        tree = generate(
            pretrained, replace(inputs, target=None), SearchSettings(longest=MAX_PRODUCED)
        )
        tokens = tree.hypotheses[0].tokens
        ids += tokens[:-1] if tokens[-1] in end_tokens(pretrained) else tokens
    if len(ids) > max_tokens:
        long = f"The target has {len(ids) - 1:,} tokens; at most {max_tokens - 1} are read, so the rest is left out."
        ids, cut = ids[:max_tokens], long if cut is None else f"{cut} {long}"
    batch["decoder_input_ids"] = torch.tensor([ids])
    return batch, source, text_line(tokenizer_of(pretrained), ids), cut


def encode_source(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    """The same without the decoder's inputs: for the encoder, or a model with a single line."""
    with wrap_errors(f"{pretrained.name} cannot read this"):
        reader = {"picture": _picture, "sound": _sound}.get(pretrained.reads, _text)
        return reader(pretrained, inputs)


# Times the maps that a pass returns: with what is made of them, and with gradients; measured with MiniLM and the writer
MAPS_HELD, WITH_GRADIENTS = 3, 5


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
            f"The layers of {pretrained.name} can be drawn, but not opened or switched off here: it "
            f"{pretrained.not_recorded}. Take one such as BERT or GPT-2.",
        )
        more.setdefault("output_attentions", True)
    if "use_cache" in inspect.signature(pretrained.model.forward).parameters:
        more.setdefault("use_cache", False)  # FSMT masks its decoder only then
    rows, tokens = max(
        (tuple(batch[key].shape) for key in ("input_ids", "decoder_input_ids") if key in batch),
        default=(1, pretrained.max_tokens),  # of a picture or a sound
    )
    refuse_too_much(
        Cost(
            bytes=rows
            * (WITH_GRADIENTS if probe else MAPS_HELD)
            * maps_bytes(pretrained.model, tokens)
        ),
        f"The attention of all heads on {tokens:,} tokens",
        "Take a shorter text, or a smaller model.",
    )
    with (
        pretrained.lock,
        hooks or nullcontext(),
        num_threads(CORES, after=1) if pretrained.all_cores else nullcontext(),
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
    return getattr(pretrained.tokenizer, "feature_extractor", pretrained.tokenizer)


def tokenizer_of(pretrained: Pretrained) -> Any:
    """The tokenizer alone, where a processor holds it."""
    return getattr(pretrained.tokenizer, "tokenizer", None) or pretrained.tokenizer


def tokenized(pretrained: Pretrained, *texts: str, **how: Any) -> Any:
    """The tokenizer's encoding of texts. Truncation settings persist between calls, so it holds the lock."""
    given = "".join((*texts, str(how.get("text", "")), str(how.get("text_target", ""))))
    reject_if(
        half := re.search("[\ud800-\udfff]", given),
        f"The text holds U+{ord(half[0]) if half else 0:04X}, half of a character; write the whole one.",
    )
    with pretrained.lock, wrap_errors(f"{pretrained.name} has a tokenizer that cannot read this"):
        encoding = tokenizer_of(pretrained)(*texts, verbose=False, **how)
    rows = math.inf
    with suppress(AttributeError, NotImplementedError, TypeError):  # it has no single table
        rows = pretrained.model.get_input_embeddings().num_embeddings
    for number in map(int, np.ravel(encoding.get("input_ids", ()))):
        if number >= rows and "text_target" not in how:
            raise PretrainedError(
                f"The tokenizer of {pretrained.name} makes the token "
                f"{quote(str(tokenizer_of(pretrained).convert_ids_to_tokens(number)))}, number {number:,}, and the model "
                f"embeds only {rows:,}. Take the tokenizer that belongs to this model."
            )
    return encoding


def _text(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    reject_if(
        not inputs.text.strip(),
        "There is nothing to read yet: write a sentence of one word or more.",
    )
    texts = tuple(text for text in (inputs.text, inputs.second) if text and text.strip())
    both, cut, longest = tuple(text[:MAX_CHARACTERS] for text in texts), None, max(map(len, texts))
    if longest > MAX_CHARACTERS:
        cut = f"The text has {longest:,} characters; the first {MAX_CHARACTERS:,} are read."
    tokenizer, max_tokens = tokenizer_of(pretrained), pretrained.max_tokens
    encoding = tokenized(pretrained, *both, truncation=False, return_tensors="pt")
    if (length := encoding["input_ids"].shape[1]) > max_tokens:
        long = f"{length:,} tokens" if cut is None else f"{longest:,} characters"
        cut = f"The text has {long}; {pretrained.name} reads at most {max_tokens} tokens, so the rest is left out."
        encoding = tokenized(
            pretrained, *both, truncation=True, max_length=max_tokens, return_tensors="pt"
        )
    reject_if(
        not encoding["input_ids"].shape[1],
        f"{pretrained.name} has no token for this text; write other words.",
    )
    return (
        {key: value for key, value in encoding.items() if key in TEXT_INPUTS},
        text_line(tokenizer, encoding["input_ids"][0].tolist(), encoding, both),
        cut,
    )


def _picture(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    model = pretrained.model
    if inputs.picture is None:
        raise PretrainedError(f"{pretrained.name} reads pictures: give it one.")
    reject_if(
        hasattr(model.config, "num_frames") or hasattr(model.config, "tubelet_size"),
        f"{pretrained.name} reads videos, and this page has one picture. Take a model that "
        "reads one picture, such as ViT or DINOv2.",
    )
    if model.main_input_name == "flattened_patches":
        return _patches(pretrained, inputs.picture)
    channels = int(getattr(model.config, "num_channels", 3))
    pixels = pretrained.tokenizer.prepare(inputs.picture.numpy(), channels)
    batch = {"pixel_values": pixels}
    # A model that reads a picture and its caption in one pass, and needs no more, gets the caption's start token.
    start = getattr(text_config(model), "bos_token_id", None)
    ids = inspect.signature(model.forward).parameters.get("input_ids")
    optional = ids is not None and ids.default is None
    if optional and start is not None and not model.config.is_encoder_decoder:
        batch["input_ids"] = torch.tensor([[start]])
    return batch, picture_line(model, tuple(pixels.shape[2:])), inputs.picture.note or None


def _patches(pretrained: Pretrained, picture: Array) -> tuple[Batch, Line, str | None]:
    """A picture as Pix2Struct reads it: in its own proportions, as patches that begin with their row and column."""
    from transformers import Pix2StructImageProcessorPil

    height, width = patch_size(pretrained.model.config) or (16, 16)
    processor = Pix2StructImageProcessorPil(
        max_patches=PATCHES, patch_size={"height": height, "width": width}
    )
    made = processor(image_of(picture.numpy(), "RGB"), return_tensors="pt")
    patches = made["flattened_patches"][:, : int(made["attention_mask"].sum())]
    rows, columns = (int(one) for one in patches[0, :, :2].amax(0))
    cut = (
        f"The picture is cut into {rows} × {columns} patches, without a question above it; the model can read more "
        "(max_patches)."
    )
    line = picture_line(pretrained.model, (rows * height, columns * width))
    return {"flattened_patches": patches}, line, " ".join(filter(None, (picture.note, cut)))


def _sound(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    if inputs.sound is None:
        raise PretrainedError(f"{pretrained.name} reads sound: give it a sound.")
    model, name, extractor = (
        pretrained.model,
        pretrained.model.main_input_name,
        _extractor(pretrained),
    )
    sound, rate = inputs.sound.numpy(), extractor.sampling_rate
    reject_if(
        sound.ndim != 1 or sound.dtype.kind != "f" or not np.isfinite(sound).all(),
        f"{pretrained.name} reads a sound of one channel, finite floats from −1 to 1; this one has the shape "
        f"{sound.shape} and the type {sound.dtype}.",
    )
    features = extractor(sound, sampling_rate=rate, return_tensors="pt")
    seconds, notes, length = len(sound) / rate, [inputs.sound.note], 0
    cuts = getattr(model, "_get_feat_extract_output_lengths", None)
    max_seconds = getattr(extractor, "chunk_length", None)
    if name != "input_values" and max_seconds is not None:
        length = getattr(model.config, "max_source_positions", 0)
        if seconds > max_seconds:
            notes.append(f"The sound lasts {seconds:.1f} s; the first {max_seconds} s are read.")
        seconds = max_seconds
    elif cuts is not None and name in features:
        # The wave itself is cut into stretches by the model's convolutions. Of features the encoder is asked: what
        # Cohere's model says of itself is true of waves.
        if name == "input_values":
            length = int(cuts(len(sound)))
            reject_if(
                length < 1,
                f"A sound of {len(sound):,} samples is too short for {pretrained.name}; give it a longer one.",
            )
        else:
            with pretrained.lock, torch.inference_mode():
                encoded = model.get_encoder()(features[name].to(model.device))
            length = encoded.last_hidden_state.shape[1]
    reject_if(
        not length or name not in features,
        f"{pretrained.name} needs sound in a form that is not supported here. Take a Whisper or "
        "Wav2Vec2 model.",
    )
    cut = " ".join(filter(None, notes)) or None
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
    number = layer_numbers(pretrained.model, [one.name for one in recorder.calls])[layer]
    return LayerQKV(
        output.hidden_states[number], call.q, call.k, call.v, line.tokens, line.special, cut
    )


# Messages that explain why a model cannot be read or drawn.


# Families without a matrix between tokens, and why; tests/pretrained/test_attention_recorder.py builds each of them.
WINDOWS = "its layers attend within separate windows"
NO_MATRIX: dict[str, str] = {
    **WITHOUT_WEIGHTS,
    "funnel": "it pools tokens between layers, so later maps are between groups of tokens",
    **dict.fromkeys(("swin", "swinv2", "maskformer-swin", "donut-swin", "swin2sr"), WINDOWS),
    "yoso": "it approximates attention by hashing and computes no weights",
    "mra": "it computes blocks at several resolutions and no whole matrix of weights",
    "nystromformer": "it approximates attention with a few landmarks and computes no whole matrix of weights",
    "focalnet": "it uses sums over the neighbourhood of each patch instead of attention",
    "vit_mae": "it leaves out most patches at random",
    "eomt": "it adds queries of its own to the patches",
    "eomt_dinov3": "it adds queries of its own to the patches",
    **dict.fromkeys(
        ("sew", "sew-d"), "it combines several parts of the sound into one before attention"
    ),
    **dict.fromkeys(
        ("t5gemma2", "t5gemma2_decoder"),
        "its decoder attends to its own tokens and the encoder's in one softmax, which no single kind of map holds",
    ),
    "perceiver": "its layers attend from learned vectors, not from tokens",
    "levit": "its layers do not return their weights",
    "mobilevitv2": "it gives each patch one weight for all queries, so there is no matrix",
    "canine": "it attends within blocks of characters, and between groups of four of them",
    "reformer": "it attends within chunks and among tokens with the same hash",
}
# Inputs of a forward pass, by the library's names.
INPUTS: dict[str, str] = {
    "pixel_values": "pictures", "pixel_values_videos": "videos", "flattened_patches": "pictures cut into patches",
    "input_features": "sound", "input_values": "sound", "audio_values": "sound", "audio_input_ids": "sound",
    "bbox": "the position of each word on a page", "xpath_tags_seq": "the position of each word in a web page",
    "spatial_shapes": "the number of patches of each picture", "grid_thw": "the number of patches of each picture",
    "image_grid_thw": "the number of patches of each picture",
    "aspect_ratio_ids": "the shape of each picture", "pixel_position_ids": "the position of each patch",
    "past_values": "series of numbers", "context": "series of numbers",
    "states": "states, actions and returns of a game", "actions": "actions of a robot", "action_embeds": "actions",
    "hidden_states": "the states of another model", "inputs_embeds": "the states of another model",
    "query_embeds": "learned queries", "encoder_hidden_states": "the states of an encoder",
    "context_hidden_states": "the states of another model", "visual_feats": "the regions of a picture",
    "prompt_pixel_values": "pictures as examples", "patch_ids": "groups of bytes", "patch_embeds": "groups of bytes",
    "image_embeds_position_mask": "the position of a picture in the text", "target_sizes": "the size of each picture",
    "task_inputs": "a task in words", "table_ids": "a table",
    "point_coords": "points", "input_points": "points",
}  # fmt: skip
OTHER_FORM = {
    "spatial_shapes",
    "grid_thw",
    "image_grid_thw",
    "pixel_position_ids",
}  # beside patches, not a picture
LACKS = re.compile(
    r"NoneType|specif|provid|missing|required|is None|cannot be `None`|not-None|must be given"
)
STATES = (
    "inputs_embeds",
    "hidden_states",
    "encoder_hidden_states",
)  # what most models can be given, and none needs
READS: dict[Reads, tuple[str, str]] = {  # what a model reads, and which do
    "text": ("a text", "BERT or GPT-2"),
    "pair": ("a text and its target", "T5 or BART"),
    "picture": ("one picture", "ViT or DINOv2"),
    "sound": ("a sound", "Whisper"),
}


def not_taken(pretrained: Pretrained, batch: Mapping[str, Any], error: Exception) -> str:
    """Why a forward pass failed: the inputs that it needs and was not given, else its own words.

    The signature of the model's `forward` says what it needs and what else it can read.
    """
    name, reads, message = pretrained.name, pretrained.reads, str(error)
    takes = inspect.signature(pretrained.model.forward).parameters
    needs = [
        key
        for key, one in takes.items()
        if one.default is one.empty
        and key not in batch
        and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    what, lacks = READS[reads][0], "which this page does not have"
    books = getattr(text_config(pretrained.model), "num_codebooks", None) or 1
    ids = next((key for key in ("decoder_input_ids", "input_ids") if key in takes), None)
    more = [
        key
        for key in takes
        if key in INPUTS and key not in batch and (key not in STATES or f"`{key}`" in message)
    ]
    if pretrained.model.forward.__name__ == "_forward_unimplemented":
        why = "has no forward pass; only its parts have one"
    elif reads in ("text", "pair") and books > 1 and ids:
        why = f"does not read {what}: it takes the codes of {books} codebooks at each step ({ids}), {lacks}"
    elif needs and not batch.keys() & takes.keys():
        why = f"does not read {what}: it takes {_words(needs)}, {lacks}"
    elif needs:
        why = f"does not read {what} alone: it also needs {_words(needs)}, {lacks}"
    elif more and (LACKS.search(message) or OTHER_FORM & set(more)):
        why = f"cannot read {what} alone: it also reads {_words(more)}, {lacks}"
    else:
        why = f"does not take {what}: it fails with {quote(first_line(error))}"
    return f"{name} {why}. {_take(pretrained)}"


def _take(pretrained: Pretrained) -> str:
    return "Take a model that reads {}, such as {}.".format(*READS[pretrained.reads])


def _words(keys: Sequence[str]) -> str:
    meant: dict[str, list[str]] = {}
    for key in keys:
        meant.setdefault(INPUTS.get(key, ""), []).append(key)
    return ", ".join(
        f"{what} ({', '.join(names)})" if what else ", ".join(names)
        for what, names in meant.items()
    )


KINDS: tuple[Kind, ...] = ("self", "causal", "cross")
SINK = "sink"
MAX_SUM = 1.01  # of a row of weights, with what rounding adds
RETURNED: tuple[tuple[str, Kind], ...] = (
    ("encoder_attentions", "self"),
    ("decoder_attentions", "causal"),
    ("cross_attentions", "cross"),
)
One = tuple[Kind, Tensor, Tensor | None]


def maps_of(
    pretrained: Pretrained, output: Any, recorder: AttentionRecorder, reading: Reading
) -> tuple[AttentionMap, ...]:
    """Every map of a forward pass: self-attention first, then causal, then cross, each in the order of its layers.

    PretrainedError when the model returned none, or maps that are not between the tokens it was given.
    """
    layers: list[One] = [(call.kind, call.weights, call.mask) for call in recorder.calls]
    recorded = {kind for kind, *_ in layers}
    layers += [one for one in _returned(output) if one[0] not in recorded]
    if not layers:
        returned = [
            one
            for name in ("attentions", *(name for name, _ in RETURNED))
            for one in getattr(output, name, None) or ()
            if isinstance(one, Tensor)
        ]
        why = NO_MATRIX.get(str(pretrained.model.config.model_type)) or (
            f"it returned numbers of the shape {' × '.join(map(str, returned[0].shape))} instead of heads × rows × columns"
            if returned
            else "none of its layers called the attention of the library, and it returned no weights"
        )
        raise PretrainedError(
            f"{pretrained.name} has no attention to draw: {why}. {_take(pretrained)}"
        )
    numbers = numbers_by_layer(pretrained.model, recorder.calls)
    return tuple(
        _map(pretrained, reading, kind, layer, numbers.get((kind, layer), layer), *one)
        for kind in KINDS
        for layer, one in enumerate(one[1:] for one in layers if one[0] == kind)
    )


def _map(pretrained: Pretrained, reading: Reading, kind: Kind, layer: int, number: int, weights: Tensor,
         mask: Tensor | None) -> AttentionMap:  # fmt: skip
    rows, columns = reading.lines(kind)
    if (size := tuple(weights.shape[-2:])) != (len(rows), len(columns)):
        why = NO_MATRIX.get(
            str(pretrained.model.config.model_type),
            "they are not between the tokens that it was given",
        )
        raise PretrainedError(
            f"{pretrained.name} returned maps of {size[0]} × {size[1]} for {len(rows)} × {len(columns)} tokens: {why}, so "
            f"they are not drawn. {_take(pretrained)}"
        )
    reject_if(
        not pretrained.recordable
        and (bool((weights < 0).any()) or float(weights.sum(-1).max()) > MAX_SUM),
        f"{pretrained.name} returned numbers that are not weights: some are below 0, or rows sum to more than 1. "
        "Take a model that returns the output of its softmax, such as BERT.",
    )
    allowed = allowed_of(mask, weights.shape[-1])
    if mask is None and kind == "causal":
        allowed = torch.ones(1, *weights.shape[-2:], dtype=torch.bool).tril()
    may = None if allowed is None or bool(allowed.all()) else to_numpy(allowed)
    item = AttentionMap(kind, layer, to_numpy(weights[0]), rows.tokens, columns.tokens, may, number)
    reject_if(
        # A masked row may hold NaN; the last one is never masked, and sees what a mask made of NaN hides.
        not np.isfinite(item.weights.sum())
        and not np.isfinite([*item.weights[:, -1].flat, *item.weights[item.visible]]).all(),
        f"{pretrained.name} computes weights that are no numbers in {item.layer_name}, as of states that are too large "
        "for 32 bits. Take another checkpoint.",
    )
    return item


def allowed_of(mask: Tensor | None, keys: int) -> Bool[Tensor, "... S"] | None:
    """The mask of the first batch item as bool, True = may attend."""
    return None if mask is None else bool_mask(mask[0, ..., :keys].detach())


def _returned(output: Any) -> Iterator[One]:
    if banded := [
        name for name in ("encoder_global_attentions", "global_attentions") if hasattr(output, name)
    ]:
        own, far = (
            _all(output, "encoder_attentions") or _all(output, "attentions"),
            _all(output, banded[0]),
        )
        yield from (
            ("self", *unpacked(one[0], far[layer][0, :, : one.shape[2]] if far else None))
            for layer, one in enumerate(own)
        )
    for name, kind in RETURNED[bool(banded) :]:
        yield from (
            ("self", *unblocked(one[0], output.encoder_last_hidden_state.shape[1]))
            for one in _all(output, name, 5)
            if one.shape[-1] == 3 * one.shape[-2]
        )
        yield from ((kind, one, None) for one in _all(output, name))
    if not banded and (alone := _all(output, "attentions")):
        causal = all(map(is_lower_triangular, alone))
        yield from (("causal" if causal else "self", one, None) for one in alone)


def _all(output: Any, name: str, axes: int = 4) -> list[Tensor]:
    return [
        one
        for one in getattr(output, name, None) or ()
        if isinstance(one, Tensor) and one.ndim == axes
    ]


def unpacked(band: Float[Tensor, "H T band"], far: Float[Tensor, "H T X"] | None
             ) -> tuple[Float[Tensor, "1 H T T"], Bool[Tensor, "1 1 T T"]]:  # fmt: skip
    """Longformer's banded weights as a full matrix, and its mask.

    A row of the band holds the weights of the X tokens that all see, then those of the 2·w + 1 tokens around its own.
    `far` holds what those X tokens themselves give to all. Beltagy et al. 2020, section 3.1.
    """
    length = band.shape[1]
    count = 0 if far is None else far.shape[-1]
    near = band[..., count:]
    window = near.shape[-1] // 2
    away = torch.arange(length)[None] - torch.arange(length)[:, None]
    inside = away.abs() <= window
    weights = (
        near.gather(-1, (away + window).clamp(0, 2 * window).expand(len(near), -1, -1)) * inside
    )
    if far is not None:
        # The first X tokens see all: that is where every head of the family that has such tokens puts them.
        weights[..., :count] = band[..., :count]
        weights[:, :count] = far.mT
        inside[:count] = inside[:, :count] = True
    return weights[None], inside[None, None]


def unblocked(blocks: Float[Tensor, "N H L three_L"], length: int
              ) -> tuple[Float[Tensor, "1 H T T"], Bool[Tensor, "1 1 T T"]]:  # fmt: skip
    """LongT5's block weights as a full matrix over T tokens, and its mask.

    Each of N blocks of L rows meets the keys of the block before, its own and the next. Guo et al. 2022, section 3.1.1.
    """
    count, heads, size, _ = blocks.shape
    matrix = blocks.new_zeros(heads, count * size, (count + 2) * size)
    for index, block in enumerate(blocks):
        matrix[:, index * size : (index + 1) * size, index * size : (index + 3) * size] = block
    positions = torch.arange(length, device=blocks.device)
    inside = (positions[None] - positions[:, None]).abs() < size
    return matrix[None, :, :length, size : size + length], inside[None, None]


def with_sink(trace: AttentionTrace) -> AttentionTrace:
    """The maps with one more key, `sink`: the weight that each row gave to no token. For models with a learned sink."""
    maps = []
    for item in trace.maps:
        sink = (1 - item.weights.sum(-1, keepdims=True)).clip(0, 1)
        mask = item.mask
        more = None if mask is None else np.concatenate([mask, np.ones_like(mask[..., :1])], -1)
        maps.append(
            replace(
                item,
                weights=np.concatenate([item.weights, sink], -1),
                keys=(*item.keys, SINK),
                mask=more,
            )
        )
    return AttentionTrace(tuple(maps), trace.source)


def sink_line(line: Line) -> Line:
    """The keys of such a map: the sink comes last and is a special token."""
    return replace(
        line,
        ids=(*line.ids, -1),
        tokens=(*line.tokens, SINK),
        special=(*line.special, True),
        word=(*line.word, None),
        segment=(*line.segment, line.segment[-1]),
    )


def note_of(
    pretrained: Pretrained, recorder: AttentionRecorder, kinds: Sequence[Kind]
) -> str | None:
    """Notes that explain maps of these kinds; None where there are none."""
    notes: list[str | None] = []
    if has_sinks(recorder):
        notes.append(
            "A learned sink, which is not a token, gets part of the weight of each row, so the weights on "
            f"tokens sum to less than 1. In the view of all heads it is the last column, {SINK}."
        )
    elif recorder.calls and hasattr(recorder.calls[0].module, "lambda_init"):
        half = recorder.calls[0].weights.shape[1] // 2
        notes.append(
            f"Heads are pairs here: the model subtracts a learned share of the weights of head h + {half} "
            "from those of head h. Each map shows the weights before that."
        )
    if pretrained.model.config.is_encoder_decoder and "self" not in kinds:
        notes.append(
            "The maps of the encoder are not drawn: its rows also attend to summaries of many tokens, so it "
            "returns no matrix over tokens."
        )
    notes += [
        other_layers(pretrained.model, [call.name for call in recorder.calls if call.kind == kind])
        for kind in KINDS
    ]
    return " ".join(filter(None, notes)) or None


def has_sinks(recorder: AttentionRecorder) -> bool:
    return any(
        hasattr(call.module, name) for call in recorder.calls for name in ("sinks", "sink_proj")
    )
