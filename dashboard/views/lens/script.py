"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.interpret.attribution import Attribution
from core.interpret.trace import to_numpy
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.lens.compute import WINDOW, Decision
from dashboard.views.lens.controls import Controls
from dashboard.widgets.model_picker.code import model_cell, question_code

ASK = "The answer of the whole model at one position."
LENS = (
    "Every layer read as if it were the last: the likeliest tokens after each, at every position."
)
ALONG = "The answer and other tokens through the layers, and the layer from which the answer stays the likeliest."
PARTS = "The logit as a sum of what each part of the model wrote, the largest first."


def when_script(controls: Controls, decision: Decision, words: Mapping[int, str]) -> Script:
    """The logit lens, and the probability and the rank of some tokens after each layer."""
    lens, along = decision.lens, decision.trajectories
    window = f", {lens.start}, {lens.start + WINDOW}" if len(controls.line) > WINDOW else ""
    grid = f"""
from core.interpret.lens import first_likeliest, follow_tokens, read_lens

lens = read_lens(baseline{window})  # states (N, T, C) after the embedding and each layer
likeliest = lens.top[:, :, 0]  # (N, T) token ids
probabilities = lens.probabilities[:, :, 0]
"""
    names = [words[token] for token in decision.tokens]
    tokens = {
        name if names.count(name) == 1 else f"{name} #{token}": token
        for name, token in zip(names, decision.tokens, strict=True)
    }
    follow = f"""
tokens = {source_of(tokens)}
along = follow_tokens(baseline, lens, baseline.answer.position, list(tokens.values()))
first, stays = first_likeliest(along)  # states: 0 is the embedding
print("the likeliest from state", stays, "on; its probability after each:", along.probabilities[:, 0].tolist())
"""
    cells = (
        model_cell(controls.ref, controls.question.inputs),
        _ask(controls),
        Cell(LENS, grid, _GRID, "lens:grid"),
        Cell(ALONG, follow, _CURVES, "lens:probability"),
    )
    return Script(
        cells,
        {
            "lens.top": to_numpy(lens.top),
            "lens.probabilities": to_numpy(lens.probabilities),
            "lens.entropy": to_numpy(lens.entropy),
            "along.probabilities": to_numpy(along.probabilities),
            "along.ranks": to_numpy(along.ranks),
            "[-1 if one is None else one for one in (first, stays)]": np.array(
                [-1 if one is None else one for one in (decision.first, decision.stays)]
            ),
        },
    )


def who_script(controls: Controls, attribution: Attribution) -> Script:
    """The parts of the answer's logit, or of its difference from another."""
    contrast = "" if controls.contrast is None else f", {controls.contrast}"
    parts = f"""
from core.interpret.attribution import attribute_logit

attribution = attribute_logit(baseline, baseline.id{contrast})
parts = sorted(attribution.parts, key=lambda part: -abs(part.value))
for part in parts[:10]:
    print(f"{{part.value:+.3f}} {{part.role}} {{part.key or part.name}} {{'' if part.head is None else part.head}}")
print("sum of the parts:", attribution.total, "logit:", attribution.logit)
"""
    ranked = sorted(attribution.parts, key=lambda part: -abs(part.value))
    cells = (
        model_cell(controls.ref, controls.question.inputs),
        _ask(controls),
        Cell(PARTS, parts, _PARTS_CHART, "lens:parts"),
    )
    return Script(
        cells,
        {
            "[part.value for part in parts]": np.array([part.value for part in ranked]),
            "attribution.total": np.array(attribution.total),
            "attribution.logit": np.array(attribution.logit),
        },
    )


def _ask(controls: Controls) -> Cell:
    code = f"""
from core.interpret.evidence import Question, ask

baseline = ask(model, {question_code(controls.question)})
print(baseline.word, baseline.value)
"""
    return Cell(ASK, code)


_GRID = """
import altair as alt
import pandas as pd

from core.pretrained.generate import token_names

words = token_names(model, likeliest.flatten().tolist())
cells = [{"state": state, "position": lens.start + at, "token": words[one], "probability": float(probability)}
         for state, row in enumerate(zip(likeliest.tolist(), probabilities))
         for at, (one, probability) in enumerate(zip(*row))]
base = alt.Chart(pd.DataFrame(cells)).encode(x="position:O", y=alt.Y("state:O", sort="descending"))
base.mark_rect().encode(color="probability:Q") + base.mark_text(size=9).encode(text="token:N")
"""
_CURVES = """
curves = pd.DataFrame(along.probabilities.numpy(), columns=list(tokens)).rename_axis("state").reset_index()
alt.Chart(curves.melt("state", var_name="token", value_name="probability")).mark_line().encode(
    x="state:Q", y="probability:Q", color="token:N")
"""
_PARTS_CHART = """
import altair as alt
import pandas as pd

heads = pd.DataFrame([{"layer": str(part.key), "head": part.head, "adds": part.value}
                      for part in parts if part.role == "head"])
alt.Chart(heads).mark_rect().encode(x="head:O", y="layer:N", color="adds:Q")
"""
