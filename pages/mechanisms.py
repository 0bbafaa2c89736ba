"""All mechanisms: look up any choice of the six axes, see what it does to one sentence, and read all of its entry."""

import inspect
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from torch import Tensor

import dashboard.page as lab
from core.attention import (
    AXES,
    AttentionConfig,
    Choice,
    Entry,
    check,
    entry,
    example,
    example_config,
    first_difference,
    refusals,
)
from core.attention.cost import parameters
from core.entries import complete
from core.seeding import seeded_layer
from core.studies import mechanisms as study
from dashboard.draw import mechanisms as draw

NAMES = {axis: f"{axis.capitalize()}s" for axis in AXES}
SIZES = study.BASELINE.d_model, study.BASELINE.num_heads  # of the maps and of the table
READS = "rows are queries, columns keys"
SYMBOLS = (
    "T counts queries, S keys, D the numbers of a head, w the keys of a band, b those of a block."
)


def first_choice(axis: str) -> str:
    # where the default choice would change nothing
    other = {"projection": "grouped_query", "position": "alibi"}.get(axis)
    keys = [item.key for item in AXES[axis]]
    return other or next((k for k in keys if k not in ("none", "softmax", "exact")), keys[0])


def _choice(axis: str) -> lab.ChoiceField:
    return lab.ChoiceField(
        "Choice",
        {item.key: f"{item.name} · {item.year}" for item in AXES[axis]},
        first_choice(axis),
        axis=axis,
        refused=True,
        params=lambda c, item, param: "below" if lab.is_text(param) else "",  # it may be long
        text_columns=6,
        help="Replaces this part of scaled dot-product attention; all other parts stay.",
    )


class Controls(lab.Fields, page="mechanisms"):
    axis = lab.Segmented(
        "Axis",
        NAMES,
        "position",
        hidden=True,
        help="An axis is one part of the formula, such as its mask.",
        also={"label_visibility": "collapsed"},
    )
    projection, score, position, mask, normalizer, kernel = map(_choice, AXES)
    pin = lab.CellField()
    beside = lab.Select[str](
        "Compare step by step with",
        lambda c: {
            item.key: item.name for item in AXES[Controls.read("axis").axis] if not item.source
        },
        lambda c: getattr(study.BASELINE, Controls.read("axis").axis).key,
        help="Both compute the same numbers, step by step: the first step in which yours and this one differ is shown.",
    )
    step = lab.CellField()


def page() -> None:
    count = sum(len(entries) for entries in AXES.values())
    lab.title(
        "All mechanisms",
        f"Pick one of {count} choices for a part of attention: the maps show what it changes.",
    )
    lab.take_built("mechanisms", adopt)
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
                    parameters(example_config(axis, item.key, *SIZES))[axis] for item in entries
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
                format="%,d", help="Learned numbers, at d_model {} with {} heads".format(*SIZES)
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
    Controls.set(**{"axis": axis, axis: plain_ones.get(axis) or Choice(first_choice(axis))})


@lab.fragment
def explore(axis: str) -> None:
    grid, below = st.grid(min_column_width=210, gap="small"), st.container()
    choice: Choice = Controls.draw(axis, into=grid, below=below)[axis]
    item = entry(axis, choice.key)
    if item.key == "drawn":
        values = {param: str(choice.kwargs[param.key]) for param in item.params}
        below.page_link(
            lab.step_of("masks").page(),
            label="Draw it on Masks",
            icon=":material/draw:",
            query_params={"masks:first": item.name}
            | {
                f"masks:first:drawn:{param.key}": param.label(value) if param.choices else value
                for param, value in values.items()
            },
        )
    does, _, more = item.meaning.partition(". ")
    lab.paragraph(f"{does.removesuffix('.')}.")
    config = effect = None
    with lab.shown_errors(ValueError):
        config = example_config(axis, item.key, *SIZES, **choice.kwargs)
        lab.watch_built("mechanisms", {name: getattr(config, name) for name in AXES})
        effect = lab.cached(study.beside_baseline, config)
        lab.as_python(effect=effect)
        maps(axis, item, effect)
    if effect is not None:
        lab.caption(draw.conditions(effect))
    if item.source and config is not None:
        debugger(axis, config)
    with lab.settings_panel("Equation and parameters"):
        paper = f" [{item.paper} {item.year}]({item.url})." if item.url else ""
        lab.paragraph(f"{more}{paper}")
        st.latex(item.latex, width="content")
        if item.latex.startswith("O("):
            lab.caption(SYMBOLS)
        if item.params:
            rows = ((p.name, p.meaning, str(p.default), draw.bounds(p)) for p in item.params)
            st.markdown(draw.rows_text(("parameter", "meaning", "default", "range"), rows))
    lab.details(
        "What it can be combined with", partial(compatible_panel, axis, item), "mechanisms:fits"
    )
    if config is not None:
        lab.details(
            "The code that just ran", partial(source, axis, item, config), "mechanisms:code"
        )


def maps(axis: str, item: Entry, effect: study.Effect) -> None:
    """Draw the two maps, their difference and their sentence."""
    query, column = effect.telling_cell
    tiles = [
        lab.Tile("Dot product", "softmax · baseline", effect.baseline.weights),
        lab.Tile(
            item.name,
            draw.tile_note(axis, item, effect),
            effect.result.weights,
            effect.result.mask,
        ),
    ]
    options: dict[str, Any] = {
        "query": query,
        "column": column,
        "link": "mechanisms:maps",
        "height": 216,  # both maps and their difference stand in one row
    }
    answer = st.container()
    left, right = st.columns([5, 2], gap="small")
    with left:
        pin = lab.linked_maps(Controls.pin, "both", tiles, effect.names, **options)
    with right:
        lab.difference_map(tiles[1], tiles[0], effect.names, key="mechanisms:difference", **options)
    with answer:
        lab.fact(draw.fact_text(item, effect, *(pin or (query, column))))


def debugger(axis: str, config: AttentionConfig) -> None:
    """Draw what `check` says of a plug-in, and where it parts first from a choice of the lab."""
    alarms = lab.cached(check, config).alarms
    st.markdown("## Is it right?")
    if not alarms:
        lab.paragraph(
            "`check` finds no fault in it, by masks, scale, positions, gradients and number types."
        )
    for index, alarm in enumerate(alarms):
        contrast(f"check:{index}", alarm.text, alarm.got, alarm.expected, "Right")
    beside = Controls.draw("beside", into=lab.HERE).beside
    with lab.shown_errors(ValueError):
        other, name = example_config(axis, beside, *SIZES), entry(axis, beside).name
        apart = lab.cached(first_difference, config, other)
        contrast("step", apart.sentence(name), apart.mine, apart.ours, name)


def contrast(name: str, text: str, mine: Tensor | None, other: Tensor | None, beside: str) -> None:
    """Draw a sentence, and the two maps (T, N) of which it is."""
    lab.paragraph(text)
    if mine is None or other is None:
        return
    tiles = draw.contrast_tiles(mine.numpy(), other.numpy(), beside)
    lines = (list(map(str, range(size))) for size in mine.shape)
    lab.linked_maps(
        Controls.step, name, tiles, *lines, of=name, noun="number", reads=READS, height=216
    )


def compatible_panel(axis: str, item: Entry) -> None:
    """Draw the choices that this one cannot go with, each with the reason; every pair is tried."""
    conflicts = lab.cached(refusals, axis, item.key)
    total = sum(len(entries) for other, entries in AXES.items() if other != axis)
    st.markdown(draw.compatible_text(item, total, len(conflicts)))
    if conflicts:
        rows = ((NAMES[other], entry(other, key).name, reason) for other, key, reason in conflicts)
        st.markdown(draw.rows_text(("axis", "choice", "reason"), rows))


def source(axis: str, item: Entry, config: AttentionConfig) -> None:
    piece = getattr(seeded_layer(config, study.SEED), axis)
    if piece is None:
        st.markdown("No code runs for this choice: no key is hidden.")
        return
    built: Any = piece if inspect.isfunction(piece) else type(piece)
    if axis == "mask" and built.__name__ == "Rule":
        built = piece.allows if inspect.isfunction(piece.allows) else item.build
    st.code(inspect.getsource(built), language="python")
