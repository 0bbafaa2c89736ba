"""Any model that Look inside opens goes on learning, from page and shell; one that cannot is refused in a sentence."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertForTokenClassification

from core.entries import ConfigError
from core.pretrained import (
    ModelInputs,
    PretrainedError,
    answer,
    hub,
    load_folder,
)
from core.pretrained.finetune import (
    LAB,
    MINILM,
    FineTuneConfig,
    build,
    check_model,
    name_of,
    own_rows,
    parse,
    resolve,
    usual,
)
from core.pretrained.finetune_run import about, config_of, create, fine_tune, result
from core.runs.runs import Run, list_runs
from tests.cases import instance
from tests.pages.app import captions, html_text, page_text
from tests.tiny_models import save
from tests.training.small import run_command

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
    wrong = {"/nowhere/at/all": "There is no folder", "no such name": "not the name of a model"}
    for name, words in wrong.items():
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


def test_what_is_missing_is_said(encoder, colours, tmp_path, monkeypatch):
    words = r"does not know \d\d% of the words in these rows. Labels need"
    with pytest.raises(ConfigError, match=words):
        create(usual("classify", model=str(encoder)), tmp_path)
    bare = tmp_path / "bare"
    shutil.copytree(encoder, bare, ignore=shutil.ignore_patterns("token*"))
    with pytest.raises(PretrainedError, match="bare has no readable tokenizer"):
        create(FineTuneConfig("classify", colours, str(bare)), tmp_path)
    monkeypatch.setattr("core.pretrained.finetune.free_bytes", lambda: 1000)
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


def test_each_task_begins_with_its_usual_model_and_refuses_another_beside_it(page):
    app = page("digits")
    assert "cannot learn labels of texts" in page_text(app)
    assert app.button(key="fine_tune:start").disabled
    app.button(key="fine_tune:usual").click().run()
    assert app.selectbox(key="inside:model").value == "all-MiniLM-L6-v2"
    assert not app.button(key="fine_tune:start").disabled
    app.selectbox(key="fine_tune:task").set_value("pairs").run()
    assert "which cannot learn pairs" in page_text(app), "a picked model stays"
    app = page()
    assert app.selectbox(key="inside:model").value == "all-MiniLM-L6-v2"
    app.selectbox(key="fine_tune:task").set_value("pairs").run()
    assert app.selectbox(key="inside:model").value == "numbers"
    assert not app.button(key="fine_tune:start").disabled and not app.exception
    app.selectbox(key="inside:model").set_value("Another model…").run()
    assert app.text_input(key="inside:typed") and app.button(key="fine_tune:start").disabled
    assert "Your own arrays…" not in app.selectbox(key="inside:model").options


# Rows of a CSV: what is learned, what is held out, and words with a line number for whatever is wrong.


GOOD = "text,label\n" + "\n".join(f"sentence {i},{'ab'[i % 2]}" for i in range(12))


def test_a_quarter_of_each_label_is_held_out_and_nothing_is_in_both():
    rows = parse("classify", GOOD)
    assert Counter(pair.answer for pair in rows.held_out) == {"a": 1, "b": 1}
    assert Counter(pair.answer for pair in rows.learned) == {"a": 5, "b": 5}
    assert not {pair.text for pair in rows.learned} & {pair.text for pair in rows.held_out}
    assert parse("classify", GOOD, 1).learned != rows.learned
    own = parse("classify", own_rows("classify"))
    every = (*own.learned, *own.held_out)
    assert Counter(pair.answer for pair in every) == dict.fromkeys(own.labels, 30)
    assert (len(own.labels), len({pair.text for pair in every}), own.majority[1]) == (4, 120, 0.25)
    answers = "\n".join(f"{i},{'yes' if i < 9 else 'no'}" for i in range(13))
    assert parse("classify", answers).majority == ("yes", 2 / 3), "that of what is learned"


def test_rows_are_read_as_they_are_meant():
    """Quotation marks hold commas, a header is not needed, a row twice is one, pairs need no label twice."""
    rows = parse("classify", GOOD.removeprefix("text,label\n") + '\n"one, two, three",b')
    assert "one, two, three" in {pair.text for pair in (*rows.learned, *rows.held_out)}
    assert len(rows.learned) + len(rows.held_out) == 13
    rows = parse("classify", GOOD + "\nsentence 3,b\nsentence 3,b")
    assert rows.repeated == 2 and len(rows.learned) + len(rows.held_out) == 12
    rows = parse("pairs", "source,target\n" + "\n".join(f"{i},{i * i}" for i in range(10)))
    assert rows.labels == () and len(rows.held_out) == 2


@pytest.mark.parametrize(("data", "words"), [
    ("", "There is no file yet"),
    ("text,label", "0 different rows"),
    (GOOD + "\n,a", "no text in line 14"),
    (GOOD + "\nnothing,", "no label in line 14"),
    (GOOD + "\nsentence 0,b", "Lines 2 and 14 have the same text"),
    (GOOD + "\nlonely,c", "only once in the file: line 14"),
    (GOOD + "\na,b,c", "line 14 has 3"),
    (GOOD + '\n"open,a', "Line 14 opens a quotation mark"),
    (GOOD + "\n" + 1001 * "x" + ",a", "longer than 1,000 characters in line 14"),
    ("a,b,c\n" * 9, "Line 1 has 3 columns"),
    ("\n".join(f"{i},same" for i in range(9)), "Every row has the label 'same'"),
    ("\n".join(f"{i},{i // 2}" for i in range(99)), "at most 20 are allowed"),
    ("\n".join(f"{i},{i % 2}" for i in range(3_001)), "at most 3,000 are allowed"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(data, words):
    with pytest.raises(ConfigError, match=words):
        parse("classify", data)


# A classifier keeps the order of its own labels where the rows have the same ones; any other model gets a new head.


@pytest.fixture(scope="session")
def classifier(encoder, colours, tmp_path_factory) -> Path:
    """A model that is right on every row, its labels not in the order of the alphabet."""
    home = tmp_path_factory.mktemp("classifier")
    config = FineTuneConfig(
        "classify", colours, str(encoder), epochs=12, batch_size=8, learning_rate=1e-2
    )
    run = create(config, home)
    assert fine_tune(run, lambda: False)[0] == "finished"
    folder = instance(result(run), Path)
    assert run.records()[-1].sequence_accuracy == 1.0
    weights = load_file(folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own |= {"id2label": {"0": "redy", "1": "bluey"}, "label2id": {"redy": 0, "bluey": 1}}
    (folder / "config.json").write_text(json.dumps(own), encoding="utf-8")
    return folder


def head_of(config: FineTuneConfig) -> torch.Tensor:
    return build(config, parse("classify", config.data)).model.classifier.weight.detach()


def test_a_classifier_of_the_same_labels_is_as_right_before_training_as_it_was(
    classifier, colours, tmp_path
):
    run = create(
        FineTuneConfig("classify", colours, str(classifier), layers=0, epochs=1, batch_size=8),
        tmp_path,
    )
    fine_tune(run, lambda: False)
    first, last = run.records()[0], run.records()[-1]
    assert first.sequence_accuracy == last.sequence_accuracy == last.balanced == 1.0
    assert (about(run)["labels"], about(run)["new_head"]) == (["redy", "bluey"], False)
    assert last.confusion == ((5, 0), (0, 5))
    for folder in (classifier, result(run)):
        model = load_folder(folder, "model")
        assert model.model.config.id2label == {0: "redy", 1: "bluey"}
        shares = [answer(model, ModelInputs(f"the sun is {one}")) for one in ("red", "blue")]
        assert [int(one.probabilities.argmax()) for one in shares] == [0, 1]


def test_the_shell_keeps_the_labels_of_a_classifier_too_and_says_what_is_wrong_with_a_file(
    classifier, colours, tmp_path, worker_here, capsys
):
    rows, run = tmp_path / "rows.csv", Run(tmp_path / "run")
    rows.write_text(colours, encoding="utf-8")
    command = ["core.pretrained.finetune_run", "classify", "--data", str(rows)]
    assert run_command(*command, str(run.path), "--model", str(classifier)) == 0
    printed = capsys.readouterr().out
    assert "Finished after 24 steps" in printed and "right" in printed and "Trained on " in printed
    assert run.records()[0].sequence_accuracy == run.records()[-1].sequence_accuracy == 1.0
    assert load_folder(result(run), "tuned").model.config.id2label == {0: "redy", 1: "bluey"}
    rows.write_text(colours + "\nthe sky is,", encoding="utf-8")
    assert run_command(*command, str(tmp_path / "other")) == 1
    assert "There is no label in line 46" in capsys.readouterr().err


def test_other_labels_get_a_new_head_though_their_count_is_the_same(classifier, colours):
    config = FineTuneConfig("classify", colours.replace("bluey", "azure"), str(classifier))
    learner = build(config, parse("classify", config.data))
    assert learner.new_head and learner.labels == ("azure", "redy")
    assert learner.model.config.id2label == {0: "azure", 1: "redy"}
    own = load_file(classifier / "model.safetensors")["classifier.weight"]
    head = learner.model.classifier.weight.detach()
    assert not torch.isclose(head, own).any() and float(head.std()) == pytest.approx(0.02, rel=0.5)
    assert not torch.equal(head_of(replace(config, seed=1)), head), "the seed draws it"
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(
        learner.model.get_parameter(name), load_file(classifier / "model.safetensors")[name]
    )


def test_a_head_of_another_task_is_not_taken_though_name_shape_and_labels_match(
    encoder, colours, tmp_path
):
    other = BertForTokenClassification.from_pretrained(
        encoder, num_labels=2, id2label={0: "redy", 1: "bluey"}
    )
    other.save_pretrained(tmp_path)
    for file in encoder.glob("*token*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = FineTuneConfig("classify", colours, str(tmp_path))
    assert not torch.isclose(head_of(config), other.classifier.weight.detach()).any()
    assert build(config, parse("classify", colours)).labels == ("bluey", "redy")


def test_a_classifier_of_several_labels_at_once_learns_one_label_a_row(
    classifier, colours, tmp_path
):
    """Its own loss would want a row of 0 and 1 for each text."""
    folder = shutil.copytree(classifier, tmp_path / "several")
    own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(own), encoding="utf-8")
    config = FineTuneConfig("classify", colours, str(folder), epochs=1, batch_size=32)
    run = create(config, tmp_path)
    state, words = fine_tune(run, lambda: False)
    assert state == "finished" and run.records()[-1].sequence_accuracy == 1.0, words


def test_the_page_tells_and_keeps_what_the_classifier_knew(classifier, colours, tmp_path, page):
    app = page(
        str(classifier), **{"fine_tune:data:classify": colours, "fine_tune:classify:epochs": 1}
    )
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert (config_of(run).model, fine_tune(run, lambda: False)[0]) == (str(classifier), "finished")
    run.set_status("finished", "Finished.")
    app.run()
    text, notes = html_text(app), captions(app)
    assert "before training it was 100\u00a0%" in text
    matrix = text.partition('aria-label="Confusion matrix"')[2]
    assert -1 < matrix.index("redy") < matrix.index("bluey"), "the model's own order"
    assert "its own head has the same labels" in notes
