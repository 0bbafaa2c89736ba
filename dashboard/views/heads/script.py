"""What the page computes as Python: of each idea, with MiniLM's weights or with random ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.views.heads import compute, layers
from dashboard.views.heads.controls import Controls

Part = tuple[Cell, Mapping[str, np.ndarray]]

READ = {
    "minilm": "The queries, keys and values of one layer of MiniLM.",
    "random": "The words as random vectors, for layers with seeded weights.",
}
TEXT = {
    "split": "One head and several with the same queries and keys, and the length of what each adds to a token.",
    "shared": "One head with four ways to store keys and values, and the bytes that a decoder stores in fp32.",
    "subtract": "One head of differential attention: two maps, and their difference.",
}
MAPS = """
from core.show import show_maps

show_maps({maps}, tokens, tokens)
"""
PICTURE = {"split": "heads:many", "shared": "heads:shared", "subtract": "heads:subtract"}
DRAWN = {
    "split": '{f"Head {head}": each for head, each in enumerate(many)}',
    "shared": "{name: each[head] for name, each in weights.items()}",
    "subtract": '{"A1": first, "λ A2": scale * second, "A1 − λ A2": difference}',
}
SPLIT = {
    "minilm": """
from einops import rearrange

one = attend(*(rearrange(part, "b h t d -> b 1 t (h d)") for part in (q, k, v))).weights[0]  # (1, T, T)
steps = attend(q, k, v)
many = steps.weights[0]  # (H, T, T)
w_o = model.model.encoder.layer[{layer}].attention.output.dense.weight.detach()  # (C, H · D)
added = torch.einsum("htd,hcd->htc", steps.out[0], rearrange(w_o, "c (h d) -> h c d", h=len(many)))
lengths = added.norm(dim=-1)  # (H, T)
print("largest weight of each head", many.amax((1, 2)).tolist())
""",
    "random": """
from einops import rearrange

from core.attention import AttentionConfig
from core.seeding import seeded_layer

one = seeded_layer(AttentionConfig({d_model}, 1), {seed})(x).weights[0]  # (1, T, T)
layer = seeded_layer(AttentionConfig({d_model}, {heads}), {seed})
steps = layer(x)
many = steps.weights[0]  # (H, T, T)
w_o = layer.projection.output.weight  # (C, H · D)
added = torch.einsum("htd,hcd->htc", steps.out[0], rearrange(w_o, "c (h d) -> h c d", h=len(many)))
lengths = added.norm(dim=-1)  # (H, T)
print("largest weight of each head", many.amax((1, 2)).tolist())
""",
}
SHARED = {
    "minilm": """
from einops import rearrange

{imports}
from core.seeding import seeded_layer
from core.tokens import embed

configs = {configs}
weights = {{}}
for config in configs[:3]:  # groups of heads share the mean of their keys and values
    shared = (rearrange(part, "b (g n) t d -> b g n t d", g=config.kv_heads).mean(2) for part in (k, v))
    weights[config.projection.key] = attend(q, *shared).weights[0]  # (H, T, T)
random = seeded_layer(configs[3], {seed})  # latent attention has weights of its own
weights["latent"] = random(embed(tokens, {d_model}, seed={seed})).weights[0]
head, length = {head}, {length}
stored = [4 * config.sizes.cache * length for config in configs]
print(stored, "bytes of keys and values for", length, "tokens")
""",
    "random": """
{imports}
from core.seeding import pooled_layer

configs = {configs}
weights = {{config.projection.key: pooled_layer(config, {seed})(x).weights[0] for config in configs}}  # (H, T, T)
head, length = {head}, {length}
stored = [4 * config.sizes.cache * length for config in configs]
print(stored, "bytes of keys and values for", length, "tokens")
""",
}
SUBTRACT = {
    "minilm": """
from core.attention.projections.combined import lambda_init

halves = zip(q[:, {head}, None].chunk(2, -1), k[:, {head}, None].chunk(2, -1))  # of the head's query and key
first, second = (attend(*half, v[:, {head}, None]).weights[0, 0] for half in halves)  # (T, T)
scale = lambda_init({depth})  # as training starts it in this layer, counted from 1
difference = first - scale * second
print("λ", scale, "weights from", float(difference.min()), "to", float(difference.max()))
""",
    "random": """
from core.attention import AttentionConfig, Choice
from core.seeding import seeded_layer

layer = seeded_layer(AttentionConfig({d_model}, {heads}, Choice.of("differential", depth={depth})), {seed})
first, second = layer(x).normalized[0, {first}:{first} + 2]  # (T, T)
scale = float(layer.projection.weight())  # λ
difference = first - scale * second
print("λ", scale, "weights from", float(difference.min()), "to", float(difference.max()))
""",
}
CODE = {"split": SPLIT, "shared": SHARED, "subtract": SUBTRACT}


def script(controls: Controls) -> Script:
    """The maps of the picked idea, and its numbers."""
    weights, idea = "random" if controls.layer is None else "minilm", controls.idea
    configs = compute.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    made = source_of(list(configs))
    code = CODE[idea][weights].format(
        layer=controls.layer,
        d_model=controls.d_model,
        heads=controls.heads,
        seed=controls.seed,
        head=controls.head,
        depth=controls.depth,
        length=controls.length,
        first=2 * controls.head,
        configs=made,
        imports=attention_import(made),
    )
    one = idea == "split" and controls.heads == 1
    draw = MAPS.format(maps='{"One head": one[0]}' if one else DRAWN[idea])
    results = {"split": _split, "shared": _shared, "subtract": _subtract}[idea](controls)
    return Script(
        (
            Cell(READ[weights], _read(controls)),
            Cell(TEXT[idea], code, draw, "heads:one" if one else PICTURE[idea]),
        ),
        results,
    )


def _read(controls: Controls) -> str:
    if controls.layer is None:
        return f"""
import torch

from core.tokens import embed

tokens = {source_of(controls.tokens)}
x = embed(tokens, {controls.d_model}, seed={controls.seed})  # (1, T, C)
"""
    return f"""
import torch

from core.attention import attend
from core.pretrained import layer_qkv, load_minilm

model = load_minilm()
qkv = layer_qkv(model, {source_of(controls.text)}, {controls.layer})
tokens, q, k, v = qkv.tokens, qkv.q, qkv.k, qkv.v  # (1, H, T, D)
"""


def _split(controls: Controls) -> Mapping[str, np.ndarray]:
    return {
        "one": layers.split(controls, 1).weights,
        "many": layers.split(controls, controls.heads).weights,
        "lengths": layers.lengths(controls),
    }


def _shared(controls: Controls) -> Mapping[str, np.ndarray]:
    configs = compute.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    caches = [layers.cache_size(controls, config) for config in configs]
    return {
        "torch.stack(list(weights.values()))": np.stack([each.weights for each in caches]),
        "stored": np.array([each.bytes for each in caches]),
    }


def _subtract(controls: Controls) -> Mapping[str, np.ndarray]:
    two = layers.two_maps(controls)
    return {
        "first": two.first,
        "second": two.second,
        "scale": np.array(two.weight),
        "difference": two.difference,
        "scale * second": two.weight * two.second,
    }
