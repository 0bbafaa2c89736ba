"""Model cards: parameters, caches and FLOPs are those of transformers' own models at the published sizes; cards that
are read from a config: those of the table again, a pasted one, and what is refused in words."""

import json
import re
import subprocess
import sys
from functools import partial

import pytest
import torch
import transformers
from torch import nn
from torch.fx.experimental import _config as fx_config
from torch.utils.flop_counter import FlopCounterMode

from core.attention import Attention, ConfigError
from core.models.cards import BY_HAND as WRITTEN, CARDS, TABLE, cache, card
from core.models.cards.base import KINDS, AttentionLayer, ModelCard
from core.pretrained.attention_recorder import recorded_rotation
from core.pretrained.base import PretrainedError
from core.pretrained.cards import (
    card_from_config,
    card_of_model,
    decoder_layers,
    empty_model,
    parse_card,
)
from tests.cases import each
from tests.tiny_architectures import ARCHITECTURES

# Published configs in transformers: those of the table, and by a card's key the model type and class of the others.


CAUSAL, ENCODER, PAIR = "AutoModelForCausalLM", "AutoModel", "AutoModelForSeq2SeqLM"
BY_HAND = {
    "gpt2": ("gpt2", CAUSAL),
    "bert": ("bert", ENCODER),
    "t5": ("t5", PAIR),
    "modernbert": ("modernbert", ENCODER),
}
ROWS = {row["key"]: row for row in json.loads(TABLE.read_text(encoding="utf-8"))}
PUBLISHED = (*BY_HAND, *ROWS)  # all cards but RetNet, which transformers does not have


class Unrouted(nn.Module):
    """What stands for experts on the meta device, which cannot tell where a token is sent; attention does not care."""

    def __init__(self, pair: bool) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, x, *more, **options):
        return (x, None) if self.pair else x


def published(key: str) -> nn.Module:
    if key in ROWS:
        model = empty_model(ROWS[key]["config"], key)[1]
        model.set_attn_implementation("eager")
        return model.eval()
    kind, auto = BY_HAND[key]
    config = transformers.AutoConfig.for_model(kind)
    with torch.device("meta"):
        return getattr(transformers, auto).from_config(config, attn_implementation="eager").eval()


def without_experts(model: nn.Module, key: str) -> nn.Module:
    for module in list(model.modules()):
        for name in {"mlp", "feed_forward", "block_sparse_moe"} & set(
            dict(module.named_children())
        ):
            setattr(module, name, Unrouted(pair=key in ("gpt_oss", "llama4", "zaya")))
    return model


def first_layers(one: ModelCard, model: nn.Module) -> tuple[AttentionLayer, ...]:
    """Leaves the model the first of its layers, among them two of each that the card tells apart; their attentions."""
    where, layers = decoder_layers(model.config, model, one.key)
    if len(layers) < len(one.blocks):
        return one.layers  # some are run again
    at = [
        [at for at, block in enumerate(one.blocks, 1) if layer in block.attentions][:2][-1]
        for layer in one.distinct
    ]
    holder, _, name = where.rpartition(".")
    setattr(model.get_submodule(holder), name, nn.ModuleList(layers[: max(at)]))
    return tuple(layer for block in one.blocks[: max(at)] for layer in block.attentions)


def read(model: nn.Module, length: int, **options):
    """What the model computes of that many tokens, all of them real."""
    real = fx_config.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]
    with torch.device("meta"), torch.no_grad(), real:
        return model(torch.zeros(1, length, dtype=torch.long), **options)


# Models without experts, whose operations PyTorch counts, and those whose cache is that of another of the same kind.
COUNTED = {"gpt2", "bert", "llama2", "gemma2", "modernbert"}
ALIKE = {*("llama3", "gemma", "mixtral", "solar_open", "minimax_m2", "minimax_m3", "hy3", "laguna", "ernie4_5_moe"),
         *("olmo2", "inkling2_mini", "deepseek_v3", "axk1", "glm5", "ling3_flash", "qwen3_5", "qwen3_5_moe")}  # fmt: skip


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


def test_every_card_has_an_oracle():
    assert {one.key for one in CARDS} - set(PUBLISHED) == {"retnet"} and len(CARDS) >= 45
    assert len({one.key for one in CARDS}) == len({one.name for one in CARDS}) == len(CARDS)
    pytest.raises(KeyError, card, "gpt5").match("gpt5 is no model card; expected one of bert, gpt2")


def test_a_card_is_the_same_once_a_model_of_the_family_was_opened(monkeypatch):
    model = published("llama4")
    home, name = sys.modules[type(model).__module__], "apply_rotary_emb"
    about = {
        name: value for name, value in ROWS["llama4"].items() if name not in ("config", "card")
    }
    before = card_of_model(model.config, model, **about)
    monkeypatch.setattr(home, name, partial(recorded_rotation, getattr(home, name)))
    assert card_of_model(model.config, model, **about).blocks == before.blocks


@each("key", PUBLISHED)
def test_a_card_is_what_transformers_builds(key):
    # The table, the parameters, and the caches of a text longer than the windows, so that these have forgotten.
    one, model = card(key), published(key)
    if key in ROWS:
        about = {name: value for name, value in ROWS[key].items() if name not in ("config", "card")}
        assert card_of_model(model.config, model, **about) == one
    assert one.parameters == sum(weight.numel() for weight in model.parameters())
    assert one.parameters == sum(one.parameter_rows.values())
    if key in COUNTED:
        # Each of T tokens attends to all T: masked scores are computed too. BERT's pooler reads the first token alone.
        with FlopCounterMode(display=False) as counter:
            read(model, 19)
        pooler = 2 * 768 * 768 if key == "bert" else 0
        assert counter.get_total_flops() == 19 * one.flops(19) + pooler
    if not one.known or not one.stores or key == "t5" or key in ALIKE:
        return
    windows = [layer.keys(10**4) for layer in one.layers if layer.kind == "window"]
    length = max(windows) + 30 if windows else 19
    first = first_layers(one, without_experts(model, key))
    assert sum(layer.stored(length) for layer in first) == cached_numbers(
        read(model, length, use_cache=True).cache
    )


def test_what_the_lab_does_not_have_is_said():
    assert all(one.known for one in CARDS)
    one = card_from_config(UNKNOWN, "mine")
    assert not one.known and "Attention not recognised: " in one.remark
    assert cache(one, 1024) is None and "no layer like" in one.untrained


UNKNOWN = {"model_type": "rwkv", "num_hidden_layers": 2}


EVERY, PICKED = card("deepseek_v4").distinct
NEAR, OPEN, INDEXED = (
    card(key).layers[at] for key, at in (("inkling", 0), ("glm5_flash", 3), ("deepseek_v32", 0))
)
# Queries and keys of 256 numbers a head; values, gate and last map of 432; a gated feed-forward layer of 6,912.
RETNET = 2 * 4096**2 + 3 * 4096 * 6912 + 3 * 4096 * 6912 + 2 * 4096


@each(("found", "expected"), [
    # Keys of 512 numbers are values too: of a window of 127, and of each whole block. Of a token whose block is not
    # whole, two vectors wait. Overlapping blocks have two of each and keep four tokens; the indexer's have 128 numbers.
    ((EVERY.stored(300), EVERY.keys(300)), (512 * (127 + 2 + 2 * 44), 128 + 2)),
    (PICKED.stored(302), 512 * 127 + (512 + 128) * (75 + 4 * 2 + 2 * 4)),
    ((PICKED.stored(3), PICKED.keys(10**5)), (512 * 3 + 640 * 12, 128 + 512)),
    (PICKED.flops(302), 2 * 64 * 2 * 512 * (128 + 75) + 2 * 64 * 128 * 75),
    (card("deepseek_v4").late_bytes(128 * 700), card("deepseek_v4").token_bytes - 2 * 43 * 512),
    (2 * (card("deepseek_v4").cache_numbers(128 * 701) - card("deepseek_v4").cache_numbers(128 * 700)),
     128 * card("deepseek_v4").late_bytes(128 * 701)),
    # Inkling: 16 profiles over 512 distances in each of 64 heads; keys and values of 16 heads, and what four
    # convolutions over 4 tokens hold.
    ((NEAR.flops(2000), NEAR.stored(2000)),
     (2 * 64 * (2 * 128 * 512 + 16 * 512), 2 * 16 * 128 * (511 + 4) + 2 * 4 * 6144)),
    ((NEAR.config.position["distance"], NEAR.config.projection["taps"]), (512, "fixed")),
    (card("inkling2").layers[5].config.projection["taps"], "dynamic"),
    # GLM-5.3: 128 blocks of 16 keys, and those after the last whole block; an index key, its gates, and a mark.
    ((OPEN.keys(100), OPEN.keys(5003)), (100, 128 * 16 + 11)),
    (OPEN.stored(10), 10 * (OPEN.config.sizes.cache + 2 * 128 + 1)),
    ([card(key).layers[0].config.kernel["beta_max"] for key in ("olmo_hybrid", "qwen3_next")], [2.0, 1.0]),
    (card("retnet").parameters, 32 * RETNET + 4096),
    ([card("retnet").cache_numbers(length) for length in (10, 10**6)], [32 * 16 * 256 * 432] * 2),
    (card("retnet").flops(7), 2 * 32 * (RETNET - 2 * 4096) + 4 * card("retnet").cache_numbers(1)),
    # Published as 5.1, 21, 37, 17, 3 and 3 billion, some without the embeddings.
    ([round(card(key).active / 1e9, 1) for key in (
        "gpt_oss", "deepseek_v2", "deepseek_v32", "llama4", "qwen3_next", "kimi_linear")],
     [5.7, 21.4, 38.4, 17.2, 3.9, 3.5]),
    # One layer of DeepSeek-V3.2: 2,048 keys a query, but a latent, a rotated key and an index of each token stored.
    (INDEXED.stored(10_000), 10_000 * (512 + 64 + 128)),
    (INDEXED.flops(10_000), 2 * 128 * (192 + 128) * 2048 + 2 * 64 * 128 * 10_000),
    # A small pattern shares keys as the model does.
    ([config.kv_heads for config in card("llama3").small()], [2]),
    ({config.kv_heads for config in card("gpt_oss").small()}, {1}),
    ([config.mask["lookback"] for config in card("gpt_oss").small() if config.mask.key == "causal_local"], [3]),
    # A loop is passed again and counted once. Of Inkling 2 Mini's 192 experts a token uses 4 and those that all share.
    ((len(card("dory").blocks), sum(one.again for one in card("dory").blocks)), (36 + 20, 20)),
    (card("inkling2_mini").active, 3_135_799_296),
])  # fmt: skip
def test_what_is_stored_and_computed_by_hand(found, expected):
    assert found == expected


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
    assert {layer.kind for one in CARDS for layer in one.layers} == {*KINDS} - {"unknown"}
    for one in CARDS:
        repeated = [block.attentions for block in one.blocks[: one.encoder_blocks or None]]
        # from the last layer of the first half: some models begin with layers of another kind
        middle = len(repeated) // 2 // one.pattern * one.pattern
        usual = repeated[middle:][: one.pattern]
        wrong = [here != usual[at % one.pattern] for at, here in enumerate(repeated)]
        # whose first layer alone has the table
        assert sum(wrong) <= len(repeated) / 10 or one.key == "t5"


# Published totals that count parts which the cards leave out, or that the published files themselves do not have: each
# card says so.
UNLIKE = {"llama4": "encoder", "gemma3n": "encoder", "minimax_m3": "encoder", "zaya": "17.7 GB",
          "kimi_linear": "in its name", "ernie4_5_moe": "in its name"}  # fmt: skip


@each("key", [one.key for one in CARDS if one.published])
def test_a_total_is_the_published_one_to_its_last_digit(key):
    one = card(key)
    whole, _, digits = one.published.partition(".")
    unit = 10.0 ** -len(digits) if digits else 10.0 ** (len(whole) - len(whole.rstrip("0")))
    near = abs(one.parameters / 1e9 - float(one.published)) <= unit / 2 * (1 + 1e-6)
    assert near != (key in UNLIKE) and UNLIKE.get(key, "") in one.remark


def test_cards_have_what_the_published_configs_say():
    # Each field unlike the default of its class in transformers.
    sparse = [layer.config.mask.key == "block_max" for layer in card("minimax_m3").layers]
    assert sparse == 3 * [False] + 57 * [True]
    picked = card("minimax_m3").layers[3]
    assert [picked.config.mask[one] for one in ("size", "blocks", "dim")] == [128, 16, 128]
    assert not picked.extras and picked.config.position["share"] == 0.5
    # keys and values of 4 heads, one of the indexer
    assert picked.stored(10) == 10 * (2 * 4 * 128 + 128)
    # Of 16 blocks the last is the query's own, as far as it goes; each of the 4 index heads meets each key.
    assert [picked.keys(length) for length in (700, 2**14, 2**14 + 5)] == [700, 2048, 15 * 128 + 5]
    assert picked.flops(2**14) == 2 * 64 * 2 * 128 * 2048 + 2 * 4 * 128 * 2**14
    windows = [layer.keys(10**5) for layer in card("laguna").layers]
    assert windows == 10 * [10**5, 512, 512, 512]
    assert [layer.config.num_heads for layer in card("laguna").layers] == 10 * [48, 64, 64, 64]
    yarn = card("laguna").layers[0].config.position
    assert (yarn["factor"], yarn["original"], yarn["fast"], yarn["share"]) == (32, 4096, 64, 0.5)
    assert "YaRN leaves the scores" in card("laguna").remark
    assert {layer.keys(10**4) for layer in card("phi3").layers} == {2047}
    olmo = card("olmo3")
    assert olmo.vocabulary == 100_278 and [
        layer.config.position.key for layer in olmo.layers
    ] == 8 * (3 * ["rope"] + ["yarn"])
    assert (
        olmo.layers[3].config.position["factor"],
        olmo.layers[3].config.position["original"],
    ) == (8, 8192)
    # As the files of Hy4 hold, but for a bias of each expert, which is no parameter in transformers.
    assert card("hy4").parameters == 769_907_408_797 - 77 * 256


@each("size", [1, 2, 16])
def test_an_indexer_of_any_block_is_read(size):
    config = {"model_type": "glm5_next_text", "num_hidden_layers": 4, "index_kpool": size}
    masks = {layer.config.mask for layer in card_from_config(config, "mine").layers}
    picked = next(mask for mask in masks if mask.key == "block_gated")
    assert (picked["size"], picked["blocks"]) == (size, 2048 // size)


def test_pattern_that_lab_cannot_have_is_refused_in_words():
    for key, why in (("jamba", "no layer like “state space"), ("gemma3n", "do not repeat")):
        assert why in card(key).untrained
        pytest.raises(ConfigError, card(key).small).match(why)


@each("sizes", [(64, 8), (32, 2), (48, 6)])
@each("key", [one.key for one in CARDS if not one.untrained])
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


def test_counting_imports_no_compiler():
    # Its import takes seconds, and the page Model cards counts before it draws.
    code = (
        "import sys\nfrom core.models.cards import CARDS\nprint(sum(one.parameters > 0 for one in CARDS), "
        "'torch._dynamo' in sys.modules)"
    )
    assert subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    ).stdout.split() == [str(len(CARDS)), "False"]


# Cards that are read from a config.


def test_a_card_survives_json():
    for one in (*CARDS, *WRITTEN):
        again = ModelCard.from_json(json.loads(json.dumps(one.to_json())))
        assert again.parameter_rows == one.parameter_rows and again.layers == one.layers
        assert again.to_json() == one.to_json()


def test_a_pasted_config_is_read_by_its_fields():
    # By hand: H query heads of 8, two of keys and values, a window of 5 in every layer but the last.
    config = {
        "model_type": "qwen3",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    }
    one = parse_card(json.dumps(config), "mine")
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 2 * 8 + 3 * 32 * 48 + 2 * 32
    assert one.parameters == 3 * layer + 32 + 100 * 32 and one.tied
    assert [one.kind for one in one.layers] == ["window", "window", "full"]
    assert one.cache_numbers(20) == 2 * 2 * 8 * (4 + 4 + 20)
    assert one.layers[0].config.mask["lookback"] == 4 and one.layers[2].config.kv_heads == 2
    assert one.layers[0].config.score.key == "qk_norm" and not one.layers[0].extras
    assert len(one.small()) == 3


def test_experts_of_which_a_token_uses_some():
    config = {
        "model_type": "mixtral",
        "num_hidden_layers": 2,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
    }
    one = parse_card(json.dumps(config), "mine")
    assert one.parameters - one.active == 2 * 4 * 3 * 4096 * 14336


@each(
    "text, why",
    [
        ("{", "is not JSON"),
        ("[1]", "not an object"),
        ("{}", "names no model_type"),
        ('{"model_type": "llama9", "hidden_size": 64, "num_hidden_layers": 2}',
         "has no code for. Read: num_hidden_layers = 2, hidden_size = 64. Not read: how its layers are built"),
        ('{"model_type": "t5"}', "with an encoder"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000}', "num_hidden_layers = 1,000,000, more than any"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "that is no llama"),
        ('{"model_type": "vit"}', "no word embeddings"),
        ("1" * 2_000_000, "at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_words(text, why):
    pytest.raises(PretrainedError, parse_card, text, "mine").match(why)


SAMPLE = [name for name in ARCHITECTURES[::23] if name != "gpt-sw3"]


@each("name", SAMPLE)
def test_any_model_gets_its_parameters_or_a_sentence(name):
    try:
        text, model = empty_model({"model_type": name}, name)
        one = card_of_model(text, model, name)
    except PretrainedError as error:
        assert re.search(r"cannot be built|has no |with an encoder|that is no ", str(error))
    else:
        assert one.parameters == sum(weight.numel() for weight in model.parameters())
        assert 0 < one.active <= one.parameters


# Loops; experts whose modules have other names; a tower for images beside the text; two attentions a layer.
@each(
    "name",
    ["dory", "hrm_text", "inkling2_loop_text", "jetmoe", "aria_text", "idefics", "longcat_flash"],
)
def test_every_weight_is_counted_once(name):
    text, model = empty_model({"model_type": name}, name)
    one = card_of_model(text, model, name)
    weights = dict(model.named_parameters())
    assert one.parameters == sum(weight.numel() for weight in weights.values())
    used = getattr(text, "num_experts_per_tok", 0) or getattr(text, "moe_topk", 0)
    unused = [
        weight[0].numel() * (len(weight) - used)
        for path, weight in weights.items()
        if weight.dim() == 3 and used and re.search(r"\bexperts|mlp\.\w+_linear", path)
    ]
    assert one.parameters - one.active == sum(unused)
    assert one.parameter_rows.get("Norms", 0) < one.parameters / 1000
    assert {layer.name == "no attention" for layer in one.layers} == {False}
    if (
        hasattr(text, "num_hidden_layers")
        and not hasattr(text, "loop_num_passes")
        and name != "dory"
    ):
        assert len(one.layers) == text.num_hidden_layers  # HRM's counts each pass


# What the model adds to its words, or to its scores, by the model itself: rows that no token has are no positions.
@each("config, position, longest", [
    ({"model_type": "bloom"}, "alibi", None),
    ({"model_type": "falcon", "alibi": True}, "alibi", None),
    ({"model_type": "falcon"}, "rope", None),
    ({"model_type": "opt"}, "learned", 2048),
    ({"model_type": "opt", "max_position_embeddings": 99}, "learned", 99),
    ({"model_type": "biogpt"}, "learned", 1024),
    ({"model_type": "trocr"}, "learned", 512),
    ({"model_type": "clip_text_model"}, "learned", 77),
    ({"model_type": "xglm"}, "sinusoidal", None),
    ({"model_type": "tipsv2_text_model"}, "sinusoidal", None),
    ({"model_type": "idefics"}, "rope", None),
    ({"model_type": "jamba"}, "none", None),
])  # fmt: skip
def test_positions_are_those_of_the_model(config, position, longest):
    one = card_from_config(config, "mine")
    assert {layer.config.position.key for layer in one.layers if layer.config} == {position}
    assert one.longest == longest
    assert ("without positions" in str(one.layers)) == (position == "none")


@each("name", ["git", "blt", "pi0"])
def test_layers_of_another_stack_are_not_read_as_the_text(name):
    pytest.raises(PretrainedError, card_from_config, {"model_type": name}, name).match(
        "has no list of layers"
    )
