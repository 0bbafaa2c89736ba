"""The section on patching: which part of one text's run, put into the other's, brings the answer back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import streamlit as st

from core.interpret import patching
from core.interpret.patching import Direction, LayerEffect, LayerKey, TextPair
from core.interpret.trace import Kind
from core.pretrained import ModelInputs, Pretrained, PretrainedError
from core.pretrained.answers import Answer, output_id, output_name, top_candidates
from core.pretrained.attention_recorder import numbers_by_layer
from dashboard.draw.grids import effect_grid
from dashboard.draw.vega import PICKED
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import shared
from dashboard.ui.presentation import draw_chart, pressed_point, room
from dashboard.ui.progress import measure_with_progress
from dashboard.ui.tables import table
from dashboard.views.two_models import text
from dashboard.views.two_models.script import patch_script
from dashboard.widgets.guide import picture, try_this
from dashboard.widgets.model_picker import ModelChoice, ModelRef, load_model
from dashboard.widgets.model_picker.head_choice import choose_head
from dashboard.widgets.panels import caption, details, fact, paragraph, plain, source_panel, theme
from dashboard.widgets.params import BOUND

HEADS, TOKENS = "two_models:patch:heads", "two_models:patch:tokens"
PARTS = {"all": "all heads", "FF": "feed-forward"}  # the columns after the heads
WHOLE, INNER = PARTS
LIKELIEST = "the most likely"
OFFERED, ROWS = 10, 6
Answers = tuple[int | None, int | None]
LayerNames = dict[LayerKey, str]


def section(choice: ModelChoice, second: ModelInputs) -> None:
    """Draw the section for the two texts of the page; what cannot be patched is said."""
    st.markdown("## Which part carries the difference?")
    caption(
        "Text A and text B get different answers. One part of a model’s run on one text is put into its run on the "
        "other: if the answer changes back, that part carries the difference. 0 is the answer to text B, 1 that to "
        "text A."
    )
    model = choice.pretrained
    assert model is not None
    try:
        with one_thread():
            answers, direction = _controls(choice, second)
            about = (choice.ref, choice.inputs, second, answers, direction)
            pair, names = shared(_pair_and_layers, *about)
            effects = measure_with_progress(
                "two_models:patch", about, tuple(names), partial(_effect, about), "layers"
            )
            estimates = shared(_estimates, *about)
    except PretrainedError as error:
        st.info(plain(str(error)))
    else:
        if effects:
            add_script(
                partial(patch_script, choice, second, answers, direction, effects, estimates),
                "patching",
            )
            with picture("two_models"):
                measured = {key: names[key] for key in effects}
                _figures(choice.ref, _attach(pair, model), measured, direction, effects, estimates)
    try_this("two_models", text.PAIRS)
    details("How parts are patched: source", _sources, "two_models:patching")


def _controls(choice: ModelChoice, second: ModelInputs) -> tuple[Answers, Direction]:
    """Draw the two answers and the direction; PretrainedError for a text that has no answer."""
    model = choice.pretrained
    assert model is not None
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        direction: Direction = (
            st.segmented_control(
                "Direction",
                list(text.DIRECTIONS),
                default="denoise",
                required=True,
                key="two_models:direction",
                format_func=text.DIRECTIONS.__getitem__,
                wrap=True,
                **BOUND,
                help="From A into B shows what is enough to bring A’s answer back; from B into A shows what A cannot do "
                "without.",
            )
            or "denoise"
        )
    sides = [shared(_top, choice.ref, inputs) for inputs in (choice.inputs, second)]
    if model.head == "none":
        return (None, None), direction
    first, other = (
        _answer(row, choice.ref, name, *side) for name, side in zip("AB", sides, strict=True)
    )
    return (first, other), direction


def _top(ref: ModelRef, inputs: ModelInputs) -> tuple[Answer, tuple[str, ...]]:
    """The answer to a text, and the names of its most likely outputs."""
    model = load_model(ref)
    answer = patching.ask(model, patching.Question(inputs)).answer
    return answer, tuple(
        output_name(model, answer, one.id) for one in top_candidates(model, answer, OFFERED)
    )


def _answer(
    row: st.delta_generator.DeltaGenerator,
    ref: ModelRef,
    side: str,
    answer: Answer,
    names: tuple[str, ...],
) -> int | None:
    """Draw the field of one answer; None for the likeliest of its text."""
    with row:
        name = st.selectbox(
            f"Answer of text {side}",
            [LIKELIEST, *names],
            accept_new_options=True,
            width=room(200),
            key=f"two_models:answer:{side}:{ref.name}",
            **BOUND,
            help="One of the two answers whose logits are compared. You can type another one.",
        )
    return None if name in (None, LIKELIEST) else output_id(load_model(ref), answer, str(name))


def _pair_and_layers(ref: ModelRef, *about: Any) -> tuple[TextPair, LayerNames]:
    """The two texts without their model, and L0, L1 …, the model's own numbers, with the kind where there are several."""
    source = shared(_source, ref, *about)
    numbers = numbers_by_layer(load_model(ref).model, source.calls.values())
    several = len({kind for kind, _ in numbers}) > 1
    kinds = {"self": "encoder ", "causal": "decoder ", "cross": "cross "} if several else {}
    return source.pair, {key: f"{kinds.get(key[0], '')}L{numbers[key]}" for key in source.calls}


def _source(
    ref: ModelRef,
    clean: ModelInputs,
    corrupted: ModelInputs,
    answers: Answers,
    direction: Direction,
) -> patching.PatchSource:
    """Without its model, which a cached result would keep in memory; PretrainedError for texts that cannot be compared."""
    pair = patching.pair_of(load_model(ref), clean, corrupted, *answers)
    return _with_pair(patching.patch_source(pair, direction), _attach(pair, None))


def _attach(pair: TextPair, model: Pretrained | None) -> TextPair:
    """The two texts with that model."""
    clean, corrupted = (
        replace(one, pretrained=cast(Pretrained, model)) for one in (pair.clean, pair.corrupted)
    )
    return TextPair(clean, corrupted)


def _with_pair(source: patching.PatchSource, pair: TextPair) -> patching.PatchSource:
    return replace(
        source, pair=pair, base=pair.clean if source.base is source.pair.clean else pair.corrupted
    )


def _loaded(ref: ModelRef, *about: Any) -> patching.PatchSource:
    source = shared(_source, ref, *about)
    return _with_pair(source, _attach(source.pair, load_model(ref)))


def _effect(about: tuple[Any, ...], key: LayerKey) -> LayerEffect:
    return _loaded(*about).effect(key)


def _estimates(*about: Any) -> dict[LayerKey, np.ndarray]:
    return patching.estimate_heads(_loaded(*about))


def _figures(
    ref: ModelRef,
    pair: TextPair,
    names: LayerNames,
    direction: Direction,
    effects: Mapping[LayerKey, LayerEffect],
    estimates: Mapping[LayerKey, np.ndarray],
) -> None:
    """Draw layers × heads and layers × tokens, and say which heads carry most."""
    best = patching.ranked(effects, direction)
    has_inner = any(effect.feed_forward is not None for effect in effects.values())
    fact(
        text.patched(pair, direction, effects, best, names, patching.agreement(effects, estimates))
    )
    left, right = st.columns(2, gap="medium")
    with left:
        paragraph(
            "**Each head, all heads of a layer, and its feed-forward network (FF)**"
            if has_inner
            else "**Each head, and all heads of a layer**"
        )
        _heads(ref, effects, names, best, direction)
    with right:
        paragraph("**The state after each layer, at one token**")
        _tokens(pair, effects, names, direction)
    rows = [
        [
            f"{names[key]}·H{head}",
            text.share(value),
            text.share(float(estimates[key][head])) if key in estimates else "–",
        ]
        for key, head, value in best[:ROWS]
    ]
    details(
        f"The {len(rows)} heads with the largest effect, and their estimates",
        partial(
            table, ["head", "measured", "estimate"], rows, caption="Heads with the largest effect"
        ),
        "two_models:patched",
    )


def _heads(
    ref: ModelRef,
    effects: Mapping[LayerKey, LayerEffect],
    names: Mapping[LayerKey, str],
    best: list[tuple[LayerKey, int, float]],
    direction: Direction,
) -> None:
    rows, most = [], max(len(effect.heads) for effect in effects.values())
    for key, effect in effects.items():
        cells = {
            **{str(head): float(value) for head, value in enumerate(effect.heads)},
            WHOLE: effect.attention,
        }
        if effect.feed_forward is not None:
            cells[INNER] = effect.feed_forward
        rows += [
            _cell(
                names[key],
                column,
                value,
                f"{names[key]}·H{column}"
                if column.isdecimal()
                else f"{PARTS[column]} of {names[key]}",
                direction,
            )
            for column, value in cells.items()
        ]
    has_inner = any(effect.feed_forward is not None for effect in effects.values())
    columns = [*map(str, range(most)), WHOLE, *([INNER] if has_inner else [])]
    picked = (names[best[0][0]], str(best[0][1]))
    keys = {name: key for key, name in names.items()}
    draw_chart(
        st,
        effect_grid(
            rows,
            list(names.values()),
            columns,
            picked,
            theme(),
            title=text.SCALE[direction],
            tips=(("name", "part"), ("by", "recovered")),
        ),
        key=HEADS,
        on_select=lambda: _pick(ref, keys),
        selection_mode=[PICKED],
        alt="What each patched part recovers of the answer",
    )


def _cell(
    layer: str, column: str, value: float, name: str, direction: Direction
) -> dict[str, object]:
    """A cell by what the part changes: what it brings back, or takes away."""
    return {
        "layer": layer,
        "head": column,
        "change": value if direction == "denoise" else value - 1,
        "name": name,
        "by": text.share(value),
    }


def _pick(ref: ModelRef, keys: Mapping[str, LayerKey]) -> None:
    """The pressed head becomes the page's head, whose attention in both texts is drawn above."""
    point = pressed_point(HEADS)
    if point and str(point["head"]).isdecimal():
        kind: Kind
        kind, layer = keys[point["layer"]]
        choose_head(ref, kind, (layer, int(point["head"])))
        st.query_params["head"] = f"{layer}.{point['head']}"


def _tokens(
    pair: TextPair,
    effects: Mapping[LayerKey, LayerEffect],
    names: Mapping[LayerKey, str],
    direction: Direction,
) -> None:
    rows, columns = [], dict[str, None]()
    for key, effect in effects.items():
        line = pair.clean.target if key[0] == "causal" and pair.clean.target else pair.clean.source
        for token, value in enumerate(effect.residual):
            column = f"{token} {line.tokens[token]}"
            columns[column] = None
            rows.append(
                _cell(
                    names[key],
                    column,
                    float(value),
                    f"after {names[key]}, at {line.tokens[token]}",
                    direction,
                )
            )
    if not rows:
        st.caption("The layers of this model are one module, so their states cannot be told apart.")
        return
    largest = max(rows, key=lambda row: abs(float(str(row["change"]))))
    layers = [name for key, name in names.items() if len(effects[key].residual)]
    draw_chart(
        st,
        effect_grid(
            rows,
            layers,
            list(columns),
            (str(largest["layer"]), str(largest["head"])),
            theme(),
            title=text.SCALE[direction],
            across="token",
            tips=(("name", "state"), ("by", "recovered")),
        ),
        key=TOKENS,
        alt="What the residual stream at each token recovers of the answer",
    )


def _sources() -> None:
    for function in (
        patching.pair_of,
        patching.patch_source,
        patching.PatchSource.effect,
        patching.estimate_heads,
    ):
        source_panel(function)
