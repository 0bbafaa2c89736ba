"""Inside one weight: its sentences, its equation with numbers, and its figures."""

from collections.abc import Mapping, Sequence

import numpy as np

from core.interpret.evidence import Cell, LayerAttention, WeightBreakdown
from dashboard.draw.figures import (
    Ink,
    Spec,
    Theme,
    axis_style,
    colour_scale,
    figure,
    layer,
    quoted,
    table_columns,
    text_tip,
    whole_tip,
)
from dashboard.draw.formats import (
    added,
    latex,
    latex_name,
    latex_signed,
    number,
    percent,
    plain,
    plural,
    share_text,
)

MAX_TERMS = 2
TELLING = 3  # dimensions named in the fact


def weight_fact(head: str, one: WeightBreakdown, query: str, key: str) -> str:
    """What a query takes from a key, and the score that gives it."""
    taken = f"In head **{head}**, the query :primary[**{plain(query)}**] takes **{share_text(one.weight)}**"
    if not one.allowed:
        return f"{taken} from **{plain(key)}**: q·k = **{number(one.dot)}**, but the cell is masked, so its weight is **0**."
    rank, visible = 1 + int((one.scores > one.score).sum()), int(np.isfinite(one.scores).sum())
    return (
        f"{taken} from the key **{plain(key)}**; uniform attention would take {number(1 / visible)}. Their product "
        f"q·k is **{number(one.dot)}**; scaled, {number(one.score)}, it is "
        f"{'the largest' if rank == 1 else f'number {rank}'} of {visible} scores."
    )


def products_text(one: WeightBreakdown) -> str:
    """Which products make up q·k."""
    extreme, sign = ("largest", 1) if one.dot >= 0 else ("most negative", -1)
    share = sign * float(np.sort(sign * one.products)[::-1][:TELLING].sum())
    return (
        f"The signs agree in {int((one.products > 0).sum())} of {len(one.products)} dimensions; the {TELLING} {extreme} "
        f"products sum to {number(share)}."
    )


def rotation_fact(one: WeightBreakdown, cell: Cell) -> str:
    assert one.unrotated_q is not None and one.unrotated_k is not None
    apart, more = abs(cell.query - cell.key), "At the same position, rotation changes nothing."
    q, k = rotated(one)
    stretch = float(np.linalg.norm(q) / np.linalg.norm(one.unrotated_q))
    if abs(stretch - 1) > 1e-3:
        more = f"The rotation also scales both by {number(stretch)}."
    if one.rotated_q is not None or one.rotated_k is not None:
        more += (
            f" A norm or a factor follows the rotation, and makes the product {number(one.dot)}."
        )
    return (
        f"Before rotation their product is {number(float(one.unrotated_q @ one.unrotated_k))}; after it, "
        f"{plural(apart, 'position')} apart, it is {number(float(q @ k))}. {more}"
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
        f"This weight adds α·v of {plain(key)}, of length {number(float(np.linalg.norm(one.contribution)))}, to "
        f"the output of {plain(query)}, of length {number(whole)}. Along the output, it contributes "
        f"**{percent(share)}**; the weight alone is {percent(one.weight)}."
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
    pair = f"{latex_name(query, cell.query)},\\,{latex_name(key, cell.key)}"
    terms = [
        rf"{latex_signed(float(a))} \cdot {latex_signed(float(b))}"
        for a, b in zip(one.q, one.k, strict=True)
    ]
    dots = r" + \cdots" if len(terms) > MAX_TERMS else ""
    product = rf"{latex(one.dot)} = q^\top k = {' + '.join(terms[:MAX_TERMS])}{dots}"
    if not one.allowed:
        return (
            symbols,
            product,
            rf"s_{{{pair}}} = -\infty \quad (\text{{masked}}), \qquad \alpha_{{{pair}}} = 0",
        )
    step = _scaled(
        one,
        latex(one.dot),
        str(len(one.q)),
        rf"{one.scale:.4f} \cdot {latex_signed(one.dot)}",
    )
    step += "" if one.bias is None else added(one.bias)
    value = one.dot * one.scale + (one.bias or 0.0)
    if one.capped is not None:
        cap, value = latex(layer.softcap or 0), one.capped
        step = rf"{cap} \tanh\!\left(\frac{{{step}}}{{{cap}}}\right)"
    shift = float(one.scores.max())
    total = float(np.exp(one.scores - shift).sum()) + (
        0.0 if one.sink is None else float(np.exp(one.sink - shift))
    )
    over = rf"e^{{{latex(one.score)}{added(-shift)}}}"
    return (
        symbols,
        product,
        rf"s_{{{pair}}} = {step} = {latex(value)}",
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
    share = number(1 - float(one.weights.sum()))
    parts = (
        (
            True,
            f"{plain(source)}: q, k and what is added to the scores are the model's own. The weight computed from "
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
            f"A learned sink scores {number(one.sink or 0.0)} in this head and takes {share} of this row.",
        ),
    )
    return " ".join(sentence for holds, sentence in parts if holds)


# The Vega-Lite figures: q and k by dimension, the row that the softmax sees, and what the weight carries.


# Pixels: a strip's name, its height, what is left under it; the bars
NAME, STRIP, GAP, BARS = 18, 16, 6, 150
# The last where a norm or a factor follows
ROTATION_STEPS = ("before rotation", "rotated", "scaled")
TALL, NAMES = 80, 62  # pixels: a row of bars, and the names of its keys
Strips = Mapping[str, np.ndarray]  # vectors by name, each drawn as one line of coloured cells


def meeting_strips(one: WeightBreakdown, query: str, key: str) -> Strips:
    """The query and the key, at each step of a rotation where there is one."""
    names = [f"q · {query}", f"k · {key}"]
    if one.unrotated_q is None or one.unrotated_k is None:
        return dict(zip(names, (one.q, one.k), strict=True))
    steps = [(one.unrotated_q, one.unrotated_k), rotated(one)]
    if one.rotated_q is not None or one.rotated_k is not None:
        steps.append((one.q, one.k))
    return {
        f"{name}, {what}": values
        for name, of in zip(names, zip(*steps, strict=True), strict=True)
        for what, values in zip(ROTATION_STEPS, of, strict=False)
    }


def carried_chart(one: WeightBreakdown, query: str, key: str, theme: Theme) -> Spec:
    strips = {
        f"v · {key}": one.value,
        "α · v": one.contribution,
        f"output of {query}, the sum over all keys": one.out,
    }
    layers = _cells(strips, np.arange(len(one.out)), theme)
    return _figure(layers, _tall(strips)) | table_columns(_columns(strips))


def products_chart(strips: Strips, products: np.ndarray, order: np.ndarray, theme: Theme) -> Spec:
    """q and k as strips, and under each dimension its product as a bar; a line adds the products up to q·k."""
    ink, top = Ink.of(theme), _tall(strips)
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
        "axis": {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4},
        "scale": {"domain": [low, high or 1.0], "nice": False, "range": [top + BARS, top]},
    }
    colours = colour_scale(theme, signed=True)
    sums = [{"at": index, "sum": float(value)} for index, value in enumerate(running)]
    line = {"x": {**at, "field": "at"}, "y": {**y, "field": "sum"}}
    end = [sums[-1] | {"text": f"q·k = {number(sums[-1]['sum'])}"}]
    return _figure(
        [
            *_cells(strips, order, theme),
            layer(
                "bar",
                [
                    row | {"product": float(product), "told": number(product), "sum": float(total)}
                    for row, product, total in zip(
                        _rows(strips, order), products[order], running, strict=True
                    )
                ],
                {
                    "x": {**at, "field": "from"},
                    "x2": {"field": "to"},
                    "y": {**y, "field": "product"},
                    "y2": {"datum": 0},
                    "tooltip": [*_tips(strips), text_tip("told", "product")],
                    "color": {
                        "condition": {"test": "datum.product < 0", "value": colours[2]},
                        "value": colours[8],
                    },
                },
            )
            | AROUND,
            layer(
                "line",
                sums,
                line,
                color=ink.text,
                strokeWidth=1.5,
                interpolate="step-after",
                tooltip=False,
            ),
            layer("point", end, line, color=ink.text, filled=True, size=36, opacity=1),
            layer(
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
    ) | table_columns(_columns(strips) | {"product": "product", "sum": "sum so far"})


def row(
    tokens: Sequence[str],
    values: np.ndarray,
    picked: int,
    theme: Theme,
    name: str,
    level: float | None = None,
    named: bool = True,
) -> Spec:
    """One bar a key, the picked one in the accent, none where `values` are not finite (masked).

    `level` is a dotted line to compare with; `named` writes the keys below.
    """
    ink, finite = Ink.of(theme), np.isfinite(values)
    # else their positions are written
    shown, few = np.where(finite, values, 0.0), len(tokens) <= 48
    rows = [
        {
            "at": index,
            "from": index - 0.42,
            "to": index + 0.42,
            "token": f"{index} · {token}",
            name: float(shown[index]),
            "told": number(shown[index]),
            "seen": "" if finite[index] else "masked",
            "picked": index == picked,
            "key": token,
            "value": float(values[index]) if finite[index] else None,
        }
        for index, token in enumerate(tokens)
    ]
    axis = (
        axis_style(ink)
        | {"grid": False, "title": None, "labelLimit": 90, "labelFontSize": 12}
        | (
            {
                "values": list(range(len(tokens))),
                "labelAngle": -90,
                "labelOverlap": True,
                "labelExpr": f"[{','.join(map(quoted, tokens))}][datum.value]",
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
        "axis": {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 3},
    }
    layers = [
        layer(
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
                    text_tip("told", name),
                    {"field": "seen", "title": " "},
                ],
            },
        ),
        layer(
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
            layer(
                "rule",
                [{"level": level}],
                {"y": {**y, "field": "level"}},
                color=ink.quiet,
                strokeDash=[2, 2],
            )
        )
    titles = {"at": "position", "key": "key", "value": name}
    return _figure(layers, TALL + (NAMES if named and few else 0)) | table_columns(titles)


def _tall(strips: Strips) -> int:
    return len(strips) * (NAME + STRIP + GAP)


def _across(count: int) -> Spec:
    return {
        "type": "quantitative",
        "title": None,
        "axis": None,
        "scale": {"domain": [-0.5, count - 0.5], "nice": False},
    }


def _cells(strips: Strips, order: np.ndarray, theme: Theme) -> list[Spec]:
    layers, at, rows = [], _across(len(order)), _rows(strips, order)
    most = max(float(np.abs(values).max()) for values in strips.values()) or 1.0
    colour = {
        "type": "quantitative",
        "legend": None,
        "scale": {
            "range": colour_scale(theme, signed=True),
            "domain": [-most, most],
            "domainMid": 0,
            "interpolate": "rgb",
        },
    }
    for index, label in enumerate(strips):
        top = index * (NAME + STRIP + GAP) + NAME
        layers += [
            layer(
                "text",
                [{"text": label}],
                {"x": {"value": 0}, "y": {"value": top - 5}, "text": {"field": "text"}},
                align="left",
                baseline="bottom",
                fontSize=12,
                color=Ink.of(theme).quiet,
            ),
            layer(
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
AROUND: Spec = {
    "transform": [
        {"calculate": "datum.at - 0.46", "as": "from"},
        {"calculate": "datum.at + 0.46", "as": "to"},
    ]
}


def _rows(strips: Strips, order: np.ndarray) -> list[Spec]:
    return [
        {"at": at, "dimension": int(dimension)}
        | {f"strip{index}": float(one[dimension]) for index, one in enumerate(strips.values())}
        | {f"told{index}": number(one[dimension]) for index, one in enumerate(strips.values())}
        for at, dimension in enumerate(order)
    ]


def _columns(strips: Strips) -> dict[str, str]:
    return {"dimension": "dimension"} | {f"strip{at}": name for at, name in enumerate(strips)}


def _tips(strips: Strips) -> list[Spec]:
    return [
        whole_tip("dimension", "dimension"),
        *(text_tip(f"told{index}", name) for index, name in enumerate(strips)),
    ]


def _figure(layers: Sequence[Spec], height: int) -> Spec:
    """Layers whose colours have scales of their own."""
    return figure(layers, height) | {
        "resolve": {"scale": {"color": "independent"}},
        "config": {"view": {"stroke": None}, "font": '"Source Sans", sans-serif'},
    }
