"""A run of a table that is older than the choice of its columns: it makes the table that its weights belong to."""

import json

import pytest

from core.runs.runs import Run, create_run
from core.runs.worker import _train
from core.tasks import TaskConfig, make_task
from core.tasks.tabular import TableTask
from core.training import recommended
from dashboard.runtime.run_data import load_run, summarize
from tests.cases import instance

YOUNGER = ("columns", "dates", "decimal")
ROWS = [
    (
        f"{100 + 7 * i}",
        f"{i % 9},5",
        f"{1 + i % 5:02}.03.2020",
        "DE",
        f"{i}",
        "yes" if i % 2 else "no",
    )
    for i in range(40)
]
DATA = "\n".join(["id;price;day;country;row;answer", *(";".join(row) for row in ROWS)])


def older(data: str) -> TaskConfig:
    """The config of a run.json that names none of the younger parameters."""
    plain = TaskConfig.of("own_table", data=data).to_json()
    return TaskConfig.from_json(
        {
            **plain,
            "params": {
                name: value for name, value in plain["params"].items() if name not in YOUNGER
            },
        }
    )


def columns(config: TaskConfig) -> list[tuple[str, int]]:
    return [
        (column.name, len(column.categories))
        for column in instance(make_task(config), TableTask).table.columns
    ]


def test_identifiers_and_dates_stay_as_they_were_then():
    """Values of the code of then: whole numbers are left out only where they count, dates are categories."""
    assert columns(older(DATA)) == [("id", 0), ("price", 9), ("day", 5)], (
        "a date's points count as decimal ones"
    )
    assert instance(make_task(older(DATA)), TableTask).table.rows[3] == (121.0, 4.0, 4.0)
    assert columns(TaskConfig.of("own_table", data=DATA)) == [("price", 0)]


def test_one_decimal_sign_is_read_in_all_columns():
    """Between semicolons with a point nowhere it is a comma, else a point; nothing stood between thousands."""
    plain = DATA.replace(".03.2020", ".")
    assert columns(older(plain.replace(".;", ";"))) == [("id", 0), ("price", 0), ("day", 0)]
    spaced = plain.replace(".;", ";").replace(";DE;", ";1 000;", 9).replace(";DE;", ";2 000;")
    assert columns(older(spaced)) == [("id", 0), ("price", 0), ("day", 0), ("country", 2)]


@pytest.fixture
def run(tmp_path) -> Run:
    """A run whose checkpoint has a weight for the column of identifiers, and whose run.json is of then."""
    config = recommended(
        make_task(older(DATA)), steps=2, batch_size=8, record_every=1, held_out=8, watch=1
    )
    run = create_run(config, path=tmp_path / "run")
    _train(run, lambda: False, lambda record: None)
    metadata = run.metadata()
    for name in YOUNGER:
        del metadata["config"]["task"]["params"][name]
    (run.path / "run.json").write_text(json.dumps(metadata), encoding="utf-8")
    return Run(run.path)


def test_its_checkpoint_fits_and_it_goes_on(run):
    shown = load_run(run)
    assert not shown.trouble and [name for name, _ in columns(shown.required_config.task)] == [
        "id",
        "price",
        "day",
    ]
    assert summarize(run).config is not None
    config = run.config()
    run.update_metadata(config={**config.to_json(), "steps": 4})
    state, words = _train(run, lambda: False, lambda record: None)
    assert state == "finished" and "4 steps" in words
