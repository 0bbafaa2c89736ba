"""The first figure: what the answer loses without each head, and the answer with several of them off."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import streamlit as st

from core.interpret.evidence import Baseline, Effect, ablate_heads, head_sets, single_heads
from core.pretrained.answers import display_names
from core.pretrained.attention_recorder import HeadSet
from dashboard.draw.formats import number, signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.palette import Ink
from dashboard.draw.vega import PICKED, Spec
from dashboard.runtime.link_values import read_pair, write_pair
from dashboard.runtime.threads import one_thread
from dashboard.ui.presentation import draw_chart, pressed_point
from dashboard.ui.progress import measure_with_progress
from dashboard.ui.tables import table
from dashboard.views.evidence import charts, compute, text
from dashboard.views.evidence.controls import Controls, Head
from dashboard.widgets.model_picker.head_choice import choose_head, current_head
from dashboard.widgets.model_picker.head_choice import head_field as draw_head_field
from dashboard.widgets.panels import details, fact, plain, theme
from dashboard.widgets.params import BOUND

MODEL = "evidence:model"
LAYER = "all"  # the column of whole layers
Pair = tuple[Effect, Effect]
TABLE_ROWS = 6


def section(controls: Controls, baseline: Baseline) -> tuple[Head, Pair, HeadSet]:
    """Draw the section; returns the picked head, its effects with uniform weights and off, and all heads that are off."""
    todo = head_sets(controls.reading.trace)
    with one_thread(len(baseline.source) <= compute.SHORT):
        effects = measure_with_progress(
            compute.WITHOUT_HEADS,
            controls.key,
            todo,
            lambda off: ablate_heads(baseline, off),
            "heads and layers",
        )
    alone = {
        (controls.row_of(kind, layer), head): effect
        for (kind, layer, head), effect in single_heads(effects).items()
    }
    ranked = sorted(alone, key=lambda head: -abs(alone[head].change))
    picked = _picked_head(controls, ranked[0])
    pair, off = _grid_and_answer(controls, baseline, effects, ranked, picked)
    _fact(controls, baseline, effects, alone, ranked, picked)
    _ranking(controls, baseline, alone, ranked)
    return picked, pair, off


def _grid_and_answer(
    controls: Controls,
    baseline: Baseline,
    effects: Mapping[HeadSet, Effect],
    ranked: list[Head],
    picked: Head,
) -> tuple[Pair, HeadSet]:
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        _grid(controls, baseline, effects, ranked, picked)
    with right, one_thread(len(baseline.source) <= compute.SHORT):
        return _without(controls, baseline, picked, effects)


def _fact(
    controls: Controls,
    baseline: Baseline,
    effects: Mapping[HeadSet, Effect],
    alone: Mapping[Head, Effect],
    ranked: list[Head],
    picked: Head,
) -> None:
    """Draw the sentence about all heads, once each was measured."""
    if len(alone) < len(list(controls.heads())):
        return
    names = [(controls.name(head), alone[head]) for head in ranked]
    sharp = compute.sharpness(controls)
    sharpest = max(sharp, key=lambda head: sharp[head])
    fact(
        text.heads_fact(
            baseline,
            names,
            controls.name(picked),
            _largest_layer(controls, effects),
            (controls.name(sharpest), sharp[sharpest]),
            compute.rank_agreement(controls, alone),
        )
    )


def head_field(controls: Controls) -> Head:
    """Draw the field of the head; where none can be switched off there is no grid to press."""
    picked = _picked_head(controls, next(controls.heads()))
    _head_field(controls, picked)
    return picked


def _head_field(controls: Controls, picked: Head) -> None:
    def choose(head: Head) -> None:
        _choose(controls, head)
        write_pair("head", head)

    draw_head_field(
        {controls.name(head): head for head in controls.heads()},
        picked,
        choose,
        f"evidence:head:{controls.ref.name}",
    )


def _choose(controls: Controls, head: Head) -> None:
    kind, layer, index = controls.head_id(head)
    choose_head(controls.ref, kind, (layer, index))


def _picked_head(controls: Controls, default: Head) -> Head:
    """The head of the link, else the one that was picked on another page, else the default."""
    if st.session_state.setdefault(MODEL, controls.ref) != controls.ref:
        st.session_state[MODEL] = controls.ref
        write_pair("head", None)  # another model has other heads
    linked, error = read_pair(
        "head", (len(controls.maps), max(len(item.weights) for item in controls.maps))
    )
    if error:
        st.warning(error)
    if linked and linked[1] < len(controls.maps[linked[0]].weights):
        _choose(controls, linked)
        return linked
    if (stored := current_head(controls.ref)) and (head := _head_of_kind(controls, *stored)):
        write_pair("head", head)
        return head
    return default


def _head_of_kind(controls: Controls, kind: str, head: Head) -> Head | None:
    """A head of one kind of attention, by the index of its layer among all maps."""
    return next(
        (
            (row, head[1])
            for row, item in enumerate(controls.maps)
            if (item.kind, item.layer) == (kind, head[0]) and head[1] < len(item.weights)
        ),
        None,
    )


def _grid(
    controls: Controls,
    baseline: Baseline,
    effects: Mapping[HeadSet, Effect],
    ranked: list[Head],
    picked: Head,
) -> None:
    rows = [_cell(controls, baseline, off, effect, ranked) for off, effect in effects.items()]
    layers = [controls.layer_name(row) for row in range(len(controls.maps))]
    heads = max(len(item.weights) for item in controls.maps)
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"
    ):
        st.markdown(
            "**Without each head**",
            width="content",
            help="One forward pass per head, in which its output is "
            "zero. The last column is the whole layer.",
        )
        _head_field(controls, picked)
    spec = effect_grid(
        rows, layers, [*map(str, range(heads)), LAYER], (layers[picked[0]], str(picked[1])), theme()
    )
    draw_chart(
        st,
        spec,
        key="evidence:grid",
        on_select=lambda: _pick(layers),
        selection_mode=[PICKED],
        alt="What the answer loses without each head",
    )


def _pick(layers: list[str]) -> None:
    point = pressed_point("evidence:grid")
    if point and point["head"] != LAYER:
        write_pair("head", (layers.index(point["layer"]), int(point["head"])))


def _cell(
    controls: Controls, baseline: Baseline, off: HeadSet, effect: Effect, ranked: list[Head]
) -> Spec:
    ((kind, layer, head),) = off
    row = controls.row_of(kind, layer)
    name = controls.layer_name(row)
    measured_all = "" if len(ranked) == len(list(controls.heads())) else " measured"
    rank = (
        "a whole layer"
        if head is None
        else f"{ranked.index((row, head)) + 1} of {len(ranked)}{measured_all}"
    )
    return {
        "layer": name,
        "head": LAYER if head is None else str(head),
        "change": effect.change,
        "by": signed(effect.change),
        "name": f"all of {name}" if head is None else controls.name((row, head)),
        "share": rank,
        "now": f"{number(effect.value)} instead of {number(baseline.value)}",
    }


def _without(
    controls: Controls, baseline: Baseline, picked: Head, effects: Mapping[HeadSet, Effect]
) -> tuple[Pair, HeadSet]:
    """Draw the answer without the picked head and those that a person adds to it.

    Returns the effects of the head, and all that is off.
    """
    layers = {
        f"all of {controls.layer_name(row)}": frozenset({(item.kind, item.layer, None)})
        for row, item in enumerate(controls.maps)
    }
    options = layers | {
        controls.name(head): frozenset({controls.head_id(head)}) for head in controls.heads()
    }
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Without {plain(controls.name(picked))}**", width="content")
        with st.popover("More heads", icon=":material/power_settings_new:"):
            others = st.multiselect(
                "Switched off as well",
                list(options),
                key=f"evidence:off:{controls.ref.name}",
                help="Heads and layers that are switched off together with the picked head.",
                **BOUND,
            )
            others = [name for name in others if name != controls.name(picked)]
    alone: HeadSet = frozenset({controls.head_id(picked)})
    off: HeadSet = alone.union(*(options[name] for name in others))
    effect = effects.get(off) or ablate_heads(baseline, off)
    _bars(controls, baseline, off)
    pair = (
        compute.uniform_effect(controls, baseline, alone),
        effects.get(alone) or ablate_heads(baseline, alone),
    )
    if others:
        added = sum(
            effects[part].change for part in (frozenset({head}) for head in off) if part in effects
        )
        st.caption(
            plain(
                f"Off: {', '.join([controls.name(picked), *others])}. Together they change the answer by "
                f"{signed(effect.change)}; one at a time, their changes sum to {signed(added)}."
            )
        )
    return pair, off


def _bars(controls: Controls, baseline: Baseline, off: HeadSet) -> None:
    """Draw the likeliest answers with all heads on, and with these uniform and off."""
    values = compute.answers_without(controls, baseline, off)
    rows = [
        {"word": word, "of": way, "p": value, "text": number(value)}
        for word, by_way in values.items()
        for way, value in by_way.items()
    ]
    logits = baseline.id is not None and baseline.quantity != "probability"
    draw_chart(
        st,
        charts.before_after(rows, list(values), Ink.of(theme()), logits),
        key="evidence:bars",
        alt="The likeliest tokens with and without the picked head",
    )
    st.caption(
        f"The page measures {text.target_text(baseline)}.{text.why_logit(baseline)}",
        help="Uniform: the head gives the same weight to every key that it may attend to. It still writes its "
        "values, but no longer chooses among them.",
    )


def _largest_layer(
    controls: Controls, effects: Mapping[HeadSet, Effect]
) -> tuple[str, Effect] | None:
    """The layer with the largest effect; None where a layer is one head, or none was measured yet."""
    whole = [
        (controls.layer_name(controls.row_of(kind, layer)), effect)
        for off, effect in effects.items()
        for kind, layer, head in off
        if head is None
    ]
    return max(whole, key=lambda pair: abs(pair[1].change), default=None)


def _ranking(
    controls: Controls, baseline: Baseline, alone: Mapping[Head, Effect], ranked: list[Head]
) -> None:
    """Draw the heads that the answer needs most, with other measures of them."""
    estimates, sharp = compute.gradient_estimates(controls), compute.sharpness(controls)
    has_outputs = baseline.id is not None
    columns = [
        "head",
        "answer without it",
        "change",
        *(["prediction then"] if has_outputs else []),
        *(["gradient estimate"] if estimates else []),
        "largest weight",
    ]
    rows = []
    for head in ranked[:TABLE_ROWS]:
        effect = alone[head]
        output = (
            ""
            if effect.id is None
            else display_names(baseline.pretrained, baseline.answer, [effect.id])[0]
        )
        rows.append(
            [
                controls.name(head),
                number(effect.value),
                signed(effect.change),
                *([output] if has_outputs else []),
                *([signed(estimates[head])] if estimates else []),
                number(sharp[head]),
            ]
        )
    count = len(list(controls.heads()))
    of = "" if len(alone) == count else f" of the {len(alone)} measured so far, out of {count}"
    label = (
        f"The {len(rows)} heads that the answer needs most{of}"
        if len(rows) > 1
        else f"The head{of}"
    )
    details(
        f"{label}, as a table",
        partial(_ranked_table, controls, columns, rows, alone),
        "evidence:ranking",
    )


def _ranked_table(
    controls: Controls, columns: list[str], rows: list[list[str]], alone: Mapping[Head, Effect]
) -> None:
    """Draw the heads that the answer needs most, and all that were measured as a file."""
    table(columns, rows, caption="Heads by the change of the answer without them", markers=False)
    which = "All" if len(alone) == len(list(controls.heads())) else "The measured"
    st.download_button(
        f"{which} {len(alone)} heads, CSV",
        lambda: text.heads_csv(controls, alone),
        "heads.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
    )
