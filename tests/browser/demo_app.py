"""The components alone, for the browser tests and for looking at them: ?demo=view, multiples or sketch, &case=…."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.interpret.trace import AttentionMap, AttentionTrace, Kind
from dashboard.draw.attention_view import (
    Frames,
    Patches,
    Tile,
    attention_view,
    difference_map,
    multiples,
)
from dashboard.draw.page_views import sketch
from tests.browser.view_data import WORDS, trace, weights

query: Any = st.query_params
size = int(query.get("size", "16"))
tokens = WORDS if size == 16 else [f"tok{k}" for k in range(size)]


def of_map(
    kind: Kind,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str] = (),
    mask: np.ndarray | None = None,
) -> AttentionTrace:
    """A trace of one map; without columns their names are those of the rows."""
    return AttentionTrace(
        (AttentionMap(kind, 0, values, tuple(rows), tuple(columns or rows), mask),), "the demo"
    )


def draw_view(case: str) -> None:
    if case == "pretrained":
        shown = trace(6, 12, tokens)
        roles = {(0, 2): 0, (1, 8): 1, (3, 1): 2, (4, 4): 2, (0, 0): 3}
        left, right = st.columns(2)
        with left:
            picked = attention_view(
                shown, key="grid", layout="grid", layer=3, head=1, roles=roles, link="demo"
            )
        picked = attention_view(
            shown,
            key="one",
            layer=3,
            head=1,
            link="demo",
            fact="it puts most on animal",
        )
        st.session_state.runs = st.session_state.get("runs", 0) + 1
        right.write(f"runs {st.session_state.runs}")
        right.write(f"picked L{picked.layer} H{picked.head} pin {picked.pin}")
    elif case == "grid":
        layer = trace(1, 12, tokens).maps[0]  # twelve alike: their numbers are made once
        attention_view(
            AttentionTrace(tuple(replace(layer, layer=k) for k in range(12)), "the demo"),
            key="grid",
            layout="grid",
        )
    elif case == "masked":
        allowed = np.tri(6, dtype=bool)
        allowed[2] = False
        values = weights(1, 1, 6, causal=True)[0] * allowed
        names = ("the", "animal", "was", "too", "tired", ".")
        attention_view(
            of_map("causal", values, names, mask=allowed),
            key="masked",
            show="matrix",
            caption="A causal mask, and one row that sees nothing.",
        )
    elif case == "pins":
        shown = trace(1, 2, tokens)
        picked = attention_view(
            shown, key="pins", pins=[(1, 2)], threshold=float(query.get("threshold", "0"))
        )
        st.write(f"pins {list(picked.pins)}")
    elif case == "long":
        values = np.zeros((1, 1, size, size), np.float32)
        values[:, :, np.arange(size), np.arange(size) // 2] = 1.0
        long = of_map("causal", values[0], tokens, mask=np.tri(size, dtype=bool))
        picked = attention_view(long, key="long", show="matrix")
        st.write(f"pin {picked.pin}")
    elif case == "picture":
        ramp = np.linspace(0, 1, 28)[:, None] * np.ones((1, 28))
        shown = trace(1, 2, ["[CLS]", *(f"{i},{j}" for i in range(4) for j in range(4))])
        attention_view(shown, key="picture", patches=Patches(ramp, 4, 4, first=1))
    elif case == "signed":
        scores = np.random.default_rng(1).normal(size=(1, 7, 7)).astype(np.float32) * 3
        attention_view(of_map("self", scores, "abcdefg"), key="signed", signed=True)
    elif case == "twins":
        for name, column in zip(("left", "right"), st.columns(2), strict=True):
            with column:
                attention_view(
                    trace(1, 2, tokens), key=name, head=int(name == "right"), show="matrix"
                )
    elif case == "tabs":
        with st.tabs(["first", "second"])[1]:
            attention_view(trace(1, 2, tokens), key="tabs", show="matrix")
    elif case == "html":
        markup = ("<img src=x onerror=alert(1)>", "<b>bold</b>", "  ")
        attention_view(of_map("self", weights(1, 1, 3)[0], markup), key="html")
    else:
        rng = np.random.default_rng(0)
        steps = list(range(0, 381, 20))
        target = np.eye(12, dtype=np.float32)[::-1] * 8
        stack = []
        for step in steps:
            scores = rng.normal(size=(12, 12)).astype(np.float32) + target * min(1.0, step / 300)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            stack.append((step, scores / scores.sum(-1, keepdims=True)))
        outputs = [f"{k + 1} {c}" for k, c in enumerate("nowzphbtoqjt")]
        with st.columns([1, 1.2, 1])[1]:
            picked = attention_view(
                of_map("cross", stack[-1][1][None], outputs, "tjqotbhpzwon"),
                key="frames",
                layout="frames",
                frames=stack,
                frame=300,
                live=True,
                title="Held-out example, head 0",
                reads="output letter (row) takes from → input letter (column)",
            )
        st.write(f"frame {picked.frame}")


def draw_multiples(case: str) -> None:
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
        Tile(
            "A mechanism with a rather long name", "and a long second line · Somebody 2025", maps[5]
        ),
    ][: int(query.get("count", "4"))]
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


def draw_sketch(case: str) -> None:
    """What it sends is written below it."""

    def take(ys: list[float] | None) -> None:
        st.session_state["taken"] = ys

    sketch((4, 8, 16, 32), 0.0, 1.0, key="sketch", x_title="d_k", take=take, log_x=True, share=True)
    st.markdown(f"taken: {st.session_state.get('taken', 'nothing yet')}")


DEMOS = {"view": draw_view, "multiples": draw_multiples, "sketch": draw_sketch}
if query["demo"] == "view":
    st.set_page_config(layout="wide")
elif query["demo"] == "multiples":
    st.set_page_config(layout="wide", initial_sidebar_state=248)
for name in query.get("case", "").split(","):
    DEMOS[query["demo"]](name)
