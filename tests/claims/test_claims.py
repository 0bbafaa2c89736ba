"""Every claim's form, and its rule on made-up data that confirms it, refutes it, and is too noisy to tell."""

import math

import numpy as np
import pytest
from scipy import stats

from core.claims.base import Part, Pick
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.results import CellResult, Results
from core.claims.shipped import ship, shipped
from core.claims.verdict import combine, effect, outcome, verdict
from core.entries import ConfigError

EACH = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)


def part(low=-math.inf, high=math.inf, resolution=0.0):
    return Part("It is so.", lambda seed: seed.one("a", "m"), "m", low, high, resolution=resolution)


def test_an_interval_is_students_and_covers_all_parts_together():
    values = [0.3, 0.5, 0.1, 0.45, 0.2]
    ours = effect(part(), values, 0.05 / 4)
    low, high = stats.t.interval(1 - 0.05 / 4, 4, np.mean(values), stats.sem(values))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((np.mean(values), low, high))


@pytest.mark.parametrize(("low", "high", "says"), [
    (0.2, math.inf, "holds"), (0.31, math.inf, "cannot be told"), (0.41, math.inf, "refuted"),
    (-math.inf, 0.4, "holds"), (-math.inf, 0.29, "refuted"), (0.25, 0.45, "holds"), (0.35, 0.45, "cannot be told"),
])
def test_a_statement_holds_where_the_whole_interval_does(low, high, says):
    assert outcome(part(low, high), 0.3, 0.4) == says


def test_equal_values_are_believed_to_the_resolution_alone():
    sure, unsure = (effect(part(0.5, resolution=step), [0.51] * 3, 0.05) for step in (0.0, 0.05))
    assert sure.outcome == "holds" and unsure.outcome == "cannot be told"
    for values in ([0.9], [], [0.9, math.nan]):
        assert effect(part(0.5), values, 0.05).outcome == "cannot be told"


def test_parts_make_one_verdict():
    assert combine(["holds", "holds"]) == "holds"
    assert combine(["holds", "refuted"]) == combine(["holds", "cannot be told"]) == "holds in part"
    assert combine(["refuted", "cannot be told"]) == combine(["refuted"]) == "does not hold"
    assert combine(["cannot be told", "cannot be told"]) == "cannot be told here"


@EACH
def test_a_claim_says_everything(claim):
    for text in (claim.name, claim.subject, claim.statement, claim.refutation, claim.limits, claim.tried):
        assert text.strip() and text == text.strip()
    assert claim.published or claim.no_published
    assert claim.source.url.startswith("https://") and claim.source.bibtex.startswith("@")
    conditions = claim.conditions(claim.settle())
    assert len(set(conditions)) == len(conditions) >= 1 and claim.parts and claim.figures
    for one in claim.parts:
        assert one.low > -math.inf or one.high < math.inf, f"nothing could refute: {one.statement}"
        assert one.low <= one.high
    if isinstance(claim.guess, Pick):
        assert len(set(claim.guess.options)) == len(claim.guess.options) >= 2


def test_settings_are_checked():
    claim = CLAIMS[0]
    assert claim.settle() == {param.key: param.default for param in claim.params}
    with pytest.raises(ConfigError, match="has no setting 'width'"):
        claim.settle({"width": 3})
    with pytest.raises(ConfigError, match="expected 2 to 10"):
        claim.settle({"seeds": 1})
    with pytest.raises(ConfigError, match=f"expected one of {CLAIMS[0].key}, "):
        claim_of("nothing")


@pytest.mark.parametrize("key", [claim.key for claim in CLAIMS])
def test_every_claim_has_a_shipped_result_of_it(key):
    claim = claim_of(key)
    result = shipped(claim)
    assert result is not None, f"measure it again: python -m core.claims run {key} --ship"
    conditions = claim.conditions(result.settings)
    assert len(result.results.complete(conditions).seeds) == int(result.settings["seeds"]) >= 5
    judged = verdict(claim, result.settings, result.results)
    assert all(math.isfinite(each.mean) for each in judged.effects)
    for figure in claim.figures:
        assert any(cell_measure == figure.measure for cell in result.results.cells
                   for cell_measure, _, _ in cell.values), figure.measure
    guess = claim.guess
    if isinstance(guess, Pick):
        assert 0 <= guess.answer(result.results) < len(guess.options)
    else:
        assert result.results.xs(guess.condition, guess.measure)


def test_a_result_comes_back_from_its_file(tmp_path):
    claim = CLAIMS[0]
    cells = [CellResult(condition, seed, 0.5, (("m", 0.1 + seed, None), ("n", 2.0, 8.0)))
             for seed in (1, 0) for condition in claim.conditions(claim.settle())]
    ship(claim, claim.settle(), cells, {"device": "abacus"}, "run").save(tmp_path / f"{claim.key}.json")
    again = shipped(claim, tmp_path)
    assert again is not None and again.results.seeds == (0, 1) and again.seconds == 0.5 * len(cells)
    assert set(again.results.cells) == set(cells)
    (tmp_path / f"{claim.key}.json").write_text('{"settings": {}}', encoding="utf-8")
    assert shipped(claim, tmp_path) is None


def test_seeds_without_all_conditions_are_left_out():
    cells = [CellResult("a", 0, 1, (("m", 1.0, None),)), CellResult("b", 0, 1, (("m", 2.0, None),)),
             CellResult("a", 1, 1, (("m", 9.0, None),))]
    assert Results.of(cells).complete(("a", "b")).seeds == (0,)
