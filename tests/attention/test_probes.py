"""check: planted faults are named by their cause, and what is right raises no alarm."""

import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward

from core.attention import Attention, AttentionConfig, Choice, ConfigError, entry
from core.attention.difference import first_difference
from core.attention.probes import check
from tests.attention.drawing import ENTRIES, config_of
from tests.cases import each


def scored(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def lower(q, k, diagonal=0):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(diagonal)


def right(q, k, v, mask=None):
    scores = scored(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


def turned(x, pairs=False):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    a, b = (x[..., ::2], x[..., 1::2]) if pairs else (x[..., :half], x[..., half:])
    both = a * cos - b * sin, a * sin + b * cos
    return torch.stack(both, -1).flatten(-2) if pairs else torch.cat(both, -1)


def away(q, k):
    return (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()


def ignored(q, k, v, mask=None):
    return right(q, k, v)


def inverted(q, k, v, mask=None):
    return right(q, k, v, None if mask is None else ~mask)


def too_small(q, k, v, mask=None):
    hidden = 0.0 if mask is None else -5.0 * ~mask
    return (scored(q, k) + hidden).softmax(-1) @ v


def after(q, k, v, mask=None):
    weights = scored(q, k).softmax(-1)
    return (weights if mask is None else weights * mask) @ v


def times(q, k, v, mask=None):
    return (scored(q, k) * (1.0 if mask is None else mask)).softmax(-1) @ v


def dead(q, k, v, mask=None):
    scores = scored(q, k)
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1) @ v


def overflows(q, k, v):
    weights = scored(q, k).exp()
    return weights / weights.sum(-1, keepdim=True) @ v


def too_large_in_half(q, k, v, mask=None):
    scores = scored(q, k)
    return (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1) @ v


def shared(repeat):
    def attend(q, k, v):
        return right(q, *(repeat(x, q.shape[1] // x.shape[1]) for x in (k, v)))

    return attend


class Layer(nn.Module):
    """Causal attention of x (B, T, C) as people write it, with one fault."""

    def __init__(self, fault=""):
        super().__init__()
        self.fault, self.qkv, self.out = fault, nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x, key_padding_mask=None):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        shape = (batch, 3, length, 8) if self.fault == "view" else (batch, length, 3, 8)
        q, k, v = (one.reshape(shape) for one in (q, k, v))
        if self.fault != "view":
            q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        mask = lower(q, k, 1 if self.fault == "diagonal" else 0)
        if key_padding_mask is not None and self.fault != "padding":
            mask = mask & ~key_padding_mask[:, None, None]
        out = right(q, k, v, mask)
        if self.fault == "softmax":
            out = scored(q, k).softmax(-2) @ v
        if self.fault == "dropout":
            out = F.dropout(out, 0.1)
        if self.fault == "batch":
            out = out + out.mean(0)
        return self.out(out.transpose(1, 2).reshape(batch, length, 24))


def no_transpose(module, query, key, value, attention_mask, scaling=None, **kwargs):
    return right(query, key, value), None


FAULTS = {
    "a mask is ignored": (ignored, "mask", "it is ignored"),
    "a mask is inverted": (inverted, "mask", "it is inverted"),
    "a mask adds too little": (too_small, "mask", "too small a number"),
    "a mask comes after the softmax": (after, "mask", "after the softmax"),
    "a mask multiplies scores": (times, "mask", "makes their score 0"),
    "no division": (lambda q, k, v: (q @ k.mT).softmax(-1) @ v, "scale", "not divided by √D"),
    "one number for all D": (lambda q, k, v: (q @ k.mT / 4).softmax(-1) @ v, "scale", "one number"),
    "division by D": (
        lambda q, k, v: (q @ k.mT / q.shape[-1]).softmax(-1) @ v,
        "scale",
        "divided by D",
    ),
    "softmax over queries": (lambda q, k, v: scored(q, k).softmax(-2) @ v, "rows", "over queries"),
    "softmax over heads": (lambda q, k, v: scored(q, k).softmax(1) @ v, "rows", "over heads"),
    "the next token is felt": (
        lambda q, k, v: right(q, k, v, lower(q, k, 1)),
        "later tokens",
        "next token, .*diagonal of the causal mask is 1",
    ),
    "the next token by a mask_mod": (
        lambda b, h, q_idx, kv_idx: q_idx + 1 >= kv_idx,
        "later tokens",
        "next token",
    ),
    "the own token is not felt": (
        lambda q, k, v: right(q, k, v, lower(q, k, -1)),
        "itself",
        "diagonal of the causal mask is −1",
    ),
    "only later tokens": (
        lambda b, h, q_idx, kv_idx: q_idx < kv_idx,
        "later tokens",
        "inverted",
    ),
    "halves and pairs": (
        lambda q, k, v: right(turned(q), turned(k, pairs=True), v),
        "positions",
        "rotation depends on the place itself",
    ),
    "keys alone rotated": (
        lambda q, k, v: right(q, turned(k), v),
        "positions",
        "keys are rotated, queries are not",
    ),
    "queries alone rotated": (
        lambda q, k, v: right(turned(q), k, v),
        "positions",
        "queries are rotated, keys are not",
    ),
    "values rotated": (
        lambda q, k, v: right(turned(q), turned(k), turned(v)),
        "values",
        "rotate q and k alone",
    ),
    "a bias of the wrong sign": (
        lambda q, k, v: (scored(q, k) + 0.1 * away(q, k)).softmax(-1) @ v,
        "bias",
        "its sign is wrong",
    ),
    "ALiBi of the wrong sign": (
        lambda score, b, h, q_idx, kv_idx: score + (q_idx - kv_idx) * 0.5 ** (h + 1),
        "bias",
        "its sign is wrong",
    ),
    "dropout": (lambda q, k, v: F.dropout(scored(q, k).softmax(-1)) @ v, "repeatable", "dropout"),
    "a view without a transpose": (
        lambda q, k, v: right(*(x.transpose(1, 2).reshape(x.shape) for x in (q, k, v))),
        "sequences",
        "a view where a transpose belongs",
    ),
    "repeat": (shared(lambda x, n: x.repeat(1, n, 1, 1)), "grouped heads", "repeat_interleave"),
    "no gradient": (lambda q, k, v: right(q, k.detach(), v), "gradients", "step of k .*detach"),
    "exp overflows": (overflows, "large scores", "subtract the largest"),
    "float16 is too small": (too_large_in_half, "half precision", "float16 .* overflow"),
    "NaN in a dead row": (dead, "dead row", "NaN"),
    "a module feels the next token": (Layer("diagonal"), "later tokens", "next token"),
    "a module ignores padding": (Layer("padding"), "mask", "it is ignored"),
    "a module's softmax over queries": (Layer("softmax"), "rows", "over queries they sum to 1"),
    "a module drops": (Layer("dropout"), "repeatable", "dropout"),
    "a module mixes sequences": (Layer("batch"), "sequences", "sequences are mixed"),
}


@each("name", FAULTS)
def test_a_planted_fault_is_named_by_its_cause(name):
    thing, probe, words = FAULTS[name]
    found = check(thing)
    named = [one for one in found.all if one.level != "property"]
    assert named and named[0].probe == probe, found
    assert re.search(words, named[0].text), found
    assert {one.probe for one in named} <= {probe, "lengths", "half precision"}, found


def test_a_view_without_a_transpose_breaks_a_causal_module():
    text = check(Layer("view"), causal=True).faults[0].text
    assert "Later tokens are felt" in text and "a view without a transpose" in text
    assert not check(Layer(), causal=True).faults


def test_a_finding_holds_both_maps():
    (one,) = check(inverted).faults
    hidden = [1, 4, 5]
    assert one.got is not None and one.expected is not None
    assert one.got[:, hidden].sum() == pytest.approx(9, abs=1e-4)
    assert float(one.expected[:, hidden].abs().max()) == 0
    torch.testing.assert_close(one.expected.sum(-1), torch.ones(9))


@each(
    ("thing", "how"),
    [
        (right, {"causal": False}),
        (F.scaled_dot_product_attention, {}),
        (nn.MultiheadAttention(24, 3), {}),
        (nn.MultiheadAttention(24, 3, batch_first=True), {}),
        (nn.TransformerEncoderLayer(24, 3, 48, batch_first=True), {}),
        (eager_attention_forward, {}),
        (sdpa_attention_forward, {}),
        (Layer(), {"causal": True}),
        (lambda q, k, v: right(turned(q), turned(k), v, lower(q, k)), {"causal": True}),
        (lambda q, k, v, mask: right(q, k, v, mask), {}),
        (lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, {"causal": True}),
        (lambda score, b, h, q_idx, kv_idx: score - (q_idx - kv_idx).abs(), {}),
        (shared(lambda x, n: x.repeat_interleave(n, 1)), {}),
    ],
)
def test_what_others_wrote_is_right(thing, how):
    found = check(thing, **how)
    assert not found.faults, found
    quiet = {"dead row", "half precision"}  # torch's own gives NaN where no key is seen
    assert {one.probe for one in found.all if one.level == "warning"} <= quiet, found


@each(
    ("scores", "words"),
    [
        (lambda q, k, v: scored(q, k) / 8, "a temperature of their own"),
        (lambda q, k, v: 10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT, "cosine"),
        (lambda q, k, v: scored(q + place(q), k + place(k)), "absolute positions"),
        (lambda q, k, v: scored(turned(q), turned(k)), "by a rotation"),
    ],
)
def test_a_choice_is_told_as_one(scores, words):
    found = check(lambda q, k, v: scores(q, k, v).softmax(-1) @ v)
    assert words in repr(found) and not found.faults


def place(x):
    return torch.randn(x.shape[2], x.shape[3], generator=torch.Generator().manual_seed(9)).to(x)


# of the lab's own: their rules are other than usual, and a warning says so
MEANT = {
    ("score", "dot"): "scale",
    ("score", "general"): "scale",
    ("mask", "or"): "later tokens",
    ("mask", "not"): "later tokens",
    ("kernel", "rwkv6"): "itself",
}


@each("mask", ["", "causal"])
def test_the_labs_own_choices_raise_no_alarm(mask):
    alarms, checked = {}, 0
    for axis, key in ENTRIES:
        if mask and axis not in ("score", "normalizer", "position"):
            continue
        config = config_of(axis, key)
        try:
            config = config.with_(mask=mask) if mask else config
        except ConfigError:
            continue
        torch.manual_seed(3)
        found = check(Attention(config, add_positions=True))
        checked += 1
        named = {one.probe: one.text for one in found.all if one.level != "property"}
        if named and named.keys() != {MEANT.get((axis, key))}:
            alarms[axis, key] = named
    assert not alarms and checked > 50


@each(
    ("thing", "words"),
    [
        (3, r"check takes f\(q, k, v, …\) .*score_mod.*AttentionInterface.*; got 3"),
        (lambda a, b: a, r"takes \(a, b\); check takes f\(q, k, v"),
        (lambda q, k, v: q[..., 0], r"It returned \(2, 3, 9\); expected \(B, H, T, D\)"),
        (lambda q, k, v: 1 / 0, "test_probes.py, line .*ZeroDivisionError"),
        (no_transpose, r"AttentionInterface expects \(B, T, H, D\): out.transpose\(1, 2\)"),
        (nn.GRUCell(24, 24), "cannot run on x|The width of GRUCell"),
        (nn.LayerNorm(24), "The width of LayerNorm cannot be seen; give check"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(thing, words):
    pytest.raises(ConfigError, check, thing).match(f"(?s).*{words}")


def test_a_config_and_an_entry_are_checked_as_layers():
    assert not check(AttentionConfig(24, 3, kernel="linear", mask="causal")).faults
    assert "a layer of this lab" in check(entry("score", "scaled_dot")).kind


CONFIG = AttentionConfig(24, 3)


@each(
    ("mine", "config", "step", "words"),
    [
        (
            right,
            {},
            "",
            "No step differs: the queries .*, q·k, the scores .*the weights, weights · v are equal",
        ),
        (F.scaled_dot_product_attention, {"mask": "causal"}, "", "No step differs"),
        (eager_attention_forward, {}, "", "No step differs"),
        (
            nn.MultiheadAttention(24, 3, batch_first=True),
            {},
            "",
            "the output .heads merged and projected. are equal",
        ),
        (Layer(), {"mask": "causal"}, "", "the output .heads merged and projected. are equal"),
        (
            lambda q, k, v: (q @ k.mT / q.shape[-1]).softmax(-1) @ v,
            {},
            "scores",
            "agree up to q·k; the first difference is in the scores.*, by up to .*Mine is 0.354 times ours",
        ),
        (
            lambda q, k, v: (q / 8**0.5 @ k.mT).softmax(-2) @ v,
            {},
            "weights",
            "agree up to the masked scores",
        ),
        (F.scaled_dot_product_attention, {"position": "alibi"}, "weights", "is in the weights"),
        (
            lambda q, k, v: right(turned(q), turned(k, pairs=True), v),
            {"position": "rope"},
            "k",
            "is in the keys .projected and rotated., by",
        ),
        (lambda q, k, v: right(q, k, v) * 2, {}, "out", "Mine is 2 times ours"),
        (
            Layer("diagonal"),
            {"mask": "causal"},
            "masked",
            r"in the masked scores: at row .* mine has .* and ours −∞ \(hidden\)\.",
        ),
        (AttentionConfig(24, 3, position="alibi"), {}, "scores", "agree up to q·k"),
        (
            AttentionConfig(24, 3, normalizer="sparsemax"),
            {},
            "weights",
            "agree up to the masked scores",
        ),
    ],
)
def test_the_first_difference_from_a_choice(mine, config, step, words):
    apart = first_difference(mine, CONFIG.with_(**config))
    assert apart.step == step and re.search(words, apart.text), (apart.step, apart.text)
    if step:
        row, column = apart.cell
        one, other = (float(map[row, column]) for map in (apart.mine, apart.ours))
        assert abs(one - other) == pytest.approx(apart.largest, rel=1e-4)


def test_an_example_input_is_cut_or_refused():
    assert not check(Layer(), x=torch.randn(3, 20, 24), causal=True).faults
    pytest.raises(ConfigError, check, Layer(), x=torch.randn(1, 5, 24)).match(
        r"x is \(1, 5, 24\); expected \(B, T, C\) of at least 2 sequences of 9 tokens"
    )


def test_weights_that_cannot_be_told_are_asked_for():
    config = CONFIG.with_(projection=Choice.of("multi_head", bias=False))
    pytest.raises(ConfigError, first_difference, Layer(), config).match("with a bias only where")
    pytest.raises(ConfigError, first_difference, nn.LayerNorm(24), CONFIG).match("cannot be told")
    pytest.raises(ConfigError, first_difference, nn.Linear(24, 24), CONFIG).match(
        "The weights of Linear cannot be told: expected linear maps of 24 to 72"
    )


def test_the_document_prints_what_it_says(capsys):
    document = Path(__file__).resolve().parents[2] / "docs" / "check-your-attention.md"
    names: dict[str, object] = {}
    blocks = re.findall(
        r"```python\n(.*?)```\n\n?((?: {4}[^\n]*\n)*)",
        document.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    numbers = re.compile(r"\d+\.\d+")
    for code, shown in blocks:
        exec(compile(code, "docs", "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        comment = [line[2:] for line in code.splitlines() if line.startswith("# ")]
        expected = [line[4:] for line in shown.splitlines()] or comment
        for one, other in zip(printed, expected, strict=True):
            assert numbers.sub("", one) == numbers.sub("", other)
            assert [*map(float, numbers.findall(one))] == pytest.approx(
                [*map(float, numbers.findall(other))], rel=0.02
            )
    assert len(blocks) == 3


def soft_cap(score, b, h, q_idx, kv_idx, cap=20.0):
    return cap * torch.tanh((score - 0.1 * (h + 1) * (q_idx - kv_idx).abs()) / cap)


def near_cap(score, b, h, q_idx, kv_idx):
    return soft_cap(score, b, h, q_idx, kv_idx, 2.0)


def times_causal(score, b, h, q_idx, kv_idx):
    return score * (q_idx >= kv_idx)


def linear_bias(score, b, h, q_idx, kv_idx):
    return score - 0.1 * (q_idx - kv_idx).abs()


@each(
    ("mod", "words"),
    [
        (soft_cap, "by more than a bias or a rotation"),
        (near_cap, "by more than a bias or a rotation"),
        (times_causal, "scores are multiplied by 0"),
        (linear_bias, "by a bias"),
        (AttentionConfig(24, 3, position="rope"), "by a rotation"),
    ],
)
def test_what_a_score_mod_does_is_named(mod, words):
    (said,) = [one.text for one in check(mod).all]
    assert words in said


def test_a_check_leaves_the_module_and_the_seed_as_they_were():
    module = Layer().train()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    check(module)
    first_difference(module, CONFIG)
    assert torch.equal(torch.rand(1), expected) and all(one.training for one in module.modules())


def test_an_output_of_zeros_is_told_as_one():
    module = Layer("padding")
    nn.init.zeros_(module.out.weight)
    found = check(module)
    assert "an output projection begins at 0" in found.alarms[0].text and not found.faults
    assert "are not felt" in found.untried["mask"]
