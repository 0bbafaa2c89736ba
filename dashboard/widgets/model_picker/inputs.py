"""Widgets for a model's inputs: a text, two sentences, a source and its target, a picture, or a sound."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import streamlit as st

from core.pretrained import Array, ModelInputs, Pretrained, PretrainedError
from core.pretrained.reading import sampling_rate
from dashboard.widgets.model_picker import examples
from dashboard.widgets.model_picker.models import ModelRef
from dashboard.widgets.params import BOUND

TEXT, SECOND, TARGET = "inside:text", "inside:second", "inside:target"
GROUP, TEXTS = "inside:language", "inside:texts"
OWN = "Your own…"
MOST_PIXELS = 40_000_000
MOST_SECONDS = 30


def model_inputs(ref: ModelRef, pretrained: Pretrained, container: Any) -> ModelInputs:
    """Draw the model's input widgets into `container`; returns the inputs. PretrainedError for an invalid upload."""
    with container:
        if pretrained.reads == "picture":
            names = examples.pictures(int(getattr(pretrained.model.config, "num_channels", 3)))
            return ModelInputs(picture=_upload_field("picture", names, examples.picture, "PNG or JPEG",
                                                     ["png", "jpg", "jpeg", "webp"], decode_picture))
        if pretrained.reads == "sound":
            rate = sampling_rate(pretrained)
            return ModelInputs(sound=_upload_field("sound", examples.SOUNDS, lambda name: examples.sound(name, rate),
                                                   "WAV", ["wav"], lambda data: decode_wav(data, rate)))
        return _text(ref, pretrained)


def _text(ref: ModelRef, pretrained: Pretrained) -> ModelInputs:
    usual = examples.text_of(ref.name)
    _change_language(ref.name if ref.name in examples.OWN_TEXTS else "", usual)
    first, other = st.columns([2, 1] if pretrained.reads == "pair" else [4, 1], vertical_alignment="bottom")
    text = first.text_input("Text", usual, key=TEXT, **BOUND, help=(
        f"At most 20,000 characters and {pretrained.max_tokens} tokens are read.")) or ""
    if pretrained.reads == "pair":
        target = other.text_input("Target", key=TARGET, placeholder="the model writes it", **BOUND,
                                  help="What the decoder reads. Left empty, the model decodes it itself, greedily.")
        return ModelInputs(text, target=target or None)
    if pretrained.head == "next":
        return ModelInputs(text)
    label = "Pair: on" if (st.session_state.get(SECOND) or "").strip() else "Pair"
    with other.popover(label, width="stretch", help="A second sentence, read together with the first."):
        second = st.text_input("Sentence B", key=SECOND, **BOUND, help="Left empty, the model reads the text alone.")
    return ModelInputs(text, second=second or None)


def _change_language(group: str, usual: str) -> None:
    """Switch the text when a model has its own vocabulary, back to that vocabulary's last text."""
    before = st.session_state.get(GROUP)
    if before is not None and before != group:
        texts = st.session_state.setdefault(TEXTS, {})
        texts[before] = st.session_state.get(TEXT)
        st.session_state[TEXT] = texts.get(group) or usual
        st.session_state.pop(TARGET, None)
    st.session_state[GROUP] = group


def _upload_field(noun: str, names: Sequence[str], example: Callable[[str], Array], formats: str, types: list[str],
                  decode: Callable[[bytes], Array]) -> Array:
    """An example by its name, or the person's own file, which the session keeps; PretrainedError without a file."""
    choice, upload = st.columns([1, 1.4], vertical_alignment="bottom")
    name = choice.selectbox(noun.capitalize(), [*names, OWN], key=f"inside:{noun}", **BOUND)
    if name != OWN:
        return example(name)
    file = upload.file_uploader(f"{formats}, at most 10 MB", types, max_upload_size=10, key=f"inside:{noun}-file")
    if file is not None:
        st.session_state[f"inside:own-{noun}"] = decode(file.getvalue())
    if f"inside:own-{noun}" not in st.session_state:
        raise PretrainedError(f"Upload a {noun}, or take one of the list.")
    return st.session_state[f"inside:own-{noun}"]


def decode_picture(data: bytes) -> Array:
    """An uploaded picture, made small; PretrainedError when it is none, or has more than 40 million pixels."""
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(data))
        if image.width * image.height > MOST_PIXELS:
            raise PretrainedError(f"The picture has {image.width:,} × {image.height:,} pixels; at most "
                                  f"{MOST_PIXELS // 10**6} million are opened.")
        return examples.small(np.asarray(image.convert("RGB")))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PretrainedError("The file is no picture that can be opened; take a PNG or JPEG.") from error


def decode_wav(data: bytes, rate: int) -> Array:
    """An uploaded WAV of 16 bits as one channel at `rate`, its first 30 s; PretrainedError when it is none."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            own_rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            frames = file.readframes(own_rate * MOST_SECONDS)
    except (wave.Error, EOFError) as error:
        raise PretrainedError("The file is no WAV that can be opened; save the sound as WAV with 16 bits.") from error
    if width != 2 or not frames or not own_rate:
        raise PretrainedError(f"The WAV has {8 * width} bits a sample; save it with 16.")
    samples = np.frombuffer(frames[:len(frames) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
    mono = samples.mean(1) / 32768
    positions = np.arange(int(len(mono) * rate / own_rate)) * own_rate / rate
    return Array.of(np.interp(positions, np.arange(len(mono)), mono).astype(np.float32))
