"""register: what is added is known everywhere and leaves again; what is malformed is refused in words."""

import json
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import pytest
import torch
from torch import Tensor, nn

from core import plugins
from core.attention import (
    AXES,
    Attention,
    AttentionConfig,
    Choice,
    ConfigError,
    Entry,
    Param,
    Steps,
    entry,
    register,
)
from core.attention.base import Projection
from core.attention.config import needs
from core.attention.cost import attention_cost, parameters, race, recorded_cost
from core.attention.normalizers import Softmax
from core.attention.positions.relative import alibi_slopes
from core.attention.positions.rotary import Rotary
from core.attention.projections.combined import Convolved
from core.attention.projections.multi_head import MultiHead
from core.attention.register import _read_in_parts
from core.studies.efficient import Growth
from dashboard.draw.efficient import draw_rows, lines_of, power
from dashboard.draw.formats import byte_size, operations
from tests.attention.drawing import plain, read_in_parts
from tests.cases import each
from tests.oracles.agreement import put

# A layer takes a function or a module for an axis: the same numbers as the lab's own choice, and errors in words.


B, T, S, C, H = 2, 5, 7, 33, 3


def scaled_dot(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def causal(i, j):
    return j <= i


def alibi(i, j):
    return -alibi_slopes(H)[:, None, None] * (i - j).abs()


def softmax(scores, mask):
    return scores.softmax(-1)


def layer(seed=7, config=None, **given):
    torch.manual_seed(seed)
    return Attention(config or AttentionConfig(C, H), **given)


def results(layer, record):
    torch.manual_seed(3)
    x, context = torch.randn(B, T, C, requires_grad=True), torch.randn(B, S, C, requires_grad=True)
    real = torch.rand(B, S) < 0.6
    real[1] = False
    steps = layer(x, context, key_mask=real, record=record)
    steps.merged.square().sum().backward()
    return steps.merged, x.grad, context.grad, *(weight.grad for weight in layer.parameters())


@each("record", [True, False])
@each(
    ("axis", "function", "own"),
    [
        ("score", scaled_dot, "scaled_dot"),
        ("mask", causal, "causal"),
        ("position", alibi, "alibi"),
        ("normalizer", softmax, "softmax"),
    ],
)
def test_a_function_gives_what_the_labs_own_choice_gives(axis, function, own, record):
    theirs = results(layer(config=AttentionConfig(C, H, **{axis: own})), record)
    for one, other in zip(results(layer(**{axis: function}), record), theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_a_score_worked_by_hand():
    # q = k = 1 and 2, score q + k: e^3 and e^4 for the second query.
    attention = Attention(AttentionConfig(1, 1, projection="identity"), score=lambda q, k: q + k.mT)
    assert attention(torch.tensor([[[1.0], [2.0]]])).weights[0, 0, 1].tolist() == pytest.approx(
        [1 / (1 + math.e), math.e / (1 + math.e)], abs=1e-6
    )


class Bilinear(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ self.weight @ k.mT


def test_a_module_is_trained_and_stored_with_the_layer():
    attention = layer(score=Bilinear(C // H))
    results(attention, True)
    assert (
        attention.score.function.weight.grad.abs().sum() > 0
        and "score.function.weight" in attention.state_dict()
    )
    again, x = pickle.loads(pickle.dumps(attention)), torch.randn(B, T, C)
    assert torch.equal(again(x).merged, attention(x).merged)


def test_modules_of_the_lab_are_taken_as_they_are():
    projection, normalizer = MultiHead(C, H, bias=False), Softmax(temperature=0.5)
    attention = layer(projection=projection, normalizer=normalizer)
    assert attention.projection is projection and attention.normalizer is normalizer


def test_a_normalizer_may_use_half_precision():
    def thirds(scores, mask):
        assert scores.dtype == torch.float32
        return torch.full_like(scores, 1 / 3)

    weights = (
        layer(normalizer=thirds, mask=causal)
        .bfloat16()(torch.randn(B, T, C, dtype=torch.bfloat16))
        .weights
    )
    assert (
        weights.dtype == torch.bfloat16 and not weights.triu(1).any() and weights.tril().sum() > 0
    )


def test_it_decodes_token_by_token_as_it_reads_at_once():
    attention, x = layer(mask=causal, position=alibi, score=scaled_dot), torch.randn(B, T, C)
    torch.testing.assert_close(read_in_parts(attention, x, (1,) * T)[0], attention(x).merged)


@each(
    ("given", "words"),
    [
        ({"scores": scaled_dot}, "Attention has no scores; it takes projection, score, position"),
        (
            {"score": "dot"},
            r"score = 'dot' is a key; name it in the config: AttentionConfig\(score='dot'\)",
        ),
        ({"score": 3}, r"score = 3; expected a function of \(q, k\) or an instance of Score"),
        ({"score": Bilinear}, r"score = Bilinear is a class; .*call it, Bilinear\(…\)"),
        ({"score": lambda q: q}, r"takes \(q\); expected a function of \(q, k\)"),
        (
            {"projection": nn.Linear(C, C)},
            "projection = Linear; expected an instance of Projection",
        ),
        (
            {"config": AttentionConfig(C, H, mask="padding"), "mask": causal},
            "mask = causal is given, and the config has mask = padding",
        ),
        (
            {"config": AttentionConfig(C, H, kernel="fused"), "score": scaled_dot},
            "kernel = fused knows no score .*take kernel = exact",
        ),
        (
            {"score": lambda q, k: q},
            r"returned a tensor \(2, 3, 5, 11\); expected \(B, H, T, S\) = \(2, 3, 5, 7\)",
        ),
        ({"score": lambda q, k: None}, "returned None; expected a tensor"),
        (
            {"mask": lambda i, j: i - j},
            "returned torch.int64; expected torch.bool with True = may attend",
        ),
        (
            {"mask": lambda i, j: j.new_ones(5, 6, dtype=torch.bool)},
            r"\(5, 6\); expected broadcastable to",
        ),
        (
            {"position": lambda i, j: torch.zeros(4, 1, 1)},
            r"\(4, 1, 1\); expected broadcastable to \(H, T, S\)",
        ),
        (
            {"normalizer": lambda scores, mask: scores.sum(-1)},
            r"\(2, 3, 5\); expected \(B, H, T, S\)",
        ),
    ],
)
def test_what_a_function_returns_is_checked(given, words):
    with pytest.raises(ConfigError, match=words):
        layer(**given)(torch.randn(B, T, C), torch.randn(B, S, C))


def test_a_layer_returns_steps_to_a_type_checker():
    assert isinstance(
        assert_type(Attention(AttentionConfig(C, H))(torch.randn(B, T, C)), Steps), Steps
    )


def cosine_power(q, k, power=3.0):
    cosine = torch.nn.functional.normalize(q, dim=-1) @ torch.nn.functional.normalize(k, dim=-1).mT
    return cosine.sign() * cosine.abs().clamp(min=1e-6) ** power


def made(key="variant", build=lambda config, *parts: cosine_power, **fields):
    return Entry(
        **{
            "key": key,
            "name": "Variant",
            "build": build,
            "latex": "x",
            "meaning": "A variant from outside, for the tests.",
            "paper": "",
            "year": 2026,
        }
        | fields
    )


@pytest.fixture
def axes():
    before = {axis: list(entries) for axis, entries in AXES.items()}
    yield AXES
    for axis, entries in before.items():
        AXES[axis][:] = entries
    plugins.faults.clear()


def test_a_registered_choice_is_one_like_any_other(axes):
    register(
        "score",
        made(
            build=lambda config: lambda q, k: cosine_power(q, k, config.score["power"]),
            params=(
                Param(
                    "power",
                    "Power",
                    default=3.0,
                    low=1.0,
                    high=9.0,
                    step=0.5,
                    meaning="exponent of the cosine",
                ),
            ),
        ),
    )
    config = AttentionConfig(33, 3, score=Choice.of("variant", power=2.0), mask="causal")
    assert AttentionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    steps = Attention(config)(torch.randn(2, 5, 33))
    torch.testing.assert_close(steps.raw, cosine_power(steps.q, steps.k, 2.0))
    assert (
        entry("score", "variant").name == "Variant (plug-in)"
        and entry("score", "variant") in axes["score"]
    )
    assert (
        attention_cost(config, 5, 7).flops
        == attention_cost(config.with_(score="scaled_dot"), 5, 7).flops
    ), "one product of q and k in each"
    assert parameters(config)["score"] == 0
    pytest.raises(ConfigError, AttentionConfig, score=Choice.of("variant", power=12.0)).match(
        "power = 12; expected 1 to 9"
    )
    pytest.raises(ConfigError, AttentionConfig, score="variant", kernel="fused").match(
        "score = variant; take score = scaled_dot"
    )


class Forgets(Convolved):
    """Tokens convolved with the three before, at first as the identity; the cache does not hold these."""

    owner: type[Projection] = Projection

    def __init__(self, config):
        super().__init__(config.d_model, config.num_heads, False, 4, "none")
        put((self.taps, torch.eye(4)[-1:].mT.expand_as(self.taps)))

    def extend(self, x, stored, offset, key_mask=None, **given):
        return self.owner.extend(self, x, stored, offset, key_mask=key_mask, **given)


class Remembers(Forgets):
    owner = Convolved


def test_a_cache_without_what_later_tokens_read_is_refused(axes):
    # At its first weights the convolution is the identity, and every cache is right.
    traits = frozenset({"one sequence"})
    pytest.raises(ConfigError, register, "projection", made(build=Forgets, traits=traits)).match(
        "with a cache, it gives another output than for the whole"
    )
    assert "variant" not in [one.key for one in axes["projection"]]
    register("projection", made(build=Remembers, traits=traits))


@each(
    ("axis", "key"),
    [
        (axis, item.key)
        for axis in ("projection", "kernel")  # which store in ways of their own
        for item in AXES[axis]
    ],
)
def test_the_labs_own_choices_pass_the_trial_of_caches(axis, key):
    tried = _read_in_parts(
        axis, AttentionConfig(24, 3, **{axis: plain(axis, key)} | needs(axis, key))
    )
    assert tried == (key not in ("linformer", "nystrom")), "these are not for a decoder"


def test_registering_draws_no_random_number(axes):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    register("score", made())
    assert torch.equal(torch.rand(1), expected)


def soft_cap(score, b, h, q_idx, kv_idx, cap=20.0, slope=0.1):
    """Scores lose with each token of distance, and none passes the cap."""
    slopes = slope * torch.arange(1.0, 1 + H)
    return cap * torch.tanh((score - slopes[h] * (q_idx - kv_idx).abs()) / cap)


def near(b, h, q_idx, kv_idx, most=1.0):
    return (q_idx - kv_idx).abs() <= most + h


def test_a_score_mod_is_registered_as_it_is(axes):
    for mod in (soft_cap, near):
        register(mod)
    position = AXES["position"][-1]
    assert position.meaning == soft_cap.__doc__ and [one.key for one in position.params] == [
        "cap",
        "slope",
    ]
    config = AttentionConfig(C, H, position=Choice.of("soft_cap", cap=2.0), mask="near")
    attention = layer(config=config)
    pickle.dumps(attention)
    steps = attention(torch.randn(B, S, C))
    i, j = torch.arange(S)[:, None], torch.arange(S)
    slopes = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    scores = 2 * torch.tanh((steps.raw * (C // H) ** -0.5 - slopes * (i - j).abs()) / 2)
    torch.testing.assert_close(steps.scores, scores, rtol=1e-4, atol=1e-5)
    assert torch.equal((steps.weights > 0)[0], (i - j).abs() <= 1 + torch.arange(H)[:, None, None])


def of_q(score, b, h):
    return score


def with_a_word(score, b, h, i, j, kind="soft"):
    return score


@each(
    ("given", "words"),
    [
        ((of_q,), r"of_q takes \(score, b, h\); register takes score_mod\(score, b, h, q_idx"),
        ((with_a_word,), "kind = 'soft'; a parameter's default is a number other than 0"),
        ((3,), "register takes a function or an axis; got 3"),
        (("score", soft_cap), "goes alone: register"),
        ((lambda b, h, i, j: i == j,), "key = '<lambda>'"),
    ],
)
def test_another_function_than_a_mod_is_refused(axes, given, words):
    with pytest.raises(ConfigError, match=words):
        register(*given)


def test_a_score_mod_as_a_score_says_where_it_goes():
    with pytest.raises(ConfigError, match=r"it is a position: register\(soft_cap\)"):
        layer(score=soft_cap)
    assert layer(position=soft_cap)(torch.randn(B, S, C)).weights.shape == (B, H, S, S)


def test_a_key_has_one_entry(axes):
    register("score", made())
    pytest.raises(ConfigError, register, "score", made()).match(
        "registered already, by test_register.py; .*replace=True"
    )
    count = len(axes["score"])
    register("score", made(name="Other"), replace=True)
    assert len(axes["score"]) == count and entry("score", "variant").name == "Other (plug-in)"
    pytest.raises(ConfigError, register, "score", made("dot"), replace=True).match(
        "score = dot is one of the lab's own; take another key"
    )


@each(
    ("axis", "item", "words"),
    [
        ("scores", made(), "axis = 'scores'; expected one of projection, score"),
        ("score", 3, "takes an Entry; got 3"),
        ("score", made("Two words"), "key = 'Two words'; expected up to 40 lower-case letters"),
        ("score", made(build=3), "score = variant: build = 3; expected a function"),
        ("score", made(meaning="Short."), "expected a sentence of more than 20 characters"),
        ("score", made(latex=""), "latex = ''; expected a text"),
        ("score", made(year="2026"), "year = '2026'; expected a whole number"),
        ("score", made(params=[1]), r"params = \[1\]; expected a tuple of Param"),
        (
            "score",
            made(params=(Param("p", "P", default=2.0, meaning="power"),)),
            "p is a number without low, high and step",
        ),
        (
            "score",
            made(
                params=(Param("p", "P", default=2.0, low=0.0, high=1.0, step=0.1, meaning="power"),)
            ),
            "p = 2; expected 0 to 1",
        ),
        (
            "score",
            made(traits=frozenset({"products"})),
            "trait 'products'; the traits of this axis are product",
        ),
        ("position", made(), "enters = ''; expected one of 'x', 'q, k', 'scores'"),
    ],
)
def test_a_malformed_entry_is_refused_by_its_field(axes, axis, item, words):
    pytest.raises(ConfigError, register, axis, item).match(words)


@each(
    ("axis", "build", "words"),
    [
        (
            "score",
            lambda config: 3,
            r"score = 3; expected a function of \(q, k\) or an instance of Score",
        ),
        (
            "score",
            lambda: cosine_power,
            "TypeError: .* takes 0 positional arguments but 1 was given",
        ),
        ("score", lambda config: lambda q, k: q, r"returned a tensor \(2, 3, 5, 8\); expected"),
        (
            "score",
            lambda config: lambda q, k: 1 / 0,
            r"test_register.py, line \d+: ZeroDivisionError: division by zero",
        ),
        ("score", lambda config: lambda q, k: (q @ k.mT).log(), "output is not finite"),
        (
            "mask",
            lambda config, parts: lambda i, j: i - j,
            "expected torch.bool with True = may attend",
        ),
        ("kernel", lambda config: lambda inputs: inputs.v, "AttributeError"),
        (
            "normalizer",
            lambda config: lambda s, mask: s / s.sum(-1, keepdim=True),
            "Masked keys change the weights",
        ),
        (
            "normalizer",
            lambda config: lambda s, mask: s.masked_fill(~mask, 0) ** 1.5,
            "output is not finite",
        ),
    ],
)
def test_an_entry_that_cannot_run_is_not_added(axes, axis, build, words):
    count = len(axes[axis])
    pytest.raises(ConfigError, register, axis, made(build=build)).match(
        f"(?s){axis} = variant was not added. .*{words}"
    )
    assert len(axes[axis]) == count


def running_sums(inputs):
    """Linear attention by a state, token by token; causal, whatever the mask."""
    q, k = inputs.q.softmax(-1), inputs.k.softmax(-1)
    state = torch.einsum("bhsd,bhse->bhsde", k, inputs.v).cumsum(2)
    state = state if inputs.past is None else state + inputs.past[:, :, None]
    at = inputs.block.i[:, 0].clamp(max=k.shape[2] - 1)
    out = torch.einsum("bhtd,bhtde->bhte", q, state[:, :, at])
    last = state[:, :, -1] if inputs.carries else None
    return Steps(inputs.q, inputs.k, inputs.v, inputs.score.scale, None, None, out, state=last)


STATE = frozenset({"implied", "state", "own positions", "layer only"})


def state_kernel(**fields):
    return made(build=lambda config: running_sums, traits=STATE, **fields)


@each(
    ("choice", "words"),
    [
        ({"position": "alibi"}, "does not read position, so position = alibi would be ignored"),
        ({"normalizer": "sparsemax"}, "so normalizer = sparsemax would be ignored"),
        (
            {"normalizer": Choice.of("softmax", temperature=2.0)},
            "normalizer = softmax with temperature = 2.0 would be",
        ),
        ({"score": "cosine"}, "so score = cosine would be ignored"),
        ({"mask": "local"}, "so mask = local would be ignored"),
        ({"mask": "padding"}, "so mask = padding would be ignored"),
        ({"projection": "differential"}, "so projection = differential would be ignored"),
        (
            {"dropout": 0.1},
            "so dropout = 0.1 would be ignored; take dropout = 0, or kernel = exact",
        ),
    ],
)
def test_what_a_kernel_does_not_read_is_refused(axes, choice, words):
    register("kernel", state_kernel(), replace=True)
    pytest.raises(ConfigError, AttentionConfig, 24, 3, kernel="variant", **choice).match(words)
    fitting: Any = ({"mask": "causal"}, {"position": "rope"}, {"position": "sinusoidal"})
    for fits in fitting:
        AttentionConfig(24, 3, kernel="variant", **fits)


def test_a_kernel_refuses_the_masks_of_a_call_that_it_does_not_read(axes):
    register("kernel", state_kernel())
    layer, x = Attention(AttentionConfig(C, H, kernel="variant")), torch.randn(B, T, C)
    masks: Any = (
        {"mask": torch.ones(T, T, dtype=torch.bool)},
        {"key_mask": torch.ones(B, T, dtype=torch.bool)},
    )
    for given in masks:
        pytest.raises(ConfigError, layer, x, **given).match("kernel = variant reads no mask")
    assert layer(x).merged.shape == x.shape
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x).merged, layer(x).merged)


def test_a_kernel_computes_what_it_says_to_read(axes):
    pytest.raises(ConfigError, register, "kernel", state_kernel(reads=("normalizer",))).match(
        "says that it reads normalizer, and normalizer = sparsemax changes nothing"
    )
    pytest.raises(ConfigError, register, "kernel", state_kernel(reads=("x",))).match(
        "reads 'x'; of the other axes this one may read dropout, mask"
    )
    with pytest.warns(RuntimeWarning, match="kernel = variant was added. A mask .* is ignored"):
        register("kernel", state_kernel(reads=("padding",)))


def test_a_missing_cost_is_unknown(axes):
    register("kernel", state_kernel())
    config = AttentionConfig(C, H, kernel="variant")
    assert not attention_cost(config, 5, 7).known
    assert operations(attention_cost(config, 5, 7).flops) == "unknown"
    exactly = config.with_(kernel="exact")
    assert recorded_cost(config, 5, 7).bytes > recorded_cost(exactly, 5, 7).bytes > 0
    unknown = (math.nan, math.nan)
    one = Growth("exact", (8, 16), (1e-3, 2e-3), (10, 20), unknown, unknown, 0.0)
    for unit in ("ms", "MB"):
        rows = draw_rows(lines_of([one], unit, 1.0), byte_size, 1.0)
        assert {row["kind"] for row in rows} == {"measured", "label"}
    assert power(one.power(one.closed_flops)) == byte_size(math.nan) == "unknown"
    *_, last = race({"mine": config}, (8, 16), rounds=1)
    assert last.fraction == 1.0 and last.points[0].seconds > 0


class TwoRules(Rotary):
    """RoPE whose keys have their pairs of numbers elsewhere than queries."""

    def rotate_keys(self, x, offset=0, length=None):
        order = torch.arange(x.shape[-1]).view(-1, 2).mT.flatten()
        return self.rotate(x[..., order], offset, length)[..., order.argsort()]


class AlongQueries(nn.Module):
    """A kernel whose softmax is over the queries."""

    def forward(self, inputs):
        weights = (inputs.q @ inputs.k.mT * inputs.score.scale).softmax(-2)
        out = weights @ inputs.v
        return Steps(inputs.q, inputs.k, inputs.v, 1.0, None, None, out, weights=weights)


@each(
    ("axis", "build", "words"),
    [
        ("score", lambda config: lambda q, k: q @ k.mT, "not divided by √D"),
        ("mask", lambda config, parts: lambda i, j: j > i, "the causal mask is inverted"),
        ("mask", lambda config, parts: lambda i, j: j <= i + 1, "next token, .* is 1; take 0"),
        ("mask", lambda config, parts: lambda i, j: j < i, "diagonal of the causal mask is −1"),
        ("position", lambda config: lambda i, j: 0.1 * (i - j).abs(), "its sign is wrong"),
        (
            "position",
            lambda config: TwoRules(config.qk_dim, 1e4, "halves"),
            "rotation depends on the place itself",
        ),
        ("kernel", lambda config: AlongQueries(), "softmax is over the wrong dimension"),
    ],
)
def test_no_common_fault_registers_in_silence(axes, axis, build, words):
    enters = {"position": "q, k" if "rotation" in words else "scores"}.get(axis, "")
    with pytest.warns(RuntimeWarning, match=f"{axis} = variant was added. .*{words}"):
        register(axis, made(build=build, enters=enters), replace=True)


def test_a_registration_says_what_check_finds(axes):
    item = made(build=lambda config: lambda q, k: q @ k.mT / q.shape[-1])
    with pytest.warns(
        RuntimeWarning, match="score = variant was added. At head sizes .*divided by D"
    ):
        register("score", item)
    assert not plugins.faults["score = variant"], "it may be meant"
    with pytest.warns(RuntimeWarning, match="its sign is wrong"):
        register(
            "position", made(build=lambda config: lambda i, j: 0.1 * (i - j).abs(), enters="scores")
        )
    assert "its sign is wrong" in plugins.faults["position = variant"][0]


def over_queries(scores, mask):
    return scores.softmax(-2)


def later_keys(inputs):
    weights = (inputs.q @ inputs.k.mT).softmax(-1)
    mask = inputs.joined_mask() if inputs.record else None
    out = weights @ inputs.v
    return Steps(inputs.q, inputs.k, inputs.v, 1.0, None, mask, out, weights=weights, implied=True)


@each(
    ("axis", "function", "words"),
    [("normalizer", over_queries, "over queries"), ("kernel", later_keys, "Later tokens are felt")],
)
def test_what_fails_the_trial_is_named_by_its_cause(axes, axis, function, words):
    traits = frozenset({"implied", "own positions"} if axis == "kernel" else {})
    with pytest.raises(ConfigError, match=f"was not added.*Check finds: .*{words}"):
        register(axis, made(build=lambda config: function, traits=traits))


def test_a_file_is_tried_once(axes, monkeypatch, tmp_path):
    tried = []
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", str(tmp_path))
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(
        sys.modules["core.attention.register"], "_try_out", lambda *given: tried.append(given)
    )
    file = tmp_path / "mine.py"
    item = "made(build=lambda config: lambda q, k: q @ k.mT)"
    for text, times in (("", 1), ("", 1), ("# another\n", 2)):
        file.write_text(f"{text}register('score', {item}, replace=True)", encoding="utf-8")
        with pytest.warns(RuntimeWarning, match="not divided by √D"):
            exec(
                compile(file.read_text(encoding="utf-8"), file, "exec"),
                {"register": register, "made": made},
            )
        assert len(tried) == times
        (tmp_path / f"unnamed{times}.py").write_text("later = 1", encoding="utf-8")


def test_an_unknown_key_says_that_it_may_be_of_a_plug_in(monkeypatch):
    monkeypatch.delenv("ATTENTION_LAB_PLUGINS", raising=False)
    pytest.raises(ConfigError, AttentionConfig, score="cosine_power").match(
        "ATTENTION_LAB_PLUGINS is not set"
    )


# docs/compile.md is true: each choice is one graph of any length, or is listed with its reason, and then is not.

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| (\w+-\w+) \| (yes|no) \| (yes|no) \| (\S.*) \|")


def listed() -> dict[str, dict[str, bool]]:
    return {
        name: {"fullgraph": whole == "yes", "export": dynamic == "yes"}
        for name, whole, dynamic, _ in ROW.findall(
            (ROOT / "docs" / "compile.md").read_text(encoding="utf-8")
        )
    }


def test_a_tensor_that_fits_is_not_written_out(monkeypatch):
    layer = Attention(AttentionConfig(12, 3), score=lambda q, k: q @ k.mT)
    monkeypatch.setattr("core.attention.config.quote", lambda value: pytest.fail("It is written."))
    assert layer(torch.randn(2, 5, 12)).weights.shape == (2, 3, 5, 5)


@pytest.mark.first
def test_every_choice_is_traced_or_listed_with_its_reason():
    names = {f"{axis}-{item.key}" for axis, entries in AXES.items() for item in entries}
    table = listed()
    assert set(table) <= names, "what is listed exists"
    failing = [
        f"{name}:{way}"
        for name, ways in table.items()
        for way, passes in ways.items()
        if not passes
    ]
    run = subprocess.run(
        [sys.executable, "-m", "tests.attention.compiling", *failing],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr[-2000:]
    report = json.loads(run.stdout.splitlines()[-1])
    assert set(report) == names
    assert not {
        (name, way): fault
        for name, ways in report.items()
        for way, fault in ways.items()
        if (fault is None) != table.get(name, {}).get(way, True)
    }
