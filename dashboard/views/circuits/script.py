"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.interpret.trace import to_numpy
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.circuits.compute import Circuits, singular_values
from dashboard.views.circuits.controls import Controls
from dashboard.views.circuits.induction import PAIR, induction_circuit
from dashboard.widgets.model_picker.code import model_cell

HEADS = "The matrices of every head, with the norms' gains folded in, and two measures of each."
EDGES = "Composition of each head with the heads before it, less the level of random matrices."
HEAD = "One head: the singular values of its circuits, and what they make of one token."
PATCHED = "The same circuit by patching: the heads of each layer that bring back most of the difference of two texts."


def script(controls: Controls, circuits: Circuits) -> Script:
    """The measures of every head, compositions of the chosen kind, and the circuits of the open head."""
    copying = [one.copying for one in circuits.measures]
    results = {
        "[one.tolist() for one in ranks]": np.array(
            [one.ranks.tolist() for one in circuits.measures]
        )
    }
    cells = [
        model_cell(controls.ref),
        Cell(HEADS, _heads(copying[0] is not None), _grid("ranks"), "circuits:rank"),
    ]
    if copying[0] is not None:
        results["[one.tolist() for one in copying]"] = np.array(
            [one.tolist() for one in copying if one is not None]
        )
    if controls.kind is not None:
        pairs = circuits.pairs(controls.kind)
        cells.append(Cell(EDGES, _edges(controls)))
        results["[score for score, *_ in pairs]"] = np.array([edge.score for edge in pairs])
    more, values = _head(controls, circuits)
    cells.append(Cell(HEAD, more))
    if (circuit := induction_circuit(controls.ref)) is not None:
        cells.append(Cell(PATCHED, _patched()))
        results["shares"] = np.array(circuit.effects)
    return Script(tuple(cells), results | values)


def _heads(tokens: bool) -> str:
    more = (
        "\ncopying = [copying_scores(one, vocabularies) for one in heads]  # -1 to 1"
        if tokens
        else ""
    )
    return f"""
from core.interpret.circuits import {"copying_scores, " if tokens else ""}effective_rank, ov_factors, qk_factors
from core.interpret.circuits import read_heads, read_vocabularies

heads = read_heads(model)  # of each layer W_Q, W_K, W_V (H, C, D) and W_O (H, D, C)
vocabularies = read_vocabularies(model){more}
ranks = [effective_rank(ov_factors(one)[1]) for one in heads]  # of W_V W_O, by its singular values
"""


def _edges(controls: Controls) -> str:
    return f"""
from core.interpret.circuits import compositions

scores = compositions(heads)  # by kind (Q, K, V), earlier and later layer: (heads, heads)
pairs = sorted(((float(score), (earlier, a), (later, b)) for (kind, earlier, later), one in scores.items()
                if kind == {controls.kind!r} for a, row in enumerate(one) for b, score in enumerate(row)), reverse=True)
for score, source, target in pairs[:{controls.edges}]:
    print(f"{controls.kind}: {{source}} -> {{target}} {{score:+.3f}}")
"""


def _head(controls: Controls, circuits: Circuits) -> tuple[str, dict[str, np.ndarray]]:
    row, head = controls.head
    one, tables = circuits.heads[row], circuits.vocabularies
    singular = singular_values(controls.ref, controls.head)
    lines = [f"ov = ov_factors(heads[{row}])[1][{head}]  # singular values of W_V W_O"]
    results = {"ov": singular["OV"]}
    if "QK" in singular:
        lines.append(f"qk = qk_factors(heads[{row}])[1][{head}]  # of W_Q W_K transposed")
        results["qk"] = singular["QK"]
    if circuits.has_tokens(row):
        lines[:0] = ["from core.pretrained.generate import token_names", ""]
        lines += [
            f"token = {controls.token}  # {controls.word!r}",
            f"written = vocabularies.written(heads[{row}], {head}, token)  # (V,) what attending to it adds to "
            "each logit",
            'print("raises", *token_names(model, written.topk(8).indices).values())',
        ]
        results["written"] = to_numpy(tables.written(one, head, controls.token))
        attended = tables.attended(one, head, controls.token)
        if attended is not None:
            lines += [
                f"attended = vocabularies.attended(heads[{row}], {head}, token)  # (V,) the score of its query "
                "with each key",
                'print("matches", *token_names(model, attended.topk(8).indices).values())',
            ]
            results["attended"] = to_numpy(attended)
    return "\n".join(lines), results


def _patched() -> str:
    clean, swapped = (source_of(one.text) for one in PAIR)
    return f"""
from core.pretrained import ModelInputs
from core.interpret.patching import pair_of, patch, ranked

clean = ModelInputs({clean})
swapped = ModelInputs({swapped})
pair = pair_of(model, clean, swapped)
best = ranked(patch(pair), "denoise")  # ((kind, layer), head, share of the difference), the largest first
shares = [next(share for (_, layer), head, share in best if layer == number) for number in (0, 1)]
print(best[:5])
"""


def _grid(name: str) -> str:
    return f"""
import altair as alt
import pandas as pd

cells = [{{"layer": layer, "head": head, "rank": float(value)}}
         for layer, one in enumerate({name}) for head, value in enumerate(one)]
alt.Chart(pd.DataFrame(cells)).mark_rect().encode(x="head:O", y="layer:O", color="rank:Q")
"""
