"""Inputs for models: an example sentence in a model's own vocabulary, pictures and sounds, and files of both."""

import io
import wave
from functools import lru_cache

import numpy as np
from PIL import Image

from core.interpret.trace import to_numpy
from core.pretrained.base import Array, PretrainedError, reject_if
from core.tasks import TaskConfig, make_task
from core.tasks.pictures import digits

TEXT = "The animal didn't cross the street because it was too tired."
OWN_TEXTS = {
    "writer": "When Mary and John went to the shop, John gave a book to",
    "numbers": "nine thousand three hundred and twelve ; forty-seven",
    "induction": "the old king walked to the dark river . the old king walked to the dark",
    "only-attention": "the dark river and the cold house . we saw the dark",
    "names": "when ann and ben went to the shop , ben gave the book to",
}
DIGITS = tuple(f"Digit {digit}" for digit in range(10))
PHOTOS = {"Flower": "flower.jpg", "Temple": "china.jpg"}
SOUNDS = ("A rising tone", "Three beeps")
SIDE = 512  # pixels of the longer edge of a picture
MAX_PIXELS = 40_000_000
MAX_SECONDS = 30
FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
)  # of an upload: Pillow would open PostScript with Ghostscript, which runs it


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
    from sklearn.datasets import load_sample_image

    return small(load_sample_image(PHOTOS[name]))


def small(pixels: np.ndarray) -> Array:
    """A picture (H, W, 3) uint8 with at most 512 pixels on its longer edge."""
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE))
    return Array.of(np.asarray(image))


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


def decode_picture(data: bytes) -> Array:
    """An uploaded picture, made small; PretrainedError when it is none, or has more than 40 million pixels."""
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        reject_if(
            image.width * image.height > MAX_PIXELS,
            f"The picture has {image.width:,} × {image.height:,} pixels; at most "
            f"{MAX_PIXELS // 10**6} million are opened.",
        )
        return small(np.asarray(image.convert("RGB")))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PretrainedError("The file is not a readable picture; use a PNG or JPEG.") from error


def decode_wav(data: bytes, rate: int) -> Array:
    """An uploaded WAV of 16 bits as one channel at `rate`, its first 30 s; PretrainedError when it is none."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            own_rate, channels, width = (
                file.getframerate(),
                file.getnchannels(),
                file.getsampwidth(),
            )
            frames = file.readframes(own_rate * MAX_SECONDS)
    except (
        wave.Error,
        EOFError,
        RuntimeError,
    ) as error:  # the last where a chunk is longer than the file
        raise PretrainedError(
            "The file is not a readable WAV; save the sound as a 16-bit WAV."
        ) from error
    reject_if(
        width != 2 or len(frames) < 2 * channels or not own_rate,
        f"The WAV has {8 * width} bits per sample; save it with 16.",
    )
    samples = np.frombuffer(frames[: len(frames) // (2 * channels) * 2 * channels], "<i2").reshape(
        -1, channels
    )
    mono = samples.mean(1) / 32768
    positions = np.arange(int(len(mono) * rate / own_rate)) * own_rate / rate
    return Array.of(np.interp(positions, np.arange(len(mono)), mono).astype(np.float32))
