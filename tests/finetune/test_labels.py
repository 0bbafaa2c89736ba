"""A classifier keeps the order of its own labels where the rows have the same ones; any other model gets a new head."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertForTokenClassification

from core.pretrained import ModelInputs, answer, load_folder
from core.pretrained import finetune_run as shell
from core.pretrained.finetune import FineTuneConfig, build, parse
from core.pretrained.finetune_run import about, config_of, create, fine_tune, result
from core.runs.runs import Run, list_runs


@pytest.fixture(scope="session")
def classifier(encoder, colours, tmp_path_factory) -> Path:
    """A model that is right on every row, its labels not in the order of the alphabet."""
    home = tmp_path_factory.mktemp("classifier")
    config = FineTuneConfig(
        "classify", colours, str(encoder), epochs=12, batch_size=8, learning_rate=1e-2
    )
    run = create(config, home)
    assert fine_tune(run, lambda: False)[0] == "finished" and run.records()[-1].exact == 1.0
    folder = result(run)
    assert folder is not None
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


def predicted_label(folder: Path, text: str) -> str:
    model = load_folder(folder, "model")
    return model.model.config.id2label[int(answer(model, ModelInputs(text)).probabilities.argmax())]


def test_a_classifier_of_the_same_labels_is_as_right_before_training_as_it_was(
    classifier, colours, tmp_path
):
    run = create(
        FineTuneConfig("classify", colours, str(classifier), layers=0, epochs=1, batch_size=8),
        tmp_path,
    )
    fine_tune(run, lambda: False)
    first, last = run.records()[0], run.records()[-1]
    assert (first.exact, last.exact, about(run)["new_head"]) == (1.0, 1.0, False)
    assert about(run)["labels"] == ["redy", "bluey"] and last.balanced == 1.0
    assert (
        [sum(row) for row in last.confusion]
        == [last.confusion[0][0], last.confusion[1][1]]
        == [5, 5]
    )
    for folder in (classifier, result(run)):
        assert load_folder(folder, "model").model.config.id2label == {0: "redy", 1: "bluey"}
        assert [predicted_label(folder, f"the sun is {one}") for one in ("red", "blue")] == [
            "redy",
            "bluey",
        ]


def test_the_shell_keeps_the_labels_of_a_classifier_too(classifier, colours, tmp_path, monkeypatch):
    rows = tmp_path / "rows.csv"
    rows.write_text(colours, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["finetune", "classify", str(tmp_path / "run"), "--model", str(classifier),
                                     "--data", str(rows)])  # fmt: skip
    threads = torch.get_num_threads()
    try:
        assert shell.main() == 0
    finally:
        torch.set_num_threads(threads)
    run = Run(tmp_path / "run")
    assert run.records()[0].exact == run.records()[-1].exact == 1.0
    assert load_folder(result(run), "tuned").model.config.id2label == {0: "redy", 1: "bluey"}


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
    folder = tmp_path / "several"
    folder.mkdir()
    for file in classifier.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(own), encoding="utf-8")
    run = create(
        FineTuneConfig("classify", colours, str(folder), epochs=1, batch_size=32), tmp_path
    )
    state, words = fine_tune(run, lambda: False)
    assert state == "finished" and run.records()[-1].exact == 1.0, words


def test_the_page_tells_and_keeps_what_the_classifier_knew(classifier, colours, tmp_path, page):
    app = page(
        str(classifier), **{"fine_tune:data:classify": colours, "fine_tune:classify:epochs": 1}
    )
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert (config_of(run).model, fine_tune(run, lambda: False)[0]) == (str(classifier), "finished")
    run.set_status("finished", "Finished.")
    app.run()
    assert not app.exception
    page_text = " ".join(element.proto.body for element in app.get("html")).replace("\\", "")
    assert (
        "before training it was 100\u00a0%" in page_text
        and 'aria-label="Confusion matrix"' in page_text
    )
    matrix = page_text.partition('aria-label="Confusion matrix"')[2]
    assert -1 < matrix.index("redy") < matrix.index("bluey"), "the matrix has the model's own order"
    assert "its own head has the same labels" in " ".join(caption.value for caption in app.caption)
