"""A run of a claim as folders: workers share its cells; stop, continue, and a whole measurement from a shell."""

import pytest

from core.claims import __main__ as command
from core.claims.base import Claim, Figure, Part, Pick
from core.claims.catalogue import CLAIMS, claim_of, register_claim
from core.claims.run import CELLS, ClaimConfig, create, find_group, load_cells, work
from core.claims.shipped import shipped
from core.claims.sources import VASWANI
from core.entries import ConfigError, Param
from core.runs import worker


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


def after(count):
    left = iter([False] * (count - 1))
    return lambda: next(left, True)


def test_runs_of_a_group_share_the_cells(tiny, tmp_path):
    group = create(ClaimConfig("tiny", {"seeds": 3}), 2, tmp_path)
    assert len(group.runs) == 2 and find_group(group.id, tmp_path).runs == group.runs
    assert find_group(group.runs[1].id, tmp_path) is None and find_group("../x", tmp_path) is None
    for run in group.runs:
        assert worker.work(run.path) == "finished"
    results = group.results()
    assert (
        len(results.cells) == 6
        and results.complete(("a", "b")).seeds == (0, 1, 2)
        and not group.live
    )
    assert results.values("b", "m") == [1.0, 3.0, 5.0]


def test_a_timed_claim_has_one_worker(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("core.claims.catalogue.CLAIMS", [Claim(**{**vars(TINY), "timed": True})])
    assert len(create(ClaimConfig("tiny", {}), 2, tmp_path).runs) == 1


def test_a_stopped_run_continues_where_it_was(tiny, tmp_path):
    run = create(ClaimConfig("tiny", {"seeds": 3}), 1, tmp_path).runs[0]
    assert work(run, after(3)) == ("stopped", "Stopped after 2 of 6 parts, which are saved.")
    with (run.path / CELLS).open("a", encoding="utf-8") as file:
        file.write('{"condition": "a", "se')  # killed while it wrote
    (run.path / CELLS).write_text(
        (run.path / CELLS).read_text(encoding="utf-8") + "\n", encoding="utf-8"
    )
    before = len(load_cells(run))
    assert work(run, lambda: False)[0] == "finished"
    cells = load_cells(run)
    assert len(cells) - before == 4 and len({(cell.condition, cell.seed) for cell in cells}) == 6


def test_bad_configs_are_refused_in_words(tiny):
    for data, words in [
        (3, "is an object of its fields"),
        ({"claim": "none", "settings": {}}, "expected one of"),
        ({"claim": "tiny", "settings": {"slope": 99}}, "expected 0 to 9"),
    ]:
        with pytest.raises(ConfigError, match=words):
            ClaimConfig.from_json(data)
    with pytest.raises(ConfigError, match="already"):
        register_claim(CLAIMS[0])
    assert claim_of("tiny") is TINY


def test_a_shell_measures_keeps_and_judges(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "CLAIMS", [TINY])
    monkeypatch.setattr(
        command, "measure", lambda group: [worker.work(run.path) for run in group.runs]
    )
    assert command.main(["run", "tiny", "--set", "seeds=6", "--to", str(tmp_path)]) == 0
    assert "Verdict: holds, over 6 seeds." in capsys.readouterr().out
    result = shipped(TINY, tmp_path)
    assert result is not None and result.command.endswith("run tiny --set seeds=6 --ship")
    assert command.main(["verdict", "tiny", "--of", str(tmp_path)]) == 0
    assert (
        command.main(["run", "tiny", "--seeds", "7", "8", "3", "4", "5", "--to", str(tmp_path)])
        == 0
    )
    again = shipped(TINY, tmp_path)
    assert again.results.seeds == (3, 4, 5, 7, 8) and again.command.endswith(
        "run tiny --seeds 3 4 5 7 8 --ship"
    )
    assert again.settings["seeds"] == 5 and command.config_of(TINY, [], [6]).settings["seeds"] == 6
    assert command.main(["run", "tiny", "--seeds", "1", "1"]) == 1
    assert "difference = 1 [1, 1]" in capsys.readouterr().out
    assert command.main(["list"]) == 0 and "not measured" in capsys.readouterr().out
    assert command.main(["run", "tiny", "--set", "slope=much"]) == 1
    assert "slope = 'much'; expected a whole number" in capsys.readouterr().err
