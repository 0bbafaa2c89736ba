"""Inputs for models: examples, a person's pictures and sounds, and attention that was computed elsewhere.

A file of arrays (NPZ or safetensors) with weights and tokens becomes a reading.
"""

import io
import json
import math
import re
import struct
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Annotated

import msgspec
import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps

from core.entries import quote_name
from core.interpret.trace import AttentionMap, AttentionTrace, Kind, to_numpy, why_not_weights
from core.memory import give_back, room_bytes
from core.pretrained.base import (
    Array,
    Line,
    PretrainedError,
    Reading,
    Spelling,
    format_count,
    reject_if,
    spelled_line,
    wrap_errors,
)
from core.pretrained.maps import KINDS
from core.tasks import TaskConfig, digits, make_task
from core.tasks.tables import sklearn_data

TEXT = "The animal didn't cross the street because it was too tired."
OWN_TEXTS = {
    "writer": "When Mary and John went to the shop, John gave a book to",
    "numbers": "nine thousand three hundred and twelve ; forty-seven",
    "induction": "the old king walked to the dark river . the old king walked to the dark",
    "only-attention": "the dark river and the cold house . we saw the dark",
    "names": "when ann and ben went to the shop , ben gave the book to",
}
DIGITS = tuple(f"Digit {digit}" for digit in range(10))
PHOTOS = {  # in scikit-learn
    "Flower": (
        "images/flower.jpg",
        "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
    ),
    "Temple": (
        "images/china.jpg",
        "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29",
    ),
}
SOUNDS = ("A rising tone", "Three beeps")
SIDE = 512  # pixels of the longer edge of a picture
MAX_PIXELS = 40_000_000
MAX_DECODED = 180_000_000  # bytes that a decoder may hold of one picture
MAX_SECONDS, MAX_RATE, MAX_CHANNELS = 30, 192_000, 8  # of a sound
# Of an upload: Pillow would open PostScript with Ghostscript, which runs it.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
SAMPLES = {  # of a WAV: its format and bytes a sample, the numbers, their zero and their largest
    (1, 1): ("u1", 128, 128),
    (1, 2): ("<i2", 0, 2**15),
    (1, 3): ("<i4", 0, 2**31),  # with a byte before the lowest
    (1, 4): ("<i4", 0, 2**31),
    (3, 4): ("<f4", 0, 1),
    (3, 8): ("<f8", 0, 1),
}
EXTENSIBLE = 0xFFFE  # the format stands further on in the header
OTHER_SOUNDS = {  # by the bytes that they begin with, after four others in MP4
    b"ID3": "MP3", b"\xff\xfb": "MP3", b"\xff\xf3": "MP3", b"\xff\xf2": "MP3", b"fLaC": "FLAC", b"OggS": "Ogg",
    b"FORM": "AIFF", b"caff": "CAF", b"RIFX": "big-endian WAV", b"RF64": "RF64", b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"\xff\xf1": "AAC", b"\xff\xf9": "AAC", b"#!AMR": "AMR", b"0&\xb2u": "WMA", b"ftyp": "MP4 or M4A",
}  # fmt: skip


def text_of(name: str) -> str:
    """The example text of a model: for the lab's own models, one whose words they know."""
    return OWN_TEXTS.get(name, TEXT)


def pictures(channels: int) -> tuple[str, ...]:
    """The names of the pictures for a model of `channels` channels, the best first."""
    return (*DIGITS[3:], *DIGITS[:3]) if channels == 1 else (*PHOTOS, *DIGITS)


@lru_cache(maxsize=16)
def picture(name: str) -> Array:
    """A picture by its name: a digit that the lab's reader never saw in training, or a photograph."""
    if name in DIGITS:
        pixels, labels = digits()
        held_out = make_task(TaskConfig.of("digits")).sides[True]  # type: ignore[attr-defined]
        first = next(index for index in held_out if labels[index] == DIGITS.index(name))
        return Array.of(to_numpy(pixels[first]))
    return small(Image.open(io.BytesIO(sklearn_data(*PHOTOS[name]))))


def small(image: Image.Image) -> Array:
    """A picture as (H, W, 3) uint8 with at most 512 pixels on its longer edge, upright by its EXIF orientation.

    It is converted and reduced tile by tile, so that nothing else of its whole size is held. The array's note says
    what of the picture is not in its pixels.
    """
    (width, height), factor = image.size, max(1, max(image.size) // (2 * SIDE))
    reduced, transparent = Image.new("RGB", (-(-width // factor), -(-height // factor))), False
    frames, deep = getattr(image, "is_animated", False), image.mode[0] in "IF"
    # The largest value of gray with more than 8 bits, which Pillow would clip
    full = 1 if image.mode == "F" else 65_535
    tile = max(1, 2 * SIDE // factor) * factor
    for top in range(0, height, tile):
        for left in range(0, width, tile):
            box = (left, top, min(left + tile, width), min(top + tile, height))
            part = image.crop(box)
            if deep:
                values = np.asarray(part, np.float32)
                gray = values.clip(0, full) * (255 / full)
                part = Image.fromarray(gray.round().astype(np.uint8))
                if "transparency" in image.info:
                    part.putalpha(Image.fromarray(values != image.info["transparency"]))
            if part.has_transparency_data:
                part = part.convert("RGBA")
                transparent |= part.getextrema()[3][0] < 255  # type: ignore[index,operator,misc]
                part = Image.alpha_composite(Image.new("RGBA", part.size, "white"), part)
            reduced.paste(part.convert("RGB").reduce(factor), (left // factor, top // factor))
    reduced.thumbnail((SIDE, SIDE))
    orientation = ExifTags.Base.Orientation
    reduced.getexif()[orientation] = image.getexif().get(orientation, 1)
    ImageOps.exif_transpose(reduced, in_place=True)
    notes = {
        "Of the pictures in the file the first is read.": frames,
        "The picture's transparent parts are read as white.": transparent,
        "The picture's 16 bits of gray are read as 8.": deep,
    }
    return Array.of(np.asarray(reduced), " ".join(note for note, holds in notes.items() if holds))


@lru_cache(maxsize=8)
def sound(name: str, rate: int) -> Array:
    """A sound of 3 s by its name, at `rate` samples a second."""
    seconds = np.arange(3 * rate) / rate
    if name == SOUNDS[0]:
        return Array.of(
            (0.3 * np.sin(2 * np.pi * (200 + 150 * seconds) * seconds)).astype(np.float32)
        )
    beeps = (seconds % 1 < 0.3) * np.sin(2 * np.pi * 440 * seconds)
    return Array.of((0.3 * beeps).astype(np.float32))


_lock = threading.Lock()


@contextmanager
def _decoding() -> Iterator[None]:
    """One file at a time, whose memory the thread gives back: many at once then need no more than one."""
    with _lock:
        try:
            yield
        finally:
            give_back()


@_decoding()
def decode_picture(data: bytes) -> Array:
    """An uploaded picture, made small; PretrainedError when it is none, or too large to be decoded."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            size = f"The picture has {width:,} × {height:,} pixels"
            reject_if(
                width * height > MAX_PIXELS,
                f"{size}; at most {MAX_PIXELS // 10**6} million are opened.",
            )
            most = 2 * SIDE / max(width, height)
            needed = decoded_bytes(image, (math.ceil(width * most), math.ceil(height * most)))
            room = min(MAX_DECODED, room_bytes())
            side = math.isqrt(int(room / needed * width * height))
            reject_if(
                needed > room,
                f"{size}, for which its decoder needs {needed / 1e6:,.0f} MB of memory; it may take "
                f"{room / 1e6:,.0f} MB. Save it with at most {side:,} × {side:,} pixels.",
            )
            return small(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PretrainedError("The file is not a readable picture; use a PNG or JPEG.") from error


def decoded_bytes(image: Image.Image, least: tuple[int, int]) -> int:
    """What the decoder of an opened picture holds at its peak, in bytes, by the header: the format and the mode.

    A JPEG is set to be decoded at a half, a fourth or an eighth, not below the size `least`.
    """
    pixels = image.width * image.height
    if image.format == "WEBP":
        return 20 * pixels  # this frame and the one before, and their copies
    # A progressive JPEG comes with all its coefficients before the first pixel.
    coefficients = 2 * len(image.getbands()) * pixels if image.info.get("progressive") else 0
    image.draft(None, least)  # type: ignore[arg-type]
    each = {"1": 1, "L": 1, "P": 1, "I;16": 2}.get(image.mode, 4)
    return each * image.width * image.height + coefficients


@_decoding()
def decode_wav(data: bytes, rate: int) -> Array:
    """An uploaded WAV as one channel at `rate`, its first 30 s, by the spectrum below half of both rates.

    It may have 8, 16, 24 or 32 bits or floats, and up to 8 channels. PretrainedError when it is none.
    """
    other = next(
        (name for start, name in OTHER_SOUNDS.items() if start in (data[: len(start)], data[4:8])),
        "",
    )
    remedy = "save the sound as a 16-bit WAV."
    reject_if(other, f"The file is {other}, not WAV; {remedy}")
    broken = f"The file is not a readable WAV; {remedy}"
    reject_if(data[:4] != b"RIFF" or data[8:12] != b"WAVE", broken)
    chunks, at = dict[bytes, memoryview](), 12
    while b"data" not in chunks and at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        chunks.setdefault(name, memoryview(data)[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    header, frames = chunks.get(b"fmt ", b""), chunks.get(b"data", b"")
    reject_if(b"data" not in chunks or len(header) < 16, broken)
    kind, channels, own_rate, _, _, bits = struct.unpack_from("<HHIIHH", header)
    if kind == EXTENSIBLE and len(header) >= 26:
        (kind,) = struct.unpack_from("<H", header, 24)
    width = -(-bits // 8)
    if (kind, width) not in SAMPLES:
        raise PretrainedError(
            f"The WAV has samples of format {kind} with {bits} bits; {remedy} Read are 8, 16, 24 and 32 bits, and floats."
        )
    reject_if(
        not 0 < own_rate <= MAX_RATE or not 0 < channels <= MAX_CHANNELS,
        f"The WAV has {channels:,} channels of {own_rate:,} samples a second; save it with at most "
        f"{MAX_CHANNELS} channels of {MAX_RATE:,}.",
    )
    length = len(frames) // (width * channels)
    count = min(length, own_rate * MAX_SECONDS)
    reject_if(not count * rate // own_rate, "The WAV has no samples; save a sound of up to 30 s.")
    (dtype, zero, full), mono = SAMPLES[kind, width], np.zeros(count, np.float32)
    samples = np.frombuffer(frames, "u1", count * channels * width).reshape(count, channels, width)
    for channel in range(channels):  # one at a time, for the memory
        one = np.pad(samples[:, channel], ((0, 0), (int(width == 3), 0))).view(dtype)[:, 0]
        with np.errstate(over="ignore"):  # it is refused below
            one = one.astype(np.float32)
        one -= zero
        one /= full * channels
        mono += one
    del one, samples
    reject_if(
        not np.isfinite(mono).all(),
        "The WAV has samples that are not numbers; save it again as a 16-bit WAV.",
    )
    if own_rate != rate:
        # Zeros fill it up to a length that both rates have; the spectrum above half of the lower rate is left out.
        step = math.gcd(rate, own_rate)
        parts, up = -(-count * step // own_rate), rate // step
        spectrum = torch.fft.rfft(torch.from_numpy(mono), parts * own_rate // step)
        mono = to_numpy(torch.fft.irfft(spectrum, parts * up)) * np.float32(rate / own_rate)
        mono = mono[: int(count * rate / own_rate)]
    long = f"The file lasts {length / own_rate:.1f} s; its first {MAX_SECONDS} s are read."
    return Array.of(mono.astype(np.float32), long if count < length else "")


# The arrays in an NPZ or safetensors file, checked by their headers before they are unpacked; no code is run.


MAX_BYTES = 200_000_000
MAX_NUMBERS = 40_000_000
MAX_TOKENS = 2048
MAX_HEADER, MAX_NPY_HEADER = 4_000_000, 1 << 16
MAX_LETTERS = 1_000  # of a token, and of the name of an array
LIMITS = (
    f"NPZ or safetensors of at most {MAX_BYTES // 10**6} MB and {MAX_NUMBERS // 10**6} million weights, "
    f"0 to 1, for at most {MAX_TOKENS:,} tokens."
)
LABELS = ("tokens", "queries", "keys", "state")
Shapes = dict[str, list[Annotated[int, msgspec.Meta(ge=0)]]]  # in the header of safetensors


Arrays = tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]  # numbers as float32, and labels


def _npz(data: bytes, name: str) -> Arrays:
    """The arrays of an NPZ, each checked by its header before it is unpacked; nothing pickled is opened."""
    weights: dict[str, np.ndarray] = {}
    labels: dict[str, tuple[str, ...]] = {}
    room = MAX_NUMBERS
    # A header is Python's text, and may make its reader raise anything.
    with (
        wrap_errors(f"{name} is not a readable NPZ", ". Write it with numpy.savez_compressed."),
        zipfile.ZipFile(io.BytesIO(data)) as archive,
    ):
        for member in archive.namelist():
            key = member.removesuffix(".npy")
            with archive.open(member) as file:
                # Of a longer header no more is unpacked.
                start = io.BytesIO(file.read(MAX_NPY_HEADER))
            version = "1_0" if np.lib.format.read_magic(start) == (1, 0) else "2_0"
            shape, _, kind = getattr(np.lib.format, f"read_array_header_{version}")(start)
            reject_if(
                kind.hasobject,
                f"{member} in {name} holds Python objects, which could run code, so it is not "
                "opened. Save text as numpy.array([...], dtype=str).",
            )
            size = -(-kind.itemsize // 8)  # in numbers of 8 bytes; two letters are one
            text = kind.kind == "U" and _label(key) and len(shape) == 1
            if text:
                reject_if(
                    shape[0] > MAX_TOKENS,
                    f"{quote_name(key)} in {name} names {format_count(shape[0])} tokens; at most "
                    f"{MAX_TOKENS:,} are read.",
                )
                reject_if(
                    kind.itemsize > 4 * MAX_LETTERS,
                    f"{key} in {name} allows {kind.itemsize // 4:,} letters for a token; "
                    f"at most {MAX_LETTERS:,} are read.",
                )
            reject_if(
                not text and kind.kind not in "fiu",
                f"{key} in {name} holds {kind}, not numbers. Weights are numbers; tokens are "
                "an array of text named tokens, queries or keys.",
            )
            _refuse_large(key, (*shape, size), room, name)
            room -= int(np.prod(shape)) * size
            with archive.open(member) as file:
                values = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
            if text:
                labels[key] = tuple(map(str, values))
            else:
                weights[key] = values.astype(np.float32)
    return weights, labels


def _safetensors(data: bytes, name: str) -> Arrays:
    """The tensors of a safetensors file, and the labels in its metadata: lists of text in JSON."""
    from safetensors.torch import load

    length, labels = int.from_bytes(data[:8], "little"), dict[str, tuple[str, ...]]()
    try:
        if not 2 <= length <= min(MAX_HEADER, len(data) - 8):
            raise ValueError("its header is missing or too long")
        header = dict(json.loads(data[8 : 8 + length]))
        metadata = dict(header.pop("__metadata__", {}))
        shapes = msgspec.convert({key: item["shape"] for key, item in header.items()}, Shapes)
    except (ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError) as error:
        raise PretrainedError(f"{name} is neither NPZ nor safetensors. {LIMITS}") from error
    others = {key for key in metadata if key.endswith("state") and key[:-6] not in shapes}
    for key in filter(_label, metadata.keys() - others):
        try:
            labels[key] = tuple(msgspec.json.decode(str(metadata[key]), type=list[str]))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise PretrainedError(
                f'The metadata {key} of {name} is not a JSON list of text, such as ["the", "cat"].'
            ) from error
    for key, shape in shapes.items():
        _refuse_large(key, shape, MAX_NUMBERS, name)
    reject_if(
        sum(map(math.prod, shapes.values())) > MAX_NUMBERS,
        f"{name} holds more than {MAX_NUMBERS:,} numbers.",
    )
    with wrap_errors(f"{name} is not a readable safetensors file"):
        tensors = load(data)
        return {key: to_numpy(tensors[key].float()) for key in shapes}, labels


def _label(key: str) -> bool:
    return key.rpartition("_")[2] in LABELS


def _refuse_large(key: str, shape: Sequence[int], max_numbers: int, name: str) -> None:
    count = math.prod(map(int, shape))
    reject_if(
        count > max_numbers,
        f"{quote_name(key)} in {name} holds {format_count(count)} numbers; at most "
        f"{MAX_NUMBERS:,} are read in all. Take fewer layers, or fewer tokens.",
    )


SHAPES = "(layers, heads, queries, keys), or one array (heads, queries, keys) for each layer"
SPECIAL = re.compile(
    r"\[(CLS|SEP|PAD|UNK|BOS|EOS)\]|</?s>|<(pad|bos|eos|unk)>|<\|.*\|>|<(start|end)_of_\w+>"
)


def read_arrays(data: bytes, name: str, tokens: str = "") -> Reading:
    """The reading in an NPZ or safetensors file; `tokens`, if typed, name rows and columns, one a word.

    Takes one array (L, H, T, S), with or without a batch of 1, or an array (H, T, S) a layer, named by its number; the
    prefix self, causal or cross gives the kind. `tokens`, or `queries` and `keys`, in the file name rows and columns:
    arrays of text in an NPZ, JSON lists in the metadata of safetensors. So does an array's name with `_state` say of each
    of its layers what it is without softmax ("" with it): then weights may be negative. PretrainedError for what does
    not fit.
    """
    reject_if(
        len(data) > MAX_BYTES,
        f"{name} has {len(data) / 1e6:,.0f} MB; at most {MAX_BYTES // 10**6} MB are read.",
    )
    weights, labels = (_npz if data[:2] == b"PK" else _safetensors)(data, name)
    reject_if(
        long := next((key for key in weights if len(key) > MAX_LETTERS), ""),
        f"An array in {name} has a name of {len(long):,} letters, {quote_name(long)}; at most "
        f"{MAX_LETTERS:,} are read.",
    )
    layers = [
        layer
        for key, values in weights.items()
        for layer in _layers(key, values, labels.get(f"{key}_state", ()))
    ]
    reject_if(not layers, f"{name} holds no weights; expected {SHAPES}.")
    kinds = _sort(layers)
    reading = _lined(kinds, labels, tuple(tokens.split()), name)
    maps = []
    for kind in KINDS:
        rows, columns = (line.tokens for line in reading.lines(kind))
        for layer, (*_, number, state, values) in enumerate(kinds.get(kind, ())):
            may = np.tri(len(rows), dtype=bool)[None] if kind == "causal" else None
            if not (some := values.any(-1, keepdims=True)).all():  # rows of zeros are masked
                may = np.broadcast_to(some if may is None else may & some, values.shape)
            maps.append(
                AttentionMap(
                    kind,
                    layer,
                    values if state else np.clip(values, 0, 1),
                    rows,
                    columns,
                    mask=may,
                    number=number,
                    state=state,
                )
            )
    # Those are not counted.
    sums = np.concatenate([item.shares.sum(-1)[item.weights.any(-1)] for item in maps])
    cut = None
    if ((sums <= 0.99) | (sums >= 1.01)).any():
        cut = (
            f"The rows of these weights sum to between {sums.min():.2f} and {sums.max():.2f}, not to 1; "
            "they are drawn unchanged."
        )
    return replace(reading, trace=AttentionTrace(tuple(maps), name), cut=cut)


# Of a layer what its array's name says: kind, place and the model's own number, None where it does not; state; weights
Layer = tuple[Kind | None, int | None, int | None, str, np.ndarray]


def _layers(key: str, values: np.ndarray, states: Sequence[str]) -> list[Layer]:
    """Split an array into layers (H, T, S), with the kind and the number in its name, and what each is."""
    shape = values.shape
    kind: Kind | None = next((one for one in KINDS if re.match(rf"{one}(\b|_)", key)), None)
    numbers = re.findall(r"\d+", key)
    number = int(numbers[-1]) if numbers else None
    while 1 in values.shape[:-3]:
        values = values.squeeze(values.shape.index(1))
    if values.ndim == 2:
        values = values[None]
    reject_if(
        values.ndim not in (3, 4) or 0 in values.shape,
        f"{key} has the shape {shape}; expected {SHAPES}.",
    )
    reject_if(
        max(values.shape[-2:]) > MAX_TOKENS,
        f"{key} has {max(values.shape[-2:]):,} tokens; at most {MAX_TOKENS:,} are drawn.",
    )
    layers = values if values.ndim == 4 else values[None]
    states = states or ("",) * len(layers)
    reject_if(
        len(states) != len(layers),
        f"{key}_state names {len(states)} layers; {key} has {len(layers)}.",
    )
    more = f" Of a layer without softmax, {key}_state says what it is, in text."
    for state, one in zip(states, layers, strict=True):
        reject_if(
            reason := why_not_weights(key, one, bool(state)),
            f"{reason}{more * bool(np.isfinite(one).all())}",
        )
    if values.ndim == 4:
        return [(kind, layer, None, states[layer], one) for layer, one in enumerate(values)]
    return [(kind, number, number if key == f"{kind}_{number}" else None, states[0], values)]


def _sort(layers: Sequence[Layer]) -> dict[Kind, list[Layer]]:
    """The layers of each kind in the order of their numbers; unnamed kinds are recognized by the weights."""
    unnamed = [values for kind, *_, values in layers if kind is None]
    square = all(values.shape[-1] == values.shape[-2] for values in unnamed)
    causal = square and all(not np.triu(values, 1).any() for values in unnamed)
    usual: Kind = (
        "causal"
        if causal and any(len(v[0]) > 1 for v in unnamed)
        else "self"
        if square
        else "cross"
    )
    placed = sorted(
        (
            (order if layer[1] is None else layer[1], layer[0] or usual, layer)
            for order, layer in enumerate(layers)
        ),
        key=lambda one: one[0],
    )
    parts = {kind: [layer for _, of, layer in placed if of == kind] for kind in KINDS}
    return {kind: part for kind, part in parts.items() if part}


def _lined(kinds: Mapping[Kind, list[Layer]], labels: Mapping[str, tuple[str, ...]], typed: tuple[str, ...],
           name: str) -> Reading:  # fmt: skip
    """The token lines that all layers share; PretrainedError where layers disagree."""
    sizes: dict[str, tuple[int, int]] = {}
    for kind, layers in kinds.items():
        shapes = {values.shape[1:] for *_, values in layers}
        reject_if(
            len(shapes) > 1,
            f"The layers of {name} have maps of different sizes, {min(shapes)} and "
            f"{max(shapes)}; expected the same tokens in each.",
        )
        rows, columns = shapes.pop()
        reject_if(
            kind != "cross" and rows != columns,
            f"The {kind} maps of {name} are {rows} × {columns}; maps of {kind}-attention are "
            "square. Name them cross_0, cross_1, …",
        )
        sizes[kind] = rows, columns
    own, cross = sizes.get("self"), sizes.get("cross")
    reject_if(
        own
        and cross
        and own[1] != cross[1]
        or cross
        and "causal" in sizes
        and sizes["causal"][1] != cross[0],
        f"The maps of {name} do not fit together: {sizes}. The keys of cross-attention are the "
        "tokens of self-attention, its queries those of causal attention.",
    )
    width = (own or cross or sizes["causal"])[1]
    source = _line(
        _names(labels, "keys", "cross" if cross else next(iter(sizes)), width, typed, name)
    )
    if len(sizes) == 1 and not cross:
        return Reading(AttentionTrace((), name), source)
    height = cross[0] if cross else sizes["causal"][1]
    target, produced = (
        _line(_names(labels, "queries", kind if kind in sizes else other, height, (), name))
        for kind, other in (("causal", "cross"), ("cross", "causal"))
    )
    return Reading(AttentionTrace((), name), source, target, produced)


def _names(labels: Mapping[str, tuple[str, ...]], side: str, kind: str, size: int, typed: tuple[str, ...],
           name: str) -> tuple[str, ...]:  # fmt: skip
    if typed:
        reject_if(
            len(typed) != size,
            f"{len(typed)} tokens are typed and {name} has {size} columns; type one token for "
            "each column.",
        )
        return typed
    for key in [
        key
        for key in labels
        if key in (side, f"{kind}_{side}", "tokens") or re.fullmatch(rf"{kind}_\d+_{side}", key)
    ]:
        if len(labels[key]) == size:
            return labels[key]
        reject_if(
            key != "tokens" or kind != "cross",
            f"{key} in {name} names {len(labels[key])} tokens; its maps have {size}.",
        )
    return tuple(str(index) for index in range(size))


def _line(tokens: tuple[str, ...]) -> Line:
    special = tuple(bool(SPECIAL.fullmatch(token)) for token in tokens)
    return spelled_line(tokens, special, Spelling.of_pieces(tokens))
