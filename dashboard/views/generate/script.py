"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.interpret.trace import Head, to_numpy
from core.models.decoding import Hypothesis
from core.pretrained.generate import step_probabilities
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.generate.compute import LIKELIEST, StepView
from dashboard.widgets.model_picker.code import model_cell

SEARCH = "The search for a continuation; the best output first."
ATTENTION = "The logits and the attention of each step of one output."
STEP = "The likeliest tokens of one step, by the model and as the search uses them."
CHART = "The likeliest next tokens of this step"  # which is its key, too
BARS = f"""
import altair as alt
import pandas as pd

best = model_share.topk({LIKELIEST}).indices.tolist()
names = token_names(model, best)
bars = pd.DataFrame({{"token": [names[one] for one in best], "probability": model_share[best].numpy()}})
alt.Chart(bars).mark_bar().encode(x="probability:Q", y=alt.Y("token:N", sort=None))
"""


def script(view: StepView, hypotheses: Sequence[Hypothesis], head: Head) -> Script:
    """The search, the maps of the shown output, and the shares of the shown step."""
    controls, step = view.search.controls, view.step
    search = f"""
from core.models.decoding import SearchSettings
from core.pretrained.generate import decode_text, generate, prepare_generation, score_continuation
from core.pretrained.generate import step_probabilities, token_names

settings = {source_of(controls.settings)}
tree = generate(model, inputs, settings)
for output in tree.hypotheses:
    print(f"{{output.logp:.3f}} {{decode_text(model, output.tokens)}}")
"""
    shown = next((at for at, one in enumerate(hypotheses) if one.leaf == view.path[-1]), None)
    tokens = (
        source_of(list(view.tokens))
        if shown is None or not view.search.done
        else (f"tree.hypotheses[{shown}].tokens")
    )
    attention = f"""
tokens = {tokens}
start = prepare_generation(model, inputs)
continuation = score_continuation(model, start, tokens)  # logits (T, V)
trace = continuation.trace.of({view.kind!r})  # a row for each new token
weights = trace.head({head[0]}, {head[1]})  # (T, S)
"""
    draw = f"""
from core.show import show

show(trace, layer={head[0]}, head={head[1]}, query={step})
"""
    shares = f"""
logits = continuation.logits[{step}]
model_share = logits.softmax(-1)
search_share = step_probabilities(model, start, settings, tokens[:{step}], logits)
"""
    logits = view.continuation.logits[step]
    used = step_probabilities(
        view.pretrained, view.search.start, controls.settings, view.tokens[:step], logits
    )
    results = {
        "tokens": np.array(view.tokens),
        "weights": view.trace.head(*head),
        "[item.weights for item in trace.maps]": np.array(
            [item.weights for item in view.trace.maps]
        ),
        "model_share": to_numpy(logits.softmax(-1)),
        "search_share": to_numpy(used),
    }
    if view.search.done:
        results |= {
            "[output.logp for output in tree.hypotheses]": np.array(
                [one.logp for one in hypotheses]
            ),
            "len(tree.candidates)": np.array(len(view.search.tree.candidates)),
        }
    key = f"generate:map:{view.kind}"
    return Script(
        (
            model_cell(controls.ref, controls.inputs, reads=False),
            Cell(SEARCH, search),
            Cell(ATTENTION, attention, draw, key),
            Cell(STEP, shares, BARS, CHART),
        ),
        results,
    )
