"""Any model that Look inside opens goes on learning, from page and shell; one that cannot is refused in a sentence."""

import shutil
from pathlib import Path

import pytest

from core.entries import ConfigError
from core.pretrained import PretrainedError, hub
from core.pretrained.finetune import (
    LAB,
    MINILM,
    FineTuneConfig,
    check_model,
    name_of,
    resolve,
    usual,
)
from core.pretrained.finetune_run import config_of, create
from core.pretrained.load import LAB_MODELS
from core.runs.runs import list_runs
from tests.tiny_models import save

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def stored(encoder, monkeypatch, tmp_path) -> Path:
    """The tiny encoder as a model of the hub that was fetched before."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    folder = hub.model_folder("someone/tiny", COMMIT)
    shutil.copytree(encoder, folder)
    return folder


def test_a_shell_names_a_model_as_look_inside_does(stored, encoder, monkeypatch):
    assert resolve("all-MiniLM-L6-v2") == resolve("minilm") == MINILM
    assert resolve("numbers") == resolve("lab:numbers") == f"{LAB}numbers"
    assert resolve(str(encoder)) == str(encoder)
    assert resolve("someone/tiny") == resolve(f"someone/tiny@{COMMIT}") == str(stored)
    assert name_of(str(stored)) == "someone/tiny"
    for name, words in (
        ("/nowhere/at/all", "There is no folder"),
        ("no such name", "not the name of a model"),
    ):
        with pytest.raises(PretrainedError, match=words):
            resolve(name)


@pytest.mark.parametrize(("model", "task", "words"), [
    (f"{LAB}digits", "classify", "digits is of the family vit, which cannot learn labels of texts. Labels need"),
    (f"{LAB}numbers", "classify", "family marian, which cannot learn labels"),
    (f"{LAB}induction", "pairs", "family llama, which cannot learn pairs of texts. Pairs need an encoder–decoder"),
    (MINILM, "pairs", "family bert, which cannot learn pairs"),
    ("/nowhere", "classify", "no model at /nowhere"),
])  # fmt: skip
def test_a_model_that_cannot_learn_the_rows_is_refused_in_a_sentence(model, task, words, tmp_path):
    with pytest.raises(PretrainedError, match=words):
        create(usual(task, model=model), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_that_knows_few_of_the_words_is_refused(encoder, tmp_path):
    with pytest.raises(
        ConfigError, match=r"does not know \d\d% of the words in these rows. Labels need"
    ):
        create(usual("classify", model=str(encoder)), tmp_path)


def test_what_is_missing_is_said(encoder, colours, tmp_path, monkeypatch):
    bare = tmp_path / "bare"
    shutil.copytree(encoder, bare, ignore=shutil.ignore_patterns("token*"))
    with pytest.raises(PretrainedError, match="bare has no readable tokenizer"):
        create(FineTuneConfig("classify", colours, str(bare)), tmp_path)
    monkeypatch.setattr(hub, "free_memory", lambda: 1000)
    with pytest.raises(PretrainedError, match="of memory for training, and 1 kB is free"):
        check_model(str(encoder), "classify")


def test_a_text_model_of_the_hub_is_chosen_on_the_page(stored, colours, page):
    app = page("someone/tiny", **{"fine_tune:data:classify": colours})
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert config_of(run).model == str(stored) and not app.exception


def test_the_model_carried_from_another_page_is_the_one_that_learns(colours, tmp_path, page):
    folder = save("distilbert", tmp_path / "mine")
    app = page(str(folder))
    assert app.selectbox(key="inside:model").value == str(folder)
    app.switch_page("../pages/pretrained.py").run()
    app.switch_page("../pages/fine_tune.py").run()
    assert app.selectbox(key="inside:model").value == str(folder) and not app.exception
    app.button(key="fine_tune:start").click().run()
    assert config_of(list_runs()[0]).model == str(folder)


def test_a_page_refuses_beside_a_model_that_fits(page):
    app = page("digits")
    assert (
        "cannot learn labels of texts" in output(app) and app.button(key="fine_tune:start").disabled
    )
    app.button(key="fine_tune:usual").click().run()
    assert app.selectbox(key="inside:model").value == "all-MiniLM-L6-v2"
    assert not app.button(key="fine_tune:start").disabled
    app.selectbox(key="fine_tune:task").set_value("pairs").run()
    assert "which cannot learn pairs" in output(app), "a picked model stays"
    app.button(key="fine_tune:usual").click().run()
    assert app.selectbox(key="inside:model").value == "numbers" and not app.exception


def test_each_task_begins_with_its_usual_model(page):
    app = page()
    assert app.selectbox(key="inside:model").value == "all-MiniLM-L6-v2"
    app.selectbox(key="fine_tune:task").set_value("pairs").run()
    assert app.selectbox(key="inside:model").value == "numbers"
    assert not app.button(key="fine_tune:start").disabled and not app.exception
    app.selectbox(key="inside:model").set_value("Another model…").run()
    assert app.text_input(key="inside:typed") and app.button(key="fine_tune:start").disabled
    assert "Your own arrays…" not in app.selectbox(key="inside:model").options


def output(app) -> str:
    assert not app.exception, app.exception
    return "\n".join(str(element.value) for element in app.markdown).replace("\\", "")


def test_the_labs_own_models_are_where_they_are_looked_for():
    assert {path.parent.name for path in LAB_MODELS.glob("*/config.json")} >= {
        "digits",
        "numbers",
        "induction",
    }
