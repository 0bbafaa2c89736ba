"""Model cards: parameters, caches and FLOPs are those of transformers' own models at the published sizes."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from core.attention import Attention
from core.models.cards import CARDS, card
from core.models.cards.base import KINDS
from tests.cases import each

# Published configs in transformers: a card's key → model type, class, and what differs from the type's defaults.


GEMMA3 = ["sliding_attention"] * 5 + ["full_attention"]
KIMI = [
    *6 * [*3 * ["linear_attention"], "full_attention"],
    "linear_attention",
    "linear_attention",
    "full_attention",
]
CAUSAL, ENCODER, PAIR = "AutoModelForCausalLM", "AutoModel", "AutoModelForSeq2SeqLM"

PUBLISHED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", CAUSAL, {}),
    "bert": ("bert", ENCODER, {}),
    "t5": ("t5", PAIR, {}),
    "llama2": ("llama", CAUSAL, {}),
    "llama3": (
        "llama",
        CAUSAL,
        {"vocab_size": 128256, "intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    "mistral": ("mistral", CAUSAL, {}),
    "gemma2": ("gemma2", CAUSAL, {}),
    "gemma3": (
        "gemma3_text",
        CAUSAL,
        {
            "vocab_size": 262208,
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "sliding_window": 1024,
            "layer_types": 8 * GEMMA3,
        },
    ),
    "qwen3": (
        "qwen3",
        CAUSAL,
        {"intermediate_size": 12288, "num_hidden_layers": 36, "num_key_value_heads": 8},
    ),
    "gpt_oss": ("gpt_oss", CAUSAL, {}),
    "deepseek_v2": (
        "deepseek_v2",
        CAUSAL,
        {
            "hidden_size": 5120,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "n_routed_experts": 160,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "n_group": 8,
            "topk_group": 3,
        },
    ),
    "deepseek_v32": ("deepseek_v32", CAUSAL, {}),
    "llama4": ("llama4_text", CAUSAL, {}),
    "smollm3": ("smollm3", CAUSAL, {}),
    "qwen3_next": ("qwen3_next", CAUSAL, {}),
    "kimi_linear": ("kimi_linear", CAUSAL, {"layer_types": KIMI}),
    "minimax": (
        "minimax",
        CAUSAL,
        {
            "vocab_size": 200064,
            "hidden_size": 6144,
            "intermediate_size": 9216,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_local_experts": 32,
            "layer_types": 10 * [*7 * ["linear_attention"], "full_attention"],
        },
    ),
    "modernbert": ("modernbert", ENCODER, {}),
    "mamba2": ("mamba2", CAUSAL, {}),
    "olmo2": ("olmo2", CAUSAL, {"vocab_size": 100352}),
}  # all cards but RetNet, which transformers does not have
BY_TYPE = (
    "gemma2",
    "gemma3",
    "gpt_oss",
    "llama4",
)  # models that take a mask for each type of layer
TYPES = ("full_attention", "sliding_attention", "chunked_attention")


class Unrouted(nn.Module):
    """What stands for experts on the meta device, which cannot tell where a token is sent; attention does not care."""

    def __init__(self, pair: bool) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, x):
        return (x, None) if self.pair else x


def published(key: str) -> nn.Module:
    import transformers

    kind, auto, own = PUBLISHED[key]
    config = transformers.AutoConfig.for_model(kind, **own)
    with torch.device("meta"):
        return getattr(transformers, auto).from_config(config, attn_implementation="eager").eval()


def without_experts(model: nn.Module, key: str) -> nn.Module:
    for module in list(model.modules()):
        for name in {"mlp", "feed_forward", "block_sparse_moe"} & set(
            dict(module.named_children())
        ):
            setattr(module, name, Unrouted(pair=key in ("gpt_oss", "llama4")))
    return model


def read(model: nn.Module, key: str, length: int, **options):
    """What the model computes of that many tokens; given a mask, it asks for no value, which meta tensors lack."""
    with torch.device("meta"), torch.no_grad():
        mask = torch.zeros(1, 1, length, length)
        if PUBLISHED[key][1] == CAUSAL and key != "mamba2":
            options |= {
                "attention_mask": dict.fromkeys(TYPES, mask) if key in BY_TYPE else mask,
                "position_ids": torch.arange(length)[None],
            }
        return model(torch.zeros(1, length, dtype=torch.long), **options)


def cached_numbers(value, seen=None) -> int:
    """How many numbers the tensors of a cache hold, wherever in it they are."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.numel() * value.is_floating_point()
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else vars(value).values()
        if hasattr(value, "__dict__")
        else ()
    )
    return sum(cached_numbers(part, seen) for part in parts)


WINDOWS = {
    "mistral": 4500,
    "gemma2": 4500,
    "gemma3": 1100,
    "gpt_oss": 300,
    "llama4": 8300,
}  # tokens beyond a window


def test_every_card_has_an_oracle_but_the_one_that_is_not_in_transformers():
    assert {one.key for one in CARDS} - set(PUBLISHED) == {"retnet"} and len(CARDS) == 21
    pytest.raises(KeyError, card, "gpt5").match("gpt5 is no model card; expected one of bert, gpt2")


@pytest.mark.parametrize("key", PUBLISHED)
def test_parameters_are_those_of_transformers_to_the_last_one(key):
    one = card(key)
    assert one.parameters == sum(weight.numel() for weight in published(key).parameters())
    assert one.parameters == sum(one.parameter_rows.values())


@pytest.mark.parametrize("key", [key for key in PUBLISHED if card(key).stores and key != "t5"])
def test_the_cache_is_as_large_as_that_of_transformers(key):
    # Of a text longer than the model's windows, so that these have forgotten.
    length = WINDOWS.get(key, 19)
    out = read(without_experts(published(key), key), key, length, use_cache=True)
    assert card(key).cache_numbers(length) == cached_numbers(out.cache)


@pytest.mark.parametrize(
    "key",
    (
        "gpt2",
        "bert",
        "llama2",
        "llama3",
        "mistral",
        "qwen3",
        "olmo2",
        "smollm3",
        "gemma2",
        "gemma3",
        "modernbert",
    ),
)
def test_flops_are_those_that_pytorch_counts(key):
    # Each of T tokens attends to all T: masked scores are computed too. BERT's pooler reads the first token alone.
    length, model = 19, published(key)
    with FlopCounterMode(display=False) as counter:
        read(model, key, length)
    pooler = 2 * 768 * 768 if key == "bert" else 0
    assert counter.get_total_flops() == length * card(key).flops(length) + pooler


def test_retnet_by_hand():
    # Queries and keys of 256 numbers a head; values, gate and last map of 432; a gated feed-forward layer of 6,912.
    layer = 2 * 4096**2 + 3 * 4096 * 6912 + 3 * 4096 * 6912 + 2 * 4096
    retnet = card("retnet")
    assert retnet.parameters == 32 * layer + 4096
    assert retnet.cache_numbers(10) == retnet.cache_numbers(10**6) == 32 * 16 * 256 * 432
    assert retnet.flops(7) == 2 * 32 * (layer - 2 * 4096) + 2 * 2 * retnet.cache_numbers(1)


def test_a_token_uses_some_of_the_experts():
    # Published as 5.1, 21, 37, 17, 3 and 3 billion, some without the embeddings.
    active = {
        key: round(card(key).active / 1e9, 1)
        for key in ("gpt_oss", "deepseek_v2", "deepseek_v32", "llama4", "qwen3_next", "kimi_linear")
    }
    assert active == {
        "gpt_oss": 5.7,
        "deepseek_v2": 21.4,
        "deepseek_v32": 38.4,
        "llama4": 17.2,
        "qwen3_next": 3.9,
        "kimi_linear": 3.5,
    }


def test_a_picked_key_is_stored_like_all_others_and_costs_its_index():
    # One layer of DeepSeek-V3.2: 2,048 keys a query, but a latent, a rotated key and an index of each token stored.
    layer = card("deepseek_v32").layers[0]
    assert layer.stored(10_000) == 10_000 * (512 + 64 + 128)
    assert layer.flops(10_000) == 2 * 128 * (192 + 128) * 2048 + 2 * 64 * 128 * 10_000


def test_patterns_are_those_that_the_models_repeat():
    kinds = {one.key: "".join(layer.kind[0] for layer in one.layers) for one in CARDS}
    assert (
        kinds["gemma3"] == 8 * "wwwwwf"
        and kinds["llama4"] == 12 * "wwwn"
        and kinds["minimax"] == 10 * "lllllllf"
    )
    assert (
        kinds["gpt_oss"] == 18 * "wf"
        and kinds["smollm3"] == 9 * "fffn"
        and kinds["modernbert"] == 7 * "fww" + "f"
    )
    assert {layer.kind for one in CARDS for layer in one.layers} == set(KINDS)
    for one in CARDS:
        pattern = [block.attention.config for block in one.blocks[: one.pattern]]
        repeated = [
            block.attention.config for block in one.blocks[: one.encoder_blocks or len(one.blocks)]
        ]
        last = 1 if one.key == "kimi_linear" else 0  # its last layer is latent out of turn
        assert repeated[: len(repeated) - last] == [
            pattern[at % len(pattern)] for at in range(len(repeated) - last)
        ]


@each("sizes", [(64, 8), (32, 2), (48, 6)])
@each("key", [one.key for one in CARDS])
def test_the_pattern_in_small_runs(key, sizes):
    x = torch.randn(2, 11, sizes[0], requires_grad=True)
    attentions = card(key).small(*sizes)
    assert len(attentions) == card(key).pattern
    for config in attentions:
        assert (
            config.d_model,
            config.num_heads,
        ) == sizes and config.num_heads % config.kv_heads == 0
        real = (
            torch.arange(11) < torch.tensor([[11], [7]]) if config.mask.key == "padding" else None
        )
        out = Attention(config)(x, key_mask=real, record=False).merged
        (grad,) = torch.autograd.grad(out.square().sum(), x)
        assert out.shape == x.shape and out.isfinite().all() and grad.isfinite().all()


def test_a_small_pattern_shares_keys_as_the_model_does():
    assert [config.kv_heads for config in card("llama3").small()] == [2]
    assert {config.kv_heads for config in card("gpt_oss").small()} == {1}
    assert [
        config.mask["lookback"]
        for config in card("gpt_oss").small()
        if config.mask.key == "causal_local"
    ] == [3]


def test_counting_imports_no_compiler():
    # Its import takes seconds, and the page Model cards counts before it draws.
    code = (
        "import sys\nfrom core.models.cards import CARDS\nprint(sum(one.parameters > 0 for one in CARDS), "
        "'torch._dynamo' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert out.stdout.split() == [str(len(CARDS)), "False"]
