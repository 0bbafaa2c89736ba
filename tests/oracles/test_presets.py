"""Presets of models in use, whole, against the modules that run them, and against their papers token by token."""

import importlib
from typing import Any

import torch
import torch.nn.functional as F
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from core.attention import Attention, AttentionConfig, Choice, preset
from tests.attention.drawing import perturbed, read_in_parts
from tests.cases import each
from tests.oracles.agreement import agree, by_name, same_layer
from tests.oracles.test_state_kernels import recurrence

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
}
GATES = {"deltanet": None, "kimi_linear": torch.sigmoid}


def layer_of(key, **changes):
    config = preset(key).config(WIDTH, HEADS)
    projection = Choice.of("short_conv", **{**config.projection.kwargs, **changes})
    return perturbed(Attention(config.with_(projection=projection)).double().eval())


def convolved(projection, x):
    """The maps of x, each channel over four tokens by torch's own convolution, then SiLU; (B, H, T, D)."""
    parts = (projection.query, projection.key, projection.value)
    for part, taps in zip(parts, projection.taps.chunk(3, dim=1), strict=True):
        rows = F.pad(part(x).mT, (len(taps) - 1, 0))
        mixed = F.conv1d(rows, taps.mT.unsqueeze(1), groups=WIDTH)
        yield F.silu(mixed).mT.unflatten(2, (HEADS, SIZE)).transpose(1, 2)


@each("key", RULES)
def test_a_whole_layer_is_the_papers(key):
    """To what unit length is: with ε beside the square, or not."""
    layer, x = layer_of(key, bias=True), torch.randn(B, LENGTH, WIDTH).double().requires_grad_()
    p, (q, k, v) = layer.projection, convolved(layer.projection, x)
    if RULES[key] not in ("gla", "ssd"):
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    scale = 1.0 if key == "mamba2" else SIZE**-0.5
    out = recurrence(RULES[key], q * scale, k, v, *layer.kernel.gates(x))
    out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + 1e-5) * p.gain
    out = out.transpose(1, 2).flatten(2)
    if gate := GATES.get(key, F.silu):
        out = out * gate(p.gate(x))
    agree(layer(x, record=False).merged, p.output(out), (x,), rel=1e-4, gradient=1e-3)


@each("key", RULES)
@each("bias", [False, True])
def test_steps_give_what_the_whole_text_gives_and_store_three_rows(key, bias):
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
    """A bias makes rows of padding that are not zero; the text's own rows are those of the text alone."""
    projection = Choice.of("short_conv", bias=True)
    config = AttentionConfig(WIDTH, HEADS, projection, mask="causal", kernel=kernel)
    layer = perturbed(Attention(config).double().eval())
    padding, x = (torch.randn(B, n, WIDTH, dtype=torch.float64) for n in (5, LENGTH))
    padded = torch.cat((padding, x) if side == "left" else (x, padding), 1)
    real = torch.arange(5 + LENGTH) >= 5 if side == "left" else torch.arange(5 + LENGTH) < LENGTH
    for record in (True, False):
        out = layer(padded, key_mask=real.expand(B, -1), record=record).merged[:, real]
        torch.testing.assert_close(out, layer(x, record=record).merged)
