"""Every claim's form, its rule on made-up data, its runs as folders, from a shell, and as a plug-in."""

import json
import math
import re
import runpy
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from core.attention import AXES, AttentionConfig, Choice, ConfigError, Param
from core.attention.cost import attention_cost, parameters
from core.attention.positions.relative import sinusoids
from core.claims import __main__ as command, experiment
from core.claims.base import (
    MIN_SEEDS,
    VASWANI,
    CellResult,
    Claim,
    Figure,
    Learned,
    Outcome,
    Part,
    Pick,
    Results,
    SeedValues,
    combine,
    effect,
    first_above,
    first_below,
    outcome,
    rule_lines,
    verdict,
    why_not,
)
from core.claims.catalogue import CLAIMS, claim_of, register_claim
from core.claims.entries import (
    cost,
    heads,
    meaning,
    positions,
    scores,
    training,
    why_attention as why,
)
from core.claims.experiment import Trained, measure_cell, trained
from core.claims.run import CELLS, ClaimConfig, create, find_group, load_cells, ship, shipped, work
from core.entries import Axis
from core.models import RECURRENT, ModelConfig, Shape, build_model
from core.models.transformer import Residual
from core.runs import worker
from core.runs.sweeps import SweepClaim
from core.tasks import Batch, TaskConfig, make_task
from core.training import Bucket, Record, RunConfig, Session, prepare
from core.training.seed_stats import LEVEL, UNITS
from core.training.sweeps import SweepConfig
from dashboard.server import queue
from tests.cases import instance, snapshot, wait_for
from tests.pages.app import open_at, page_text, query_value
from tests.training.small import small_run

EACH = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
# Counts over a dozen answers: another processor may round one of them otherwise.
COUNTED = ("Accuracy", "Agreement", "Exact match")


def part(low=-math.inf, high=math.inf, resolution=0.0):
    return Part(
        "It is so.", lambda seed: seed.one("a", "m"), "m", low=low, high=high, resolution=resolution
    )


def test_an_interval_is_students_over_all_parts():
    values = [0.3, 0.5, 0.1, 0.45, 0.2]
    ours = effect(part(), values, 0.05 / 4)
    low, high = stats.t.interval(1 - 0.05 / 4, 4, np.mean(values), stats.sem(values))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((np.mean(values), low, high))
    sure, unsure = (effect(part(0.5, resolution=step), [0.51] * 3, 0.05) for step in (0.0, 0.05))
    assert sure.outcome == "holds" and unsure.outcome == "cannot be told"
    useless = [effect(part(0.5), values, 0.05) for values in ([0.9], [], [0.9, math.nan])]
    assert {(each.outcome, each.low, each.high, each.reason[:17]) for each in useless} == {
        ("cannot be told", -math.inf, math.inf, "a value is no fin")
    }


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.3, math.inf, "holds"),
        (0.31, math.inf, "cannot be told"),
        (0.4, math.inf, "cannot be told"),
        (-math.inf, 0.3, "cannot be told"),
        (0.41, math.inf, "refuted"),
        (-math.inf, 0.4, "holds"),
        (-math.inf, 0.29, "refuted"),
        (0.25, 0.45, "holds"),
        (0.35, 0.45, "cannot be told"),
    ],
)
def test_a_statement_holds_where_the_whole_interval_does(low, high, says):
    assert outcome(part(low, high), 0.3, 0.4) == says


def test_parts_make_one_verdict():
    states: dict[tuple[Outcome, ...], str] = {
        ("holds", "holds"): "holds",
        ("holds", "refuted"): "holds in part",
        ("holds", "cannot be told"): "holds in part",
        ("refuted", "cannot be told"): "does not hold",
        ("refuted",): "does not hold",
        ("cannot be told", "cannot be told"): "cannot be told here",
    }
    assert {outcomes: combine(outcomes) for outcomes in states} == states
    seeds = [SeedValues({("a", "m", None): 0.9 + 0.001 * seed}) for seed in range(5)]
    assert [why_not(part(0.5), seeds[:count], ("a",)) for count in (4, 1)] == [
        f"{count} of the 5 that a verdict needs" for count in ("4 seeds", "1 seed")
    ]
    tight = replace(part(0.02), unit="gain", room=lambda seed: 1 - 0.995)
    assert (
        why_not(tight, seeds, ("a",)) == "the task leaves no room: m could be 0.5 % at most"
        and why_not(replace(tight, low=0.5, room=lambda seed: 0.5), seeds, ("a",)) == ""
    )
    assert effect(part(0.5), [0.9] * 5, 0.05, "no").outcome == "cannot be told"
    both = [
        SeedValues({("a", "m", None): 0.9, ("b", "m", 2.0): value}) for value in (4, 5, 5, 6, 6)
    ]
    assert [
        Learned("m", low, high, x, conditions).lacking(both, ("a", "b"))
        for low, high, x, conditions in (
            (0.9, 0.9, None, ("a",)),
            (5, math.inf, 2.0, ()),
            (5.1, math.inf, 2.0, ()),
            (-math.inf, 5.9, None, ("b", "a")),
        )
    ] == [None, None, ("b", 2), ("b", 3)]


@EACH
def test_a_claim_says_everything_and_has_a_shipped_result(claim):
    for name in ("name", "subject", "statement", "refutation", "limits", "tried"):
        assert getattr(claim, name) == getattr(claim, name).strip() != "", name
    assert claim.published or claim.no_published
    assert claim.source.url.startswith("https://") and claim.source.bibtex.startswith("@")
    conditions, learns = claim.conditions(claim.settle()), [part.learned for part in claim.parts]
    assert len(set(conditions)) == len(conditions) >= 1 and claim.parts and claim.figures
    for one in claim.parts:
        assert one.low > -math.inf or one.high < math.inf, f"nothing could refute: {one.statement}"
        assert one.low <= one.high and one.unit in UNITS
        shares = one.unit in ("share", "gain", "score", "score gain")
        assert one.resolution > 0 or not shares, one.statement
    assert any(line in claim.scope for line in ("d_model", "layer")), claim.scope
    assert any(learns) or all(param.key != "steps" for param in claim.settings), claim.key
    result = shipped(claim)
    assert result is not None, f"measure it again: python -m core.claims run {claim.key} --ship"
    assert len(result.seeds) == int(result.settings["seeds"]) >= 5 <= claim.seeds >= MIN_SEEDS
    assert all(math.isfinite(each.mean) for each in result.verdict.effects)
    measures = {measure for cell in result.results.cells for measure, _, _ in cell.values}
    assert {figure.measure for figure in claim.figures} <= measures
    if isinstance(claim.guess, Pick):
        options = claim.guess.options
        assert 0 <= claim.guess.answer(result.results) < len(set(options)) == len(options) >= 2
    else:
        assert result.results.xs(claim.guess.condition, claim.guess.measure)


@pytest.mark.parametrize("difference", [0.0, 0.5])
def test_equal_conditions_are_seldom_told_apart(difference):
    rng, counted = np.random.default_rng(33), 500
    parts = tuple(
        Part(
            unit,
            partial(SeedValues.one, condition="a", measure=unit),
            unit,
            low=float(unit == "times"),
            unit=unit,
            resolution=0.001,
        )
        for unit in ("gain", "times", "number", "correlation")
    )
    told = 0
    for _ in range(counted):
        draws = {
            "gain": np.clip(difference + rng.normal(0, 0.1, 5), -1, 1),
            "number": rng.normal(6 * difference, 1, 5),
            "times": np.exp(rng.normal(3 * difference, 0.4, 5)),
            "correlation": np.tanh(rng.normal(difference, 0.2, 5)),
        }
        cells = [
            CellResult(
                "a",
                seed,
                1.0,
                tuple((unit, float(values[seed]), None) for unit, values in draws.items()),
            )
            for seed in range(5)
        ]
        claim = replace(CLAIMS[0], parts=parts, conditions=lambda settings: ("a",))
        judged = verdict(claim, claim.settle(), Results(tuple(cells)))
        told += any(each.outcome != "cannot be told" for each in judged.effects)
    by_chance = LEVEL + 3 * (LEVEL * (1 - LEVEL) / counted) ** 0.5
    assert told / counted >= 0.9 if difference else told / counted <= by_chance


@EACH
def test_no_verdict_on_models_that_have_not_learned(claim):
    result = shipped(claim)
    for one, worse in product([one for one in claim.parts if one.learned], (0.0, 9.0)):
        low, high = one.learned.low, one.learned.high
        value = low - worse if math.isfinite(low) else high + worse
        cells = [
            replace(
                cell,
                values=tuple(
                    (name, value if name == one.learned.measure else measured, x)
                    for name, measured, x in cell.values
                ),
            )
            for cell in result.results.cells
        ]
        seeds = [*Results(tuple(cells)).by_seed.values()]
        reason = why_not(one, seeds, claim.conditions(result.settings))
        assert reason.startswith("the models have not learned") == (worse > 0), one.statement


def test_settings_and_configs_are_checked(tiny):
    claim = CLAIMS[0]
    assert claim.settle() == {param.key: param.default for param in claim.params}
    for ask, words in (
        (lambda: claim.settle({"width": 3}), "has no setting width"),
        (lambda: claim.settle({"seeds": 1}), "expected 2 to 20"),
        (lambda: claim_of("nothing"), f"expected one of {claim.key}, "),
        (lambda: ClaimConfig.from_json(3), "is an object of its fields"),
        (lambda: ClaimConfig("none", {}), "expected one of"),
        (lambda: ClaimConfig("tiny", {"slope": 99}), "expected 0 to 9"),
        (lambda: register_claim(replace(claim, key="a/b")), "small letters"),
        (lambda: register_claim(claim), "already"),
        (lambda: register_claim(replace(claim, key="new", parts=())), "needs conditions, parts"),
        (lambda: SweepClaim(SWEEP, 0, 1, "speed", 0.1), "'speed'; take one of sequence_accuracy"),
        (lambda: SweepClaim(SWEEP, 0, 0, "loss", 0.1), "two values of the sweep"),
        (lambda: SweepClaim(SWEEP, 0, 9, "loss", 0.1), "two values of the sweep"),
        (lambda: SweepClaim(SWEEP, 0, 1, "loss", math.nan), "a number from 0"),
    ):
        pytest.raises(ConfigError, ask).match(words)
    assert (claim_of("tiny"), training.DECODING.source.text, VASWANI.text) == (
        TINY,
        "Stahlberg and Byrne 2019",
        "Vaswani et al. 2017",
    )


def test_a_result_comes_back_from_its_file(tmp_path):
    claim = CLAIMS[0]
    cells = [
        CellResult(condition, seed, 0.126, (("m", 0.1 + seed, None), ("ñ", 2.0, 8.0)))
        for seed in (1, 0)
        for condition in claim.conditions(claim.settle())
    ]
    file = tmp_path / f"{claim.key}.json"
    ship(claim, claim.settle(), cells, {"device": "ábacus"}, "run").save(file)
    again = shipped(claim, tmp_path)
    assert (
        again is not None
        and again.results.seeds == (0, 1)
        and again.seconds == round(0.126 * len(cells), 1)
        and again.results.cells
        == tuple(replace(one, seconds=0.13) for one in (*cells[4:], *cells[:4]))
        and all(
            text in file.read_text("utf-8") for text in ("ñ", '\n "machine": {\n  "device": "á')
        )
    )
    file.write_text('{"settings": {}}', encoding="utf-8")
    assert shipped(claim, tmp_path) is None
    cells = [
        CellResult(*place, 1.0, (("m", 1.0, None),)) for place in (("a", 0), ("b", 0), ("a", 1))
    ]
    found = Results(tuple(cells))
    assert (
        found.complete(("a", "b")).seeds == Results(found.cells[:2]).complete("ab").seeds == (0,)
        and found.mean("a", "m") == 1.0
    )
    for limit, below, above in ((0.9, 1, 0), (1.0, 1, 1), (1.1, 0, 1)):  # of a mean of 1
        assert first_below(lambda seed: seed.one("a", "m"), limit)(found) == below
        assert first_above(lambda seed: seed.one("a", "m"), limit)(found) == above


# A run of a claim as folders: workers share its cells; stop, continue, and a whole measurement from a shell.


def measure(condition, seed, settings, stop):
    yield "m", settings["slope"] * seed + (condition == "b"), None


TINY = Claim(
    key="tiny",
    name="Tiny",
    subject="Tests",
    statement="b is more than a.",
    source=VASWANI,
    refutation="b is not more than a.",
    guess=Pick("Which is more?", ("a", "b"), lambda results: 1),
    settings=(Param("slope", "Slope", default=2, low=0, high=9, step=1, meaning="slope"),),
    conditions=lambda settings: ("a", "b"),
    measure=measure,
    parts=(
        Part(
            "b is more.",
            lambda seed: seed.one("b", "m") - seed.one("a", "m"),
            "difference",
            low=0.5,
        ),
    ),
    figures=(Figure("m", "m"),),
    limits="Nothing.",
    tried="Nothing.",
    no_published="No figure.",
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr("core.claims.catalogue.CLAIMS", [*CLAIMS, TINY])
    return TINY


def test_runs_of_a_group_share_the_cells(tiny, monkeypatch):
    group = create(ClaimConfig("tiny", {"seeds": 3}), 2)
    assert len(group.runs) == 2 and find_group(group.id).runs == group.runs
    assert find_group(group.runs[1].id) is find_group("../x") is None
    assert [worker.work(run.path) for run in group.runs] == ["finished"] * 2
    results = group.results()
    assert len(results.cells) == 6 and results.complete(("a", "b")).seeds == (0, 1, 2)
    assert results.values("b", "m") == [1.0, 3.0, 5.0] and not group.live
    monkeypatch.setattr("core.claims.catalogue.CLAIMS", [Claim(**{**vars(TINY), "timed": True})])
    assert len(create(ClaimConfig("tiny", {}), 2).runs) == 1


def test_a_stopped_run_continues_where_it_was(tiny, tmp_path):
    run = create(ClaimConfig("tiny", {"seeds": 3}), 1, tmp_path).runs[0]
    stop = iter([False, False])
    assert work(run, lambda: next(stop, True)) == (
        "stopped",
        "Stopped after 2 of 6 parts, which are saved.",
    )
    with (run.path / CELLS).open("a", encoding="utf-8") as file:
        file.write('{"condition": "a", "se\n')  # killed while it wrote
    before = len(load_cells(run))
    assert work(run, lambda: False)[0] == "finished"
    cells = load_cells(run)
    assert len(cells) - before == 4 and len({(cell.condition, cell.seed) for cell in cells}) == 6


def test_a_shell_measures_keeps_and_judges(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "CLAIMS", [TINY])
    monkeypatch.setattr(
        command, "measure", lambda group: [worker.work(run.path) for run in group.runs]
    )
    assert (
        command.main(["run", "tiny", "--set", "seeds=6", "--to", str(tmp_path)]) == 0
        and "Verdict: holds, over 6 seeds." in capsys.readouterr().out
    )
    result = shipped(TINY, tmp_path)
    assert (
        result is not None
        and result.command.endswith("run tiny --set seeds=6 --ship")
        and command.main(["verdict", "tiny", "--of", str(tmp_path)]) == 0
    )
    assert (
        command.main(["run", "tiny", "--seeds", "7", "8", "3", "4", "5", "--to", str(tmp_path)])
        == 0
    )
    again = shipped(TINY, tmp_path)
    assert again.results.seeds == (3, 4, 5, 7, 8) and again.command.endswith(
        "run tiny --seeds 3 4 5 7 8 --ship"
    )
    assert (
        (again.machine["threads"], again.machine["workers"]) == (1, 2)
        and again.settings["seeds"] == 5
        and command.config_of(TINY, [], [6]).settings["seeds"] == 6
        and command.main(["run", "tiny", "--seeds", "1", "1"]) == 1
    )
    assert (
        "difference = 1 [1, 1]" in capsys.readouterr().out
        and command.main(["list"]) == 0
        and "not measured" in capsys.readouterr().out
    )
    assert (
        command.main(["run", "tiny", "--set", "slope=much"]) == 1
        and "slope = 'much'; expected a whole number" in capsys.readouterr().err
    )


# A claim as a plug-in, in real workers: the documented one from its page, one of a sweep by the real command.


SWEEP = SweepConfig(small_run(), "score", ("dot", "additive", "general"), seeds=(0, 1))


def test_plug_ins_claims_are_measured_from_the_page(tiny, tmp_path, monkeypatch, capsys):
    # The sweep's values are plug-ins', whose files come before and after my_… in the alphabet.
    text = (Path(__file__).resolve().parents[2] / "docs" / "write-a-plugin.md").read_text(
        encoding="utf-8"
    )
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    sweep = SweepClaim(SWEEP, 0, 1, "loss", 0.0)
    score = (
        "from core.attention import Entry, register\n"
        "register('score', Entry('{0}', '{0}', build=lambda config: lambda q, k: q @ k.mT, latex='x', "
        "meaning='A variant for the tests alone.', paper='', year=2026))\n"
    )
    for name, code in (
        ("a_score", score.format("early")),
        ("zebra", score.format("late")),
        (sweep.key, sweep.file().replace('"dot"', '"early"').replace('"additive"', '"late"')),
        ("diluted", *(block for block in blocks if "register_claim" in block)),
    ):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", str(tmp_path))
    monkeypatch.setattr(queue, "warm_up", lambda *_, **__: None)  # nobody waits for a spare worker
    monkeypatch.setattr(queue, "max_workers", lambda: 1)
    monkeypatch.setitem(AXES, "score", Axis(*AXES["score"]))
    for name in ("a_score", "zebra", sweep.key, "diluted"):
        runpy.run_path(str(tmp_path / f"{name}.py"))
    monkeypatch.setattr("pages.claims.CLAIMS", [*CLAIMS, claim_of("diluted")])
    app = open_at("claims", claim="diluted")
    app.slider(key="claims:diluted:seeds").set_value(5).run()
    app.button(key="claims:start").click().run()
    group = find_group(query_value(app, "claims:run"))
    words = "--set seeds=2 --set steps=2 --workers 1".split()
    monkeypatch.setattr(
        command, "measure", lambda group: [worker.work(run.path) for run in group.runs]
    )
    assert command.main(["run", sweep.key, *words]) == 0 and "Verdict: " in capsys.readouterr().out
    wait_for(lambda: not find_group(group.id).live)
    log = (group.runs[0].path / "worker.log").read_text("utf-8")
    assert "could not" not in log and "Plug-in" not in log
    app.run().pills(key="claims:diluted:predict").set_value("falls below a quarter").run()
    assert not app.exception and "Your run: the claim holds" in page_text(app)


def loaded(claim, folder):
    file = folder / f"{claim.key}.py"
    file.write_text(claim.file(), encoding="utf-8")
    runpy.run_path(str(file))
    return claim_of(claim.key)


@pytest.mark.parametrize(
    ("measure", "way", "better", "worse"),
    [("sequence_accuracy", "higher", 0.9, 0.5), ("loss", "lower", 0.5, 0.9)],
)
def test_the_file_judges_what_its_author_wrote(tiny, tmp_path, measure, way, better, worse):
    claim = loaded(SweepClaim(SWEEP, 2, 0, measure, 0.1, 'O\'Neill, "Ann"'), tmp_path)
    first, second = claim.conditions(claim.settle())
    assert (
        (first, second) == ("General", "Dot product")
        and claim.name.endswith("(plug-in)")
        and claim.source.authors == 'O\'Neill, "Ann"'
        and claim.statement.endswith(f"is {way} by more than 0.1 than with Dot product.")
    )

    def world(one, other):
        return {(first, measure, None): one, (second, measure, None): other}

    assert judge(claim, world(better, worse), 0.01) == ("holds", ["holds"]) and judge(
        claim, world(worse, better), 0.01
    ) == ("does not hold", ["refuted"])
    assert (
        judge(claim, world(0.15 * better + 0.85 * worse, worse), 0.001)[0] == "does not hold"
        and judge(claim, world(better, worse), 0.9)[0] == "cannot be told here"
    )


def test_the_file_trains_both_values_from_new_seeds(tiny, tmp_path):
    sweep = replace(SWEEP, values=SWEEP.values[:2])
    claim = loaded(SweepClaim(sweep, 0, 1, "loss", 0.0), tmp_path)
    first, second = (
        measure_cell(claim, (condition, 0), claim.settle({"steps": 2}))
        for condition in claim.conditions(claim.settle())
    )
    values = first.values, second.values
    assert (
        [name for ((name, _, _),) in values] == ["loss", "loss"]
        and 0 < first.seconds + second.seconds < time.process_time()
        and values[0] != values[1]
        and values[0][0][1] == trained(replace(SWEEP.run(0, 1000), steps=2), 1000).last.loss
    )


# Made-up results of a claim: the numbers that a world would give, with noise from seed to seed.
World = Mapping[tuple[str, str, float | None], float]  # condition, measure, x -> number


def results(world: World, noise: float = 0.0, seeds: int = 5) -> Results:
    """Cells of every condition; each number differs by up to `noise` times itself (1 for 0) between seeds."""
    draw = np.random.default_rng(86)

    def cell(seed: int, condition: str) -> CellResult:
        values = [
            (measure, value + noise * (abs(value) or 1) * float(draw.normal()), x)
            for (of, measure, x), value in world.items()
            if of == condition
        ]
        return CellResult(condition, seed, 1.017, tuple(values))

    conditions = dict.fromkeys(condition for condition, _, _ in world)
    return Results(tuple(cell(*place) for place in product(range(seeds), conditions)))


def judge(claim: Claim, world: World, noise: float = 0.0) -> tuple[str, list[Outcome]]:
    """The verdict on a made-up world of models that have learned, and the outcome of each part."""
    claim = replace(
        claim, parts=tuple(replace(part, learned=None, room=None) for part in claim.parts)
    )
    judged = verdict(claim, claim.settle(), results(world, noise, claim.seeds))
    return judged.state, [each.outcome for each in judged.effects]


def of(measure: str, values: Mapping[str, float], x: float | None = None) -> dict:
    return {(condition, measure, x): value for condition, value in values.items()}


# The measures of claims without curves: each with its conditions and where it is measured.
Form = Sequence[tuple[str, Sequence[str], float | None]]


def form(conditions: Sequence[str], *measures: str) -> Form:
    """Measures of the same conditions."""
    return [(measure, conditions, None) for measure in measures]


MODELS = (why.ONE, why.FOUR, why.RECURRENT)
ENDS = (why.ATTENTION, why.VECTOR, why.LARGE, why.LONGER)
STACKS = (cost.HYBRID_FULL, cost.HYBRID_STACK, cost.HYBRID_LOCAL, cost.SIX_FULL, cost.ONE_IN_SIX)
FORMS: dict[str, Form] = {
    "advantages": [
        *form(MODELS, why.PARAMETERS, why.MASS, why.ACCURACY),
        (why.STEP_SECONDS, MODELS, why.LENGTHS[-1]),
    ],
    "bottleneck": [
        (why.EXACT, ENDS, why.LONG),
        (why.EXACT, ENDS, why.SHORT),
        (why.SECONDS, (why.ATTENTION, why.LONGER), None),
    ],
    "iris": [
        (why.HELD_OUT_ACCURACY, (why.TOKENS, why.ROW, why.LOGISTIC), None),
        *form((why.TOKENS, why.ROW), why.EPOCHS, why.DIFFER),
        *form((why.TOKENS,), why.IRIS_PARAMETERS, why.SEPALS),
    ],
    "causal": form(
        (training.MASKED, training.OPEN), training.TEACHER, training.GENERATION, training.PADDING
    ),
    "regularization": form(
        (training.BASE, training.SMOOTHED, training.DROPPED, training.COLD),
        training.PERPLEXITY,
        training.BLEU,
    ),
    "depth": form([*training.RESIDUALS], training.BITS),
    "ladder": form([*cost.SIZES], cost.BITS, cost.ACCURACY, cost.PARAMETERS, cost.LATENCY),
    "groups": form([*cost.PROJECTIONS], cost.BITS, cost.CACHE),
    "hybrid": form(STACKS, cost.EXACT, cost.LONG_CACHE),
    "roles": form(
        (heads.SENTENCES_OF, heads.MESSAGES), heads.RANKS, heads.SCORE_LEFT, heads.EFFECT
    ),
    "explanation": [
        (meaning.BY_GRADIENT, (meaning.CONTEXT,), None),
        (meaning.BY_ABLATION, (meaning.CONTEXT, meaning.ALONE), None),
        (meaning.OTHER, (meaning.CONTEXT,), None),
        (meaning.ACCURACY, (meaning.GUIDED, meaning.UNIFORM), None),
    ],
    "sinks": [
        (meaning.WEIGHT, [*meaning.CHOICES], None),
        (meaning.HIDDEN, (meaning.SOFTMAX,), None),
    ],
    "scores": [
        (scores.LOSS, [*scores.SCORES], scores.SIZES[0]),
        (scores.LOSS, [*scores.SCORES], scores.LARGE),
        (scores.TIME, (scores.DOT, scores.ADDITIVE), scores.LARGE),
        (scores.IN_TIME, (scores.SCALED, scores.ADDITIVE), None),
    ],
    "differential": form(
        (scores.SOFTMAX, scores.DIFFERENTIAL), scores.RECALL_ACCURACY, scores.ANSWER, scores.NOISE
    ),
    "concatenation": form((positions.ADDED, positions.JOINED, positions.NONE), positions.ACCURACY),
}


def rows(key: str, *numbers: Sequence[float]) -> dict:
    """The numbers of each measure, by condition."""
    return {
        (condition, measure, x): value
        for (measure, conditions, x), values in zip(FORMS[key], numbers, strict=True)
        for condition, value in zip(conditions, values, strict=True)
    }


def curve(condition: str, measure: str, xs, value) -> dict:
    return {(condition, measure, x): value(x) for x in xs}


def norm(*bits, growth):
    return (
        of(training.BITS, dict(zip(training.CONDITIONS, bits, strict=True)))
        | of(training.FREQUENCIES, {training.BARE: 4.8})
        | {
            (condition, training.GRADIENT, x): growth
            ** ((x - 1) / (7 if "post" in condition else -7))
            for condition in training.CONDITIONS
            for x in range(1, 9)
        }
    )


def decoding(forced, bleus, gained):
    model, widths = training.MODEL, (1, training.BEST, training.WIDEST)
    return (
        of(training.FORCED, {model: forced})
        | of(training.FREE, {model: 0.8})
        | curve(model, training.BLEU, widths, dict(zip(widths, bleus, strict=True)).get)
        | curve(model, training.SCORE, widths, lambda x: -2.0 + gained * (x == training.WIDEST))
    )


def costs(powers, linear_at_128, lost, fused=0.1):
    """Seconds that grow with these powers of the length (full and fused, linear, local)."""
    full, linear, local = powers
    starts = {
        cost.FULL: (1.0, full),
        cost.FUSED: (fused, full),
        cost.LINEAR: (linear_at_128, linear),
        cost.LOCAL: (0.5, local),
    }
    rest = {cost.FULL: 0.9, cost.LINEAR: 0.9 - lost, cost.LOCAL: 0.9 - lost}
    return (
        of(cost.RECALL, rest)
        | of(cost.INDUCTION, rest)
        | {
            (condition, cost.SECONDS, x): start * (x / cost.LENGTHS[0]) ** power
            for condition, (start, power) in starts.items()
            for x in cost.LENGTHS
        }
    )


def many_heads(one, eight, reversed_by_eight, cost_of_a_head):
    names = (heads.ONE, heads.FOUR, heads.EIGHT)
    return (
        of(heads.BITS, dict(zip(names, (one, eight, eight), strict=True)))
        | of(heads.ACCURACY, dict(zip(names, (0.9, 0.9, reversed_by_eight), strict=True)))
        | curve(
            heads.EIGHT,
            heads.PRUNED,
            [count / 16 for count in range(17)],
            lambda x: eight + cost_of_a_head * 16 * x,
        )
    )


def induction(start, end, fall, score=0.1, loss=3.0):
    """Two layers: the score rises from `start` to `end` of the training, and the loss falls meanwhile; one layer."""
    shares = {x: min(1.0, max(0.0, (x / 100 - start) / (end - start))) for x in range(0, 101, 2)}
    return (
        curve(heads.TWO, heads.SCORE, shares, lambda x: 0.05 + 0.9 * shares[x])
        | curve(heads.TWO, heads.LOSS, shares, lambda x: 3.0 - fall * shares[x])
        | curve(heads.ONE_LAYER, heads.SCORE, shares, lambda x: score)
        | curve(heads.ONE_LAYER, heads.LOSS, shares, lambda x: loss)
    )


def extrapolation(order, error, *, sinusoidal, learned, rope, yarn, alibi):
    """The bits at twice and at four times the length of training, where all have 3."""
    rises = {
        positions.SINUSOIDAL: sinusoidal,
        positions.LEARNED: learned,
        positions.ROPE: rope,
        positions.YARN: yarn,
        positions.ALIBI: alibi,
    }
    return (
        of(positions.ORDER, dict.fromkeys(positions.POSITIONS, 0.5) | {positions.NONE: order})
        | of(positions.SHIFT, {positions.SINUSOIDAL: error})
        | {
            (condition, positions.BITS, x): bits
            for condition, last in rises.items()
            for x, bits in zip(positions.LENGTHS, (3.0, *last), strict=True)
        }
    )


def path(decay, attention_decay, crosses_at, waiting):
    """Seconds as n · crosses_at for a recurrent layer and n² for attention."""
    attention, cells = positions.ATTENTION, positions.RECURRENT
    distances, lengths = positions.DISTANCES, positions.PATH_LENGTHS
    return (
        of(positions.WAITING, {cells: waiting, attention: 1.0})
        | curve(cells, positions.GRADIENT, distances, lambda x: decay ** (x - 1))
        | curve(attention, positions.GRADIENT, distances, lambda x: attention_decay ** (x - 1))
        | curve(cells, positions.SECONDS, lengths, lambda x: x * crosses_at)
        | curve(attention, positions.SECONDS, lengths, lambda x: x**2)
    )


def scaling(gradient, accuracy, variance=1.0):
    divided, unscaled, sizes = scores.DIVIDED, scores.UNSCALED, scores.KEY_SIZES
    return (
        curve(divided, scores.VARIANCE, sizes, lambda x: variance)
        | curve(unscaled, scores.VARIANCE, sizes, float)
        | curve(divided, scores.GRADIENT, sizes, lambda x: 0.2)
        | curve(unscaled, scores.GRADIENT, sizes, lambda x: 0.2 if x == sizes[0] else gradient)
        | curve(divided, scores.ACCURACY, scores.TRAINED, lambda x: 0.99)
        | curve(unscaled, scores.ACCURACY, scores.TRAINED, lambda x: accuracy)
    )


def topk(*few):
    """4 bits where each sees itself alone, 3 with all keys; with FEW keys what is given."""
    conditions = (scores.LARGEST, scores.INDEXER, scores.LATEST)
    bits = dict(zip(conditions, few, strict=True))
    return {
        (name, scores.BITS, k): 4.0 if k == 1 else bits[name] if k == scores.FEW else 3.0
        for name in conditions
        for k in scores.COUNTS
    }


FLAT = dict.fromkeys(("sinusoidal", "learned", "yarn"), (3.0, 3.0))
# Of each claim three worlds and their noise: one that confirms it, one that refutes it, one that tells nothing. Where it
# is not so of all parts, the outcome of each: + holds, - refuted, ? cannot be told.
RULES: dict = {
    "advantages": (
        (rows("advantages", (100, 400, 60), (0.9, 0.9, 0.2), (0.9, 0.9, 0.5), (1, 1.05, 3)), 0.001),
        (rows("advantages", (100, 100, 60), (0.2, 0.2, 0.9), (0.4, 0.4, 0.5), (1, 2, 0.5)), 0.001),
        (rows("advantages", (100, 101, 60), [0.5] * 3, (0.52, 0.52, 0.5), (1, 1.25, 1.1)), 0.3),
    ),
    "bottleneck": (
        (rows("bottleneck", (0.85, 0.0, 0.3, 0.3), [0.9] * 4, (10, 15)), 0.001),
        (rows("bottleneck", (0.3, 0.85, 0.85, 0.85), [0.9] * 4, (10, 8)), 0.001),
        (rows("bottleneck", (0.7, 0.65, 0.6, 0.6), [0.9] * 4, (10, 10)), 0.4),
    ),
    "iris": (
        # ten seeds of ten may be nine of ten
        (rows("iris", (0.96, 0.96, 0.9), [20] * 2, [0.1] * 2, [15_000], [0.8]), 0.001, "+++++?"),
        (rows("iris", (0.8, 0.8, 0.9), [20] * 2, [0] * 2, [102_467], [0.2]), 0.0),
        (rows("iris", (0.96, 0.96, 0.95), [20] * 2, [0.01] * 2, [15_000], [0.7]), 0.5),
    ),
    "causal": (
        (rows("causal", (2.0, 0.1), (2.0, 6.0), (1e-7, 0.1)), 0.01),
        (rows("causal", (2.0, 2.0), (4.0, 2.0), (1e-2, 1e-6)), 0.001),
        (rows("causal", (2.0, 1.0), (2.2, 2.1), (1e-5, 1e-3)), 0.5),
    ),
    "norm": (
        (norm(4.5, 3.5, 3.5, 3.5, 4.8, growth=4.0), 0.001),
        (norm(3.5, 3.5, 4.0, 3.5, 3.5, growth=0.5), 0.001),
        (norm(3.6, 3.5, 3.6, 3.5, 4.7, growth=1.1), 0.4),
    ),
    "regularization": (
        (rows("regularization", (2.0, 2.4, 1.6, 3.0), (50.0, 54.0, 50.0, 50.0)), 0.002),
        (rows("regularization", (2.0, 1.9, 2.5, 1.9), (50.0, 40.0, 50.0, 50.0)), 0.002),
        (rows("regularization", (2.0, 2.05, 1.95, 2.05), (50.0, 51.0, 50.0, 50.0)), 0.4),
    ),
    "decoding": (
        (decoding(0.95, (50, 55, 45), 0.5), 0.002),
        (decoding(0.8, (55, 50, 58), -0.5), 0.002),
        (decoding(0.82, (50, 50, 50), 0.0), 0.5),
    ),
    "cost": (
        (costs((2.0, 1.0, 1.0), 0.5, 0.3), 0.002),
        (costs((1.0, 2.0, 2.0), 0.5, 0.0), 0.001),
        (costs((1.8, 1.2, 1.2), 2.6, 0.05, 0.5), 0.3),
    ),
    "ladder": (
        (rows("ladder", (3.5, 3.2, 3.0), [0.5] * 3, (1.0, 5.0, 25.0), (1.0, 1.5, 2.25)), 0.001),
        (rows("ladder", (3.0, 3.2, 3.5), [0.5] * 3, (1.0, 2.0, 4.0), (1.0, 4.0, 16.0)), 0.001),
        (rows("ladder", (3.2, 3.1, 3.0), [0.5] * 3, (1.0, 3.2, 10.24), (1.0, 2.0, 4.0)), 0.5),
    ),
    "groups": (
        (rows("groups", (3.0, 3.0, 3.1), (256.0, 64.0, 256.0)), 0.002),
        (rows("groups", (3.0, 3.2, 3.1), (256.0, 128.0, 256.0)), 0.002),
        (rows("groups", (3.0, 3.03, 3.03), (256.0, 76.0, 256.0)), 0.05),
    ),
    "hybrid": (
        (rows("hybrid", (0.9, 0.9, 0.3, 0.95, 0.95), (100, 25, 100, 100, 17)), 0.005),
        (rows("hybrid", (0.9, 0.5, 0.5, 0.95, 0.5), (100, 50, 100, 100, 50)), 0.005),
        (rows("hybrid", (0.9, 0.85, 0.65, 0.95, 0.9), (100, 30, 100, 100, 20)), 0.2),
    ),
    "heads": (
        (many_heads(3.2, 3.0, 0.9, 0.004), 1e-4),
        (many_heads(3.0, 3.0, 0.99, 0.02), 1e-4),
        (many_heads(3.05, 3.0, 0.92, 0.004), 0.01),
    ),
    "induction": (
        (induction(0.5, 0.6, 2.5), 0.002),
        (induction(0.1, 0.9, 0.5, 0.9, 2.5), 0.002),
        (induction(0.4, 0.62, 1.2, 0.6, 2.9), 0.5),
    ),
    "roles": (
        (rows("roles", [0.95] * 2, [0.9] * 2, [0.6] * 2), 0.01),
        (rows("roles", [0.4] * 2, [0.5] * 2, [-0.1] * 2), 0.01),
        (rows("roles", [0.8] * 2, [0.8] * 2, [0.3] * 2), 0.4),
    ),
    "explanation": (
        (rows("explanation", [0.3], (0.3, 0.8), [0.6], (0.8, 0.7)), 0.01),
        (rows("explanation", [0.7], (0.7, 0.7), [0.1], (0.6, 0.7)), 0.01),
        (rows("explanation", [0.5], (0.5, 0.6), [0.35], (0.72, 0.7)), 0.4),
    ),
    "sinks": (
        (rows("sinks", (0.8, 0.1, 0.1, 0.1), [0.5]), 0.01),
        (rows("sinks", (0.3, 0.3, 0.3, 0.3), [0.01]), 0.01),
        (rows("sinks", (0.5, 0.25, 0.25, 0.25), [0.1]), 0.3),
    ),
    "positions": (
        (
            extrapolation(
                1e-7,
                1e-7,
                sinusoidal=(5, 6),
                learned=(4, 6),
                rope=(3.5, 5),
                yarn=(3.2, 4),
                alibi=(3, 2.9),
            ),
            1e-5,
        ),
        (extrapolation(0.5, 0.5, **FLAT, rope=(3.2, 3.0), alibi=(4, 5)), 1e-3, "-+-------"),
        (
            extrapolation(
                1e-3,
                1e-3,
                sinusoidal=(3.2, 3.3),
                learned=(3, 3.3),
                rope=(3.1, 3.3),
                yarn=(3.1, 3.2),
                alibi=(3, 3),
            ),
            1.0,
            "?+???????",  # sinusoidal positions see the order fifty-fold
        ),
    ),
    "concatenation": (
        (rows("concatenation", (0.99, 0.98, 0.06)), 0.001),
        (rows("concatenation", (0.7, 0.98, 0.9)), 0.001),
        (rows("concatenation", (0.9, 0.9, 0.5)), 0.3),
    ),
    "path": (
        (path(0.5, 1.0, 1.1 * positions.SIZE, 10.0), 0.001),
        (path(1.0, 0.5, 40.0 * positions.SIZE, 1.0), 0.001, "---+++-"),
        (path(0.93, 0.965, 1.5 * positions.SIZE, 2.0), 0.7),
    ),
    "scores": (
        (rows("scores", (1, 1, 1), (1.5, 1, 1), (10, 20), (0.6, 1)), 0.002),
        (rows("scores", (2, 1, 1), (0.8, 2, 1), (20, 10), (1.6, 1)), 0.002),
        (rows("scores", (1, 1, 1), (1.1, 1.2, 1), (10, 11), (1, 1)), 0.4),
    ),
    "scaling": (
        (scaling(0.02, 0.5), 0.01),
        (scaling(0.2, 0.99, 3.0), 0.01, "-+-+-"),
        (scaling(0.1, 0.97), 0.6),
    ),
    "differential": (
        (rows("differential", (0.8, 0.95), (0.6, 0.9), (0.3, 0.05)), 0.01),
        (rows("differential", (0.8, 0.7), (0.6, 0.5), (0.3, 0.4)), 0.01),
        (rows("differential", (0.8, 0.82), (0.6, 0.62), (0.3, 0.15)), 0.3),
    ),
    "depth": (
        (rows("depth", (2.5, 2.4, 2.3)), 0.001),
        (rows("depth", (2.4, 2.45, 2.5)), 0.001),
        (rows("depth", (2.4, 2.39, 2.41)), 0.1),
    ),
    "topk": (
        (topk(3.01, 3.05, 3.3), 0.001),
        (topk(3.3, 3.5, 3.1), 0.001),
        (topk(3.05, 3.1, 3.12), 0.1),
    ),
}
SAYS: dict[str, Outcome] = {"+": "holds", "-": "refuted", "?": "cannot be told"}


@pytest.mark.parametrize("key", [claim.key for claim in CLAIMS])
def test_the_rule_confirms_refutes_and_abstains(key):
    claim = claim_of(key)
    for sign, (world, noise, *outcomes) in zip(SAYS, RULES[key], strict=True):
        parts = [SAYS[one] for one in (outcomes or [sign * len(claim.parts)])[0]]
        assert judge(claim, world, noise) == (combine(parts), parts)


def test_a_guess_is_answered_by_the_numbers():
    assert (
        instance(cost.LADDER.guess, Pick).answer(
            results(rows("ladder", (3.5, 3.2, 3.4), [0.5] * 3, (1.0, 5.0, 25.0), (1.0, 1.5, 2.25)))
        )
        == 1
    )


# What the claims measure, against plain arithmetic.


LINE = Shape(11, 11, 12, one_vocabulary=True)
SOURCE = torch.randint(4, 11, (3, 12), generator=torch.Generator().manual_seed(0))


def decoder(*sizes, seed=0, **more) -> Any:
    torch.manual_seed(seed)
    return build_model(ModelConfig.transformer(*sizes, kind="decoder", **more), LINE).eval()


def test_the_parts_of_training_by_hand():
    assert (
        training.padding_change(0, masked=True) == pytest.approx(0, abs=1e-6)
        and training.padding_change(0, masked=False) > 1e-3
    )
    task: Any = make_task(TaskConfig.of("topics", length=32))
    tokens = [task.source_vocab.encode([token])[0] for token in "etxt"]
    task.ids = torch.tensor(tokens)  # e once, x once, t twice, and every token once more
    task.corpus = SimpleNamespace(held_out=("t", "e"))
    total = 4 + len(task.source_vocab)
    bits = -(math.log2(3 / total) + math.log2(2 / total)) / 2
    assert training.frequency_bits(task) == pytest.approx(bits, rel=1e-5)
    assert training.token_accuracy([("a", "b"), ("c",)], [("a", "x", "y"), ("c",)]) == 0.5
    attention, feed_forward, norms = 4 * 64 * 64 + 4 * 64, 2 * 64 * 256 + 256 + 64, 4 * 64
    both = 2 * (attention + feed_forward + norms)
    by_hand = (4 * 64 + 64) + both + (64 * 32 + 32) + (32 * 3 + 3)
    assert why.tutorial_parameters() == by_hand == 102_467


def test_gradients_are_of_each_layer_and_residuals_can_go():
    model = ModelConfig.transformer(8, 2, 2, kind="decoder", norm="pre")
    session = prepare(RunConfig(TaskConfig.of("copy"), model))
    norms = training.layer_gradients(session)
    assert len(norms) == 2 and min(norms) > 0
    characters = training.NextCharacter(11, causal=True)
    characters(SOURCE).sum().backward()
    assert all(weight.grad is not None for weight in characters.parameters())
    assert all(weight.grad is None for weight in session.model.parameters())
    training.remove_residuals(session.model)
    around = [module for module in session.model.modules() if isinstance(module, Residual)]
    x = torch.randn(1, 3, 8)
    assert len(around) == 4 and all(torch.equal(one.leave(x, -x), -x) for one in around)


def test_the_exponent_is_that_of_the_curve():
    seed = SeedValues(dict(costs((2.0, 1.0, 1.5), 0.5, 0.0)))
    assert cost._exponent(cost.LOCAL, seed) == pytest.approx(1.5)
    kernels = [
        AttentionConfig(128, 4, **cost.choices(condition)).kernel.key
        for condition in cost.COST.conditions({})
    ]
    assert kernels == ["exact", "fused", "linear", "local"]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [(cost.MULTI_HEAD, 256), (cost.GROUPED, 64), (cost.MULTI_QUERY, 32)],
)
def test_the_cache_holds_keys_and_values_of_each_layer(condition, numbers):
    # 2 layers · 2 (key and value) · heads of keys · 8 dimensions.
    model = decoder(64, 8, 2, position="rope", projection=cost.PROJECTIONS[condition])
    batch = SimpleNamespace(source=SOURCE[:1], source_mask=SOURCE[:1] > 0)
    task: Any = SimpleNamespace(held_out=lambda n: None, collate=lambda examples: batch)
    assert cost.cached_numbers(Trained(model, task, ())) == numbers


def test_a_window_caches_two_tokens():
    # 64 numbers for the key and 64 for the value of each token.
    sizes = {name: cost.cached(cost.stack(layers), 10) for name, layers in cost.PATTERNS.items()}
    assert sizes == {
        cost.HYBRID_FULL: 4 * 10 * 128,
        cost.HYBRID_STACK: (10 + 3 * 2) * 128,
        cost.HYBRID_LOCAL: 4 * 2 * 128,
        cost.SIX_FULL: 6 * 10 * 128,
        cost.ONE_IN_SIX: (10 + 5 * 2) * 128,
    }
    model = build_model(cost.stack(cost.PATTERNS[cost.HYBRID_STACK]), LINE).eval()
    maps = model(SOURCE[:1, :9], SOURCE[:1, :9] > 0, record=True).maps["causal"]
    assert [int((steps.weights[0, 0, -1] > 0).sum()) for steps in maps] == [2, 2, 2, 9]


def test_a_head_without_its_columns_adds_nothing():
    model = decoder(8, 2, 1, norm="pre")
    full = model(SOURCE, SOURCE > 0, record=True)
    projection = model.layers[0].causal.projection
    copy: Any = heads.without(model, [(0, 1)])
    out = full.maps["causal"][0].out  # (B, H, T, D)
    alone = torch.nn.functional.linear(
        out[:, 0], projection.output.weight[:, :4], projection.output.bias
    )
    pruned = copy.layers[0].causal.projection.merge(out, out[:, 0].repeat(1, 1, 2))
    torch.testing.assert_close(pruned, alone)
    assert bool((projection.output.weight != 0).all())  # the model itself is as it was


def test_crossings_agreement_and_score_that_is_left_by_hand():
    curve = {0.0: 0.0, 10.0: 0.2, 20.0: 1.0}
    assert [heads.crossing(curve, level) for level in (0.6, 0.1, 2.0)] == pytest.approx(
        [15, 5, 20]
    ) and (heads.at(curve, 15.0), heads.crossing({0.0: 1.0, 5.0: 1.0}, 1.0)) == pytest.approx(
        (0.6, 5.0)
    )
    first = np.array([[[0.1, 0.2], [0.3, 0.8]], [[0.6, 0.1], [0.2, 0.3]]])
    turned = np.array([0.8 - first[0], first[1]])
    for second, agrees, left in (
        (first**2, 1, (0.8**2 / 0.8 + 0.6**2 / 0.6) / 2),
        (turned, 0, (0.0 / 0.8 + 0.6 / 0.6) / 2),
    ):
        assert heads.mean_agreement(first, second) == pytest.approx(agrees)
        assert heads.score_left(first, second) == pytest.approx(left)


def test_even_attention_scores_its_share():
    # Without scores each output attends evenly to all it sees; the words to repeat are 2 to 5 places on.
    task = make_task(TaskConfig.of("induction", length=8, vocab=16, said=2))
    model = build_model(ModelConfig.transformer(16, 2, kind="decoder"), task.shape).eval()
    for name, weight in model.named_parameters():
        weight.data *= "query" not in name and not name.startswith("output")
    expected = {heads.LOSS: task.baseline_loss, heads.SCORE: (1 / 11 + 1 / 12) / 2}
    assert heads.on_repeated(model, task) == pytest.approx(expected)


@pytest.mark.parametrize("condition", meaning.CHOICES)
def test_a_hidden_first_token_gets_weight_from_itself_alone(condition):
    plain = ModelConfig.transformer(16, 4, 2, kind="decoder", position="rope")
    torch.manual_seed(0)
    model = build_model(meaning.variant(plain, condition), LINE).eval()
    batch = Batch(SOURCE, SOURCE > 0, None, SOURCE)
    assert meaning.weight_on_first(model, batch) > 0
    hidden = meaning.without_first(model)
    for steps in hidden(batch.source, batch.source_mask, record=True).maps["causal"]:
        assert (steps.weights[:, :, 0, 0] > 0).all() and not steps.weights.triu(1).any()
        assert not steps.weights[:, :, 1:, 0].any()
    assert meaning.weight_on_first(hidden, batch) == 0
    assert meaning.loss(hidden, batch) != meaning.loss(model, batch)


@pytest.fixture
def words():
    source = torch.randint(4, 9, (5, 8), generator=torch.Generator().manual_seed(3))
    source[1, 6:] = 0
    return Batch(source, source > 0, None, torch.zeros(5, dtype=torch.long))


def reader(context=False):
    task: Any = SimpleNamespace(shape=Shape(9, 3, 8, output="label"))
    torch.manual_seed(1)
    return meaning.Reader(task, context).eval().requires_grad_(False)


def test_distances_by_hand():
    same, first, second = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]], [[0.0, 1.0]]])
    for one, other, distance, divergence in ((first, second, 1, math.log(2)), (same, same, 0, 0)):
        assert float(meaning.distance(one, other)) == distance
        assert float(meaning.divergence(one, other)) == pytest.approx(divergence, abs=1e-6)
    assert float(meaning.distance(same, first)) == 0.5


def test_ablation_renormalizes_the_weights(words):
    model = reader()
    states = model.letters(words.source)
    weights = model.weights(states, words.source_mask)
    left = weights.clone()
    left[:, 2] = 0
    expected = meaning.distance(
        model.classify(states, left / left.sum(-1, keepdim=True)).softmax(-1),
        model.classify(states, weights).softmax(-1),
    )
    ablated = meaning.by_ablation(model, words)
    assert torch.allclose(ablated[:, 2], expected, atol=1e-6) and not ablated[1, 6:].any()
    grown = states.clone()
    grown[0, 3] *= 1.001
    p, q = (model.classify(each, weights).softmax(-1)[0] for each in (states, grown))
    slope = float((q - p)[int(p.argmax())]) / 0.001
    assert float(meaning.by_gradient(model, words)[0, 3]) == pytest.approx(abs(slope), rel=0.05)


@pytest.mark.parametrize("context", [False, True])
def test_weights_agree_with_themselves(context, words):
    model = reader(context)
    weights = meaning.own_weights(
        model, model.states(model.letters(words.source), words.source_mask), words
    )
    assert (
        meaning.agreement(model, words, weights) == pytest.approx(1)
        and meaning.agreement(model, words, -weights) == pytest.approx(-1)
        and meaning.by_permutation(model, words, 0) > 0
    )
    model.output.weight.zero_()
    assert meaning.by_permutation(model, words, 0) == 0
    # One letter of eight, against even weights, is 0.5 away.
    assert meaning.other_weights(model, words) > 0.45


def test_a_layer_without_positions_sees_no_order():
    none, rope = (positions.order_change(Choice(key), 0) for key in ("none", "rope"))
    assert none < 1e-5 < 0.1 < rope
    measured = positions.measure(positions.NONE, 0, {}, lambda: False)
    assert [number[0] for number in measured] == [positions.ORDER] and positions.shift(3) < 1e-5
    # sin i, cos i: a turn by one radian a position
    table = sinusoids(torch.arange(8, dtype=torch.float64), 2)
    turned = math.cos(3.0) * table[2, 0] + math.sin(3.0) * table[2, 1]
    assert float(turned) == pytest.approx(float(table[5, 0]), abs=1e-6)
    norms = positions.gradients(lambda x: x.cumsum(1), 0)
    assert norms == pytest.approx(dict.fromkeys(positions.DISTANCES, 1.0))


@pytest.mark.parametrize(
    ("at", "expected"),
    [(96.0, 96.0), (1.0, positions.PATH_LENGTHS[0]), (1e9, positions.PATH_LENGTHS[-1])],
)
def test_the_crossing_of_a_line_and_a_square(at, expected):
    seed = SeedValues(dict(path(1.0, 1.0, at, 1.0)))
    assert positions.crossing(seed, positions.SECONDS) == pytest.approx(expected)
    ratios = {32.0: 0.5, 64.0: 1.5, 128.0: 8.0}  # 0.5 · 3 ** (log 2 / log 3) = 1
    seed = SeedValues(
        curve(positions.ATTENTION, "m", ratios, ratios.get)
        | curve(positions.RECURRENT, "m", ratios, lambda x: 1.0)
    )
    assert positions.crossing(seed, "m") == pytest.approx(32 * 2 ** (math.log(2) / math.log(3)))


def test_flops_are_those_of_layer_and_cross_at_width():
    attention, cells, size = positions.ATTENTION, positions.RECURRENT, positions.SIZE
    assert positions.flops(attention, 64, 64) == positions.flops(cells, 64, 64)
    config = AttentionConfig(size, 4, mask="causal")
    # Each weight once a token, without biases.
    products = 2 * 16 * (sum(parameters(config).values()) - 4 * size)
    flops = attention_cost(config, 16, 16).flops + products
    assert positions.flops(attention, 16, size) == flops
    weights = sum(weight.numel() for weight in torch.nn.GRU(size, size, bias=False).parameters())
    assert positions.flops(cells, 16, size) == 2 * 16 * weights


def test_the_jacobian_is_autograds():
    drawn = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = [torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row) for row in drawn]
    expected = float(torch.stack([row.norm() for row in rows]).mean())
    assert scores.jacobian_norm(drawn.softmax(-1)) == pytest.approx(expected)
    weights = torch.zeros(1, 2 * scores.PAIRS + 3)
    weights[0, 3], weights[0, 2] = 0.5, 0.1  # the answer, and the key of its pair
    weights[0, 6], weights[0, 9] = -0.2, 0.1  # other pairs
    weights[0, -1] = 0.1
    assert scores.answer_and_noise(weights, torch.tensor([3])) == pytest.approx((0.5, 0.3))


def test_both_models_have_as_many_weights():
    # Differential attention has four more vectors a layer, which make λ.
    plain, differential = (
        sum(weight.numel() for weight in build_model(scores.model_of(name), LINE).parameters())
        for name in (scores.SOFTMAX, scores.DIFFERENTIAL)
    )
    assert differential - plain == 2 * 4 * 32


@pytest.mark.parametrize("condition", [scores.LARGEST, scores.INDEXER, scores.LATEST])
def test_each_query_keeps_as_many_keys_as_said(condition):
    lightning = Choice.of("lightning", keys=scores.WINDOW)
    model = decoder(16, 2, 2, norm="pre", position="rope", mask=lightning)
    before = model(SOURCE, SOURCE > 0).logits
    for count in (1, 5, scores.WINDOW):
        output = scores.keep(model, condition, count)(SOURCE, SOURCE > 0, record=True)
        for steps in output.maps["causal"]:
            seen = (steps.weights > 0).sum(-1)
            assert torch.equal(seen, torch.arange(1, 13).clamp(max=count).expand_as(seen))
        assert count < scores.WINDOW or torch.allclose(output.logits, before, atol=1e-5)
    assert [layer.causal.indexer.keys for layer in model.layers] == [scores.WINDOW] * 2
    latest, _ = scores.keep(model, scores.LATEST, 2)(SOURCE, SOURCE > 0, record=True).maps["causal"]
    assert torch.equal(latest.weights[0, 0] > 0, torch.ones(12, 12).tril().triu(-1).bool())


# What each experiment trains and measures, without its training: as it was when its result was shipped.


FEW = {  # smaller than in the claims: how many are measured is not what is shown here
    (cost, "LENGTHS"): cost.LENGTHS[:2],
    (heads, "WINDOWS"): 6,
    (heads, "ITEMS"): 12,
    (meaning, "ITEMS"): 12,
    (meaning, "WORDS"): 6,
    (meaning, "TRIALS"): 3,
    (meaning, "SEARCH"): 4,
    (positions, "PATH_LENGTHS"): positions.PATH_LENGTHS[:4],
    (positions, "bits_by_length"): partial(positions.bits_by_length, windows=2),
    (scores, "ITEMS"): 12,
    (scores, "WINDOWS"): 6,
    (training, "WINDOWS"): 6,
    (training, "SOURCES"): 2,
    (why, "LENGTHS"): why.LENGTHS[:2],
}


@pytest.fixture
def trains(monkeypatch) -> tuple[dict[str, float], list[ModelConfig]]:
    """What a measure would train: the checksum of each config, or the steps, the rate and the first loss."""
    found: dict[str, float] = {}
    models: list[ModelConfig] = []
    for (module, name), value in FEW.items():
        monkeypatch.setattr(module, name, value)
    last = Record(8, loss=2.0, token_accuracy=0.5, sequence_accuracy=0.25, bleu=50.0, final=True)
    seen = replace(last, expected=((0.25, 0.5),), buckets=(Bucket("1–10", 9, 0.25, 50.0),))
    between = Record(4, token_accuracy=0.25, sequence_accuracy=0.95)

    def noted(config: RunConfig) -> tuple[Record, ...]:
        text = json.dumps(config.to_json(), sort_keys=True)
        found[f"{len(found)} {zlib.crc32(text.encode()):08x}"] = config.steps
        models.append(config.model)
        return Record(0), between, seen

    def whole(session: Session, stop: object = None) -> Trained:
        return Trained(session.model.eval(), session.task, noted(session.config))

    def fit(model, loss, steps, rate, stop) -> None:
        found[f"{len(found)} {steps} steps at {rate}"] = loss().item()

    monkeypatch.setattr(heads, "train", lambda config, *_: noted(config))
    ticks = iter(range(100_000))
    # other threads read the real clock
    clock = SimpleNamespace(process_time=lambda: next(ticks) ** 2)
    for module in (cost, experiment, scores, why):
        monkeypatch.setattr(module, "time", clock)
    for module in (experiment, training):
        monkeypatch.setattr(module, "train_whole", whole)
    for module in (meaning, positions, training):
        monkeypatch.setattr(module, "fit", fit)
    return found, models


@EACH
def test_an_experiment_is_what_it_was(claim, trains):
    lowest = {param.key: param.low for param in claim.settings if param.low is not None}
    settings, now, (found, models) = claim.settle(lowest), {}, trains
    for condition in claim.conditions(settings):
        found.clear()
        meaning.trained_reader.cache_clear()
        for name, value, x in claim.measure(condition, 1, settings, lambda: False):
            found[name if x is None else f"{name} at {x:g}"] = float(value)
        now[condition] = {name: float(f"{value:.5g}") for name, value in found.items()}
    for model in models[:1]:
        layers = claim.settle().get("layers", model.layers)
        assert re.search(rf"\b{model.d_model}\b", claim.scope)
        assert model.kind in RECURRENT or re.search(rf"\b{layers}\b.* layer", claim.scope)
    for sign, (world, *_) in zip(SAYS, RULES[claim.key], strict=True):
        judged = verdict(claim, claim.settle(), results(world))
        now[sign] = {one.part.statement: float(f"{one.mean:.5g}") for one in judged.effects}
        if isinstance(claim.guess, Pick):
            now[sign][claim.guess.question] = claim.guess.answer(results(world))
    now["rules"] = dict.fromkeys(rule_lines(claim), 1)
    # `make generated` writes again those that differ by more than another processor's rounding
    path = Path(__file__).with_name("experiments") / f"{claim.key}.json"
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for condition, numbers in now.items():
        near = about(before.get(condition, {}))
        numbers |= {
            name: before[condition][name]
            for name, value in numbers.items()
            if name in near and value == near[name]
        }
    saved = snapshot(path, now)
    assert now.keys() == saved.keys()
    for condition, numbers in now.items():
        assert numbers == about(saved[condition]), condition


def about(numbers: dict[str, Any]) -> dict[str, Any]:
    """Experiments' numbers, which another processor rounds otherwise."""
    return {
        name: pytest.approx(value, rel=2e-3, abs=0.02 if name.startswith(COUNTED) else 1e-5)
        for name, value in numbers.items()
    }
