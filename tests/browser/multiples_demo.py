"""A page of nothing but small multiples, for the browser tests and for looking at them."""

import sys
from pathlib import Path

import numpy as np
import streamlit as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dashboard.draw.multiples import (
    Frames,
    Tile,
    difference_map,
    multiples,  # noqa: E402
)
from tests.browser.view_data import WORDS, weights  # noqa: E402

st.set_page_config(layout="wide", initial_sidebar_state=248)
cases = st.query_params.get("case", "four").split(",")
size = int(st.query_params.get("size", "16"))
count = int(st.query_params.get("count", "4"))
tokens = WORDS if size == 16 else [f"tok{k}" for k in range(size)]
maps = weights(1, 6, size)[0]
near = np.abs(np.arange(size)[:, None] - np.arange(size)) <= 3
local = np.where(near, maps[2], 0)
local = local / local.sum(-1, keepdims=True)
tiles = [
    Tile("Dot product", "softmax · Vaswani 2017", maps[0]),
    Tile("ALiBi", "slope ¼ · Press 2021", maps[1]),
    Tile("Sliding window", "± 3 tokens · Beltagy 2020", local, near),
    Tile("Linear", "elu + 1 · Katharopoulos 2020", np.full_like(maps[0], 1 / size)),
    Tile("Differential", "λ ½ · Ye 2024", maps[3] - maps[4]),
    Tile("A mechanism with a rather long name", "and a long second line · Somebody 2025", maps[5]),
][:count]


def draw(case: str) -> None:
    if case == "html":
        names = ("<img src=x onerror=alert(1)>", "<b>bold</b>", "  ")
        multiples(
            [Tile("<i>a</i>", "<u>b</u>", np.eye(3))] * 2,
            names,
            key="html",
            query=0,
            difference=(0, 1),
        )
    elif case == "signed":
        scores = [
            np.random.default_rng(k).normal(size=(5, 7)).astype(np.float32) * (k + 1)
            for k in range(2)
        ]
        multiples(
            [Tile("Dot", "", scores[0]), Tile("General", "", scores[1])],
            list("abcde"),
            list("tuvwxyz"),
            key="signed",
            signed=True,
            noun="score",
            query=1,
        )
    elif case == "blind":
        allowed = np.tri(4, k=-1, dtype=bool)
        multiples(
            [
                Tile("Even", "", np.full((4, 4), 0.25)),
                Tile("Strictly before", "", allowed / 3, allowed),
            ],
            ["the", "animal", "was", "tired"],
            key="blind",
        )
    elif case == "apart":
        pinned = multiples(
            tiles, tokens, key="maps", query=10, column=2, link="demo", fact="ALiBi looks nearer"
        )
        left, right = st.columns([1, 2])
        with left:
            difference_map(tiles[1], tiles[0], tokens, key="apart", query=10, column=2, link="demo")
        right.write(f"pin {pinned}")
    elif case == "frames":
        steps = [
            [Tile("Now", f"step {5 * k}", maps[k]), Tile("First", "step 0", maps[0])]
            for k in range(6)
        ]
        at = st.slider("Step", 0, 25, 10, 5, key="demo:step") // 5
        multiples(
            steps[at],
            tokens,
            key="frames",
            query=10,
            column=2,
            frames=Frames("demo:step", at, steps),
        )
    else:
        st.session_state.runs = st.session_state.get("runs", 0) + 1
        pinned = multiples(
            tiles,
            tokens,
            key="maps",
            query=min(10, size - 1),
            column=2,
            difference=(1, 0),
            fact="ALiBi looks nearer than the dot product",
        )
        st.write(f"runs {st.session_state.runs}")
        st.write(f"pin {pinned}")


for name in cases:
    draw(name)
