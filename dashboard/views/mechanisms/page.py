"""The page's parts: the two maps, the sentence, the entry in full, what it goes with, and the axis as a table."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import streamlit as st
import torch

from core import analysis
from core.attention import AXES, Attention, AttentionConfig, ConfigError, Entry, Steps, entry
from core.attention.compatible import example, needs, refusals
from core.entries import complete
from dashboard.charts.rules import rule
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.seeding import seeded_layer
from dashboard.runtime.tokens import embed, labels, tokenize
from dashboard.views.mechanisms.controls import D_MODEL, HEADS, NAMES, Looked, look_up, pick_axis, settings, unknown
from dashboard.widgets.panels import fact, next_page, plain, title

SENTENCE = "The animal didn't cross the street because it was too tired ."
SEED, PADDED = 126, 3
MAP = 216  # pixels, so that both maps and their difference stand in one row
SAME, SEEN = 5e-4, 5e-3  # below the first no weight is drawn differently, below the second no number is


def page() -> None:
    """Draw the page from top to bottom."""
    count = sum(len(entries) for entries in AXES.values())
    title("All mechanisms", f"One formula, six axes, {count} choices. Pick one: all else stays as it was.")
    for sentence in unknown():
        st.warning(sentence)
    axis = pick_axis()
    explore(axis)
    st.markdown(f"## All {len(AXES[axis])} {NAMES[axis].lower()}")
    axis_table(axis)
    next_page("mechanisms")


@dataclass(frozen=True)
class Weighed:
    """One head's weights (T, S) under the usual attention and under a choice, whose mask and kind they are."""

    head: int
    before: np.ndarray
    after: np.ndarray
    mask: np.ndarray | None
    implied: bool


def tokens() -> tuple[str, ...]:
    return labels(tokenize(SENTENCE).tokens)


def steps_of(config: AttentionConfig) -> Steps:
    """The sentence through the seeded layer; under a mask of padding its last two tokens are padding."""
    names = tokens()
    real = torch.arange(len(names)) < len(names) - (PADDED if "padding" in str(config.mask) else 0)
    with torch.inference_mode():
        return seeded_layer(config, SEED)(embed(names, D_MODEL, SEED), key_mask=real[None])


def most_changed_head(usual: Steps, changed: Steps) -> int:
    """The head in which some weight differs most."""
    gap = (usual.weights - changed.weights).abs().amax((0, 2, 3))
    return int(gap.argmax())


def head_of(steps: Steps, head: int) -> tuple[np.ndarray, np.ndarray | None]:
    """One head's weights (T, S), and its mask."""
    weights = steps.weights[0, head].float().numpy()
    if steps.mask is None:
        return weights, None
    mask = steps.mask[0] if steps.mask.dim() == 4 else steps.mask
    mask = mask[head % len(mask)] if mask.dim() == 3 else mask
    return weights, np.broadcast_to(mask.numpy(), weights.shape)


def weighed(usual: AttentionConfig, config: AttentionConfig) -> Weighed:
    """Both through the same sentence, in the head that changes most."""
    first, changed = steps_of(usual), steps_of(config)
    head = most_changed_head(first, changed)
    return Weighed(head, head_of(first, head)[0], *head_of(changed, head), changed.implied)


@st.fragment
def explore(axis: str) -> None:
    """A choice of the axis with its picture and its entry, which its controls redraw alone."""
    looked, _ = render_before_widgets(f"mechanisms:ready:{axis}", partial(settings, axis), partial(look_up, axis),
                                      picture)
    entry_panel(looked)
    for name, label, panel in (("fits", "What it goes with, and what not", compatible_panel),
                               ("code", "The code that just ran", source)):
        asked = st.expander(label, on_change="rerun", key=f"mechanisms:{name}")
        if asked.open:
            with asked:
                panel(looked)


def picture(looked: Looked) -> None:
    """The usual attention and this choice side by side, and their difference."""
    if looked.config is None:
        st.error(looked.problem)
        return
    try:
        found = cached(weighed, looked.usual, looked.config)
    except (ConfigError, ValueError) as error:
        st.error(str(error))
        return
    head, before, after, mask = found.head, found.before, found.after, found.mask
    others = " and ".join(f"{axis} = {key}" for axis, key in looked.beside.items())
    note = f"{looked.item.paper} {looked.item.year}".strip() + (f" · with {others}" if others else "")
    if found.implied:
        note += " · implied"
    names = tokens()
    query, column = most_changed(before, after)
    tiles = [Tile("Scaled dot product", "softmax · the usual attention", before),
             Tile(looked.item.name, note, after, mask)]
    shown = {"query": query, "column": column, "link": "mechanisms:maps"}
    left, right = st.columns([5, 2], gap="small")
    with left:
        multiples(tiles, names, key="mechanisms:both", height=MAP, **shown)
    with right:
        difference_map(tiles[1], tiles[0], names, key="mechanisms:difference", height=MAP, **shown)
    fact(sentence(looked.item, before, after, query, column))
    implied = " This kernel never makes a weight: the map is the one that its output amounts to." * found.implied
    st.caption(f"Head {head} of {HEADS}, the one that changes most; d_model {D_MODEL}. Weights are random "
               f"(seed {SEED}) and shared where both have them, so the arithmetic is real and the preference means "
               "nothing yet."
               f"{implied}")


def most_changed(before: np.ndarray, after: np.ndarray) -> tuple[int, int]:
    """The cell whose weight differs most; where none does, the largest weight."""
    gap = np.abs(after - before)
    row, column = np.unravel_index((gap if gap.max() > SAME else after).argmax(), gap.shape)
    return int(row), int(column)


def sentence(item: Entry, before: np.ndarray, after: np.ndarray, query: int, top: int) -> str:
    """What the choice does to the weight that it changes most, and to the spread of all weights; measured."""
    names = tokens()
    was, now = float(before[query, top]), float(after[query, top])
    if np.abs(before - after).max() <= SAME:
        return (f"{plain(item.name)} changes no weight here: :primary[{plain(names[query])}] gives {plain(names[top])} "
                f"**{now:.2f}** either way.")
    total = float(after[query].sum())
    kept = "" if abs(total - 1) < SEEN else f" Its row sums to **{total:.2f}**."
    spread = ""
    old, new = (float(analysis.entropy(np.clip(m, 0, None)[None]).mean()) for m in (before, after))
    if (after >= 0).all() and abs(old - new) >= SEEN:
        spread = f" The entropy of a row goes from {old:.2f} to {new:.2f} nats."
    return (f"With {plain(item.name)}, :primary[{plain(names[query])}] gives **{now:.2f}** to {plain(names[top])} "
            f"instead of {was:.2f}.{kept}{spread}").replace("-", "−")


def entry_panel(looked: Looked) -> None:
    """Equation, meaning and paper, and each parameter with its bounds."""
    item = looked.item
    st.latex(item.latex)
    paper = f" [{item.paper} {item.year}]({item.url})." if item.url else ""
    st.markdown(f"{item.meaning}{paper}")
    if item.params:
        rows = ["| parameter | meaning | default | may be |", "| --- | --- | --- | --- |"]
        rows += [f"| {plain(p.name)} | {plain(p.meaning)} | {plain(str(p.default))} | {plain(bounds(p))} |"
                 for p in item.params]
        st.markdown("\n".join(rows))


def bounds(param) -> str:
    if param.choices:
        return ", ".join(map(param.label, param.choices))
    if isinstance(param.default, bool):
        return "on or off"
    if isinstance(param.default, str):
        return "typed freely, checked as it is read"
    return f"{param.low:g} to {param.high:g}"


def compatible_panel(looked: Looked) -> None:
    """What it cannot go with, each with its reason; found by asking every pair."""
    found = cached(refusals, looked.axis, looked.item.key)
    total = sum(len(entries) for axis, entries in AXES.items() if axis != looked.axis)
    if not found:
        st.markdown(f"{plain(looked.item.name)} goes with all {total} choices of the other five axes.")
        return
    st.markdown(f"{plain(looked.item.name)} goes with {total - len(found)} of the {total} choices of the other axes, "
                f"and not with these {len(found)}:")
    rows = ["| axis | choice | why |", "| --- | --- | --- |"]
    rows += [f"| {NAMES[r.axis]} | {plain(entry(r.axis, r.key).name)} | {plain(r.reason)} |" for r in found]
    st.markdown("\n".join(rows))


def source(looked: Looked) -> None:
    """The class or function that the entry just built."""
    if looked.config is None:
        return
    layer = seeded_layer(looked.config, SEED)
    piece = getattr(layer, looked.axis)
    if piece is None:
        st.markdown("Nothing is built for this choice: no cell is hidden.")
        return
    built = piece if inspect.isfunction(piece) else type(piece)
    if looked.axis == "mask" and built.__name__ == "Rule":
        built = piece.allows if inspect.isfunction(piece.allows) else looked.item.build
    st.code(inspect.getsource(built), language="python")


@cache
def weights_of(axis: str, key: str) -> int:
    """How many numbers are learned by this choice, counted from the built piece at the page's sizes."""
    beside = {other: example(other, name) for other, name in needs(axis, key).items()}
    layer = Attention(AttentionConfig(64, 4, **beside, **{axis: example(axis, key)}))
    piece = getattr(layer, axis)
    return sum(weight.numel() for weight in piece.parameters()) if isinstance(piece, torch.nn.Module) else 0


def axis_table(axis: str) -> None:
    """All choices of the axis in one table, by year."""
    import pandas as pd

    entries = sorted(AXES[axis], key=lambda item: item.year)
    st.dataframe(pd.DataFrame({
        "choice": [item.name for item in entries],
        "rule": [rule(axis, complete(example(axis, item.key), AXES[axis], axis)) for item in entries],
        "paper": [item.url or None for item in entries],
        "year": [item.year for item in entries],
        "parameters": [weights_of(axis, item.key) for item in entries],
        "conflicts": [len(cached(refusals, axis, item.key)) for item in entries],
    }), hide_index=True, column_config={
        "paper": st.column_config.LinkColumn(display_text=r"https?://(.*)", width="small"),
        "year": st.column_config.NumberColumn(format="%d", width="small"),
        "parameters": st.column_config.NumberColumn(help="learned numbers at d_model 64, 4 heads"),
        "conflicts": st.column_config.NumberColumn(help="choices of the other axes that it cannot go with"),
    }, alt=f"All {len(entries)} choices of {NAMES[axis]}")
