"""Presets of models in use, whole, against the modules that run them, and against their papers token by token."""

import importlib
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from onnx.backend.test.case import node
from torch import Tensor
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from core.attention import Attention, AttentionConfig, Choice, attend, preset
from core.attention.masks import build_mask
from core.attention.normalizers import Softcap
from core.attention.positions.rotary import rotate_pairs, tables_of_pairs
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.oracles.agreement import agree, by_name, same_layer
from tests.oracles.test_kernels import recurrence

B, T, H, D = 2, 9, 8, 6
C = H * D
WINDOW = 4  # theirs counts the query's own place, so it looks back 3
PLAIN = {"rope_type": "default"}


SLIDING = {"layer_types": ["sliding_attention"], "sliding_window": WINDOW}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150_000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
MODELS = {
    "llama": (
        "llama",
        "Llama",
        {"num_key_value_heads": 8, "rope_parameters": PLAIN | {"rope_theta": 1e4}},
    ),
    "llama2": (
        "llama",
        "Llama",
        {"num_key_value_heads": 1, "rope_parameters": PLAIN | {"rope_theta": 1e4}},
    ),
    "llama3": (
        "llama",
        "Llama",
        {"num_key_value_heads": 2, "rope_parameters": LLAMA3, "max_position_embeddings": 131_072},
    ),
    "mistral": (
        "mistral",
        "Mistral",
        {
            "num_key_value_heads": 2,
            "sliding_window": WINDOW,
            "rope_parameters": PLAIN | {"rope_theta": 1e4},
        },
    ),
    "gemma2": (
        "gemma2",
        "Gemma2",
        {
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": D,
            **SLIDING,
            "attn_logit_softcapping": 50.0,
            "rope_parameters": PLAIN | {"rope_theta": 1e4},
        },
    ),
    "gemma3": (
        "gemma3",
        "Gemma3",
        {"num_key_value_heads": 4, "query_pre_attn_scalar": D, **SLIDING},
    ),
    "qwen3": (
        "qwen3",
        "Qwen3",
        {"num_key_value_heads": 2, "rope_parameters": PLAIN | {"rope_theta": 1e6}},
    ),
    "gpt_oss": (
        "gpt_oss",
        "GptOss",
        {
            "num_key_value_heads": 1,
            "rope_parameters": YARN,
            **SLIDING,
            "max_position_embeddings": 131_072,
        },
    ),
}


@each("key", MODELS)
def test_a_preset_is_the_model_it_is_named_for(key):
    module, name, changes = MODELS[key]
    hf = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    settings: dict[str, Any] = {
        "hidden_size": C,
        "num_attention_heads": H,
        "head_dim": D,
        "attn_implementation": "eager",
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
    } | changes
    config = getattr(hf, f"{name}{'Text' * (key == 'gemma3')}Config")(**settings)
    peer, rotary = (
        getattr(hf, f"{name}Attention")(config, layer_idx=0).eval(),
        getattr(hf, f"{name}RotaryEmbedding")(config),
    )
    x, places = torch.randn(B, T, C), torch.arange(T)[None]
    windowed = "sliding_attention" in settings["layer_types"] or settings.get("sliding_window")
    mask_of = create_sliding_window_causal_mask if windowed else create_causal_mask
    mask = mask_of(config, x, None, None, position_ids=places)
    turn = rotary(x, places, *settings["layer_types"] * (key == "gemma3"))
    layer = perturbed(Attention(preset(key).config(C, H)).eval())
    names = by_name(layer)
    if hasattr(peer, "q_norm"):
        above = 1.0 if key == "gemma3" else 0.0  # Gemma's gains are counted from one
        names |= {"q_norm.weight": layer.score.query.weight - above}
        names |= {"k_norm.weight": layer.score.key.weight - above}
    if hasattr(peer, "sinks"):
        names["sinks"] = layer.normalizer.sink
    same_layer(layer, peer, names, x, turn, mask)


# Layers with short convolutions, norms and gates, each whole, against its papers' equations token by token in fp64.


LENGTH, WIDTH, HEADS = 13, 24, 3
SIZE = WIDTH // HEADS
RULES = {
    "gla": "gla",
    "mamba2": "ssd",
    "deltanet": "gated_delta",
    "gated_deltanet": "gated_delta",
    "kimi_linear": "kda",
    "olmo_hybrid": "gated_delta",
}
GATES = {"deltanet": None, "kimi_linear": torch.sigmoid}


def layer_of(key, **changes):
    config = preset(key).config(WIDTH, HEADS)
    return perturbed(
        Attention(
            config.with_(
                projection=Choice.of("short_conv", **{**config.projection.kwargs, **changes})
            )
        )
        .double()
        .eval()
    )


def convolved(projection, x):
    parts = (projection.query, projection.key, projection.value)
    for part, taps in zip(parts, projection.taps.chunk(3, dim=1), strict=True):
        mixed = F.conv1d(F.pad(part(x).mT, (len(taps) - 1, 0)), taps.mT.unsqueeze(1), groups=WIDTH)
        yield F.silu(mixed).mT.unflatten(2, (HEADS, SIZE)).transpose(1, 2)


@each("key", RULES)
def test_a_whole_layer_is_the_papers(key):
    # To what unit length is: with ε beside the square, or not.
    layer, x = layer_of(key, bias=True), torch.randn(B, LENGTH, WIDTH).double().requires_grad_()
    p, (q, k, v) = layer.projection, convolved(layer.projection, x)
    if RULES[key] not in ("gla", "ssd"):
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    scale = 1.0 if key == "mamba2" else SIZE**-0.5
    out = recurrence(
        RULES[key], q * scale, k, v, *(gate.squeeze(-1) for gate in layer.kernel.gates(x))
    )
    out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + 1e-5) * p.gain
    out = out.transpose(1, 2).flatten(2)
    if gate := GATES.get(key, F.silu):
        out = out * gate(p.gate(x))
    agree(layer(x, record=False).merged, p.output(out), (x,), rel=1e-4, gradient=1e-3)


@each("key", RULES)
@each("bias", [False, True])
def test_steps_give_what_the_whole_text_gives(key, bias):
    layer, x = layer_of(key, bias=bias), torch.randn(B, LENGTH, WIDTH, dtype=torch.float64)
    whole = layer(x, record=False).merged
    for parts in ((LENGTH,), (1,) * LENGTH, (2, 1, 7, 3), (1, 12)):
        out, cache = read_in_parts(layer, x, parts)
        torch.testing.assert_close(out, whole)
        assert cache.numbers == HEADS * SIZE * SIZE + 3 * 3 * WIDTH
    recorded, _ = read_in_parts(layer, x, (6, 7), record=True)
    torch.testing.assert_close(recorded, whole)


@each("kernel", ["exact", "gated_delta"])
@each("side", ["left", "right"])
def test_padding_is_not_convolved(kernel, side):
    # A bias makes rows of padding that are not zero; the text's own rows are those of the text alone.
    config = AttentionConfig(
        WIDTH, HEADS, Choice.of("short_conv", bias=True), mask="causal", kernel=kernel
    )
    layer = perturbed(Attention(config).double().eval())
    padding, x = (torch.randn(B, n, WIDTH, dtype=torch.float64) for n in (5, LENGTH))
    padded = torch.cat((padding, x) if side == "left" else (x, padding), 1)
    real = torch.arange(5 + LENGTH) >= 5 if side == "left" else torch.arange(5 + LENGTH) < LENGTH
    for record in (True, False):
        torch.testing.assert_close(
            layer(padded, key_mask=real.expand(B, -1), record=record).merged[:, real],
            layer(x, record=record).merged,
        )


# ONNX's own suite for Attention and RotaryEmbedding, computed by this house: only shapes, caches and names are theirs.

RAW, CAPPED, MASKED, WEIGHTS = range(4)  # what qk_matmul_output_mode asks for
Given = Mapping[str, Tensor]
OPERATORS = {"Attention": 93, "RotaryEmbedding": 8}


def operator(case: Any) -> str:
    return case.model.graph.node[0].op_type


def cases() -> dict[str, Any]:
    """Every published case of both operators by name, without the twins that spell an operator out in smaller ones.

    Their inputs are drawn, in the old way, as the modules load.
    """
    np.random.seed(86)  # noqa: NPY002
    for name in OPERATORS:
        importlib.import_module(f"onnx.backend.test.case.node.{name.lower()}")
    return {
        case.name: case
        for case in node._NodeTestCases
        if operator(case) in OPERATORS and not case.name.endswith("_expanded")
    }


def tensor(value: np.ndarray) -> Tensor:
    """The same numbers; NumPy's bfloat16 is a stranger to torch."""
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.astype(np.float32)).bfloat16()
    return torch.from_numpy(value.copy())


def attention(given: Given, how: Mapping[str, Any]) -> dict[str, Tensor]:
    flat = given["Q"].dim() == 3
    q = heads(given["Q"], how["q_num_heads"]) if flat else given["Q"]
    k, v = (heads(given[name], how["kv_num_heads"]) if flat else given[name] for name in "KV")
    before = 0
    if "past_key" in given:
        before = given["past_key"].shape[2]
        k, v = torch.cat((given["past_key"], k), 2), torch.cat((given["past_value"], v), 2)
    mask, bias = masks(given, how, q.shape[2], k.shape[2], before)
    cap = how.get("softcap", 0.0)
    normalizer = Softcap(1.0, cap) if cap else None
    steps = attend(q, k, v, mask, bias=bias, scale=how.get("scale"), normalizer=normalizer)
    scaled = steps.raw * steps.scale
    capped = normalizer.prepare(scaled, None) if normalizer else scaled
    stages: dict[int, Any] = {
        RAW: scaled,
        CAPPED: capped,
        MASKED: steps.masked,
        WEIGHTS: steps.weights,
    }
    met = stages[how.get("qk_matmul_output_mode", RAW)]
    out = steps.out.transpose(1, 2).flatten(2) if flat else steps.out
    return {"Y": out, "present_key": k, "present_value": v, "qk_matmul_output": met}


def heads(x: Tensor, number: int) -> Tensor:
    return x.unflatten(-1, (number, -1)).transpose(1, 2)


def masks(
    given: Given,
    how: Mapping[str, Any],
    queries: int,
    keys: int,
    before: int,
) -> tuple[Tensor | None, Tensor | None]:
    """Their masks, windows and lengths as one bool mask and one bias; `before` counts the cached keys."""
    choice = window(how)
    lengths = given.get("nonpad_kv_seqlen")
    if lengths is None:
        mask = build_mask(choice, queries, keys, offset=before)
    else:  # each sentence of the batch ends at a place of its own
        mask = torch.cat(
            [
                build_mask(choice, queries, keys, key_mask=row[None], offset=int(length) - queries)
                for row, length in zip(torch.arange(keys) < lengths[:, None], lengths, strict=True)
            ]
        )
    theirs, bias = given.get("attn_mask"), None
    if theirs is not None:
        seen = theirs if theirs.dtype == torch.bool else theirs > -torch.inf
        missing = (0, keys - theirs.shape[-1])  # keys that their mask does not reach are not seen
        if theirs.dtype != torch.bool:
            bias = torch.nn.functional.pad(theirs.masked_fill(~seen, 0.0), missing)
        seen = torch.nn.functional.pad(seen, missing)
        mask = seen if mask is None else mask & seen
    return mask, bias


def window(how: Mapping[str, Any]) -> Choice:
    """Causal, and left and right of a query's place, as a composition of this house's masks."""
    left, right = how.get("left_window_size", -1), how.get("right_window_size", -1)
    past, future = Choice("causal"), Choice.of("not", Choice("causal"))
    if left >= 0:
        past = Choice.of("and", past, Choice.of("local", window=left))
    if how.get("is_causal", 0):
        return past
    if right >= 0:
        future = Choice.of("and", future, Choice.of("local", window=right))
    return Choice.of("or", past, future) if max(left, right) >= 0 else Choice("none")


def rotary(given: Given, how: Mapping[str, Any]) -> dict[str, Tensor]:
    x, flat = given["input"], given["input"].dim() == 3
    if flat:
        x = heads(x, how["num_heads"])
    cos, sin = given["cos_cache"], given["sin_cache"]
    if "position_ids" in given:
        cos, sin = cos[given["position_ids"]], sin[given["position_ids"]]
    turned = x[..., : how.get("rotary_embedding_dim", 0) or None]
    layout = "interleaved" if how.get("interleaved", 0) else "halves"
    rotated = [
        rotate_pairs(one, *tables_of_pairs(cosines, sines, layout), layout)
        for one, cosines, sines in zip(turned, cos, sin, strict=True)
    ]
    out = torch.cat((torch.stack(rotated), x[..., turned.shape[-1] :]), -1)
    return {"output": out.transpose(1, 2).flatten(2) if flat else out}


CASES = cases()
# Two steps of the last place, as in ONNX's own runner.
RTOL = {torch.bfloat16: 2**-6, torch.float16: 2**-9}
# Cases to which this house gives another answer: their mask of numbers is added after the softcap; here a bias is part of
# the score that is capped. A case may stand here only while it does.
OUT_OF_SCOPE = {
    "test_attention_4d_with_qk_matmul_softcap",
    "test_attention_3d_with_past_and_present_qk_matmul_softcap",
}


def test_the_suite_is_whole():
    assert Counter(map(operator, CASES.values())) == OPERATORS and CASES.keys() >= OUT_OF_SCOPE


@each("name", sorted(CASES))
def test_case(name):
    case, asked = CASES[name], CASES[name].model.graph.node[0]
    ((inputs, outputs),) = case.data_sets
    names, out_names = ([one for one in part if one] for part in (asked.input, asked.output))
    given = {name: tensor(value) for name, value in zip(names, inputs, strict=True)}
    how = {one.name: helper.get_attribute_value(one) for one in asked.attribute}
    compute = attention if operator(case) == "Attention" else rotary
    results = compute(given, how)
    scope = pytest.raises(AssertionError) if name in OUT_OF_SCOPE else nullcontext()
    with scope:
        for key, value in zip(out_names, map(tensor, outputs), strict=True):
            torch.testing.assert_close(
                results[key], value, rtol=RTOL.get(value.dtype, case.rtol), atol=1e-6
            )
