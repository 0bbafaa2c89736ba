"""Every claim's form, its rule on made-up data, its runs as folders, from a shell, and as a plug-in."""

import math
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from core.claims import __main__ as command, experiment
from core.claims.base import (
    MIN_SEEDS,
    VASWANI,
    CellResult,
    Claim,
    Figure,
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
    verdict,
    why_not,
)
from core.claims.catalogue import CLAIMS, claim_of, register_claim
from core.claims.experiment import measure_cell, trained
from core.claims.run import CELLS, ClaimConfig, create, find_group, load_cells, work
from core.claims.shipped import ship, shipped
from core.claims.sweep_claim import SweepClaim
from core.entries import ConfigError, Param
from core.models.config import RECURRENT
from core.runs import worker
from core.training.evaluate import never_stop
from core.training.seed_stats import LEVEL, UNITS
from core.training.sweeps import SweepConfig
from tests.claims.test_rules import judge
from tests.training.small import small_run

EACH = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)


def part(low=-math.inf, high=math.inf, resolution=0.0):
    return Part("It is so.", lambda seed: seed.one("a", "m"), "m", low, high, resolution=resolution)


def test_an_interval_is_students_over_all_parts_and_no_narrower_than_the_resolution():
    values = [0.3, 0.5, 0.1, 0.45, 0.2]
    ours = effect(part(), values, 0.05 / 4)
    low, high = stats.t.interval(1 - 0.05 / 4, 4, np.mean(values), stats.sem(values))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((np.mean(values), low, high))
    sure, unsure = (effect(part(0.5, resolution=step), [0.51] * 3, 0.05) for step in (0.0, 0.05))
    assert sure.outcome == "holds" and unsure.outcome == "cannot be told"
    useless = [effect(part(0.5), values, 0.05) for values in ([0.9], [], [0.9, math.nan])]
    assert {each.outcome for each in useless} == {"cannot be told"}


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.2, math.inf, "holds"),
        (0.31, math.inf, "cannot be told"),
        (0.41, math.inf, "refuted"),
        (-math.inf, 0.4, "holds"),
        (-math.inf, 0.29, "refuted"),
        (0.25, 0.45, "holds"),
        (0.35, 0.45, "cannot be told"),
    ],
)
def test_a_statement_holds_where_the_whole_interval_does(low, high, says):
    assert outcome(part(low, high), 0.3, 0.4) == says


def test_parts_make_one_verdict_and_too_few_seeds_or_no_room_are_reasons():
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
    assert why_not(part(0.5), seeds[:4], ("a",)) == "4 seeds of the 5 that a verdict needs"
    tight = replace(part(0.02), unit="gain", room=lambda seed: 1 - 0.995)
    assert (
        why_not(tight, seeds, ("a",)) == "the task leaves no room: m could be 0.5 % at most"
        and why_not(replace(tight, room=lambda seed: 0.03), seeds, ("a",)) == ""
    )
    assert effect(part(0.5), [0.9] * 5, 0.05, "no").outcome == "cannot be told"


@EACH
def test_a_claim_says_everything_and_when_its_models_have_learned(claim):
    texts = claim.name, claim.subject, claim.statement, claim.refutation, claim.limits, claim.tried
    assert all(text == text.strip() != "" for text in texts)
    assert claim.published or claim.no_published
    assert claim.source.url.startswith("https://") and claim.source.bibtex.startswith("@")
    conditions, learns = claim.conditions(claim.settle()), [part.learned for part in claim.parts]
    assert len(set(conditions)) == len(conditions) >= 1 and claim.parts and claim.figures
    for one in claim.parts:
        assert one.low > -math.inf or one.high < math.inf, f"nothing could refute: {one.statement}"
        assert one.low <= one.high and one.unit in UNITS
        shares = one.unit in ("share", "gain", "score", "score gain")
        assert one.resolution > 0 or not shares, one.statement
    options = claim.guess.options if isinstance(claim.guess, Pick) else "ab"
    assert len(set(options)) == len(options) >= 2 and claim.seeds >= MIN_SEEDS
    assert any(line in claim.scope for line in ("d_model", "layer")), claim.scope
    assert any(learns) or all(param.key != "steps" for param in claim.settings), claim.key


@pytest.mark.parametrize("difference", [0.0, 0.5])
def test_equal_conditions_are_seldom_told_apart_and_a_large_effect_is_seen(difference):
    """A claim of four parts in four units, each in both directions, simulated 500 times."""
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
    """With the measure of a criterion at its worst, no part that needs it is told; at its bound each is free."""
    result = shipped(claim)
    for criterion in {part.learned for part in claim.parts if part.learned}:
        for good in (True, False):
            value = (criterion.low if math.isfinite(criterion.low) else criterion.high) + (
                0.0 if good else -9.0 if math.isfinite(criterion.low) else 9.0
            )
            cells = [
                replace(
                    cell,
                    values=tuple(
                        (name, value if name == criterion.measure else one, x)
                        for name, one, x in cell.values
                    ),
                )
                for cell in result.results.cells
            ]
            seeds = [*Results(tuple(cells)).by_seed.values()]
            for one in claim.parts:
                if one.learned == criterion:
                    reason = why_not(one, seeds, claim.conditions(result.settings))
                    assert reason.startswith("the models have not learned") == (not good), (
                        one.statement,
                        reason,
                    )


@EACH
def test_the_scope_is_that_of_the_models_that_are_trained(claim, monkeypatch):
    class Seen(Exception):
        pass

    def look(config):
        raise Seen(config.model)

    monkeypatch.setattr(experiment, "prepare", look)
    if claim.key in ("cost", "scaling", "path", "causal", "concatenation", "explanation", "roles"):
        pytest.skip("measures without a model of ModelConfig first")
    with pytest.raises(Seen) as caught:
        for condition in claim.conditions(claim.settle()):
            list(claim.measure(condition, 0, claim.settle(), never_stop))
    model = caught.value.args[0]
    assert re.search(rf"\b{model.d_model}\b", claim.scope)
    if model.kind not in RECURRENT:
        assert re.search(rf"\b{model.layers}\b.* layer", claim.scope)


def test_settings_and_configs_are_checked(tiny):
    claim = CLAIMS[0]
    assert claim.settle() == {param.key: param.default for param in claim.params}
    for ask, words in (
        (lambda: claim.settle({"width": 3}), "has no setting 'width'"),
        (lambda: claim.settle({"seeds": 1}), "expected 2 to 20"),
        (lambda: claim_of("nothing"), f"expected one of {claim.key}, "),
        (lambda: ClaimConfig.from_json(3), "is an object of its fields"),
        (lambda: ClaimConfig("none", {}), "expected one of"),
        (lambda: ClaimConfig("tiny", {"slope": 99}), "expected 0 to 9"),
        (lambda: register_claim(replace(claim, key="a/b")), "small letters"),
        (lambda: register_claim(claim), "already"),
        (lambda: register_claim(replace(claim, key="new", parts=())), "needs conditions, parts"),
    ):
        with pytest.raises(ConfigError, match=words):
            ask()
    assert claim_of("tiny") is TINY


@EACH
def test_every_claim_has_a_shipped_result_of_it(claim):
    result = shipped(claim)
    assert result is not None, f"measure it again: python -m core.claims run {claim.key} --ship"
    assert len(result.seeds) == int(result.settings["seeds"]) >= 5 and all(
        math.isfinite(each.mean) for each in result.verdict.effects
    )
    measures = {measure for cell in result.results.cells for measure, _, _ in cell.values}
    assert {figure.measure for figure in claim.figures} <= measures
    if isinstance(claim.guess, Pick):
        assert 0 <= claim.guess.answer(result.results) < len(claim.guess.options)
    else:
        assert result.results.xs(claim.guess.condition, claim.guess.measure)


def test_a_result_comes_back_from_its_file_and_seeds_without_all_conditions_are_left_out(tmp_path):
    claim = CLAIMS[0]
    cells = [
        CellResult(condition, seed, 0.5, (("m", 0.1 + seed, None), ("n", 2.0, 8.0)))
        for seed in (1, 0)
        for condition in claim.conditions(claim.settle())
    ]
    ship(claim, claim.settle(), cells, {"device": "abacus"}, "run").save(
        tmp_path / f"{claim.key}.json"
    )
    again = shipped(claim, tmp_path)
    assert (
        again is not None
        and again.results.seeds == (0, 1)
        and again.seconds == 0.5 * len(cells)
        and set(again.results.cells) == set(cells)
    )
    (tmp_path / f"{claim.key}.json").write_text('{"settings": {}}', encoding="utf-8")
    assert shipped(claim, tmp_path) is None
    cells = [
        CellResult(*place, 1.0, (("m", 1.0, None),)) for place in (("a", 0), ("b", 0), ("a", 1))
    ]
    found = Results(tuple(cells))
    assert found.complete(("a", "b")).seeds == (0,)
    for limit, below, above in ((0.9, 1, 0), (1.0, 1, 1), (1.1, 0, 1)):  # of a mean of 1
        assert first_below(lambda seed: seed.one("a", "m"), limit)(found) == below
        assert first_above(lambda seed: seed.one("a", "m"), limit)(found) == above


# A run of a claim as folders: workers share its cells; stop, continue, and a whole measurement from a shell.


def measure(condition, seed, settings, stop):
    yield "m", settings["slope"] * seed + (condition == "b"), None


TINY = Claim(
    "tiny",
    "Tiny",
    "Tests",
    "b is more than a.",
    VASWANI,
    "b is not more than a.",
    Pick("Which is more?", ("a", "b"), lambda results: 1),
    (Param("slope", "Slope", 2, 0, 9, 1, meaning="slope"),),
    lambda settings: ("a", "b"),
    measure,
    (
        Part(
            "b is more.",
            lambda seed: seed.one("b", "m") - seed.one("a", "m"),
            "difference",
            low=0.5,
        ),
    ),
    (Figure("m", "m"),),
    "Nothing.",
    "Nothing.",
    no_published="No figure.",
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr("core.claims.catalogue.CLAIMS", [*CLAIMS, TINY])
    return TINY


def test_runs_of_a_group_share_the_cells_and_a_timed_claim_has_one_worker(tiny, monkeypatch):
    group = create(ClaimConfig("tiny", {"seeds": 3}), 2)
    assert (
        len(group.runs) == 2
        and find_group(group.id).runs == group.runs
        and find_group(group.runs[1].id) is None
        and find_group("../x") is None
    )
    for run in group.runs:
        assert worker.work(run.path) == "finished"
    results = group.results()
    assert (
        len(results.cells) == 6
        and results.complete(("a", "b")).seeds == (0, 1, 2)
        and results.values("b", "m") == [1.0, 3.0, 5.0]
        and not group.live
    )
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
        again.settings["seeds"] == 5
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


# A claim as a plug-in: the documented one runs by the real command and from the page, in real workers.


ROOT = Path(__file__).resolve().parents[2]
SWEEP = SweepConfig(small_run(), "score", ("dot", "additive", "general"), seeds=(0, 1))
PAGE = """
import time
from core.claims.run import find_group
from dashboard.server import jobs
from tests.pages.app import open_at, page_text, query_value

jobs.warm_up = lambda: None  # nobody waits for a spare worker
app = open_at("claims", claim="diluted")
app.slider(key="claims:diluted:seeds").set_value(5).run()
app.button(key="claims:start").click().run()
group, limit = find_group(query_value(app, "claims:run")), time.monotonic() + 300
while group.live and time.monotonic() < limit:
    app.run()
app.pills(key="claims:diluted:predict").set_value("falls below a quarter").run()
assert not app.exception
print([run.status() for run in group.runs], page_text(app))
"""


def in_shell(folder, *arguments, **more):
    environment = {**os.environ, "ATTENTION_LAB_PLUGINS": str(folder), **more}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )


def test_the_documented_claim_is_measured_by_the_command_and_from_the_page(tmp_path):
    text = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (block,) = (block for block in blocks if "register_claim" in block)
    (tmp_path / "diluted.py").write_text(block, encoding="utf-8")
    settings = ["--set", "seeds=5", "--set", "d_k=8", "--workers", "1"]
    done = in_shell(tmp_path, "-m", "core.claims", "run", "diluted", *settings)
    assert done.returncode == 0 and "Verdict: holds" in done.stdout, done.stdout + done.stderr
    assert "could not" not in done.stderr and "Plug-in" not in done.stderr
    done = in_shell(tmp_path, "-c", PAGE)
    assert done.returncode == 0 and done.stdout.count("finished") == 2, done.stdout + done.stderr
    assert "Your run: the claim holds" in done.stdout, done.stdout[-2000:]


def test_a_claim_of_a_sweep_finds_the_plug_ins_that_it_needs_whatever_their_names(tmp_path):
    """The sweep's values are plug-ins', whose files come before and after my_… in the alphabet."""
    for file, key in (("a_score", "early"), ("zebra", "late")):
        (tmp_path / f"{file}.py").write_text(
            "from core.attention import Entry, register\n"
            f"register('score', Entry('{key}', '{key}', lambda config: lambda q, k: q @ k.mT, 'x', "
            "'A variant for the tests alone.', '', 2026))\n",
            encoding="utf-8",
        )
    claim = SweepClaim(SWEEP, 0, 1, "loss", 0.0)
    text = claim.file().replace('"dot"', '"early"').replace('"additive"', '"late"')
    assert "early" in text and "late" in text
    (tmp_path / f"{claim.key}.py").write_text(text, encoding="utf-8")
    settings = ["--set", "seeds=2", "--set", "steps=2", "--workers", "1"]
    done = in_shell(tmp_path, "-m", "core.claims", "run", claim.key, *settings)
    assert done.returncode == 0 and "Verdict: " in done.stdout, done.stdout + done.stderr


def loaded(claim, folder):
    file = folder / f"{claim.key}.py"
    file.write_text(claim.file(), encoding="utf-8")
    runpy.run_path(str(file))
    return claim_of(claim.key)


@pytest.mark.parametrize(
    ("measure", "better", "worse"), [("sequence_accuracy", 0.9, 0.5), ("loss", 0.5, 0.9)]
)
def test_the_file_judges_what_its_author_wrote(tiny, tmp_path, measure, better, worse):
    claim = loaded(SweepClaim(SWEEP, 2, 0, measure, 0.1, 'O\'Neill, "Ann"'), tmp_path)
    first, second = claim.conditions(claim.settle())
    assert (
        (first, second) == ("General", "Dot product")
        and claim.name.endswith("(plug-in)")
        and claim.source.authors == 'O\'Neill, "Ann"'
    )

    def world(one, other):
        return {(first, measure, None): one, (second, measure, None): other}

    assert judge(claim, world(better, worse), 0.01) == ("holds", ["holds"]) and judge(
        claim, world(worse, better), 0.01
    ) == ("does not hold", ["refuted"])
    assert (
        judge(claim, world(0.5, 0.51), 0.001) == ("does not hold", ["refuted"])
        and judge(claim, world(better, worse), 0.9)[0] == "cannot be told here"
    )


def test_the_file_trains_both_values_from_new_seeds(tiny, tmp_path):
    claim = loaded(SweepClaim(SWEEP, 0, 1, "loss", 0.0), tmp_path)
    values = [
        measure_cell(claim, (condition, 0), claim.settle({"steps": 2})).values
        for condition in claim.conditions(claim.settle())
    ]
    assert (
        [name for ((name, _, _),) in values] == ["loss", "loss"]
        and values[0] != values[1]
        and values[0][0][1] == trained(replace(SWEEP.run(0, 1000), steps=2), 1000).last.loss
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measure": "speed"}, "measure = 'speed'; take one of sequence_accuracy"),
        ({"second": 0}, "two values of the sweep"),
        ({"second": 9}, "two values of the sweep"),
        ({"bound": float("nan")}, "a number from 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        replace(SweepClaim(SWEEP, 0, 1, "sequence_accuracy", 0.1), **changes)
