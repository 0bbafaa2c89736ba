"""Positions: how order enters. An encoding adds to x, rotates q and k, or adds a bias to the scores."""

from core.entries import Entry
from core.positions.absolute import LEARNED, NONE, SINUSOIDAL
from core.positions.base import Position
from core.positions.bias import ALIBI
from core.positions.rotary import ROPE

POSITIONS: tuple[Entry, ...] = (NONE, SINUSOIDAL, LEARNED, ROPE, ALIBI)

__all__ = ["POSITIONS", "Position"]
