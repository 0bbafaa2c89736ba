"""The notebook of every page, executed by Jupyter, computes the numbers that the page shows."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import numpy as np
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from core.pretrained.foreign import read_maps, record
from dashboard.draw.picture_files import Source
from dashboard.draw.pictures import ChartPicture, MapsPicture
from dashboard.fields.model import example_arrays
from dashboard.navigation import STEPS
from dashboard.ui.export import notebook_file
from dashboard.ui.models import store_upload
from tests.cases import PATIENCE
from tests.close import tolerance
from tests.pages.app import assert_results, assert_script, open_at, pictures_of, script_of
from tests.pretrained.test_foreign import UNET, write

ROOT = Path(__file__).resolve().parents[2]
NOTHING = ("glossary", "lessons", "quiz", "report")  # pages that compute nothing
# What is left, mostly modules, is garbage no more: going through all of it would take half a second a notebook.
RESET = "%reset -f\nimport gc\ngc.freeze()\ndel gc"
SAVE = """import numpy as np
np.savez({path!r}, **{{name: np.asarray(value) for name, value in {{{items}}}.items()}})"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Iterator[KernelManager]:
    """One kernel for all notebooks, in a folder outside of the checkout: importing torch takes seconds.

    Jupyter leaves nothing in the home.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(
            cwd=str(tmp_path_factory.mktemp("elsewhere")),
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        yield manager
        manager.shutdown_kernel(now=True)


def execute(
    text: str, expressions: list[str], kernel: KernelManager, path: Path
) -> dict[str, np.ndarray]:
    """The values of expressions after the notebook has run in names of its own."""
    notebook = nbformat.reads(text, as_version=4)
    items = ", ".join(f"{str(number)!r}: {one}" for number, one in enumerate(expressions))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(RESET))
    notebook.cells.append(nbformat.v4.new_code_cell(SAVE.format(path=str(path), items=items)))
    NotebookClient(notebook, km=kernel, timeout=int(PATIENCE)).execute()
    loaded = np.load(path)
    return {name: loaded[str(number)] for number, name in enumerate(expressions)}


def holds(numbers: np.ndarray, values: np.ndarray) -> bool:
    wanted = np.unique(values[np.isfinite(values)].astype(np.float64))
    there = np.unique(numbers.astype(np.float64))
    return bool((np.abs(wanted[:, None] - there[None]) <= tolerance(wanted)).any(1).all())


@pytest.mark.parametrize("page", [step.key for step in STEPS if step.key not in NOTHING])
def test_the_notebook_of_a_page_computes_what_it_shows(page, kernel, tmp_path):
    app = open_at(page)
    script, pictures = script_of(app), pictures_of(app)
    assert script.results and not re.search(
        r"^\s*(from|import) dashboard", script.text(""), re.MULTILINE
    )
    drawn = [cell for cell in script.cells if cell.draw]
    charts = [key for key, one in pictures.items() if isinstance(one, ChartPicture)]
    assert drawn or not pictures, (
        "no picture of this page has code: give `as_python` "
        f"`draw={{{[*charts, *pictures][0]!r}: …}}`, or a result that holds a map's numbers"
    )
    assert all(cell.picture in pictures for cell in drawn)
    # charts take a process
    still = {key: one for key, one in pictures.items() if not isinstance(one, ChartPicture)}
    text = notebook_file(script, Source("Page", "2026-11-23", {}, {}), still).decode()
    computed = execute(text, list(script.results), kernel, tmp_path / "results.npz")
    assert_results(computed, script)
    for (
        picture
    ) in pictures.values():  # each map that is shown is one of the results, or a part of it
        if isinstance(picture, MapsPicture):
            cells = np.asarray(picture.maps[0].values)
            assert any(
                holds(one, cells) for one in computed.values() if one.dtype.kind in "fiub"
            ), picture.title


def test_a_part_of_a_result_is_written_as_one():
    text = script_of(open_at("inside_weight")).text("")
    assert "attentions = layer_attentions(model, inputs)" in text
    assert "one = break_down_weight(attentions[('self', 3)], head=1, query=" in text
    assert "trace = reading.trace" in text


def test_an_upload_is_read_from_its_file():
    name = store_upload(example_arrays(), "mine.npz", "")
    script = script_of(open_at("pretrained", **{"inside:model": name}))
    text = script.text("")
    assert "file = Path('mine.npz')  # your own file\nreading = read_maps(" in text
    assert "view = view_of(reading, kind='self')" in text and "read(model" not in text


@pytest.mark.parametrize("page", ["pretrained", "evidence", "head_roles"])
def test_a_persons_own_model_is_run_from_its_file(page, tmp_path, monkeypatch):
    path = write(tmp_path, UNET, "mine.py")
    monkeypatch.setattr("dashboard.fields.model.is_local", lambda *_: True)
    monkeypatch.setattr("dashboard.fields.model.allowed_files", {str(path)})
    monkeypatch.chdir(tmp_path)
    sizes = read_maps(record(path), "mine.py").labels
    for size in sizes if page == "pretrained" else sizes[:1]:
        app = open_at(page, **{"inside:model": str(path), "inside:maps": size})
        assert str(tmp_path) not in script_of(app).text("")
        assert_script(app)
