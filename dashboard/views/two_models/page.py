"""The page Two models, two texts: every head by how far it is apart, one head in both, and their difference."""

from __future__ import annotations

import streamlit as st

from core import difference
from core.difference import Aligned, HeadChange
from core.pretrained import ModelInputs, PretrainedError
from core.trace import Kind
from dashboard.components.attention_view.payload import READS
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.runtime.query_params import read_pair, write_pair
from dashboard.views.two_models import charts, compute, text
from dashboard.views.two_models.compute import Side
from dashboard.widgets.model_picker import ModelChoice, choose_model, examples
from dashboard.widgets.model_picker.head_choice import KINDS, choose_head, current_head_of
from dashboard.widgets.panels import fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.params import BOUND

TEXT_B = "two_models:text"
LINK = "two_models:pin"
HIGH = 380
ABSENT = "not there"
SECOND = {"numbers": "nine thousand three hundred and twelve ; forty-eight",
          "induction": "the old queen walked to the dark river . the old queen walked to the dark",
          "": "The animal didn't cross the street because it was too wide."}


def page() -> None:
    title("Two models, two texts",
          "Hold attention against attention: change a word, change the model, or take away what it learned.")
    chosen = choose_model("two_models", needs=("model",))
    if chosen is not None:
        try:
            _compared(chosen)
        except PretrainedError as error:
            st.info(plain(str(error)), icon=":material/edit:")
    panel = st.expander("How heads are compared: definitions and source", on_change="rerun", key="two_models:how")
    if panel.open:
        with panel:
            _how()
    next_page("two_models")


def _compared(chosen: ModelChoice) -> None:
    row = st.columns([1.25, 1.75], vertical_alignment="bottom")
    mode = row[0].segmented_control("Compare", list(text.MODES), default="texts", required=True,
                                    format_func=text.modes(chosen.pretrained).get, key="two_models:mode",
                                    **BOUND) or "texts"
    with row[1]:
        sides = _sides(chosen, mode)
    if sides[1].reading.cut and sides[1].reading.cut != chosen.reading.cut:
        st.warning(plain(sides[1].reading.cut), icon=":material/content_cut:")
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        pair, merged = compute.align_sides(*sides, _kind(*sides))
        in_place = pair.same_shape and not (mode == "models" and _nearest_toggle(sides[1]))
    heads = pair.in_place() if in_place else pair.nearest()
    if st.session_state.setdefault("two_models:of", (chosen.ref, mode)) != (chosen.ref, mode):
        st.session_state["two_models:of"] = chosen.ref, mode
        write_pair("head", None)  # another comparison is about other heads
    head = _picked(heads, chosen, pair.first.map(0).kind)
    _grid_and_figures(heads, head, in_place)
    _maps(pair, head, sides)
    left, right = st.columns([0.42, 0.58], gap="medium")
    with left:
        _apart(pair, head, sides)
    with right:
        fact(text.fact(pair, head, sides, in_place, heads))
        st.caption(text.conditions(pair, sides, merged, in_place, mode))


def _sides(chosen: ModelChoice, mode: str) -> tuple[Side, Side]:
    """What stands on both sides, with the control of the second one."""
    assert chosen.pretrained is not None
    reads = chosen.pretrained.reads
    if mode == "untrained":
        seed = st.number_input("Seed of the untrained weights", 0, 9999, 0, key="two_models:seed", **BOUND)
        return compute.with_untrained(chosen, int(seed))
    if mode == "models":
        if reads not in ("text", "pair"):
            raise PretrainedError(f"{chosen.ref.name} reads a {reads}, and two models are compared on one text. "
                                  "Compare it trained and untrained, or take a model that reads text.")
        models = compute.others(chosen)
        name = st.selectbox("Model B", list(models), key=f"two_models:model:{chosen.ref.name}", **BOUND,
                            help="Any model of the hub, once it was loaded in the field above, stands here too.")
        return compute.second_model(chosen, models[str(name)], str(name))
    if reads == "picture":
        names = examples.pictures(int(getattr(chosen.pretrained.model.config, "num_channels", 3)))
        name = st.selectbox("Picture B", list(names), min(1, len(names) - 1), key="two_models:picture", **BOUND)
        return compute.second_picture(chosen, ModelInputs(picture=examples.picture(str(name))))
    if reads == "sound":
        raise PretrainedError(f"{chosen.ref.name} reads sound; compare it trained and untrained.")
    usual = SECOND.get(chosen.ref.name, SECOND[""])
    text = st.text_input("Text B", usual, key=f"{TEXT_B}:{chosen.ref.name}", **BOUND,
                         help="The words that both texts share are aligned; what differs stands side by side.") or ""
    return compute.second_text(chosen, text)


def _kind(first: Side, second: Side) -> Kind:
    kinds = compute.kinds(first, second)
    if len(kinds) == 1:
        return kinds[0]
    named = [kind for kind in KINDS if kind in kinds]
    return st.segmented_control("Attention", named, default=kinds[0], required=True, format_func=KINDS.get,
                                key=f"two_models:kind:{len(kinds)}", label_visibility="collapsed", **BOUND) or kinds[0]


def _nearest_toggle(second: Side) -> bool:
    """Whether each head is paired with its nearest; the heads of a fine-tuned model keep their positions."""
    fine_tuned = second.note.startswith(compute.TUNED)
    return st.toggle("Beside each head its nearest", not fine_tuned, key="two_models:nearest",
                     help="Off: beside each head the one in the same place, as when one model came from the other.")


def _picked(heads: list[HeadChange], chosen: ModelChoice, kind: Kind) -> HeadChange:
    """The head that a person pressed, or that the link names, or picked on another page; else the first in rank."""
    there = {(item.layer, item.head): item for item in heads}
    pressed = st.session_state.get("two_models:grid", {}).get("selection", {}).get(charts.PICKED) or []
    clicked = next(((item.layer, item.head) for item in heads if pressed and item.name == pressed[0]["name"]), None)
    if clicked is not None:
        choose_head(chosen.ref, kind, clicked)
        write_pair("head", clicked)
        return there[clicked]
    shape = max(layer for layer, _ in there) + 1, max(head for _, head in there) + 1
    linked, bad = read_pair("head", shape)
    if bad:
        st.warning(bad)
    if linked in there:
        choose_head(chosen.ref, kind, linked)
        return there[linked]
    before = current_head_of(chosen.ref, kind, shape)
    if before in there:
        write_pair("head", before)
        return there[before]
    return heads[0]


def _grid_and_figures(heads: list[HeadChange], head: HeadChange, in_place: bool) -> None:
    left, right = st.columns([0.64, 0.36], gap="medium", vertical_alignment="top")
    with left:
        st.vega_lite_chart(spec=charts.apart(heads, head, in_place, theme()), on_select="rerun",
                           key="two_models:grid", selection_mode=[charts.PICKED],
                           alt=f"How far each of {len(heads)} heads is apart; most telling {heads[0].name}")
    with right:
        for name, value, meaning in text.figures(heads):
            st.metric(name, value, help=meaning)


def _tiles(pair: Aligned, head: HeadChange, sides: tuple[Side, Side]) -> list[Tile]:
    tiles = []
    places, names = ((head.layer, head.head), head.to), (head.name, head.other)
    for which, side in enumerate(sides):
        weights, allowed = pair.drawn(which, *places[which])
        name = f"{side.name}, {names[which]}"
        tiles.append(Tile(name, side.note, weights, None if allowed.all() else allowed, which))
    return tiles


def _maps(pair: Aligned, head: HeadChange, sides: tuple[Side, Side]) -> None:
    """The head in both, one crosshair over them."""
    kind = pair.first.map(0).kind
    row, column = text.most_different_cell(pair, head) or (None, None)
    multiples(_tiles(pair, head, sides), pair.queries, pair.keys, key=f"two_models:maps:{kind}", link=LINK,
              query=row, column=column, reads=READS[kind], height=HIGH, absent=ABSENT,
              fact=f"Head {head.name} of {sides[0].name} beside {head.other} of {sides[1].name}")


def _apart(pair: Aligned, head: HeadChange, sides: tuple[Side, Side]) -> None:
    """The second minus the first, where both have a token."""
    first, second = _tiles(pair, head, sides)
    both = (pair.drawn(0, head.layer, head.head)[1]) & (pair.drawn(1, *head.to)[1])
    mask = None if both.all() else both
    row, column = text.most_different_cell(pair, head) or (None, None)
    difference_map(Tile(second.name, "", second.weights, mask), Tile(first.name, "", first.weights, mask),
                   pair.queries, pair.keys, key=f"two_models:apart:{pair.first.map(0).kind}", link=LINK, height=HIGH,
                   query=row, column=column, reads=READS[pair.first.map(0).kind], absent=ABSENT,
                   fact=f"{second.name} minus {first.name}")


def _how() -> None:
    st.markdown("Tokens are aligned by the longest stretches that both lines share (Ratcliff and Obershelp, 1988). How "
                "far two heads are apart is the total variation between their rows, averaged:")
    st.latex(r"\mathrm{apart}(A, B) = \frac{1}{T}\sum_{i=1}^{T}\Big(1 - \sum_{j} \min(a_{ij}, b_{ij})\Big)")
    st.markdown("That a head moved does not say that it mattered: the page Evidence switches heads off. On what "
                "fine-tuning changes see [Kovaleva 2019](https://arxiv.org/abs/1908.08593); on what trained queries "
                "and keys have that random ones lack, [Trockman 2023](https://arxiv.org/abs/2305.09828).")
    source_panel(difference.align)
    source_panel(difference.weight_moved)
