"""The picture of one query in six stages; presses are returned as `pick`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dashboard.components.attention_view.payload import READS
from dashboard.components.lib import draw
from dashboard.components.step_view.payload import StageTexts, payload, top_of
from dashboard.components.step_view.projection import projection_payload
from dashboard.components.step_view.reading import Reading, read
from dashboard.draw.maps import PictureMap
from dashboard.draw.pictures import MapsPicture
from dashboard.runtime.page_pictures import add


def step_view(
    picture: dict[str, Any], reading: Reading, *, key: str, on_pick: Callable[[], None]
) -> None:
    """Draw a payload of a reading; `st.session_state[key].pick` holds what was pressed: {query}, {key} or {stage}."""
    add(key, partial(picture_of, reading, [stage["title"] for stage in picture["stages"]]))
    draw("step_view", "step-view", picture, key=key, on_pick_change=on_pick)


def picture_of(reading: Reading, titles: Sequence[str]) -> MapsPicture:
    """All stages of one head as maps: queries, scores, scaled, masked, weights, output."""
    dimensions = tuple(map(str, range(reading.q.shape[1])))
    widths = tuple(map(str, range(reading.out.shape[1])))
    vectors, scores = top_of(reading.q, reading.out), top_of(reading.raw, reading.scores)
    weights = max(1.0, top_of(reading.weights))
    low = -weights if reading.signed else 0.0

    def stage(
        at: int,
        values: np.ndarray,
        columns: tuple[str, ...],
        end: float,
        noun: str,
        mask: np.ndarray | None = None,
    ) -> PictureMap:
        return PictureMap(
            titles[at],
            values,
            reading.queries,
            columns,
            "",
            mask,
            -end,
            end,
            True,
            noun,
            "dimension" if noun in ("query", "output") else "",
        )

    maps = (
        stage(0, reading.q, dimensions, vectors, "query"),
        stage(1, reading.raw, reading.keys, scores, "score"),
        stage(2, reading.scores, reading.keys, scores, "score"),
        stage(3, reading.scores, reading.keys, scores, "score", reading.allowed),
        PictureMap(
            titles[4],
            reading.weights,
            reading.queries,
            reading.keys,
            "",
            reading.allowed,
            low,
            weights,
            reading.signed,
            "weight",
        ),
        stage(5, reading.out, widths, vectors, "output"),
    )
    return MapsPicture(
        "Attention step by step",
        maps,
        reading.query,
        READS["self"],
        about={"text": " ".join(reading.queries)},
    )


__all__ = ["Reading", "StageTexts", "payload", "projection_payload", "read", "step_view"]
