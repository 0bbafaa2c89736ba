"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.interpret.evidence import Baseline, head_sets
from core.pretrained.attention_recorder import HeadSet
from dashboard.draw.scripts import Cell, Script
from dashboard.server.cache import measurements
from dashboard.views.evidence.compute import (
    MOST_ANSWERS,
    HeadMaps,
    answers_without,
    default_cell,
    scores,
)
from dashboard.views.evidence.controls import Controls, Head
from dashboard.widgets.model_picker.code import model_cell, question_code

Part = tuple[list[Cell], dict[str, np.ndarray]]  # cells, and the page's numbers that they compute
HEADS = "What the answer loses without each head, and without each layer: one forward pass each."
WITHOUT = "The likeliest answers with all heads, with these heads uniform, and with them off."
MAPS = "One head on the same tokens by each measure."
TOKENS = "The tokens by each measure, and the change of the answer when each is hidden."


def script(controls: Controls, head: Head, measures: HeadMaps, off: HeadSet) -> Script:
    """The measures that the page could take: of an array, rollout and flow alone."""
    baseline = controls.baseline
    cells = [model_cell(controls.ref, None if baseline is None else controls.question.inputs)]
    parts = [] if baseline is None else [_answers(controls, baseline, off)]
    parts.append(_maps(controls, head, measures))
    parts += [] if baseline is None else [_tokens(controls, parts[-1][0][0].code)]
    for more, _ in parts:
        cells += more
    return Script(
        tuple(cells), {name: value for _, results in parts for name, value in results.items()}
    )


def _answers(controls: Controls, baseline: Baseline, off: HeadSet) -> Part:
    ask = f"""
from core.interpret.evidence import Question, ask

baseline = ask(model, {question_code(controls.question)})
print(baseline.word or "cosine", baseline.value)
"""
    cells, results = (
        [Cell("The answer of the whole model.", ask)],
        {"baseline.value": np.array(baseline.value)},
    )
    if not controls.recordable:
        return cells, results
    cells += [Cell(HEADS, _EVERY, _GRID, "evidence:grid"), Cell(WITHOUT, _ways(baseline, off))]
    values = list(answers_without(controls, baseline, off).values())[:MOST_ANSWERS]
    results["values"] = np.array([list(by_way.values()) for by_way in values])
    measured, todo = measurements("evidence:heads", controls.key), head_sets(controls.reading.trace)
    if all(one in measured for one in todo):
        results["changes"] = np.array([measured[one].change for one in todo])
    return cells, results


def _ways(baseline: Baseline, off: HeadSet) -> str:
    """The values of the likeliest answers; of an embedding, its cosine."""
    answers = f"""off = {set(off)!r}  # (kind, layer, head); None is the whole layer
answers = [baseline.answer, baseline.rerun(uniform=frozenset(off)), baseline.rerun(off=frozenset(off))]
"""
    if baseline.id is None:
        return f"{answers}values = [[float(baseline.target_value(answer)) for answer in answers]]\nprint(values[0])\n"
    return f"""
from core.pretrained.answers import top_candidates
from core.interpret.evidence import quantity_values

{answers}likeliest = top_candidates(model, baseline.answer, {MOST_ANSWERS})
values = [[float(quantity_values(answer, baseline.quantity)[one.id]) for answer in answers] for one in likeliest]
for one, (on, uniform, without) in zip(likeliest, values):
    print(f"{{one.word}}: {{on:.3f}}, uniform {{uniform:.3f}}, off {{without:.3f}}")
"""


def _maps(controls: Controls, head: Head, measures: HeadMaps) -> Part:
    item, query = controls.maps[head[0]], default_cell(controls, head)[0]
    kind, layer, index = controls.head_id(head)
    imports = [
        "from core.interpret.trace import "
        + ("flows" if measures.known is None else "flow")
        + ", graph, rollout"
    ]
    lines = [
        f"trace = reading.trace.of({kind!r})",
        f"item = trace.map({layer})",
        f"weights = item.weights[{index}]  # (T, S)",
    ]
    if "written" in measures.maps or "gradient" in measures.maps:
        imports.append("from core.interpret.evidence import measure_contributions")
        lines.append("contributions = measure_contributions(baseline)")
    if "written" in measures.maps:
        lines += [
            f"written = contributions.norm_map({kind!r}, {layer}, item.weights)[{index}]  # ‖α·v·W_O‖",
            "written = written / written.sum(-1, keepdims=True).clip(1e-12)",
        ]
    if "gradient" in measures.maps:
        lines.append(
            f"gradient = contributions.gradient_map({kind!r}, {layer}, len(item.keys))[{index}]  "
            "# α·∂answer/∂α"
        )
    lines += [
        f"layers = graph(reading.trace, {kind!r}, {layer})  # all heads, up to and with this layer",
        "rolled = rollout(layers)",
    ]
    if "flow" in measures.maps:
        lines.append(
            "flowing = flows(layers)"
            if measures.known is None
            else f"flowing = flow(layers, {query})"
        )
    keys = (
        controls.reading.trace.of(kind).map(layer).weights.shape[-1]
    )  # without the column of a learned sink
    names = {
        "weights": "weights",
        "written": "written",
        "gradient": "gradient",
        "rollout": "rolled",
        "flow": "flowing",
    }
    results = {names[name]: values[:, :keys] for name, values in measures.maps.items()}
    if measures.known is not None:
        results["flowing"] = results["flowing"][query]
    shown = [
        name
        for name in results
        if results[name].shape == results["weights"].shape and name != "gradient"
    ]
    draw = f"""
from core.show import show_maps

show_maps({{{", ".join(f'"{name}": {name}' for name in shown)}}}, item.queries, item.keys, row={query})
"""
    return [
        Cell(
            f"{MAPS[:-1]}: {', '.join(measures.maps)}.",
            "\n".join(imports) + "\n\n" + "\n".join(lines),
            draw,
            "evidence:maps" if max(item.weights.shape) <= 640 else "evidence:row",
        )
    ], results


def _tokens(controls: Controls, head_code: str) -> Part:
    known = "contributions" in head_code
    tokens = (
        f"""
import numpy as np

from core.interpret.evidence import hide_token, {"" if known else "measure_contributions, "}token_scores
from core.ranks import kendall

{"" if known else "contributions = measure_contributions(baseline)"}
""".replace("\n\n\n", "\n\n")
        + """scores = token_scores(baseline, reading.trace, contributions)
hidden = np.array([hide_token(baseline, token).change for token in range(len(baseline.source))])
for name, score in scores.items():
    print(f"{name}: first {reading.source.tokens[score.argmax()]}, tau with hiding {kendall(score, abs(hidden))}")
rows = np.stack([*scores.values(), abs(hidden)])
shares = rows / rows.max(-1, keepdims=True).clip(1e-30)  # of the largest
"""
    )
    draw = """
from core.show import show_maps

show_maps({"Share of the largest": shares}, [*scores, "hidden"], reading.source.tokens)
"""
    measured = measurements("evidence:tokens", controls.key)
    count = len(controls.reading.source.tokens)
    if not all(token in measured for token in range(count)):
        return [], {}
    changes = np.array([measured[token].change for token in range(count)])
    rows = np.stack([*scores(controls).values(), np.abs(changes)])
    results = {f"scores[{name!r}]": values for name, values in scores(controls).items()}
    return [Cell(TOKENS, tokens, draw, "evidence:strip")], {
        **results,
        "hidden": changes,
        "shares": rows / np.maximum(rows.max(-1, keepdims=True), 1e-30),
    }


_EVERY = """
import numpy as np

from core.interpret.evidence import ablate_heads, head_sets

effects = {off: ablate_heads(baseline, off) for off in head_sets(reading.trace)}
changes = np.array([effect.change for effect in effects.values()])
(needed,) = list(effects)[abs(changes).argmax()]
print("largest change:", needed, changes[abs(changes).argmax()])
"""
_GRID = """
import altair as alt
import pandas as pd

rows = [{"layer": f"{kind} {layer}", "head": "all" if head is None else head, "change": effect.change}
        for off, effect in effects.items() for kind, layer, head in off]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="head:O", y="layer:N", color="change:Q")
"""
