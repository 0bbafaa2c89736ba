"""Model cards: parameters, caches and FLOPs are those of transformers' own models at the published sizes."""

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from core.attention import Attention
from core.models.cards import CARDS, card
from core.models.cards.base import KINDS
from core.models.cards.states import RETNET
from tests.cards.published import PUBLISHED, cached_numbers, published, read, without_experts
from tests.cases import each

WINDOWS = {
    "mistral": 4500,
    "gemma2": 4500,
    "gemma3": 1100,
    "gpt_oss": 300,
    "llama4": 8300,
}  # tokens beyond a window
STORING = [key for key in PUBLISHED if card(key).stores and key != "t5"]
DENSE = (
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
)


def test_every_card_has_an_oracle_but_the_one_that_is_not_in_transformers():
    assert {one.key for one in CARDS} - set(PUBLISHED) == {"retnet"} and len(CARDS) == 21
    with pytest.raises(KeyError, match="gpt5 is no model card; expected one of bert, gpt2"):
        card("gpt5")


@pytest.mark.parametrize("key", PUBLISHED)
def test_parameters_are_those_of_transformers_to_the_last_one(key):
    one = card(key)
    assert one.parameters == sum(weight.numel() for weight in published(key).parameters())
    assert one.parameters == sum(one.parameter_rows.values())


@pytest.mark.parametrize("key", STORING)
def test_the_cache_is_as_large_as_that_of_transformers(key):
    """Of a text longer than the model's windows, so that these have forgotten."""
    length = WINDOWS.get(key, 19)
    out = read(without_experts(published(key), key), key, length, use_cache=True)
    cache = out.cache_params if key == "mamba2" else out.past_key_values
    assert card(key).cache_numbers(length) == cached_numbers(cache)


@pytest.mark.parametrize("key", DENSE)
def test_flops_are_those_that_pytorch_counts(key):
    """Each of T tokens attends to all T: masked scores are computed too. BERT's pooler reads the first token alone."""
    length, model = 19, published(key)
    with FlopCounterMode(display=False) as counter:
        read(model, key, length)
    pooler = 2 * 768 * 768 if key == "bert" else 0
    assert counter.get_total_flops() == length * card(key).flops(length) + pooler


def test_retnet_by_hand():
    """Queries and keys of 256 numbers a head; values, gate and last map of 432; a gated feed-forward layer of 6,912."""
    layer = 2 * 4096**2 + 3 * 4096 * 6912 + 3 * 4096 * 6912 + 2 * 4096
    assert RETNET.parameters == 32 * layer + 4096
    assert RETNET.cache_numbers(10) == RETNET.cache_numbers(10**6) == 32 * 16 * 256 * 432
    assert RETNET.flops(7) == 2 * 32 * (layer - 2 * 4096) + 2 * 2 * RETNET.cache_numbers(1)


def test_a_token_uses_some_of_the_experts():
    """Published as 5.1, 21, 37, 17, 3 and 3 billion, some without the embeddings."""
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
    """One layer of DeepSeek-V3.2: 2,048 keys a query, but a latent, a rotated key and an index of each token stored."""
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
    """Its import takes seconds, and the page Model cards counts before it draws."""
    code = (
        "import sys\nfrom core.models.cards import CARDS\nprint(sum(one.parameters > 0 for one in CARDS), "
        "'torch._dynamo' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert out.stdout.split() == [str(len(CARDS)), "False"]
