"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.models.decoding import force_tokens
from core.tasks import Task
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.runtime.run_data import path_code
from dashboard.views.decode.compute import HELD_OUT, SearchResult, longest_of
from dashboard.views.decode.controls import Controls

SEARCH = "A search of one source by a trained model: every candidate that it considered, and its outputs."
PATH = "The attention of each step of one path through the tree, and the likeliest tokens at its last step."
TEXT_PROMPT = "prompt = Prompt.of_text(task.source_vocab.encode(example.source))"
PAIR_PROMPT = "batch = task.collate([example])\nprompt = Prompt(batch.source, batch.source_mask)"
DRAW_TREE = """
import altair as alt
import pandas as pd

rows = [(one.step, task.target_vocab.tokens[one.token], one.total, one.fate) for one in tree.candidates]
alt.Chart(pd.DataFrame(rows, columns=["step", "token", "total", "fate"])).mark_text().encode(
    x="step:O", y="total", text="token", color="fate")
"""
DRAW_MAP = """
from core.show import show_maps

names = [str(task.target_vocab.tokens[token]) for token in tokens]
show_maps({"Layer 0, head 0": weights[0][0]}, names, [str(key) for key in range(weights[0].shape[-1])])
"""


def script(controls: Controls, result: SearchResult, task: Task, path: list[int]) -> Script:
    """The tree of the search, and what the picked path attends to."""
    example = (
        task.held_out(HELD_OUT)[controls.source]
        if isinstance(controls.source, int)
        else task.example(controls.source)
    )
    made = (
        f"task.held_out({HELD_OUT})[{controls.source}]"
        if isinstance(controls.source, int)
        else f"task.example({controls.source!r})"
    )
    code = f"""
from core.models.decoding import Prompt, SearchSettings, search
from core.runs.runs import open_run

model, task = open_run({path_code(controls.run.path)}).model({controls.checkpoint.step})  # the weights of that step
example = {made}
{TEXT_PROMPT if task.form == "text" else PAIR_PROMPT}
settings = {source_of(controls.settings)}
tree = search(model, prompt, settings, longest={longest_of(task, example, controls.settings)})
for output in tree.hypotheses:
    print(task.separator.join(map(str, task.target_vocab.decode(output.tokens))), output.logp)
"""
    forced = f"""
from core.models.decoding import force_tokens

tokens = tree.tokens({path[-1]})  # the path to that candidate
steps = force_tokens(model, prompt, tokens)
weights = [layer.numpy() for layer in steps.source_attention]  # (H, T, S) a layer
probabilities = steps.logp[-1].exp()  # of every token after the others
print([(task.target_vocab.tokens[index], float(probabilities[index])) for index in probabilities.topk(3).indices])
"""
    steps = force_tokens(controls.checkpoint.load()[0], result.prompt, result.tree.tokens(path[-1]))
    attends = bool(steps.source_attention)
    results = {
        "[(one.token, one.step, one.logp, one.total) for one in tree.candidates]": np.array(
            [(one.token, one.step, one.logp, one.total) for one in result.tree.candidates]
        ),
        "[output.score for output in tree.hypotheses]": np.array(
            [one.score for one in result.tree.hypotheses]
        ),
        "probabilities": steps.logp[-1].exp().numpy(),
        **{
            f"weights[{layer}]": each.float().numpy()
            for layer, each in enumerate(steps.source_attention)
        },
    }
    return Script(
        (
            Cell(SEARCH, code, DRAW_TREE, "decode:tree"),
            Cell(PATH, forced, DRAW_MAP if attends else "", "decode:map"),
        ),
        results,
    )
