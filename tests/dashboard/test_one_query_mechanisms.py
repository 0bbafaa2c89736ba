"""One query with every mechanism: what each entry makes of the six stages, in numbers, words and equations."""

import math

import numpy as np

from core.attention import AXES, AttentionConfig, Choice, ConfigError
from core.attention.masks import COMPOSITIONS
from dashboard.draw.formats import latex, number
from pages import one_query
from tests.cases import each
from tests.dashboard.test_one_query import CONFIG, joined_text, reading, shown


def every_choice():
    """Each entry of each axis alone, beside an otherwise plain layer or the page's own."""
    for base in (AttentionConfig(16, 4), CONFIG):
        for axis in ("projection", "score", "position", "mask", "normalizer"):
            for item in AXES[axis]:
                if item.key not in COMPOSITIONS:
                    try:
                        yield base.with_(**{axis: Choice(item.key)})
                    except ConfigError:
                        continue  # refused in words beside the control


def test_every_entry_has_words_numbers_and_equations_in_every_stage():
    for config in every_choice():
        real = 4 if config.mask.key == "padding" else None
        for half in range(config.score_heads // config.num_heads):
            r = reading(config, head=1, real=real, half=half)
            whys, name = one_query.reasons_text(r, real), repr(config)
            assert len(one_query.stage_words(config, r, real, False)) == 6, name
            for stage in range(1, 7):
                latex = "".join(one_query.equation(r, config, stage, r.best, "#B8430F"))
                assert latex.count("{") == latex.count("}"), name
                assert "NaN" not in latex, name
                assert joined_text(one_query.facts_fact(r, config, stage, whys, 1)).endswith(
                    (".", "…")
                ), name
            shown(config, real=real, head=1)


def test_a_scale_of_each_head_is_read_for_the_head_that_is_shown():
    config = AttentionConfig(16, 4, score=Choice("cosine"))
    for head in range(4):
        r = reading(config, head=head)
        np.testing.assert_allclose(r.raw * r.scale, r.scores, atol=1e-5)
        assert np.abs(r.raw).max() <= 1 + 1e-5


def test_a_rule_that_adjusts_is_shown_from_before_to_after():
    config = AttentionConfig(16, 4, position=Choice.of("formula", formula="2*score - 1"))
    r = reading(config)
    assert r.adjusted
    np.testing.assert_allclose(2 * r.before - 1, r.scores, atol=1e-5)
    symbols, live = one_query.equation(r, config, 3, 1, "#B8430F")
    assert "s_{ij}" in symbols
    assert rf"\frac{{{latex(r.raw[4, 1])}}}{{\sqrt{{4}}}} \;\to\;" in live
    assert latex(r.scores[4, 1]) in live


def test_folded_heads_weigh_by_their_difference():
    config = AttentionConfig(16, 4, Choice.of("differential", depth=12))
    r = reading(config, head=2)
    first, second = r.normalized
    rate = (first - r.weights) / second  # the layer's own λ, one number everywhere
    np.testing.assert_allclose(rate, rate[0, 0], rtol=1e-3)
    assert r.signed
    other = reading(config, head=2, half=1)
    assert not np.allclose(other.raw, r.raw)
    np.testing.assert_array_equal(other.weights, r.weights)
    sent = shown(config, head=2)
    assert sent["weights"]["ends"] == ["−1", "0", "1"]
    assert sent["maps"][4]["scale"] == "signed"


def test_a_gaussian_after_the_softmax_is_shown_as_a_factor_and_its_row_sum_said():
    config = AttentionConfig(16, 4, mask=Choice.of("local_m", window=2, gaussian=True))
    r = reading(config)
    assert r.reweighed
    np.testing.assert_allclose(r.normalized[0].sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(
        r.weights[4, 3] / r.normalized[0][4, 3], math.exp(-0.5), rtol=1e-5
    )  # σ = D/2 = 1
    live = "".join(one_query.equation(r, config, 5, 3, "#B8430F"))
    assert rf"0.61 \cdot {latex(r.normalized[0][4, 3])}" in live
    assert f"Its row sums to {number(r.sum)}; before the mask’s factor it was 1.00." in joined_text(
        one_query.facts_fact(r, config, 5, one_query.reasons_text(r, None))
    )


def test_what_shaw_adds_to_the_values_is_in_the_output():
    config = AttentionConfig(16, 4, position=Choice("shaw"))
    r = reading(config)
    np.testing.assert_allclose(r.weights @ r.v + r.position_values, r.out, atol=1e-5)
    assert r"+ p_i" in one_query.equation(r, config, 6, 1, "#B8430F")[0]


def test_a_row_that_does_not_sum_to_one_says_what_it_sums_to():
    config = CONFIG.with_(normalizer=Choice("sink"))
    r = reading(config)
    assert r.sum < 0.99
    assert f"Its row sums to {number(r.sum)}." in joined_text(
        one_query.facts_fact(r, config, 5, {})
    )
    assert rf"\sum_m w_{{im}} = {number(r.sum)}" in "".join(
        one_query.equation(r, config, 5, 1, "#B8430F")
    )


def test_heads_that_share_keys_are_named():
    config = AttentionConfig(16, 4, Choice.of("grouped_query", kv_heads=2))
    np.testing.assert_array_equal(reading(config, head=2).k, reading(config, head=3).k)
    assert not np.allclose(reading(config, head=1).k, reading(config, head=2).k)
    assert one_query.sharing(config, 3) == " Head 3 shares key and value head 1 of 2 with head 2."
    assert one_query.sharing(config.with_(projection=Choice("multi_query")), 0).endswith(
        "0 of 1 with heads 1, 2 and 3."
    )
    assert one_query.sharing(CONFIG, 0) == ""


@each(
    ("mask", "why"),
    [
        (Choice("causal"), {5: "comes later"}),
        (Choice.of("local", window=1), {0: "too far", 1: "too far", 2: "too far"}),
        (Choice.of("block", size=3), {0: "too far", 1: "too far", 2: "too far"}),
        (Choice.of("not", Choice.of("local", window=0)), {4: "masked"}),
    ],
)
def test_why_a_key_is_masked_follows_from_the_row_itself(mask, why):
    assert one_query.reasons_text(reading(CONFIG.with_(mask=mask)), None) == why
