"""*As Python*: calls that a page made are written once, by names, and run again to the same numbers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from core.attention import Choice
from core.studies import normalizers as study
from dashboard.export.recorded import _script
from dashboard.server.cache import cached, computed
from dashboard.server.calls import NotRecorded, recorded_calls, recording

SCORES = (1.0, None, -0.5)


class Weights(NamedTuple):
    """What a recorded call may make: a number, a flag and ids beside an array."""

    ids: tuple[int, ...]
    masked: bool
    values: np.ndarray | float
    largest: float


def weights() -> Weights:
    """Weights."""
    return Weights((3, 1), True, np.ones((2, 2)), 1.0)


def script_of(draw: Mapping[str, str] = {}, **results: Any) -> Any:
    return _script(recorded_calls()[::-1], results, draw, (), {})


def rows_of(*keys: str, scores: study.Scores = SCORES) -> list[study.RowWeights]:
    return [cached(study.normalize_row, Choice(key), scores, 1.0) for key in keys]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (lambda: rows_of("softmax", "hard"), "rows = [normalize_row(choice, scores=(1.0, None"),
        (lambda: rows_of("softmax"), "rows = normalize_row(Choice.of('softmax')"),
        (lambda: rows_of("softmax") + rows_of("hard", scores=(2.0,)), "rows_2 = normalize_row("),
    ],
)
def test_a_list_of_results_runs_to_the_same_numbers(rows, line):
    with recording():
        made = rows()
        script, names = script_of(rows=made), dict[str, Any]()
    exec(script.text(""), names)  # noqa: S102
    assert line in script.text("")
    for again, one in zip(names["rows"], made, strict=True):
        np.testing.assert_allclose(again.weights, one.weights)
    assert {name: eval(name, names) for name in script.results if name.endswith("zeros")} == {  # noqa: S307
        f"rows[{at}].zeros": one.zeros for at, one in enumerate(made)
    }


def test_code_of_a_picture_that_is_not_drawn_is_left_out():
    with recording():
        script = script_of({"page:chart": "chart()"}, rows=rows_of("softmax"))
    assert not any(cell.draw or cell.picture for cell in script.cells)


def test_outside_of_a_page_nothing_is_recorded():
    rows_of("softmax")
    assert recorded_calls() == ()


def test_a_cell_prints_numbers_without_flags_and_ids():
    with recording():
        code = script_of(one=computed(weights)).text("")
    assert "print('one', one.values.shape, one.largest)" in code


def counted(rows: Any) -> np.ndarray:
    """How many rows."""
    return np.array([float(len(rows))])


@pytest.mark.parametrize(
    "row", [np.ones(2), [np.ones(2)], {"row": np.ones(2)}, object(), Weights((1,), True, 1.0, 2.0)]
)
def test_what_no_call_made_is_refused(row):
    with recording():
        count = computed(counted, [row])
        with pytest.raises(NotRecorded, match="^masks: no recorded call made ro"):
            _script(recorded_calls(), {"count": count}, {}, (), {}, "masks")


def test_results_in_a_list_are_written_by_their_names():
    with recording():
        made = rows_of("softmax", "hard")
        count = computed(counted, [*made])
        code = script_of(rows=made, count=count).text("")
    assert "count = counted([rows[0], rows[1]])" in code
