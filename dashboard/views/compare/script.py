"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention.cost import closed_form_cost
from core.interpret import trace as analysis
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.views.compare.compute import MOST_TOKENS, MapResult, Tokens
from dashboard.views.compare.controls import Controls

TOKENS = {
    True: "The words as random vectors, for layers with seeded weights.",
    False: "MiniLM's own queries and keys of one layer, for every mechanism.",
}
MAPS = "The same head under every mechanism: its weights, and the difference of two."
COSTS = """Entropy (nats) and distance (tokens) of each map, and what each mechanism costs.
core.attention.cost.race(configs, [{length}]) measures time and memory here."""
DRAW = """
from core.show import show_maps

show_maps(weights, tokens, tokens)
"""


def script(
    controls: Controls, results: Sequence[MapResult], names: Sequence[str], tokens: Tokens
) -> Script:
    """The maps of the mechanisms that have one, the difference, and the exact part of the table."""
    drawn = [index for index, result in enumerate(results) if not result.error]
    configs = [controls.sized(controls.mechanisms[index]) for index in drawn]
    made = source_of({names[index]: config for index, config in zip(drawn, configs, strict=True)})
    padded = ", key_mask=torch.ones(1, len(tokens), dtype=torch.bool)" * any(
        "padding" in str(config.mask) for config in configs
    )
    call = "layer(x" if controls.seeded else "layer.attend_heads(q, k, v, x, x"
    first, second = controls.minus
    both = first != second and first in drawn and second in drawn
    difference = f"difference = weights[{names[first]!r}] - weights[{names[second]!r}]\n" * both
    maps = f"""
import torch

{attention_import(made)}
from core.seeding import seeded_layer

configs = {made}
weights = {{}}
for name, config in configs.items():
    layer = seeded_layer(config, {controls.seed})
    steps = {call}{padded})
    weights[name] = steps.weights[0, {controls.layer_head[1]}].detach()  # (T, T)
{difference}"""
    costs = f"""
from core.interpret.trace import entropy, mean_distance
from core.attention.cost import closed_form_cost

measures = {{name: (float(entropy(each[None].numpy()).mean()), float(mean_distance(each[None].numpy())[0]))
            for name, each in weights.items()}}
costs = {{name: closed_form_cost(config, {controls.length}) for name, config in configs.items()}}
for name, cost in costs.items():
    print(name, *measures[name], f"{{cost.parameters:,}} parameters, {{cost.flops:,.0f}} FLOPs")
"""
    return Script(
        (
            Cell(TOKENS[controls.seeded], _input(controls, tokens)),
            Cell(MAPS, maps, DRAW, "compare:maps"),
            Cell(COSTS.format(length=controls.length), costs),
        ),
        _results(controls, results, drawn, both),
    )


def _input(controls: Controls, tokens: Tokens) -> str:
    if controls.seeded:
        return f"""
from core.tokens import embed, labels, tokenize

words = tokenize({source_of(controls.text)}).tokens[:{MOST_TOKENS}]
tokens = labels(words)
x = embed(words, {controls.d_model}, seed={controls.seed})  # (1, T, C)
"""
    cut = len(tokens.names) == MOST_TOKENS  # the first tokens of a longer text
    heads, rows, names = (f"[{':, ' * axis}:{MOST_TOKENS}]" * cut for axis in (2, 1, 0))
    return f"""
from core.pretrained import layer_qkv, load_minilm

layer_inputs = layer_qkv(load_minilm(), {source_of(controls.text)}, {controls.layer_head[0]})
q, k, v = layer_inputs.q{heads}, layer_inputs.k{heads}, layer_inputs.v{heads}  # (1, H, T, D)
x, tokens = layer_inputs.x{rows}, layer_inputs.tokens{names}
"""


def _results(
    controls: Controls, results: Sequence[MapResult], drawn: Sequence[int], both: bool
) -> dict[str, np.ndarray]:
    maps = [results[index].weights for index in drawn]
    costs = [
        closed_form_cost(controls.sized(controls.mechanisms[index]), controls.length)
        for index in drawn
    ]
    values = {
        "torch.stack(list(weights.values()))": np.stack(maps),
        "list(measures.values())": np.array(
            [
                (
                    float(analysis.entropy(each[None]).mean()),
                    float(analysis.mean_distance(each[None])[0]),
                )
                for each in maps
            ]
        ),
        "[(cost.parameters, cost.flops) for cost in costs.values()]": np.array(
            [(cost.parameters, cost.flops) for cost in costs]
        ),
    }
    if both:
        first, second = controls.minus
        values["difference"] = results[first].weights - results[second].weights
    return values
