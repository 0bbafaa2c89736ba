"""Prepare pictures for a vision model: resize, scale and normalize by its own preprocessor file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.base import PretrainedError, format_count, wrap_errors

MOST_PIXELS = 4_000_000


@dataclass(frozen=True)
class ImageProcessor:
    """Height and width in pixels, Pillow's resampling method, and the mean and standard deviation of each channel.

    `tokenizer` is that of a model that writes captions. The picture is never cropped, even where the model's own
    preprocessor would, so that patches keep their position in it.
    """

    size: tuple[int, int] = (224, 224)
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resample: int = 2  # as Pillow numbers them: 2 is bilinear, 3 bicubic
    tokenizer: Any = None

    @classmethod
    def of(cls, folder: Path) -> ImageProcessor:
        """The settings of a folder's preprocessor_config.json, with ViT's defaults.

        PretrainedError for more than 4 million pixels.
        """
        try:
            settings = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            settings = {}
        with wrap_errors(f"{folder.name} has a preprocessor_config.json that cannot be read"):
            return cls._of(dict(settings), folder.name)

    @classmethod
    def _of(cls, settings: dict[str, Any], name: str) -> ImageProcessor:
        size: Any = settings.get("crop_size") or settings.get("size") or 224
        if isinstance(size, dict):
            edge = size.get("shortest_edge", 224)
            size = (size.get("height", edge), size.get("width", edge))
        height, width = size if isinstance(size, tuple | list) else (size, size)
        if not 0 < int(height) * int(width) <= MOST_PIXELS:
            raise PretrainedError(
                f"{name} reads pictures of {format_count(int(height))} × "
                f"{format_count(int(width))} pixels; at most {MOST_PIXELS // 10**6} million are "
                "made here. Take a smaller model."
            )
        plain = settings.get("do_normalize") is False
        mean, std = (
            tuple(map(float, settings.get(key) or usual))
            for key, usual in (("image_mean", cls.mean), ("image_std", cls.std))
        )
        if not {len(mean), len(std)} <= {1, 3} or not all(std):
            raise PretrainedError(
                f"{name} has a preprocessor_config.json whose image_mean and image_std are not one "
                "or three numbers each, or in which a deviation is 0."
            )
        return cls(
            (int(height), int(width)),
            (0.0,) * 3 if plain else mean,
            (1.0,) * 3 if plain else std,
            int(settings.get("resample") or cls.resample),
        )

    def prepare(
        self, picture: np.ndarray, channels: int
    ) -> Float[Tensor, "1 channels height width"]:
        """A picture (H, W) or (H, W, 3), uint8 or 0 to 1, as the model's pixel values."""
        from PIL import Image

        pixels = (
            picture
            if picture.dtype == np.uint8
            else (np.clip(picture, 0, 1) * 255).round().astype(np.uint8)
        )
        image = Image.fromarray(pixels).convert("RGB" if channels == 3 else "L")
        if image.size != self.size[::-1]:
            image = image.resize(self.size[::-1], Image.Resampling(self.resample))
        values = np.asarray(image, dtype=np.float32).reshape(*self.size, channels) / 255
        values = (values - np.asarray(self.mean[:channels], np.float32)) / np.asarray(
            self.std[:channels], np.float32
        )
        return torch.from_numpy(values).permute(2, 0, 1)[None].contiguous()
