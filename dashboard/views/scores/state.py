"""The page's keys and what its controls offer."""

from __future__ import annotations

import streamlit as st

from core.attention import AXES

SENTENCE = "The animal was too tired ."
SEED = 126
MOST_TOKENS = 64
SIZES = [2, 4, 8, 16, 32, 64, 128]
SIZE = 16
STRETCHES = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
SHOWS = {"weights": "Weights", "scores": "Scores", "own": "Own scales"}
NAMES = {item.key: item.name for item in AXES["score"]}
USUAL = "scaled_dot"


def key(name: str) -> str:
    """A widget's key, which is also its name in the link."""
    return f"scores:{name}"


def get(name: str, default=None):
    return st.session_state.get(key(name), default)
