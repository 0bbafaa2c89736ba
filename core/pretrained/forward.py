"""One forward pass: what a model is given, tokens, a picture or a sound, and what it returns, recorded."""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.entries import Cost, quote
from core.models.decoding import Rules
from core.pretrained.attention_recorder import (
    NO_HEADS,
    AttentionRecorder,
    ChangeQKV,
    HeadSet,
    Patch,
    record_attention,
    to_cpu,
    to_device,
)
from core.pretrained.base import (
    Array,
    Line,
    ModelInputs,
    Pretrained,
    PretrainedError,
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

MAX_CHARACTERS = 20_000
PATCHES = 256  # that a picture is cut into where its model leaves it open
# of a tokenizer's, what models read
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")

Batch = dict[str, Tensor]


def encode_source(pretrained: Pretrained, inputs: ModelInputs) -> tuple[Batch, Line, str | None]:
    """The inputs of the encoder, or of a model with a single line, that line, and a sentence when something was cut."""
    with wrap_errors(f"{pretrained.name} cannot read this"):
        reader = {"picture": _picture, "sound": _sound}.get(pretrained.reads, _text)
        return reader(pretrained, inputs)


# Times the maps that a pass returns: with what is made of them, and with gradients; measured with MiniLM and the writer
MAPS_HELD, WITH_GRADIENTS = 3, 5


def forward(pretrained: Pretrained, batch: Batch, with_qkv: bool = False, off: HeadSet = NO_HEADS, probe: bool = False,
            uniform: HeadSet = NO_HEADS, patches: Sequence[Patch] = (),
            change_qkv: ChangeQKV | None = None, hooks: AbstractContextManager[Any] | None = None,
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
        record_attention(
            pretrained.model, with_qkv, off, probe, uniform, patches, change_qkv
        ) as recorder,
        torch.set_grad_enabled(probe),
    ):
        try:
            output = pretrained.model(**to_device(pretrained.model, batch), **more)
            return to_cpu(output, recorder), recorder
        except PretrainedError:  # a registered attention function whose weights cannot be read
            raise
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
# beside patches, not a picture
OTHER_FORM = {"spatial_shapes", "grid_thw", "image_grid_thw", "pixel_position_ids"}
LACKS = re.compile(
    r"NoneType|specif|provid|missing|required|is None|cannot be `None`|not-None|must be given"
)
# what most models can be given, and none needs
STATES = ("inputs_embeds", "hidden_states", "encoder_hidden_states")
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
    return f"{name} {why}. {model_that_reads(pretrained)}"


def model_that_reads(pretrained: Pretrained) -> str:
    """Which models read what this one reads, for the sentence about one that cannot."""
    return "Take a model that reads {}, such as {}.".format(*READS[pretrained.reads])


def _words(keys: Sequence[str]) -> str:
    meant: dict[str, list[str]] = {}
    for key in keys:
        meant.setdefault(INPUTS.get(key, ""), []).append(key)
    return ", ".join(
        f"{what} ({', '.join(names)})" if what else ", ".join(names)
        for what, names in meant.items()
    )
