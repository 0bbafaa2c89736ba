"""What the page computes as Python: a step of decoding, the race, the cache's size, and pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.models.cards import FORMS, MODELS, cache_bytes, decoding_step
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.cache import decoding
from dashboard.views.cache.compute import MOST_PROMPT, NAMES, STEPS, Decoding
from dashboard.views.cache.controls import LENGTHS, MachineControls, SizeControls
from dashboard.views.cache.decoding import Pair
from dashboard.views.cache.paging import Paging

STEP = "What each step of decoding computes, reads and stores: the queries, the cache, the weights of the new token."
RACE = "The same tokens with and without the cache, and the saved time of each step (`make cache` measures it again)."
SIZES = "Bytes of the cache by the length of the text, and what bounds a step, in closed form."
PAGES = "Several sequences in pages: the share of memory that holds no token."
LINES = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame({rows})).mark_line().encode(
    x={x}, y={y}, color="name")
"""
DRAW_RACE = LINES.format(
    rows='[{"token": at, "name": name, "ms": 1000 * second} for name, each in seconds.items()\n'
    "                        for at, second in enumerate(each, 1)]",
    x='"token"',
    y='"ms"',
)
DRAW_SIZES = LINES.format(
    rows='[{"tokens": length, "bytes": size, "name": name} for name, each in sizes.items()\n'
    "                        for length, size in zip(lengths, each)]",
    x='alt.X("tokens", scale=alt.Scale(type="log", base=2))',
    y='alt.Y("bytes", scale=alt.Scale(type="log"))',
)


def steps(prompt: str, result: Decoding, step: int, head: tuple[int, int]) -> Script:
    """Every step after the prompt, and the weights of the picked head at the picked step."""
    layer, at = head
    code = f"""
import torch

from core.pretrained.hf_conversion import encode, load_lab_decoder

model, task = load_lab_decoder("trained")
tokens, new, _ = encode(task, {source_of(prompt)}, {MOST_PROMPT})
state, queries, weights = model.start(None), [], []
for step in range({STEPS} + 1):  # step 0 reads the prompt, each later one the token before
    logits, state, maps = model.read(None, state, new, True)
    queries.append(torch.stack([layer.q[0] for layer in maps["causal"]]))  # (L, H, new, D)
    weights.append(torch.stack([layer.weights[0, :, -1] for layer in maps["causal"]]))  # (L, H, S), of the last token
    new = logits[:, -1:].argmax(-1)
    if step < {STEPS}:
        tokens += task.target_vocab.decode(new[0].tolist())
    print(tokens[-1], "computed", queries[-1].shape[2], "stored", state.length)
q = torch.cat(queries, 2)  # (L, H, T, D)
k, v = (torch.stack([past.heads[part][0] for past in state.past if past is not None]) for part in (0, 1))
k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))  # for heads that share them
picked = weights[{step}][{layer}, {at}]
"""
    values = {name: result.vectors[name] for name in NAMES} | {
        f"weights[{index}]": each for index, each in enumerate(result.weights)
    }
    return Script(
        (Cell(STEP, code),),
        values
        | {
            "picked": result.weights[step][head],
            "[each.shape[2] for each in queries]": np.array(
                [each.computed["q"] for each in result.counts]
            ),
        },
    )


def race(name: str, count: int, pair: Pair) -> Script:
    """The tokens that both ways write, and the saved seconds of each step."""
    code = f"""
import json

from core.models.decoding import write
from core.pretrained.hf_conversion import encode, load_lab_decoder

model, task = load_lab_decoder({name!r})
prompt = encode(task, {source_of(decoding.PROMPT)}, {MOST_PROMPT})[1]  # (1, T)
cached, whole = (write(model, prompt, {count}, with_cache).tokens for with_cache in (True, False))
print("the same tokens:", cached == whole)
saved = json.loads(lab_path("dashboard/views/cache/times.json").read_text("utf-8"))["pairs"][{name!r}]
seconds = {{"without": saved["whole"]["seconds"][:{count}], "with cache": saved["cached"]["seconds"][:{count}]}}
print("without the cache", sum(seconds["without"]) / sum(seconds["with cache"]), "times as long")
"""
    return Script(
        (Cell(RACE, code, DRAW_RACE, "cache:seconds"),),
        {
            "cached": np.array(pair.cached.tokens[:count]),
            "whole": np.array(pair.whole.tokens[:count]),
            'seconds["without"]': np.array(pair.whole.seconds[:count]),
            'seconds["with cache"]': np.array(pair.cached.seconds[:count]),
        },
    )


def size(controls: SizeControls, machine: MachineControls) -> Script:
    """The curves of the picked forms, and a step on the picked machine."""
    model, form = MODELS[controls.model], FORMS[machine.form]
    numbers = (
        machine.length,
        machine.batch,
        controls.number_bytes,
        1e9 * machine.bandwidth,
        1e12 * machine.speed,
    )
    code = f"""
from core.models.cards import FORMS, MODELS, cache_bytes, decoding_step

model, lengths = MODELS[{controls.model!r}], {source_of(list(LENGTHS))}
sizes = {{FORMS[form].name: [cache_bytes(model, FORMS[form], length, {controls.number_bytes}) for length in lengths]
         for form in {source_of(list(FORMS))}}}
for name, each in sizes.items():
    print(name, each)
bound = decoding_step(model, FORMS[{machine.form!r}], length={machine.length}, batch={machine.batch},
                      number_bytes={controls.number_bytes}, bandwidth=1e9 * {machine.bandwidth!r},
                      speed=1e12 * {machine.speed!r})  # bytes and FLOPs a second
print(bound, "bound by", bound.bound)
"""
    step = decoding_step(model, form, *numbers)
    curves = [
        [cache_bytes(model, each, length, controls.number_bytes) for length in LENGTHS]
        for each in FORMS.values()
    ]
    draw = DRAW_SIZES.replace(
        "in sizes.items()", f"in sizes.items() if name in {_names(controls.curves)}"
    )
    return Script(
        (Cell(SIZES, code, draw, "cache:sizes") if controls.curves else Cell(SIZES, code),),
        {
            "list(sizes.values())": np.array(curves),
            "[bound.flops, bound.weight_bytes, bound.cache_bytes, bound.computing, bound.reading]": np.array(
                [step.flops, step.weight_bytes, step.cache_bytes, step.computing, step.reading]
            ),
        },
    )


def pages(result: Paging) -> Script:
    """The places in pages, and where each sequence has room for the longest."""
    code = f"""
lengths, page = {source_of(list(result.lengths))}, {result.size}
paged = page * sum(-(-length // page) for length in lengths)
reserved = len(lengths) * max(lengths)
print("empty in pages", 1 - sum(lengths) / paged, "with room for the longest", 1 - sum(lengths) / reserved)
"""
    return Script(
        (Cell(PAGES, code),),
        {"paged": np.array(result.paged), "reserved": np.array(result.reserved)},
    )


def _names(forms: Sequence[str]) -> str:
    return source_of([FORMS[form].name for form in forms])
