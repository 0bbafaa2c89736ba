"""Masks: who may see whom. Each is a predicate on (query i, key j), True = may attend; and, or, not compose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from core.entries import Choice, ConfigError, Entry, Param, find


@dataclass(frozen=True)
class Cells:
    """The cells of a score matrix: i (T, 1) and j (1, S) as positions, and which keys are real, (B, 1, 1, S)."""

    i: Tensor
    j: Tensor
    key_mask: Tensor | None = None


Predicate = Callable[[Cells], Tensor]
COMPOSITIONS = ("and", "or", "not")  # the masks that are made of other masks


def none() -> Predicate:
    return lambda cells: torch.ones_like(cells.i + cells.j, dtype=torch.bool)


def causal() -> Predicate:
    return lambda cells: cells.j <= cells.i


def padding() -> Predicate:
    def real_keys(cells: Cells) -> Tensor:
        if cells.key_mask is None:
            raise ConfigError("mask = padding needs key_mask, (B, S) with True for real tokens; none was given.")
        return cells.key_mask

    return real_keys


def local(window: int) -> Predicate:
    return lambda cells: (cells.i - cells.j).abs() <= window


def all_of(*parts: Predicate) -> Predicate:
    def every(cells: Cells) -> Tensor:
        allowed = parts[0](cells)
        for part in parts[1:]:
            allowed = allowed & part(cells)
        return allowed

    return every


def any_of(*parts: Predicate) -> Predicate:
    def some(cells: Cells) -> Tensor:
        allowed = parts[0](cells)
        for part in parts[1:]:
            allowed = allowed | part(cells)
        return allowed

    return some


def not_of(part: Predicate) -> Predicate:
    return lambda cells: ~part(cells)


def predicate(choice: Choice) -> Predicate:
    """The predicate of a mask choice and its parts; ConfigError when a composition has too few or too many."""
    arity = dict(zip(COMPOSITIONS, ((1, None), (1, None), (1, 1)), strict=True))
    low, high = arity.get(choice.key, (0, 0))
    if len(choice.parts) < low or (high is not None and len(choice.parts) > high):
        wanted = {"and": "one or more parts", "or": "one or more parts", "not": "exactly one part"}
        raise ConfigError(f"mask = {choice.key} takes {wanted.get(choice.key, 'no parts')}; got {len(choice.parts)}.")
    parts = [predicate(part) for part in choice.parts]
    return find(MASKS, "mask", choice.key).build(*parts, **dict(choice.params))


def build_mask(
    choice: Choice, num_queries: int, num_keys: int, *,
    key_mask: Bool[Tensor, "B S"] | None = None, offset: int = 0, device: torch.device | str = "cpu",
) -> Tensor | None:
    """The mask of a choice, bool (T, S) or (B, 1, T, S), True = may attend; None where everything may be seen.

    `offset` is the position of query 0 among the keys: 0 aligns causal masks top-left, S − T bottom-right (a cache).
    """
    if choice.key == "none" and key_mask is None:
        return None
    i = torch.arange(offset, offset + num_queries, device=device)[:, None]  # (T, 1)
    j = torch.arange(num_keys, device=device)[None, :]  # (1, S)
    real = None if key_mask is None else key_mask[:, None, None, :]  # (B, 1, 1, S)
    if choice.key == "none":
        return real
    allowed = predicate(choice)(Cells(i, j, real))
    return allowed if real is None else allowed & real


_COMPOSE = "Composition of masks, cell by cell."

MASKS: tuple[Entry, ...] = (
    Entry("none", "None", none, r"\text{all } j", "Every query sees every key.", "Bahdanau et al.", 2014,
          "https://arxiv.org/abs/1409.0473", short="all keys"),
    Entry("causal", "Causal", causal, r"j \le i", "A query sees itself and what came before.", "Vaswani et al.", 2017,
          "https://arxiv.org/abs/1706.03762", short="j ≤ i"),
    Entry("padding", "Padding", padding, r"j < \text{length}", "Keys that only fill up a batch are never seen.",
          "Vaswani et al.", 2017, "https://arxiv.org/abs/1706.03762", short="j < {length}"),
    Entry("local", "Local window", local, r"|i - j| \le w", "A query sees w keys on either side.", "Luong et al.", 2015,
          "https://arxiv.org/abs/1508.04025",
          (Param("window", "Window", 2, 0, 512, 1, meaning="keys seen on either side of the query's own place"),),
          "|i − j| ≤ {window}"),
    Entry("and", "And", all_of, r"m_1 \wedge m_2", "Seen only where every part allows it. " + _COMPOSE, "", 2017),
    Entry("or", "Or", any_of, r"m_1 \vee m_2", "Seen where any part allows it. " + _COMPOSE, "", 2017),
    Entry("not", "Not", not_of, r"\neg m", "Seen where the part forbids it. " + _COMPOSE, "", 2017),
)
