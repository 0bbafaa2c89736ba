"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.interpret import trace as analysis
from dashboard.draw.scripts import Cell, Script
from dashboard.views.pretrained.compute import Pair, TraceView
from dashboard.views.pretrained.controls import Controls
from dashboard.widgets.model_picker import ModelChoice
from dashboard.widgets.model_picker.code import import_block, model_cell

MAPS = "The weights of every head; the head that attends most to the previous token."
HEAD = "One head, and the largest weights of one query."


def script(
    chosen: ModelChoice,
    controls: Controls,
    view: TraceView,
    ordered: TraceView,
    head: Pair,
    row: int,
    pin: Pair | None,
) -> Script:
    """All heads of the model on these inputs, the transform of tokens, and the picked head in its order."""
    layer, index = head
    sorts = _order(controls, head, pin)
    imports = (
        "from core.interpret.map_transform import received_weight\n\n"
        if "received_weight" in sorts
        else ""
    )
    one = f"""
{imports}name = trace.label({layer}, {index})
item = trace.map({layer})
weights = item.weights[{index}]  # (T, S)
queries, keys = item.queries, item.keys{sorts}
row = weights[{row}]
for key in (-row).argsort()[:3]:
    print(f"{{name}}: {{queries[{row}]}} -> {{keys[key]}} {{row[key]:.3f}}")
"""
    draw = f"""
from core.show import show{", show_maps" if sorts else ""}

{
        f"show_maps({{name: weights}}, queries, keys, row={row})"
        if sorts
        else f"show(trace, layer={layer}, head={index}, query={row})"
    }
"""
    grid = (
        ""
        if not sorts
        else f"from core.show import show\n\nshow(trace, layer={layer}, head={index})"
    )
    cells = (
        model_cell(chosen.ref, chosen.inputs if chosen.pretrained else None),
        Cell(MAPS, _maps(chosen, controls, view), grid, "pretrained:grid" if sorts else ""),
        Cell(HEAD, one, draw, "pretrained:head" if sorts else "pretrained:grid"),
    )
    maps = [item.weights for item in view.trace.maps]
    results = {
        "np.concatenate(heads)": np.concatenate(maps),
        "weights": ordered.trace.head(*head),
        "strongest(trace, previous_token)": np.array(
            analysis.strongest(view.trace, analysis.previous_token)
        ),
    }
    return Script(cells, results)


def _maps(chosen: ModelChoice, controls: Controls, view: TraceView) -> str:
    """The trace of one kind of attention, with a learned sink's column, transformed as the controls say."""
    imports = {
        "import numpy as np",
        "from core.interpret.trace import previous_token",
        "from core.interpret.trace import strongest",
    }
    lines = [f"trace = reading.trace.of({controls.kind!r})"]
    if chosen.reading.sinks:
        imports |= {"from core.pretrained.maps import with_sink"}
        lines.append("trace = with_sink(trace)  # one more key, the learned sink")
    options = {name: getattr(controls, name) for name in ("words", "special", "sinks", "sentences")}
    options = {name: value for name, value in options.items() if value and value != "all"}
    if options:
        imports |= {
            "from core.interpret.map_transform import transform_trace",
            "from core.interpret.map_transform import token_transform",
        }
        lines.append(f"rows, columns = reading.lines({controls.kind!r})  # the tokens")
        if chosen.reading.sinks:
            imports |= {"from core.pretrained.maps import sink_line"}
            lines.append("columns = sink_line(columns)")
        named = ", ".join(f"{name}={value!r}" for name, value in options.items())
        lines.append(
            f"transform = token_transform(trace, rows, columns, {named})\n"
            "trace = transform_trace(trace, transform)"
        )
    lines += [
        "heads = [item.weights for item in trace.maps]  # (H, T, S) for each layer",
        "layer, head, weight = strongest(trace, previous_token)",
        'print(trace.label(layer, head), "gives the previous token", weight)',
    ]
    return f"{import_block(imports)}\n\n" + "\n".join(lines)


def _order(controls: Controls, head: Pair, pin: Pair | None) -> str:
    """Lines that sort the rows and columns of the head as the controls say."""
    keys = f"weights[{pin[0]}]" if pin else f"received_weight(item)[{head[1]}]"
    queries = f"weights[:, {pin[1]}]" if pin else "weights.max(-1)"
    lines = []
    if controls.order in ("keys", "both"):
        lines.append(f'across = (-{keys}).argsort(kind="stable")  # keys by weight')
    if controls.order in ("queries", "both"):
        lines.append(f'down = (-{queries}).argsort(kind="stable")  # queries by weight')
    if controls.order in ("keys", "both"):
        lines.append("weights, keys = weights[:, across], [keys[key] for key in across]")
    if controls.order in ("queries", "both"):
        lines.append("weights, queries = weights[down], [queries[query] for query in down]")
    return "".join(f"\n{line}" for line in lines)
