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
from dashboard.views.evidence.compute import SHORT, Head, Setup
from dashboard.views.evidence.compute import measured as beside
from dashboard.views.evidence.progress import measured
from dashboard.views.evidence.text import followed, heads_fact, why_logit
from dashboard.widgets.model_picker.head_choice import choose_head, current_head
from dashboard.widgets.panels import fact, plain, theme
from dashboard.widgets.table import table

MODEL = "evidence:model"
Pair = tuple[Effect, Effect]
SHOWN, ANSWERS = 6, 4


def section(setup: Setup, asked: Baseline) -> tuple[Head, Pair]:
    """Draw the section; the head that is picked in it, and its effects: looking evenly, and off."""
    todo = head_sets(setup.reading.trace)
    with one_thread(len(asked.source) <= SHORT):
        effects = measured("heads", setup.key, todo, lambda off: ablate_heads(asked, off), "heads and layers")
    alone = {(setup.row_of(kind, layer), head): effect for (kind, layer, head), effect in single_heads(effects).items()}
    ranked = sorted(alone, key=lambda head: -abs(alone[head].change))
    picked = _picked(setup, ranked[0])
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        _grid(setup, asked, effects, ranked, picked)
    with right:
        pair = _several(setup, asked, picked, effects)
    if len(alone) == len(list(setup.heads())):
        said = [(setup.name(head), alone[head]) for head in ranked]
        layer = _layer(setup, effects)
        fact(heads_fact(asked, said, setup.name(picked), layer, _sharpest(setup), _agreement(setup, alone)))
    _ranking(setup, asked, alone, ranked)
    return picked, pair


def named(setup: Setup) -> Head:
    """A field for the head, where none can be switched off and there is no grid to press."""
    names = {setup.name(head): head for head in setup.heads()}
    shown = list(names).index(setup.name(_picked(setup, next(setup.heads()))))
    chosen = names[st.selectbox("Head", list(names), shown, width=240, key=f"evidence:head:{setup.ref.name}")]
    if chosen != list(names.values())[shown]:
        kind, layer, head = setup.place(chosen)
        choose_head(setup.ref, kind, (layer, head))
        write_pair("head", chosen)
    return chosen


def _picked(setup: Setup, usual: Head) -> Head:
    """The head that was pressed, or that the link names, or that was picked on another page; else the most needed."""
    if st.session_state.setdefault(MODEL, setup.ref) != setup.ref:
        st.session_state[MODEL] = setup.ref
        write_pair("head", None)  # another model has other heads
    rows, heads = len(setup.maps), max(len(item.weights) for item in setup.maps)
    asked, bad = read_pair("head", (rows, heads))
    if bad:
        st.warning(bad)
    if asked and asked[1] >= len(setup.maps[asked[0]].weights):
        asked = None
    if asked:
        kind, layer, head = setup.place(asked)
        choose_head(setup.ref, kind, (layer, head))
    elif (before := current_head(setup.ref)) and (there := _placed(setup, *before)):
        write_pair("head", there)
        return there
    return asked or usual


def _placed(setup: Setup, kind: str, head: Head) -> Head | None:
    """A head of one kind of attention, by the place of its layer among all maps."""
    for row, item in enumerate(setup.maps):
        if (item.kind, item.layer) == (kind, head[0]) and head[1] < len(item.weights):
            return row, head[1]
    return None


def _grid(setup: Setup, asked: Baseline, effects: Mapping[HeadSet, Effect], ranked: list[Head], picked: Head) -> None:
    rows = [_cell(setup, asked, off, effect, ranked) for off, effect in effects.items()]
    layers = [setup.layer_name(row) for row in range(len(setup.maps))]
    heads = max(len(item.weights) for item in setup.maps)
    st.markdown("**Without each head**", help="One forward pass a head, in which what it writes is zero: as if W_O had "
                "no columns for it. The last column is the whole layer.")
    spec = charts.effects(rows, layers, heads, (layers[picked[0]], str(picked[1])), theme())
    st.vega_lite_chart(spec, key="evidence:grid", on_select=lambda: _pick(layers), selection_mode=[charts.PICKED])


def _pick(layers: list[str]) -> None:
    chosen = st.session_state["evidence:grid"].selection.get(charts.PICKED) or []
    if chosen and chosen[0]["head"] != charts.LAYER:
        write_pair("head", (layers.index(chosen[0]["layer"]), int(chosen[0]["head"])))


def _cell(setup: Setup, asked: Baseline, off: HeadSet, effect: Effect, ranked: list[Head]) -> charts.Spec:
    (kind, layer, head), = off
    row = setup.row_of(kind, layer)
    name = setup.layer_name(row)
    measured_all = "" if len(ranked) == len(list(setup.heads())) else " measured"
    rank = "a whole layer" if head is None else f"{ranked.index((row, head)) + 1} of {len(ranked)}{measured_all}"
    return {"layer": name, "head": charts.LAYER if head is None else str(head), "change": effect.change,
            "by": signed(effect.change),
            "name": f"all of {name}" if head is None else setup.name((row, head)), "share": rank,
            "now": f"{number(effect.value)} instead of {number(asked.value)}"}


def _several(setup: Setup, asked: Baseline, picked: Head, effects: Mapping[HeadSet, Effect]) -> Pair:
    """What is answered without the picked head and those that a person adds to it; the effects of the head alone."""
    names = {setup.name(head): frozenset({setup.place(head)}) for head in setup.heads() if head != picked}
    layers = {f"all of {setup.layer_name(row)}": frozenset({(item.kind, item.layer, None)})
              for row, item in enumerate(setup.maps)}
    options = {**layers, **names}
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Without {plain(setup.name(picked))}**", width="content")
        with st.popover("And others", icon=":material/power_settings_new:"):
            more = st.multiselect("Switched off together with it", list(options), key=f"evidence:off:{setup.ref.name}")
    off: HeadSet = frozenset({setup.place(picked)}).union(*(options[name] for name in more if name in options))
    effect = effects.get(off) or ablate_heads(asked, off)
    _bars(asked, off)
    own: HeadSet = frozenset({setup.place(picked)})
    alone = make_heads_uniform(asked, own), effects.get(own) or ablate_heads(asked, own)
    if more:
        parts = [effects.get(frozenset({one})) for one in off]
        added = sum(part.change for part in parts if part is not None)
        st.caption(plain(f"Off: {', '.join([setup.name(picked), *more])}. Together they change the answer by "
                         f"{signed(effect.change)}; one at a time their changes add up to {signed(added)}."))
    return alone


def _bars(asked: Baseline, off: HeadSet) -> None:
    """The likeliest answers with all heads on and with these off; of an embedding, its similarity."""
    answers = dict(zip(charts.WAYS, (asked.answer, asked.again(even=off), asked.again(off=off)), strict=True))
    if asked.id is None:
        values = {"similarity": {way: float(asked.followed(one)) for way, one in answers.items()}}
    else:
        ids = [one.id for one in top_candidates(asked.pretrained, asked.answer, ANSWERS)]
        ids += [one.id for one in top_candidates(asked.pretrained, answers["off"], 2)]
        ids = list(dict.fromkeys([*ids, asked.id, *([] if asked.contrast is None else [asked.contrast])]))
        scales = {way: quantity_values(said, asked.quantity) for way, said in answers.items()}
        values = {word: {way: float(one[at]) for way, one in scales.items()}
                  for at, word in zip(ids, distinct(display_names(asked.pretrained, asked.answer, ids)), strict=True)}
    rows = [{"word": word, "of": way, "p": value, "text": number(value)}
            for word, each in values.items() for way, value in each.items()]
    logits = asked.id is not None and asked.quantity != "probability"
    st.vega_lite_chart(charts.before_after(rows, list(values), Ink.of(theme()), logits), key="evidence:bars")
    st.caption(f"The page follows {followed(asked)}.{why_logit(asked)}", help="Looking evenly, a head weighs all keys "
               "alike that it may see: what it writes stays, where it looks is gone.")


def _layer(setup: Setup, effects: Mapping[HeadSet, Effect]) -> tuple[str, Effect] | None:
    """The whole layer that the answer needs most; None where a layer is one head, or none was measured yet."""
    whole = [(setup.layer_name(setup.row_of(kind, layer)), effect) for off, effect in effects.items()
             for kind, layer, head in off if head is None]
    return max(whole, key=lambda one: abs(one[1].change), default=None)


def _sharpest(setup: Setup) -> tuple[str, float]:
    """The head whose largest weight of a row is largest in the mean, and that mean. Voita et al. 2019 call it sure."""
    sure = _sureness(setup)
    best = max(sure, key=lambda head: sure[head])
    return setup.name(best), sure[best]


def _sureness(setup: Setup) -> dict[Head, float]:
    # The first row of a head that looks back has one key alone, which says nothing of the head.
    return {(row, head): float(one[1 if item.kind == "causal" and len(one) > 1 else 0:].max(-1).mean())
            for row, item in enumerate(setup.maps) for head, one in enumerate(item.weights)}


def foreseen(setup: Setup) -> dict[Head, float]:
    """What switching a head off would change, to first order; none where the answer has no gradient."""
    slopes = beside(setup).slopes
    return {head: -float(slopes[kind, layer][at].sum()) for head in setup.heads()
            for kind, layer, at in [setup.place(head)] if (kind, layer) in slopes}


def _agreement(setup: Setup, alone: Mapping[Head, Effect]) -> tuple[float | None, float | None]:
    """How the ranks of sureness, and those of the slopes, agree with the ranks of what was measured."""
    sizes = np.array([abs(effect.change) for effect in alone.values()])
    sure, slopes = _sureness(setup), foreseen(setup)
    return (spearman(np.array([sure[head] for head in alone]), sizes),
            spearman(np.array([abs(slopes[head]) for head in alone]), sizes) if slopes else None)


def _ranking(setup: Setup, asked: Baseline, alone: Mapping[Head, Effect], ranked: list[Head]) -> None:
    """The heads that the answer needs most, beside what other measures say of them."""
    slopes, sure = foreseen(setup), _sureness(setup)
    changed = asked.id is not None
    head = ["head", "answer without it", "change", *(["says then"] if changed else []),
            *(["gradient foresees"] if slopes else []), "largest weight"]
    rows = []
    for one in ranked[:SHOWN]:
        effect = alone[one]
        says = "" if effect.id is None else display_names(asked.pretrained, asked.answer, [effect.id])[0]
        rows.append([setup.name(one), number(effect.value), signed(effect.change), *([says] if changed else []),
                     *([signed(slopes[one])] if slopes else []), number(sure[one])])
    count = len(list(setup.heads()))
    of = "" if len(alone) == count else f" of the {len(alone)} measured so far, out of {count}"
    named = f"The {len(rows)} heads that the answer needs most{of}" if len(rows) > 1 else f"The head{of}"
    with st.expander(f"{named}, as a table"):
        table(head, rows, caption="Heads by what the answer loses without them", markers=False)
        which = "All" if len(alone) == count else "The measured"
        st.download_button(f"{which} {len(alone)} heads, CSV", lambda: csv_of(setup, alone), "heads.csv", "text/csv",
                           on_click="ignore", icon=":material/download:")


def csv_of(setup: Setup, alone: Mapping[Head, Effect]) -> str:
    """A line a head: what the answer is without it, what the gradient foresees, and how hard it looks."""
    slopes, sure = foreseen(setup), _sureness(setup)
    lines = ["kind,layer,head,answer,change,gradient_foresees,largest_weight"]
    for head, effect in alone.items():
        kind, layer, at = setup.place(head)
        slope = f"{slopes[head]:.8g}" if head in slopes else ""
        lines.append(f"{kind},{layer},{at},{effect.value:.8g},{effect.change:.8g},{slope},{sure[head]:.8g}")
    return "\n".join(lines) + "\n"
