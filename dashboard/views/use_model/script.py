"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.interpret.evidence import Question
from core.pretrained.answers import Candidate
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.use_model import compute
from dashboard.views.use_model.compute import Answer, Head
from dashboard.views.use_model.controls import Compared
from dashboard.widgets.model_picker import ModelChoice
from dashboard.widgets.model_picker.code import (
    import_block,
    inputs_lines,
    model_cell,
    question_code,
)

SIMILARITY = "The cosine of the embeddings of each pair."
ANSWER = "The model's answer, and the likeliest tokens or classes."
HEAD = "The answer without each head, and the map of one of them."
BARS = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame(likeliest)).mark_bar().encode(x="probability:Q", y=alt.Y("word:N", sort=None))
"""
PAIRS = """
import altair as alt
import pandas as pd

pairs = pd.DataFrame([{"row": names[i], "column": names[j], "cosine": float(table[i, j])}
                      for i in range(len(names)) for j in range(len(names))])
alt.Chart(pairs).mark_rect().encode(x=alt.X("column:N", sort=None), y=alt.Y("row:N", sort=None), color="cosine:Q")
"""


def embed_script(
    choice: ModelChoice, compared: Compared, table: np.ndarray, answer: Answer, head: Head
) -> Script:
    """The similarity of all pairs, and the head on which that of one pair depends most."""
    imports = {"from core.pretrained.answers import similarities"}
    others = "*map(ModelInputs, names[1:])"
    if choice.inputs.picture is not None:
        parts = [inputs_lines(choice.ref, inputs) for _, inputs in compared[1:]]
        imports, others = (
            imports.union(*(more for more, _ in parts)),
            ", ".join(line for _, line in parts),
        )
    code = f"""
{import_block(imports)}

names = {source_of([name for name, _ in compared])}
table = similarities(model, [inputs, {others}])  # (N, N)
print(table)
"""
    cell, results = _head(choice, answer, head)
    return Script(
        (
            model_cell(choice.ref, answer.baseline.question.inputs),
            Cell(SIMILARITY, code, PAIRS, "Similarity of each pair of sentences"),
            _ask(answer.baseline.question, "print(baseline.value)"),
            cell,
        ),
        {"table": table, "baseline.value": np.array(answer.baseline.value), **results},
    )


def answer_script(
    choice: ModelChoice, answer: Answer, predictions: Sequence[Candidate], head: Head
) -> Script:
    """The likeliest answers, and the head on which the first one depends most."""
    more = """
likeliest = top_candidates(model, baseline.answer, 8)  # id, word, probability
for one in likeliest:
    print(f"{one.word} {one.probability:.3f}")
"""
    cell, results = _head(choice, answer, head)
    picture = (
        "The likeliest next tokens"
        if answer.baseline.question.position is not None
        else "The likeliest answers"
    )
    return Script(
        (
            model_cell(choice.ref, answer.baseline.question.inputs),
            _ask(answer.baseline.question, more, BARS, picture),
            cell,
        ),
        {
            "[one.probability for one in likeliest]": np.array(
                [one.probability for one in predictions]
            ),
            "[one.id for one in likeliest]": np.array([one.id for one in predictions]),
            **results,
        },
    )


def _ask(question: Question, more: str, draw: str = "", picture: str = "") -> Cell:
    imports = {f"from core.interpret.evidence import {name}" for name in ("Question", "ask")}
    if draw:
        imports.add("from core.pretrained.answers import top_candidates")
    code = f"""
{import_block(imports)}

baseline = ask(model, {question_code(question)})
{more.strip()}
"""
    return Cell(
        ANSWER if draw else "What is measured: the cosine of one pair.", code, draw, picture
    )


def _head(choice: ModelChoice, answer: Answer, head: Head) -> tuple[Cell, dict[str, np.ndarray]]:
    """The map of the shown head, and where it was measured what the answer loses without each head."""
    kind = answer.trace.kinds[0]
    code = f"""
trace = reading.trace.of({kind!r})
weights = trace.head({head.index}, {head.head})  # (T, S)
"""
    results = {"weights": answer.trace.head(head.index, head.head)}
    if head.effect is not None:
        known = compute.effects(choice.ref, answer.baseline.question)
        results["changes"] = np.array([effect.change for effect in known.values()])
        code = f"""
import numpy as np

from core.interpret.evidence import ablate_heads
{code}
heads = [(item.kind, item.layer, head) for item in trace.maps for head in range(len(item.weights))]
changes = np.array([ablate_heads(baseline, frozenset({{head}})).change for head in heads])
print("depends most on", heads[abs(changes).argmax()], changes[abs(changes).argmax()])
"""
    draw = f"""
from core.show import show

show(trace, layer={head.index}, head={head.head}, query={head.row})
"""
    return Cell(
        HEAD if head.effect is not None else "The map of one head.", code, draw, "use_model:head"
    ), results
