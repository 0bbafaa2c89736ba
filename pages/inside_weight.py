"""Inside one weight: the query and the key that meet in one cell, up to the weight and what it carries."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret.evidence import (
    Cell,
    LayerAttention,
    WeightBreakdown,
    break_down_weight,
    layer_attentions,
    telling_cell,
)
from core.interpret.trace import head_name

# The controls: the kind of attention and the cell, from a link, the map or the fields.


MAP = "inside_weight:map"
HEAD, QUERY, KEY = (f"inside_weight:{name}" for name in ("head", "query", "key"))


class Controls(lab.Fields, page="inside_weight"):
    kind = lab.Select(
        "Attention",
        lambda values: {kind: lab.KINDS[kind] for kind in lab.KINDS if kind in values.kinds},
        lambda values: "cross" if "cross" in values.kinds else values.kinds[0],
        help=lab.KIND_HELP,
    ).optional(lambda values: len(values.kinds) > 1)
    order = lab.Segmented(
        "Order of dimensions",
        {"own": "By dimension", "largest": "Largest first"},
        help="The order of the dimensions: as in the vectors, or by the size of the product.",
        also={"label_visibility": "collapsed"},
    )


def draw_controls(chosen: lab.ModelChoice) -> lab.Values:
    """Draw the fields of kind, head, query and key; returns the model, its inputs, the maps of a kind, and the cell."""
    reading, ref, state = chosen.reading, chosen.ref, st.session_state
    kinds = reading.trace.kinds
    grid = st.grid(4 if len(kinds) > 1 else 3, min_column_width=105)
    kind = Controls.draw("kind", into=grid, kinds=kinds).kind or kinds[0]
    trace = reading.trace.of(kind)
    heads = {
        head_name(layer, head): (layer, head)
        for layer, item in enumerate(trace.maps)
        for head in range(len(item.weights))
    }
    item = trace.maps[0]
    shape: lab.Pair = item.weights.shape[1:]  # type: ignore[assignment]
    usual = telling_cell(reading, trace, lab.current_head_of(ref, kind, trace.shape))
    linked = lab.link_head(
        "inside_weight",
        (ref, kind),
        ref,
        {head: (kind, head) for head in heads.values()},
        usual.at[0],
    )
    pair = (
        lab.read_linked("inside_weight", "cell", shape, (ref, chosen.inputs, kind)) or usual.at[1]
    )
    own, _ = lab.stores(MAP, None)
    view = lab.settled(trace, MAP, own, own, linked, pair)  # a press in the map wins over the link
    cell = Cell(view.layer, view.head, *(view.pin or pair))
    if cell.at[0] != linked:
        lab.choose_head(ref, kind, cell.at[0])
        lab.write_pair("head", cell.at[0])
    lab.write_linked("inside_weight", "cell", cell.at[1])

    def changed() -> None:
        lab.write_pair("head", heads[state[HEAD]])
        lab.write_pair("cell", (state[QUERY], state[KEY]))

    queries, keys = (
        {index: f"{index} · {token}" for index, token in enumerate(tokens)}
        for tokens in (item.queries, item.keys)
    )
    for label, names, key, value, help in (
        (
            "Head",
            {one: trace.name(head) for one, head in heads.items()},
            HEAD,
            head_name(*cell.at[0]),
            "Layer and head, counted from 0.",
        ),
        ("Query", queries, QUERY, cell.query, "The token that attends."),
        ("Key", keys, KEY, cell.key, "The token that is attended to."),
    ):
        state[key] = value
        grid.selectbox(
            label,
            list(names),
            format_func=names.__getitem__,
            key=key,
            on_change=lab.guarded(key, changed),
            help=help,
        )
    return lab.Values(ref=ref, inputs=chosen.inputs, kind=kind, trace=trace, cell=cell)


# What the page computes as Python.


def script(controls: lab.Values, one: WeightBreakdown) -> lab.Script:
    kind, cell = controls.kind, controls.cell
    names = "q k products dot score scores weights value contribution out"
    if one.unrotated_q is not None:
        names += " unrotated_q unrotated_k"
    names += "".join(
        f" {part}" for part in ("rotated_q", "rotated_k") if getattr(one, part) is not None
    )
    return lab.Script(
        (
            lab.model_cell(controls.ref, controls.inputs),
            lab.Cell(
                "The queries, keys and values of each layer; one weight of one head in its parts.",
                f"""
from core.interpret.evidence import break_down_weight, layer_attentions

trace = reading.trace.of({kind!r})
weights = trace.head({cell.layer}, {cell.head})  # (T, S)
layer = layer_attentions(model, inputs)[{kind!r}, {cell.layer}]  # q (H, T, D), k and v (G, S, D)
one = break_down_weight(layer, head={cell.head}, query={cell.query}, key={cell.key})
print(f"q·k = {{one.dot:.3f}}, score {{one.score:.3f}}, weight {{one.weight:.3f}}")
""",
                f"""
from dashboard.show import show

show(trace, layer={cell.layer}, head={cell.head}, query={cell.query})
""",
                "inside_weight:map",
            ),
            lab.Cell(
                "What the weight carries: the value of the key, its part of the output, and the sum over all keys.",
                """
import numpy as np

along = one.contribution @ one.out / (one.out @ one.out)  # the share of the output that came through this weight
print(f"α·v has the length {np.linalg.norm(one.contribution):.3f} and is {along:.0%} of the output")
""",
                """
import altair as alt
import pandas as pd

products = pd.DataFrame({"dimension": range(len(one.products)), "product": one.products})
alt.Chart(products).mark_bar().encode(x="dimension:O", y="product:Q", color=alt.condition(
    "datum.product > 0", alt.value("#316E3D"), alt.value("#8143A0")))
""",
                "inside_weight:meeting",
            ),
        ),
        {
            "weights": controls.trace.head(cell.layer, cell.head),
            **{f"one.{name}": np.asarray(getattr(one, name)) for name in names.split()},
        },
    )


# Sentences about one weight, its equation with numbers, and the conditions.


MAX_TERMS = 2
TELLING = 3  # dimensions named in the fact


def weight_fact(head: str, one: WeightBreakdown, query: str, key: str) -> str:
    pair = (
        f"In head **{head}**, the query :primary[**{lab.plain(query)}**] and the key **{lab.plain(key)}**"
        f" have q·k = **{lab.number(one.dot)}**"
    )
    if not one.allowed:
        return f"{pair}, but the cell is masked, so its weight is **0**."
    extreme, sign = ("largest", 1) if one.dot >= 0 else ("most negative", -1)
    share = sign * float(np.sort(sign * one.products)[::-1][:TELLING].sum())
    rank, visible = 1 + int((one.scores > one.score).sum()), int(np.isfinite(one.scores).sum())
    return (
        f"{pair}: their signs agree in {int((one.products > 0).sum())} of {len(one.products)} dimensions, "
        f"and the {TELLING} {extreme} products sum to {lab.number(share)}. The score, {lab.number(one.score)}, is "
        f"{'the largest' if rank == 1 else f'number {rank}'} of {visible} and gives the weight "
        f"**{lab.share_text(one.weight)}**; uniform attention would give {lab.number(1 / visible)}."
    )


def rotation_fact(one: WeightBreakdown, cell: Cell) -> str:
    assert one.unrotated_q is not None and one.unrotated_k is not None
    apart, more = abs(cell.query - cell.key), "At the same position, rotation changes nothing."
    q, k = rotated(one)
    stretch = float(np.linalg.norm(q) / np.linalg.norm(one.unrotated_q))
    if abs(stretch - 1) > 1e-3:
        more = f"The rotation also scales both by {lab.number(stretch)}."
    if one.rotated_q is not None or one.rotated_k is not None:
        more += f" A norm or a factor follows the rotation, and makes the product {lab.number(one.dot)}."
    return (
        f"Before rotation their product is {lab.number(float(one.unrotated_q @ one.unrotated_k))}; after it, "
        f"{lab.plural(apart, 'position')} apart, it is {lab.number(float(q @ k))}. {more}"
    )


def rotated(one: WeightBreakdown) -> tuple[np.ndarray, np.ndarray]:
    """q and k as the rotation leaves them, before a norm or a factor that may follow it."""
    return (
        one.q if one.rotated_q is None else one.rotated_q,
        one.k if one.rotated_k is None else one.rotated_k,
    )


def carried_fact(one: WeightBreakdown, query: str, key: str) -> str:
    whole = float(np.linalg.norm(one.out))
    share = float(one.contribution @ one.out) / whole**2 if whole else 0.0
    return (
        f"This weight adds α·v of {lab.plain(key)}, of length {lab.number(float(np.linalg.norm(one.contribution)))}, to "
        f"the output of {lab.plain(query)}, of length {lab.number(whole)}. Along the output, it contributes "
        f"**{lab.percent(share)}**; the weight alone is {lab.percent(one.weight)}."
    )


def equation(
    cell: Cell, layer: LayerAttention, one: WeightBreakdown, query: str, key: str
) -> tuple[str, ...]:
    """LaTeX, symbols first, then the same with the numbers of this cell, one line a step."""
    # The family's rule in symbols: what is added, capped, and summed below the fraction
    inner = _scaled(one, r"q_i^\top k_j", "D", r"c\, q_i^\top k_j")
    inner += "" if one.bias is None else " + b_{ij}"
    if layer.softcap:
        inner = rf"\kappa \tanh\!\left(\tfrac{{1}}{{\kappa}}\left({inner}\right)\right)"
    below = r"\sum_m e^{s_{im}}" + (r" + e^{\text{sink}}" if one.sink is not None else "")
    symbols = rf"s_{{ij}} = {inner}, \qquad \alpha_{{ij}} = \frac{{e^{{s_{{ij}}}}}}{{{below}}}"
    pair = f"{lab.latex_name(query, cell.query)},\\,{lab.latex_name(key, cell.key)}"
    terms = [
        rf"{lab.latex_signed(float(a))} \cdot {lab.latex_signed(float(b))}"
        for a, b in zip(one.q, one.k, strict=True)
    ]
    dots = r" + \cdots" if len(terms) > MAX_TERMS else ""
    product = rf"{lab.latex(one.dot)} = q^\top k = {' + '.join(terms[:MAX_TERMS])}{dots}"
    if not one.allowed:
        return (
            symbols,
            product,
            rf"s_{{{pair}}} = -\infty \quad (\text{{masked}}), \qquad \alpha_{{{pair}}} = 0",
        )
    step = _scaled(
        one,
        lab.latex(one.dot),
        str(len(one.q)),
        rf"{one.scale:.4f} \cdot {lab.latex_signed(one.dot)}",
    )
    step += "" if one.bias is None else lab.added(one.bias)
    value = one.dot * one.scale + (one.bias or 0.0)
    if one.capped is not None:
        cap, value = lab.latex(layer.softcap or 0), one.capped
        step = rf"{cap} \tanh\!\left(\frac{{{step}}}{{{cap}}}\right)"
    shift = float(one.scores.max())
    total = float(np.exp(one.scores - shift).sum()) + (
        0.0 if one.sink is None else float(np.exp(one.sink - shift))
    )
    over = rf"e^{{{lab.latex(one.score)}{lab.added(-shift)}}}"
    return (
        symbols,
        product,
        rf"s_{{{pair}}} = {step} = {lab.latex(value)}",
        rf"\alpha_{{{pair}}} = \frac{{{over}}}{{{total:.3f}}} = {one.weight:.4f}",
    )


def _scaled(one: WeightBreakdown, product: str, size: str, times: str) -> str:
    """q·k times its scale, written as a division by a root where it is one, else as `times`."""
    if np.isclose(one.scale, len(one.q) ** -0.5):
        times = rf"\frac{{{product}}}{{\sqrt{{{size}}}}}"
    return product if one.scale == 1 else times


def conditions(
    source: str, cell: Cell, layer: LayerAttention, one: WeightBreakdown, own: float
) -> str:
    group, readers = layer.kv_group(cell.head)
    share = lab.number(1 - float(one.weights.sum()))
    parts = (
        (
            True,
            f"{lab.plain(source)}: q, k and what is added to the scores are the model's own. The weight computed from "
            f"them is {one.weight:.7f}; the model's is {own:.7f}.",
        ),
        (
            len(readers) > 1,
            f"Key and value head {group} is read by query heads {readers[0]} to {readers[-1]}: "
            f"{len(layer.q)} query heads share {len(layer.k)}.",
        ),
        (
            layer.scale == 1,
            "This family scales q or k before their product, or, as GPT-Neo and T5, not at all.",
        ),
        (
            one.bias is not None,
            "b is all that the family adds: by the distance, or, as in DeBERTa and XLNet, also by "
            "what stands there.",
        ),
        (
            one.sink is not None,
            f"A learned sink scores {lab.number(one.sink or 0.0)} in this head and takes {share} of this row.",
        ),
    )
    return " ".join(sentence for holds, sentence in parts if holds)


# The page Inside one weight, from the model picker to the equation.


# Pixels: a strip's name, its height, what is left under it; the bars
NAME, STRIP, GAP, BARS = 18, 16, 6, 150
# The last where a norm or a factor follows
ROTATION_STEPS = ("before rotation", "rotated", "scaled")
TALL, NAMES = 110, 62  # pixels: a row of bars, and the names of its keys
Strips = Mapping[str, np.ndarray]  # vectors by name, each drawn as one line of coloured cells


def page() -> None:
    lab.title(
        "Inside one weight",
        "How a query and a key give one weight, number by number.",
    )
    chosen = lab.choose_model(needs=("qkv",))
    if chosen is not None:
        _weight(chosen)


@lab.fragment
def _weight(chosen: lab.ModelChoice) -> None:
    controls, reading = draw_controls(chosen), chosen.reading
    trace, cell = controls.trace, controls.cell
    layers = lab.study_of(layer_attentions, controls.ref, controls.inputs)
    layer = layers[controls.kind, cell.layer]
    one = break_down_weight(layer, cell.head, cell.query, cell.key)
    lab.add_script(partial(script, controls, one))
    item, head = trace.map(cell.layer), trace.name((cell.layer, cell.head))
    query, key = item.queries[cell.query], item.keys[cell.key]
    left, right = st.columns([1, 1.15], gap="large")
    with left:
        lab.attention_view(
            trace,
            key=MAP,
            layer=cell.layer,
            head=cell.head,
            pin=(cell.query, cell.key),
            query=cell.query,
            show="matrix",
            height=420,
            pin_lists=(QUERY, KEY),
            title=f"Head {head}: press a cell to open it",
            fact=f"Head {head}; the open cell is the query {cell.query} and the key {cell.key}",
        )
    with right:
        lab.fact(weight_fact(head, one, query, key))
        _row(one, item.keys, cell.key)
    # q and k dimension by dimension, before and after rotation where the family rotates
    st.markdown("## Where the query and the key agree")
    dimensions = np.arange(len(one.q))
    if Controls.draw("order", into=lab.HERE).order == "largest":
        dimensions = np.argsort(-np.abs(one.products), kind="stable")
    strips = {f"q · {query}": one.q, f"k · {key}": one.k}
    if one.unrotated_q is not None and one.unrotated_k is not None:
        follows = one.rotated_q is not None or one.rotated_k is not None
        names = [f"q · {query}", f"k · {key}"]
        steps = [(one.unrotated_q, one.unrotated_k), rotated(one), (one.q, one.k)][: 2 + follows]
        strips = {
            f"{name}, {what}": values
            for name, of in zip(names, zip(*steps, strict=True), strict=True)
            for what, values in zip(ROTATION_STEPS, of, strict=False)
        }
    _draw(
        products_chart(strips, one.products, dimensions, lab.theme()),
        "meeting",
        f"Query of {query} times key of {key}, dimension by dimension",
    )
    st.caption(
        "Each bar is the product of the two numbers above it: green where their signs agree, purple where they "
        "differ. The line adds the bars up to q·k."
    )
    if one.unrotated_q is not None:
        lab.fact(rotation_fact(one, cell))
    st.markdown("## What the weight carries")
    strips = {
        f"v · {key}": one.value,
        "α · v": one.contribution,
        f"output of {query}, the sum over all keys": one.out,
    }
    _draw(
        _figure(_cells(strips, np.arange(len(one.out)), lab.theme()), _tall(strips))
        | lab.table_columns(_columns(strips)),
        "carried",
        f"What the weight carries from {key} to {query}",
    )
    lab.fact(carried_fact(one, query, key))
    for line in equation(cell, layer, one, query, key):
        st.latex(line, width="content")
    st.caption(
        " ".join(
            filter(
                None,
                (
                    conditions(
                        reading.trace.source,
                        cell,
                        layer,
                        one,
                        float(item.weights[cell.head, cell.query, cell.key]),
                    ),
                    reading.note if one.sink is None else None,  # it has a sentence of its own
                ),
            )
        )
    )
    lab.details(
        "Where these numbers come from",
        partial(
            lab.sources,
            (
                f"The layer's queries ({' × '.join(map(str, layer.q.shape))}) and keys are recorded on their way into the "
                "model's own attention; this function computes one weight from them, step by step. Vaswani et al. 2017, "
                "equation 1; rotation: Su et al. 2021; shared key heads: Ainslie et al. 2023."
            ),
            break_down_weight,
        ),
    )


def _row(one: WeightBreakdown, keys: Sequence[str], picked: int) -> None:
    # The row that the softmax sees, and a sink beside its keys
    sunk = [] if one.sink is None else [np.float32(one.sink)]
    names, scores = (*keys, *["sink"] * len(sunk)), np.append(one.scores, sunk)
    weights = np.append(one.weights, [1 - one.weights.sum()] * len(sunk))
    weights = np.where(np.isfinite(scores), weights, -np.inf)
    st.markdown(":small[**Scores of the row**]")
    _draw(
        row(names, scores, picked, lab.theme(), "score", named=False),
        "scores",
        "Scores of the row",
    )
    st.markdown(":small[**Weights of the row**; the dotted line is uniform attention]")
    _draw(
        row(
            names,
            weights,
            picked,
            lab.theme(),
            "weight",
            1 / int(np.isfinite(one.scores).sum()),
        ),
        "weights",
        "Weights of the row",
    )


def _draw(spec: lab.Spec, name: str, alt: str) -> None:
    lab.draw_chart(st, spec, key=f"inside_weight:{name}", theme=None, alt=alt)


# The page's Vega-Lite figures: q and k by dimension, the row that the softmax sees, and what the weight carries.


def products_chart(
    strips: Strips, products: np.ndarray, order: np.ndarray, theme: lab.Theme
) -> lab.Spec:
    """q and k as strips, and under each dimension its product as a bar; a line adds the products up to q·k."""
    ink, top = lab.Ink.of(theme), _tall(strips)
    at, running = _across(len(order)), np.cumsum(products[order])
    low, high = (
        1.2 * float(end)
        for end in (
            min(0.0, products.min(), running.min()),
            max(0.0, products.max(), running.max()),
        )
    )
    y = {
        "type": "quantitative",
        "title": None,
        "axis": {**lab.axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4},
        "scale": {"domain": [low, high or 1.0], "nice": False, "range": [top + BARS, top]},
    }
    colours = lab.colour_scale(theme, signed=True)
    sums = [{"at": index, "sum": float(value)} for index, value in enumerate(running)]
    line = {"x": {**at, "field": "at"}, "y": {**y, "field": "sum"}}
    end = [sums[-1] | {"text": f"q·k = {lab.number(sums[-1]['sum'])}"}]
    return _figure(
        [
            *_cells(strips, order, theme),
            lab.layer(
                "bar",
                [
                    row
                    | {"product": float(product), "told": lab.number(product), "sum": float(total)}
                    for row, product, total in zip(
                        _rows(strips, order), products[order], running, strict=True
                    )
                ],
                {
                    "x": {**at, "field": "from"},
                    "x2": {"field": "to"},
                    "y": {**y, "field": "product"},
                    "y2": {"datum": 0},
                    "tooltip": [*_tips(strips), lab.text_tip("told", "product")],
                    "color": {
                        "condition": {"test": "datum.product < 0", "value": colours[2]},
                        "value": colours[8],
                    },
                },
            )
            | AROUND,
            lab.layer(
                "line",
                sums,
                line,
                color=ink.text,
                strokeWidth=1.5,
                interpolate="step-after",
                tooltip=False,
            ),
            lab.layer("point", end, line, color=ink.text, filled=True, size=36, opacity=1),
            lab.layer(
                "text",
                end,
                {**line, "text": {"field": "text"}},
                align="right",
                dx=-7,
                dy=-10 if running[-1] >= 0 else 12,
                fontSize=12,
                fontWeight=600,
                color=ink.text,
            ),
        ],
        top + BARS,
    ) | lab.table_columns(_columns(strips) | {"product": "product", "sum": "sum so far"})


def row(
    tokens: Sequence[str],
    values: np.ndarray,
    picked: int,
    theme: lab.Theme,
    name: str,
    level: float | None = None,
    named: bool = True,
) -> lab.Spec:
    """One bar a key, the picked one in the accent, none where `values` are not finite (masked).

    `level` is a dotted line to compare with; `named` writes the keys below.
    """
    ink, finite = lab.Ink.of(theme), np.isfinite(values)
    shown, few = (
        np.where(finite, values, 0.0),
        len(tokens) <= 48,
    )  # else their positions are written
    rows = [
        {
            "at": index,
            "from": index - 0.42,
            "to": index + 0.42,
            "token": f"{index} · {token}",
            name: float(shown[index]),
            "told": lab.number(shown[index]),
            "seen": "" if finite[index] else "masked",
            "picked": index == picked,
            "key": token,
            "value": float(values[index]) if finite[index] else None,
        }
        for index, token in enumerate(tokens)
    ]
    axis = (
        lab.axis_style(ink)
        | {"grid": False, "title": None, "labelLimit": 90, "labelFontSize": 12}
        | (
            {
                "values": list(range(len(tokens))),
                "labelAngle": -90,
                "labelOverlap": True,
                "labelExpr": f"[{','.join(map(lab.quoted, tokens))}][datum.value]",
            }
            if few
            else {"tickCount": 8}
        )
    )
    at = _across(len(tokens)) | {"axis": axis if named else None}
    y = {
        "field": name,
        "type": "quantitative",
        "title": None,
        "scale": {
            "domain": [float(shown.min(initial=0)), float(shown.max(initial=0)) or 1e-6],
            "nice": True,
        },
        "axis": {**lab.axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 3},
    }
    layers = [
        lab.layer(
            "bar",
            rows,
            {
                "x": {**at, "field": "from"},
                "x2": {"field": "to"},
                "y": y,
                "y2": {"datum": 0},
                "color": {
                    "condition": {"test": "datum.picked", "value": ink.pick},
                    "value": ink.series[0],
                },
                "tooltip": [
                    {"field": "token", "title": "key"},
                    lab.text_tip("told", name),
                    {"field": "seen", "title": " "},
                ],
            },
        ),
        lab.layer(
            "text",
            [one | {"text": "masked"} for one in rows if one["seen"]][:1],
            {"x": {**at, "field": "at"}, "y": {"value": 10}, "text": {"field": "text"}},
            align="left",
            dx=-4,
            fontSize=12,
            color=ink.quiet,
        ),
    ]
    if level is not None:
        layers.append(
            lab.layer(
                "rule",
                [{"level": level}],
                {"y": {**y, "field": "level"}},
                color=ink.quiet,
                strokeDash=[2, 2],
            )
        )
    titles = {"at": "position", "key": "key", "value": name}
    return _figure(layers, TALL + (NAMES if named and few else 0)) | lab.table_columns(titles)


def _tall(strips: Strips) -> int:
    return len(strips) * (NAME + STRIP + GAP)


def _across(count: int) -> lab.Spec:
    return {
        "type": "quantitative",
        "title": None,
        "axis": None,
        "scale": {"domain": [-0.5, count - 0.5], "nice": False},
    }


def _cells(strips: Strips, order: np.ndarray, theme: lab.Theme) -> list[lab.Spec]:
    layers, at, rows = [], _across(len(order)), _rows(strips, order)
    most = max(float(np.abs(values).max()) for values in strips.values()) or 1.0
    colour = {
        "type": "quantitative",
        "legend": None,
        "scale": {
            "range": lab.colour_scale(theme, signed=True),
            "domain": [-most, most],
            "domainMid": 0,
            "interpolate": "rgb",
        },
    }
    for index, label in enumerate(strips):
        top = index * (NAME + STRIP + GAP) + NAME
        layers += [
            lab.layer(
                "text",
                [{"text": label}],
                {"x": {"value": 0}, "y": {"value": top - 5}, "text": {"field": "text"}},
                align="left",
                baseline="bottom",
                fontSize=12,
                color=lab.Ink.of(theme).quiet,
            ),
            lab.layer(
                "rect",
                rows,
                {
                    "x": {**at, "field": "from"},
                    "x2": {"field": "to"},
                    "y": {"value": top - 2},
                    "y2": {"value": top - 2 + STRIP},
                    "color": {**colour, "field": f"strip{index}"},
                    "tooltip": _tips(strips),
                },
            )
            | AROUND,
        ]
    return layers


# A layer whose marks reach half a dimension to both sides.
AROUND: lab.Spec = {
    "transform": [
        {"calculate": "datum.at - 0.46", "as": "from"},
        {"calculate": "datum.at + 0.46", "as": "to"},
    ]
}


def _rows(strips: Strips, order: np.ndarray) -> list[lab.Spec]:
    return [
        {"at": at, "dimension": int(dimension)}
        | {f"strip{index}": float(one[dimension]) for index, one in enumerate(strips.values())}
        | {f"told{index}": lab.number(one[dimension]) for index, one in enumerate(strips.values())}
        for at, dimension in enumerate(order)
    ]


def _columns(strips: Strips) -> dict[str, str]:
    return {"dimension": "dimension"} | {f"strip{at}": name for at, name in enumerate(strips)}


def _tips(strips: Strips) -> list[lab.Spec]:
    return [
        lab.whole_tip("dimension", "dimension"),
        *(lab.text_tip(f"told{index}", name) for index, name in enumerate(strips)),
    ]


def _figure(layers: Sequence[lab.Spec], height: int) -> lab.Spec:
    """Layers whose colours have scales of their own."""
    return lab.figure(layers, height) | {
        "resolve": {"scale": {"color": "independent"}},
        "config": {"view": {"stroke": None}, "font": '"Source Sans", sans-serif'},
    }
