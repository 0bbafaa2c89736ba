"""The picture that a model has read, on which the view draws weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboard.components.attention_view.payload import encode

if TYPE_CHECKING:
    from core.pretrained import Array, Line

LIMIT = 384  # pixels across and down that are sent


@dataclass(frozen=True, eq=False)
class Patches:
    """A picture (H, W) or (H, W, 3), uint8 or float 0 to 1, in patches row by row, from token ``first`` on."""

    picture: np.ndarray
    rows: int
    columns: int
    first: int = 0

    @classmethod
    def of(cls, picture: Array | None, line: Line) -> Patches | None:
        """The picture cut into the patches that the line's last tokens stand for; None where there are none."""
        if line.grid is None or picture is None:
            return None
        rows, columns = line.grid
        return cls(picture.numpy(), rows, columns, len(line) - rows * columns)

    def payload(self) -> dict[str, Any]:
        """The picture's colours for the browser, thinned where it is large."""
        pixels = self.picture
        if pixels.dtype != np.uint8:
            pixels = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., None], 3, axis=-1)
        thin = -(-max(pixels.shape[:2]) // LIMIT)
        pixels = pixels[::thin, ::thin]
        return {
            "wide": int(pixels.shape[1]),
            "high": int(pixels.shape[0]),
            "rows": self.rows,
            "cols": self.columns,
            "first": self.first,
            "bytes": encode(pixels),
        }
