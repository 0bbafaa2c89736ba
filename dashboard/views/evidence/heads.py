"""The first picture: what the answer loses without each head, and what is answered with several of them off."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from core.pretrained.answers import display_names, top_candidates
from core.pretrained.attention_recorder import HeadSet
from core.pretrained.evidence import (
    Baseline,
    Effect,
    ablate_heads,
    head_sets,
    make_heads_uniform,
    quantity_values,
    single_heads,
)
from core.ranks import spearman
from dashboard.charts.numbers import number, signed
from dashboard.charts.palette import Ink
from dashboard.charts.tokens import distinct
from dashboard.runtime.query_params import read_pair, write_pair
from dashboard.runtime.threads import one_thread
from dashboard.views.evidence import charts
from dashboard.views.evidence.compute import SHORT
from dashboard.views.evidence.compute import contributions_of as beside
from dashboard.views.evidence.controls import Controls, Head
from dashboard.views.evidence.progress import measure_with_progress
from dashboard.views.evidence.text import heads_fact, target_text, why_logit
from dashboard.widgets.model_picker.head_choice import choose_head, current_head
from dashboard.widgets.panels import fact, plain, theme
from dashboard.widgets.table import table

MODEL = "evidence:model"
Pair = tuple[Effect, Effect]
SHOWN, ANSWERS = 6, 4


def section(controls: Controls, baseline: Baseline) -> tuple[Head, Pair]:
    """Draw the section; the head that is picked in it, and its effects: looking evenly, and off."""
    todo = head_sets(controls.reading.trace)
    with one_thread(len(baseline.source) <= SHORT):
        effects = measure_with_progress("heads", controls.key, todo, lambda off: ablate_heads(baseline, off),
                                        "heads and layers")
    alone = {(controls.row_of(kind, layer), head): effect
             for (kind, layer, head), effect in single_heads(effects).items()}
    ranked = sorted(alone, key=lambda head: -abs(alone[head].change))
    picked = _picked(controls, ranked[0])
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        _grid(controls, baseline, effects, ranked, picked)
    with right:
        pair = _several(controls, baseline, picked, effects)
    if len(alone) == len(list(controls.heads())):
        names = [(controls.name(head), alone[head]) for head in ranked]
        layer = _layer(controls, effects)
        fact(heads_fact(baseline, names, controls.name(picked), layer, _sharpest(controls),
                        _agreement(controls, alone)))
    _ranking(controls, baseline, alone, ranked)
    return picked, pair


def head_field(controls: Controls) -> Head:
    """A field for the head, where none can be switched off and there is no grid to press."""
    names = {controls.name(head): head for head in controls.heads()}
    shown = list(names).index(controls.name(_picked(controls, next(controls.heads()))))
    chosen = names[st.selectbox("Head", list(names), shown, width=240, key=f"evidence:head:{controls.ref.name}")]
    if chosen != list(names.values())[shown]:
        kind, layer, head = controls.head_id(chosen)
        choose_head(controls.ref, kind, (layer, head))
        write_pair("head", chosen)
    return chosen


def _picked(controls: Controls, usual: Head) -> Head:
    """The head that was pressed, or that the link names, or that was picked on another page; else the most needed."""
    if st.session_state.setdefault(MODEL, controls.ref) != controls.ref:
        st.session_state[MODEL] = controls.ref
        write_pair("head", None)  # another model has other heads
    rows, heads = len(controls.maps), max(len(item.weights) for item in controls.maps)
    baseline, bad = read_pair("head", (rows, heads))
    if bad:
        st.warning(bad)
    if baseline and baseline[1] >= len(controls.maps[baseline[0]].weights):
        baseline = None
    if baseline:
        kind, layer, head = controls.head_id(baseline)
        choose_head(controls.ref, kind, (layer, head))
    elif (before := current_head(controls.ref)) and (there := _head_of_kind(controls, *before)):
        write_pair("head", there)
        return there
    return baseline or usual


def _head_of_kind(controls: Controls, kind: str, head: Head) -> Head | None:
    """A head of one kind of attention, by the index of its layer among all maps."""
    for row, item in enumerate(controls.maps):
        if (item.kind, item.layer) == (kind, head[0]) and head[1] < len(item.weights):
            return row, head[1]
    return None


def _grid(
    controls: Controls, baseline: Baseline, effects: Mapping[HeadSet, Effect], ranked: list[Head], picked: Head
) -> None:
    rows = [_cell(controls, baseline, off, effect, ranked) for off, effect in effects.items()]
    layers = [controls.layer_name(row) for row in range(len(controls.maps))]
    heads = max(len(item.weights) for item in controls.maps)
    st.markdown("**Without each head**", help="One forward pass a head, in which what it writes is zero: as if W_O had "
                "no columns for it. The last column is the whole layer.")
    spec = charts.effects(rows, layers, heads, (layers[picked[0]], str(picked[1])), theme())
    st.vega_lite_chart(spec, key="evidence:grid", on_select=lambda: _pick(layers), selection_mode=[charts.PICKED])


def _pick(layers: list[str]) -> None:
    chosen = st.session_state["evidence:grid"].selection.get(charts.PICKED) or []
    if chosen and chosen[0]["head"] != charts.LAYER:
        write_pair("head", (layers.index(chosen[0]["layer"]), int(chosen[0]["head"])))


def _cell(controls: Controls, baseline: Baseline, off: HeadSet, effect: Effect, ranked: list[Head]) -> charts.Spec:
    (kind, layer, head), = off
    row = controls.row_of(kind, layer)
    name = controls.layer_name(row)
    measured_all = "" if len(ranked) == len(list(controls.heads())) else " measured"
    rank = "a whole layer" if head is None else f"{ranked.index((row, head)) + 1} of {len(ranked)}{measured_all}"
    return {"layer": name, "head": charts.LAYER if head is None else str(head), "change": effect.change,
            "by": signed(effect.change),
            "name": f"all of {name}" if head is None else controls.name((row, head)), "share": rank,
            "now": f"{number(effect.value)} instead of {number(baseline.value)}"}


def _several(controls: Controls, baseline: Baseline, picked: Head, effects: Mapping[HeadSet, Effect]) -> Pair:
    """What is answered without the picked head and those that a person adds to it; the effects of the head alone."""
    names = {controls.name(head): frozenset({controls.head_id(head)}) for head in controls.heads() if head != picked}
    layers = {f"all of {controls.layer_name(row)}": frozenset({(item.kind, item.layer, None)})
              for row, item in enumerate(controls.maps)}
    options = {**layers, **names}
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Without {plain(controls.name(picked))}**", width="content")
        with st.popover("And others", icon=":material/power_settings_new:"):
            more = st.multiselect("Switched off together with it", list(options),
                                  key=f"evidence:off:{controls.ref.name}")
    off: HeadSet = frozenset({controls.head_id(picked)}).union(*(options[name] for name in more if name in options))
    effect = effects.get(off) or ablate_heads(baseline, off)
    _bars(baseline, off)
    own: HeadSet = frozenset({controls.head_id(picked)})
    alone = make_heads_uniform(baseline, own), effects.get(own) or ablate_heads(baseline, own)
    if more:
        parts = [effects.get(frozenset({one})) for one in off]
        added = sum(part.change for part in parts if part is not None)
        st.caption(plain(f"Off: {', '.join([controls.name(picked), *more])}. Together they change the answer by "
                         f"{signed(effect.change)}; one at a time their changes add up to {signed(added)}."))
    return alone


def _bars(baseline: Baseline, off: HeadSet) -> None:
    """The likeliest answers with all heads on and with these off; of an embedding, its similarity."""
    answers = dict(zip(charts.WAYS, (baseline.answer, baseline.rerun(uniform=off), baseline.rerun(off=off)),
                       strict=True))
    if baseline.id is None:
        values = {"similarity": {way: float(baseline.target_value(one)) for way, one in answers.items()}}
    else:
        ids = [one.id for one in top_candidates(baseline.pretrained, baseline.answer, ANSWERS)]
        ids += [one.id for one in top_candidates(baseline.pretrained, answers["off"], 2)]
        ids = list(dict.fromkeys([*ids, baseline.id, *([] if baseline.contrast is None else [baseline.contrast])]))
        scales = {way: quantity_values(sentence, baseline.quantity) for way, sentence in answers.items()}
        names = distinct(display_names(baseline.pretrained, baseline.answer, ids))
        values = {word: {way: float(one[at]) for way, one in scales.items()}
                  for at, word in zip(ids, names, strict=True)}
    rows = [{"word": word, "of": way, "p": value, "text": number(value)}
            for word, each in values.items() for way, value in each.items()]
    logits = baseline.id is not None and baseline.quantity != "probability"
    st.vega_lite_chart(charts.before_after(rows, list(values), Ink.of(theme()), logits), key="evidence:bars")
    st.caption(f"The page follows {target_text(baseline)}.{why_logit(baseline)}",
               help="Looking evenly, a head weighs all keys alike that it may see: what it writes stays, where it "
                    "looks is gone.")


def _layer(controls: Controls, effects: Mapping[HeadSet, Effect]) -> tuple[str, Effect] | None:
    """The whole layer that the answer needs most; None where a layer is one head, or none was measured yet."""
    whole = [(controls.layer_name(controls.row_of(kind, layer)), effect) for off, effect in effects.items()
             for kind, layer, head in off if head is None]
    return max(whole, key=lambda one: abs(one[1].change), default=None)


def _sharpest(controls: Controls) -> tuple[str, float]:
    """The head whose largest weight of a row is largest in the mean, and that mean. Voita et al. 2019 call it sure."""
    sure = _sureness(controls)
    best = max(sure, key=lambda head: sure[head])
    return controls.name(best), sure[best]


def _sureness(controls: Controls) -> dict[Head, float]:
    # The first row of a head that looks back has one key alone, which says nothing of the head.
    return {(row, head): float(one[1 if item.kind == "causal" and len(one) > 1 else 0:].max(-1).mean())
            for row, item in enumerate(controls.maps) for head, one in enumerate(item.weights)}


def gradient_estimates(controls: Controls) -> dict[Head, float]:
    """What switching a head off would change, to first order; none where the answer has no gradient."""
    slopes = beside(controls).gradients
    return {head: -float(slopes[kind, layer][at].sum()) for head in controls.heads()
            for kind, layer, at in [controls.head_id(head)] if (kind, layer) in slopes}


def _agreement(controls: Controls, alone: Mapping[Head, Effect]) -> tuple[float | None, float | None]:
    """How the ranks of sureness, and those of the slopes, agree with the ranks of what was measured."""
    sizes = np.array([abs(effect.change) for effect in alone.values()])
    sure, slopes = _sureness(controls), gradient_estimates(controls)
    return (spearman(np.array([sure[head] for head in alone]), sizes),
            spearman(np.array([abs(slopes[head]) for head in alone]), sizes) if slopes else None)


def _ranking(controls: Controls, baseline: Baseline, alone: Mapping[Head, Effect], ranked: list[Head]) -> None:
    """The heads that the answer needs most, beside what other measures say of them."""
    slopes, sure = gradient_estimates(controls), _sureness(controls)
    changed = baseline.id is not None
    head = ["head", "answer without it", "change", *(["says then"] if changed else []),
            *(["gradient foresees"] if slopes else []), "largest weight"]
    rows = []
    for one in ranked[:SHOWN]:
        effect = alone[one]
        says = "" if effect.id is None else display_names(baseline.pretrained, baseline.answer, [effect.id])[0]
        rows.append([controls.name(one), number(effect.value), signed(effect.change), *([says] if changed else []),
                     *([signed(slopes[one])] if slopes else []), number(sure[one])])
    count = len(list(controls.heads()))
    of = "" if len(alone) == count else f" of the {len(alone)} measured so far, out of {count}"
    named = f"The {len(rows)} heads that the answer needs most{of}" if len(rows) > 1 else f"The head{of}"
    with st.expander(f"{named}, as a table"):
        table(head, rows, caption="Heads by what the answer loses without them", markers=False)
        which = "All" if len(alone) == count else "The measured"
        st.download_button(f"{which} {len(alone)} heads, CSV", lambda: csv_of(controls, alone), "heads.csv", "text/csv",
                           on_click="ignore", icon=":material/download:")


def csv_of(controls: Controls, alone: Mapping[Head, Effect]) -> str:
    """A line a head: what the answer is without it, what the gradient foresees, and how hard it looks."""
    slopes, sure = gradient_estimates(controls), _sureness(controls)
    lines = ["kind,layer,head,answer,change,gradient_foresees,largest_weight"]
    for head, effect in alone.items():
        kind, layer, at = controls.head_id(head)
        slope = f"{slopes[head]:.8g}" if head in slopes else ""
        lines.append(f"{kind},{layer},{at},{effect.value:.8g},{effect.change:.8g},{slope},{sure[head]:.8g}")
    return "\n".join(lines) + "\n"
