"""What a run will take: counted from timed steps, said with what would end it before, and told before it begins."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st
from scipy import stats
from scipy.special import expit, logit
from scipy.stats import ttest_ind, ttest_rel

from core.tasks import TaskConfig, make_task
from core.training import Record, RunConfig, diagnosis as estimating, recommended, train
from core.training.seed_stats import (
    LEVEL,
    UNITS,
    SeedStats,
    compare,
    line,
    mean_interval,
    seed_stats,
)
from tests.cases import each
from tests.training.small import small_run


def findings_of(config: RunConfig) -> dict[str, str]:
    records, failed = [], ""
    try:
        for record in train(config):
            records.append(record)
    except FloatingPointError as error:
        failed = str(error)
    findings = estimating.diagnose(records, config, make_task(config.task).baseline_loss, failed)
    return {one.key: f"{one.text} {one.advice}" for one in findings}


def falling(count: int = 12, start: float = 3.0) -> list[Record]:
    return [
        Record(
            10 * i,
            train_loss=start * 0.8**i,
            loss=start * 0.8**i,
            gradient=0.5,
            gradients={"a": 0.3, "b": 0.4},
            data_share=0.02,
        )
        for i in range(count)
    ]


BASE = small_run(steps=200)


def keys(records: list[Record], config: RunConfig = BASE, failed: str = "") -> set[str]:
    return {one.key for one in estimating.diagnose(records, config, 3.0, failed)}


def test_a_run_that_learns_hears_nothing():
    assert findings_of(small_run(steps=120, record_every=10, learning_rate=5e-3)).keys() <= {
        "starving"
    }
    assert all(keys(falling(n)) == set() for n in range(13))


@each(
    ("key", "words", "changes"),
    [
        (
            "rate_dead",
            "1e-06 is small for AdamW",
            dict(steps=80, record_every=8, learning_rate=1e-6),
        ),
        # At 24 steps the loss of five seeds was 5.6 to 9.3 and guessing costs 2.8; later it falls to guessing.
        (
            "rate_high",
            "large for AdamW",
            dict(steps=24, record_every=3, learning_rate=1.0, schedule="constant"),
        ),
    ],
)
def test_a_learning_rate_that_is_too_small_or_too_large(key, words, changes):
    findings = findings_of(small_run(**changes))
    assert words in findings[key] and (key != "rate_dead" or set(findings) == {key})


def test_a_loss_that_is_no_number_and_overfitting_on_a_small_table():
    wild = dict(learning_rate=1.0, optimizer="sgd", clip=1e9, schedule="constant")
    findings = findings_of(small_run(steps=80, record_every=2, **wild))
    assert {"diverged", "exploding", "rate_high"} & findings.keys()
    assert keys(falling(3), failed="The loss is no longer a number at step 31; …") == {"diverged"}
    iris = recommended(make_task(TaskConfig.of("iris")), "classifier", learning_rate=1e-2)
    assert "memorizes its examples" in findings_of(iris)["overfitting"]


def changed(*steps: int, **values: Any) -> list[Record]:
    return [replace(r, **values) if i in steps or not steps else r for i, r in enumerate(falling())]


SLOW = [replace(r, loss=2.9 - 0.05 * i) for i, r in enumerate(falling())]
STILL = [replace(r, loss=3.0) for r in falling()]
OVERFITS = falling(6) + [
    Record(60 + 10 * i, train_loss=0.5 - 0.1 * i, loss=1.5 + 0.1 * i, gradient=0.5)
    for i in range(3)
]


@each(
    ("records", "expected"),
    [
        (changed(9, gradient=80.0), {"exploding"}),
        (changed(9, gradient=3.0), set()),
        ([replace(r, gradient=1e-7) for r in SLOW], {"vanishing"}),
        ([replace(r, gradients={"first": 1e-6, "last": 0.5}) for r in SLOW], {"fading"}),
        # A learned task may have no gradient left.
        (changed(*range(1, 12), loss=0.01, gradient=1e-7, gradients={"a": 1e-9, "b": 1e-7}), set()),
        (changed(data_share=0.5), {"starving"}),
        (changed(9, 10, 11, data_share=0.5), {"starving"}),
        (changed(0, 1, 10, 11, data_share=0.5), set()),
        ([replace(r, gradients={"first": 5e-4, "last": 0.5}) for r in SLOW], {"fading"}),
        (OVERFITS, {"overfitting"}),
        (STILL, {"still"}),
        # Too soon.
        *(([replace(r, gradient=1e9, loss=50.0) for r in falling(n)], set()) for n in (0, 1, 5)),
    ],
)
def test_what_is_told_of_records(records, expected):
    assert keys(records) == expected


def test_words_name_the_part_and_a_training_loss_that_rises_is_no_overfitting():
    fading = [replace(r, gradients={"first": 1e-6, "last": 0.5}) for r in SLOW]
    (one,) = estimating.diagnose(fading, BASE, 3.0)
    assert "first gets 2e-06" in one.text
    rises = [Record(60 + 10 * i, train_loss=2.0 + i, loss=2.0 + i, gradient=0.5) for i in range(4)]
    assert "overfitting" not in keys(falling(6) + rises)
    assert keys(STILL, replace(BASE, optimizer="sgd")) == {"rate_dead"}
    assert keys(STILL, replace(BASE, warmup=90)) == set(), "a tenth of the run after its warm-up"
    assert keys(STILL, replace(BASE, warmup=89)) == {"still"}


def test_a_run_is_its_steps_its_records_and_its_end():
    task = make_task(TaskConfig.of("reverse", length=6, vocab=12))
    config = recommended(task, steps=100, record_every=10, decode_every=5)
    assert estimating.Pace(0.5, 0.01, 0.1).seconds(config, held_out=20, final=40) == pytest.approx(
        100 * 0.5 + 11 * 20 * 0.01 + 3 * 20 * 0.1 + 40 * 0.11
    )


@each(
    ("task", "kind"),
    [("own_pairs", "recurrent"), ("own_text", "decoder"), ("own_table", "classifier")],
)
def test_own_data_is_timed_and_nothing_random_moves(task, kind):
    made = make_task(TaskConfig.of(task))
    config = recommended(made, kind, batch_size=8)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    measurement = estimating.pace(config, made)
    assert torch.equal(before, torch.get_rng_state())
    assert measurement.step > 0 and measurement.teacher_forced > 0
    assert (measurement.free_running > 0) == (made.form == "pairs")
    assert estimating.estimate(config, made) > config.steps * 1e-5


def test_a_busy_moment_is_not_kept(monkeypatch):
    made = make_task(TaskConfig.of("own_pairs"))
    config = recommended(made, "recurrent", batch_size=8)
    calm, calls = estimating.one_step, []

    def busy(session, step):
        calls.append(step)
        if len(calls) < estimating.BATCHES + 2:
            time.sleep(0.1)
        return calm(session, step)

    monkeypatch.setattr(estimating, "one_step", busy)
    monkeypatch.setattr(estimating, "LONGEST", 60.0)
    assert estimating.pace(config, made).step < 0.1


def test_a_page_times_again_what_is_a_minute_old_and_own_data_alone(monkeypatch):
    clock, calls = [1000.0], []
    own, other = (
        recommended(make_task(TaskConfig.of(task)), batch_size=8)
        for task in ("own_pairs", "reverse")
    )
    monkeypatch.setattr(estimating.time, "monotonic", lambda: clock[0])

    def paced(*given):
        calls.append(given)
        return estimating.Pace(1, 1, 1)

    monkeypatch.setattr(estimating, "pace", paced)
    estimating._pace.cache_clear()
    for clock[0], batch, times in ((1000.0, 8, 1), (1001.0, 8, 1), (1100.0, 8, 2), (1100.0, 9, 3)):
        assert "About" in estimating.time_needed(replace(own, batch_size=batch))
        assert len(calls) == times
    assert not estimating.time_needed(other) and len(calls) == 3
    estimating._pace.cache_clear()


def test_words_name_the_cap_that_would_end_it():
    config = recommended(make_task(TaskConfig.of("own_pairs")), steps=1000, max_seconds=100.0)
    short, long = (estimating.in_words(config, seconds) for seconds in (80.0, 400.0))
    assert "80 s" in short and "near step" not in short
    assert "7 min" in long and "near step 250" in long
    durations = [estimating.duration(seconds) for seconds in (0.2, 89, 90, 5_400)]
    assert durations == ["1 s", "89 s", "2 min", "1.5 h"]


# Means, deviations, intervals and bands by hand.


SIMULATED = 400  # families of tests; the rule of two standard errors claimed something in 18 to 62 % of them


def groups_of(values: np.ndarray) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in values.tolist()]


@each(("seeds", "groups"), [(2, 2), (3, 2), (10, 2), (6, 3)])
def test_shared_seeds_are_paired_as_scipy_pairs_them(seeds, groups):
    """p and the intervals are corrected for all pairs."""
    values = np.random.default_rng(seeds).normal(size=(groups, seeds))
    comparison, *others = compare(groups_of(values))
    theirs, pairs = ttest_rel(*values[:2]), 1 + len(others)
    assert comparison.paired and comparison.count == seeds and pairs == groups * (groups - 1) / 2
    assert comparison.p == pytest.approx(min(1.0, pairs * theirs.pvalue))
    assert comparison.difference == pytest.approx(values[0].mean() - values[1].mean())
    interval = theirs.confidence_interval(1 - LEVEL / pairs)
    assert (comparison.low, comparison.high) == pytest.approx(tuple(interval))
    swapped = comparison.swapped()
    assert (swapped.low, swapped.difference) == (-comparison.high, -comparison.difference)


def test_where_no_seed_is_shared_the_test_is_welchs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=4), rng.normal(1, 3, size=7)
    (comparison,) = compare([dict(enumerate(a)), dict(enumerate(b, 100))])
    theirs = ttest_ind(a, b, equal_var=False)
    assert not comparison.paired and comparison.count == 4
    assert comparison.p == pytest.approx(theirs.pvalue)
    assert (comparison.low, comparison.high) == pytest.approx(
        tuple(theirs.confidence_interval(1 - LEVEL))
    )


def test_only_shared_seeds_count_and_one_is_too_few():
    a, b = {0: 1.0, 1: 2.0, 2: 4.0, 9: 1e9}, {0: 0.5, 1: 1.0, 2: 2.0, 7: -1e9}
    (comparison,) = compare([a, b])
    theirs = ttest_rel([1.0, 2.0, 4.0], [0.5, 1.0, 2.0])
    assert comparison.count == 3 and comparison.p == pytest.approx(theirs.pvalue)
    for few in ([{0: 1.0, 1: 2.0}, {1: 1.0, 2: 2.0}], [{0: 1.0}, {1: 1.0}]):
        assert compare(few) == []


FLOATS = {
    "number": st.floats(-1e3, 1e3),
    "share": st.floats(0, 1),
    "score": st.floats(0, 100),
    "positive": st.floats(1e-6, 1e3),
    "times": st.floats(1e-6, 1e3),
}


@each("unit", sorted(FLOATS))
@given(data=st.data())
def test_an_interval_never_contradicts_its_p_nor_leaves_its_bounds(unit, data):
    """In every unit, for groups that share all seeds, some, or none; also where all differences are equal."""
    group = st.dictionaries(st.integers(0, 8), FLOATS[unit], max_size=6)
    groups, resolution = (
        data.draw(st.lists(group, min_size=2, max_size=4)),
        data.draw(st.sampled_from([0.0, 0.01])),
    )
    for pair in compare(groups, unit, resolution):
        none = 1.0 if pair.unit == "times" else 0.0
        assume(abs(pair.p - LEVEL) > 1e-9)
        assert pair.significant == (not pair.low <= none <= pair.high), pair
        bounds = UNITS[pair.unit]
        assert bounds.low <= pair.low <= pair.difference <= pair.high <= bounds.high
        other = pair.swapped()
        assert other.p == pair.p and other.low <= other.difference <= other.high


def test_a_ratio_is_that_of_the_geometric_means_and_its_inverse_the_other_way():
    a, b = {0: 2.0, 1: 8.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 2.0}
    (one,), (other,) = compare([a, b], "positive"), compare([b, a], "positive")
    assert one.difference == pytest.approx(16 ** (1 / 3)) and one.sign == "÷"
    inverse = (1 / one.difference, 1 / one.high, 1 / one.low)
    assert (other.difference, other.low, other.high) == pytest.approx(inverse)
    theirs = ttest_rel(np.log([2.0, 8.0, 4.0]), np.log([1.0, 2.0, 2.0]))
    assert one.p == pytest.approx(theirs.pvalue)


def test_equal_differences_are_tested_by_the_step_of_the_measure():
    same, far, one_item = (dict.fromkeys(range(3), value) for value in (1.0, 0.0, 0.999))
    assert [comparison.p for comparison in compare([same, same])] == [1.0]
    assert [comparison.p for comparison in compare([same, far])] == [1.0], "no error to test by"
    assert compare([same, far], "share", 1e-3)[0].significant
    assert not compare([same, one_item], "share", 1e-3)[0].significant
    seed = np.array([0.0, 10.0, 20.0, 30.0])  # a spread that seeds share
    (comparison,) = compare(groups_of(np.array([seed, seed + [1.0, 1.1, 0.9, 1.0]])))
    assert comparison.significant and comparison.difference == pytest.approx(-1.0)


def normal(values: int, seeds: int) -> np.ndarray:
    rng = np.random.default_rng(values * 10 + seeds)
    shared = rng.normal(size=(SIMULATED, values, seeds))
    return shared + rng.normal(size=(SIMULATED, 1, seeds))


# Shares of 50 held-out items near the top, where many runs agree to the item.
STEPS = np.random.default_rng(1).binomial(50, 0.99, size=(SIMULATED, 4, 3)) / 50


@each(
    ("draws", "given", "most"),
    [
        *(
            (normal(*sizes), (), LEVEL + 3 * (LEVEL * (1 - LEVEL) / SIMULATED) ** 0.5)
            for sizes in [(6, 3), (4, 3), (3, 5), (2, 2)]
        ),
        (STEPS, ("share", 1 / 50), LEVEL),
    ],
)
def test_a_family_of_tests_claims_a_false_difference_in_five_percent_at_most(draws, given, most):
    claims = sum(
        any(pair.significant for pair in compare(groups_of(draw), *given)) for draw in draws
    )
    assert claims / SIMULATED <= most


def test_a_spread_and_its_interval_by_hand():
    spread = seed_stats([2.0, None, 4.0, 9.0])
    assert spread.values == (2.0, 4.0, 9.0) and (spread.low, spread.high) == (2.0, 9.0)
    assert spread.mean == 5.0 and spread.std == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert seed_stats([0.5, 0.25], "share").in_percent() == SeedStats((50.0, 25.0), "score")
    for values, half in (
        ([1.0, 2.0, 3.0], 4.303 / 3**0.5),
        ([1.0, 3.0], 12.706),
    ):  # Student's table
        ends = 2 - half, 2 + half
        assert seed_stats(values).interval == pytest.approx(ends, rel=1e-3)
    assert seed_stats([3.0]).interval is seed_stats([3.0]).std is seed_stats([None, None]) is None
    assert seed_stats([0.5, 1.7], "share").interval is None


@each("unit", sorted(UNITS))
@given(data=st.data())
def test_no_interval_leaves_the_bounds_of_its_unit_or_its_mean(unit, data):
    scale = UNITS[unit]
    numbers = (
        st.sampled_from([0.0, 1.0])
        if unit == "seeds"
        else st.floats(max(scale.low, -1e6), min(scale.high, 1e6))
    )
    values, step = (
        data.draw(st.lists(numbers, min_size=2, max_size=10)),
        data.draw(st.sampled_from([0.0, 0.01])),
    )
    measured = mean_interval(values, unit, data.draw(st.sampled_from([0.05, 0.005])), step)
    if measured is None:
        assert unit == "times" and min(values) == 0  # a ratio of nothing
        return
    mean, low, high = measured
    near = 1e-9 * (1 + abs(mean))
    assert scale.low <= low <= mean + near and mean - near <= high <= scale.high


def test_intervals_by_other_peoples_code():
    values = [0.3, 0.5, 0.1, 0.45, 0.2]
    mean, low, high = mean_interval(values)
    assert (low, high) == pytest.approx(
        stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    )
    logs = np.log(values)
    ends = stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs))
    assert mean_interval(values, "times")[1:] == pytest.approx(np.exp(ends))
    half = stats.t.ppf(0.975, 4) * stats.sem(values) / (mean * (1 - mean))  # the delta method
    ends = expit(logit(mean) - half), expit(logit(mean) + half)
    assert mean_interval(values, "share")[1:] == pytest.approx(ends)
    for held in range(6):
        theirs = stats.binomtest(held, 5).proportion_ci(0.95, "exact")
        assert mean_interval([1.0] * held + [0.0] * (5 - held), "seeds")[1:] == pytest.approx(
            (theirs.low, theirs.high)
        )


@each(
    ("unit", "draw"),
    [
        ("number", lambda rng: rng.normal(size=5)),
        ("gain", lambda rng: rng.normal(0, 0.2, 5).clip(-1, 1)),
        ("times", lambda rng: np.exp(rng.normal(0, 0.5, 5))),
        ("correlation", lambda rng: np.tanh(rng.normal(0, 0.4, 5))),
    ],
)
def test_an_interval_misses_no_difference_in_five_percent_at_most(unit, draw):
    """Each draw comes from two equal conditions, whose difference is 0 and whose ratio is 1."""
    rng, none, count = np.random.default_rng(7), float(unit == "times"), 2000
    measured = [mean_interval(draw(rng).tolist(), unit) for _ in range(count)]
    missed = sum(not low <= none <= high for _, low, high in measured)
    assert missed / count <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / count) ** 0.5


def test_lines_over_steps_meet_where_all_have_a_point_and_over_seconds_are_read_between():
    band = line([[(0, 0.0), (10, 1.0), (20, 4.0)], [(0, 2.0), (10, 5.0)]], shared=True)
    assert band.x == (0, 10) and band.mean == (1.0, 3.0)
    assert band.low == (0.0, 1.0) and band.high == (2.0, 5.0)
    band = line([[(0, 0.0), (4, 8.0)], [(0, 0.0), (1, 1.0), (2, 6.0)]], shared=False)
    assert band.x[0] == 0 and band.x[-1] == 2, "they end with the first run"
    assert band.mean[-1] == pytest.approx((4.0 + 6.0) / 2)  # half way to 8, and the other's end
    assert band.in_percent().high[-1] == pytest.approx(100 * 6.0)
    assert band.low[-1] == pytest.approx(4.0) and band.high[-1] == pytest.approx(6.0)
    assert line([[], []], shared=True) is line([[(0, 1.0)], [(5, 1.0)]], shared=True) is None
