"""All mechanisms: look up any choice of the six axes, see what it does to one sentence, and read all of its entry."""

import inspect
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import dashboard.page as lab
from core.attention import (
    AXES,
    AttentionConfig,
    Choice,
    Entry,
    Param,
    entry,
    example,
    example_config,
    needs,
    refusals,
)
from core.attention.cost import parameters
from core.entries import Value, complete
from core.interpret import trace as analysis
from core.seeding import seeded_layer
from core.studies.compare import (
    BASELINE,
    MIN_CHANGE,
    SEED,
    TOKENS,
    MapResult,
    beside_baseline,
    most_changed,
)

# The page's controls: an axis, a choice on it with its parameters, and the configs with and without it.


NAMES = {
    "projection": "Projections",
    "score": "Scores",
    "position": "Positions",
    "mask": "Masks",
    "normalizer": "Normalizers",
    "kernel": "Kernels",
}


key = "mechanisms:{}".format  # a widget's key, which is also its name in the link


def first_choice(axis: str) -> str:
    # where the default choice would change nothing
    other = {"projection": "grouped_query", "position": "alibi"}.get(axis)
    keys = [item.key for item in AXES[axis]]
    return other or next((k for k in keys if k not in ("none", "softmax", "exact")), keys[0])


def _choice(axis: str) -> lab.Select[str]:
    return lab.Select(
        "Choice",
        {item.key: f"{item.name} · {item.year}" for item in AXES[axis]},
        first_choice(axis),
        help="Replaces this part of scaled dot-product attention; all other parts stay.",
    )


class Controls(lab.Fields, page="mechanisms"):
    axis = lab.Segmented(
        "Axis", NAMES, "position", help="An axis is one part of the formula, such as its mask."
    )
    projection, score, position, mask, normalizer, kernel = map(_choice, AXES)


def config_of(axis: str, name: str, params: dict[str, Value]) -> AttentionConfig:
    """The baseline with a choice and what it needs beside it; ConfigError where its parameters are refused."""
    return BASELINE.with_(
        **{other: example(other, choice) for other, choice in needs(axis, name).items()},
        **{axis: example(axis, name, **params)},
    )


# What the page computes as Python.


def script(
    item: Entry, config: AttentionConfig, before: np.ndarray, after: np.ndarray
) -> lab.Script:
    made = lab.source_of(config)
    return lab.Script(
        (
            lab.Cell(
                "The same sentence through two layers with the same seed: the head in which a weight changes most.",
                f"""
{lab.attention_import(made)}
from core.studies.compare import TOKENS, beside_baseline

head, *maps = beside_baseline({made})  # scaled dot-product attention, and this
before, after = (each.weights for each in maps)  # (T, T)
print("head", head, "largest change of a weight", abs(after - before).max())
""",
                f"""
from dashboard.show import show_maps

show_maps({{"Scaled dot product": before, {item.name!r}: after, "Difference": after - before}}, TOKENS, TOKENS)
""",
                "mechanisms:both",
            ),
        ),
        {"before": before, "after": after, "after - before": after - before},
    )


# The page: an axis, the two maps of a choice, its entry in full, what it goes with, and the axis as a table.


MIN_NUMBER = 5e-3  # a smaller change of a number is not written
SYMBOLS = (
    " T counts queries, S keys, D the numbers of a head, w the keys of a band, b those of a block."
)


def page() -> None:
    count = sum(len(entries) for entries in AXES.values())
    lab.title(
        "All mechanisms",
        f"Attention is one formula with six axes. Pick one of {count} choices to see its effect.",
    )
    lab.take_built("mechanisms", adopt)
    for sentence in Controls.refused():
        st.warning(sentence)
    axis = Controls.draw("axis", into=lab.HERE).axis
    explore(axis)
    st.markdown(f"## All {len(AXES[axis])} {NAMES[axis].lower()}")
    entries = sorted(AXES[axis], key=lambda item: item.year)
    st.dataframe(
        pd.DataFrame(
            {
                "choice": [item.name for item in entries],
                "rule": [
                    lab.rule(axis, complete(example(axis, item.key), AXES[axis], axis))
                    for item in entries
                ],
                "paper": [item.url or None for item in entries],
                "year": [item.year for item in entries],
                "parameters": [
                    parameters(example_config(axis, item.key))[axis] for item in entries
                ],
                "conflicts": [len(lab.cached(refusals, axis, item.key)) for item in entries],
            }
        ),
        hide_index=True,
        column_config={
            "paper": st.column_config.LinkColumn(
                display_text=r"https?://(?:arxiv\.org/abs/|www\.)?([^/]+)",
                help="Its number at arXiv, or the site that published it",
            ),
            "year": st.column_config.NumberColumn(format="%d", width="small"),
            "parameters": st.column_config.NumberColumn(
                format="%,d", help="Learned numbers, at d_model 64 with 4 heads"
            ),
            "conflicts": st.column_config.NumberColumn(
                help="Choices of the other axes that it cannot be combined with"
            ),
        },
        alt=f"All {len(entries)} choices of {NAMES[axis]}",
    )


def adopt(built: lab.Built) -> None:
    """Show the first choice that was built elsewhere; of none, what the page opens with."""
    plain_ones = {axis: choice for axis, choice in built.items() if not choice.parts}
    axis = next(iter(plain_ones), "position")
    choice = plain_ones.get(axis) or Choice(first_choice(axis))
    st.session_state.update({key("axis"): axis, **lab.choice_state(key(axis), choice)})


@lab.fragment
def explore(axis: str) -> None:
    grid = st.grid(min_column_width=210, gap="small")
    with grid:
        item = entry(axis, Controls.draw(axis, into=lab.HERE)[axis])
    with st.container() if item.key == "formula" else grid:  # a formula may be long
        params = lab.params_of(item, key=key(axis))
    config, conditions = None, ""
    with lab.shown_errors(ValueError):
        config = config_of(axis, item.key, params)
        lab.watch_built("mechanisms", {name: getattr(config, name) for name in AXES})
        conditions = maps(axis, item, config, *lab.cached(beside_baseline, config))
    st.latex(item.latex, width="content")
    paper = f" [{item.paper} {item.year}]({item.url})." if item.url else ""
    lab.paragraph(f"{item.meaning}{SYMBOLS * item.latex.startswith('O(')}{paper}")
    if conditions:
        lab.caption(conditions)
    if item.params:
        draw_rows(
            ("parameter", "meaning", "default", "range"),
            ((p.name, p.meaning, str(p.default), bounds(p)) for p in item.params),
        )
    lab.details("What it can be combined with", partial(compatible_panel, axis, item), key("fits"))
    if config is not None:
        lab.details("The code that just ran", partial(source, axis, item, config), key("code"))


def maps(
    axis: str,
    item: Entry,
    config: AttentionConfig,
    head: int,
    baseline: MapResult,
    result: MapResult,
) -> str:
    """Draw the maps and their sentence; returns the conditions under which they hold."""
    before, after = baseline.weights, result.weights
    lab.add_script(partial(script, item, config, before, after))
    query, column = most_changed(before, after)
    # The second line over the map: source, what the choice needs beside it, and whether its
    # weights are implied
    others = " and ".join(f"{other} = {name}" for other, name in needs(axis, item.key).items())
    parts = (
        item.paper and f"{item.paper} {item.year}",
        others and f"with {others}",
        result.implied and "implied weights",
    )
    tiles = [
        lab.Tile("Dot product", "softmax · baseline", before),
        lab.Tile(
            item.name,
            " · ".join(part for part in parts if part) or axis,
            after,
            result.mask,
        ),
    ]
    options: dict[str, Any] = {
        "query": query,
        "column": column,
        "link": key("maps"),
        "height": 216,  # both maps and their difference stand in one row
    }
    left, right = st.columns([5, 2], gap="small")
    with left:
        linked = lab.read_linked("mechanisms", key("pin"), after.shape)
        pin = lab.multiples(tiles, TOKENS, key=key("both"), pin=linked, **options)
        lab.write_linked("mechanisms", key("pin"), pin)
    with right:
        lab.difference_map(tiles[1], tiles[0], TOKENS, key=key("difference"), **options)
    lab.fact(entry_sentence(item, before, after, *(pin or (query, column))))
    implied = " This kernel computes no weights: the map shows the weights that would give the same output."
    return (
        f"Head {head} of {BASELINE.num_heads}"
        + ", in which a weight changes most" * bool(np.abs(before - after).max() > MIN_CHANGE)
        + f"; d_model {BASELINE.d_model}. The layer is not "
        f"trained. Its parameters are random (seed {SEED}), and both maps share those that both have. So the "
        f"numbers are computed, but which key a query prefers has no meaning.{implied * result.implied}"
    )


def compatible_panel(axis: str, item: Entry) -> None:
    """Draw the choices that this one cannot go with, each with the reason; every pair is tried."""
    conflicts = lab.cached(refusals, axis, item.key)
    total = sum(len(entries) for other, entries in AXES.items() if other != axis)
    if not conflicts:
        st.markdown(
            f"{lab.plain(item.name)} can be combined with all {total} choices of the other five axes."
        )
        return
    st.markdown(
        f"{lab.plain(item.name)} can be combined with {total - len(conflicts)} of the {total} choices of the other "
        f"axes, and not with these {len(conflicts)}:"
    )
    rows = (
        (NAMES[other], entry(other, choice).name, reason) for other, choice, reason in conflicts
    )
    draw_rows(("axis", "choice", "reason"), rows)


def draw_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table whose cells have as many lines as they need, as Markdown."""
    st.markdown(
        "\n".join(
            f"| {' | '.join(line)} |"
            for line in [head, ["---"] * len(head), *(map(lab.plain, row) for row in rows)]
        )
    )


def source(axis: str, item: Entry, config: AttentionConfig) -> None:
    piece = getattr(seeded_layer(config, SEED), axis)
    if piece is None:
        st.markdown("No code runs for this choice: no key is hidden.")
        return
    built: Any = piece if inspect.isfunction(piece) else type(piece)
    if axis == "mask" and built.__name__ == "Rule":
        built = piece.allows if inspect.isfunction(piece.allows) else item.build
    st.code(inspect.getsource(built), language="python")


# Sentences and cells of the page All mechanisms.


def entry_sentence(
    item: Entry, before: np.ndarray, after: np.ndarray, query: int, column: int
) -> str:
    was, now = float(before[query, column]), float(after[query, column])
    if np.abs(before - after).max() <= MIN_CHANGE:
        name = lab.plain(item.name)
        if item.key == "fused":
            name = "Fused (FlashAttention) is faster and needs less memory, and"
        return (
            f"{name} changes no weight here: :primary[{lab.plain(TOKENS[query])}] gives "
            f"“{lab.plain(TOKENS[column])}” **{lab.number(now)}** with it and without it."
        )
    total = float(after[query].sum())
    row_sum = (
        ""
        if abs(total - 1) < MIN_NUMBER
        else f" The weights of this query sum to **{lab.number(total)}**."
    )
    entropy = ""
    old, new = (float(analysis.entropy(np.clip(m, 0, None)[None]).mean()) for m in (before, after))
    if (after >= 0).all() and abs(old - new) >= MIN_NUMBER:
        entropy = f" The mean entropy of a query changes from {lab.number(old)} to {lab.number(new)} nats."
    return (
        f"With {lab.plain(item.name)}, :primary[{lab.plain(TOKENS[query])}] gives **{lab.number(now)}** to "
        f"“{lab.plain(TOKENS[column])}” instead of {lab.number(was)}.{row_sum}{entropy}"
    )


def bounds(param: Param) -> str:
    if param.choices:
        return ", ".join(map(param.label, param.choices))
    if isinstance(param.default, bool):
        return "on or off"
    if isinstance(param.default, str):
        return "a text"
    return f"{param.low:g} to {param.high:g}"
