"""Encoders, decoders and encoder–decoders of the usual families go on learning and come out as folders of their own."""

import numpy as np
import pytest

from core.pretrained import ModelInputs, load_folder, read
from core.pretrained.finetune import FineTuneConfig
from core.pretrained.finetune_run import about, create, fine_tune, result, trace_of
from tests.tiny_models import SENTENCE, save

LABELS = "text,label\n" + "\n".join(
    f"the {a} {b} {c},{a}"
    for a in ("small", "green")
    for b in ("dog", "street", "boat")
    for c in ("was late", "is tired")
)
PAIRS = "source,target\n" + "\n".join(
    f"the {a} {b},{b} {a}"
    for a in ("small", "green", "late", "tired")
    for b in ("dog", "street", "boat")
)


@pytest.mark.parametrize(
    "family",
    ["distilbert", "roberta", "albert", "deberta_v2", "longformer", "modernbert", "gpt2", "qwen3"],
)
def test_labels(family, tmp_path):
    folder = save(family, tmp_path / family)
    config = FineTuneConfig("classify", LABELS, str(folder), watch=SENTENCE, epochs=1, batch_size=6)
    run = create(config, tmp_path)
    state, words = fine_tune(run, lambda: False)
    assert state == "finished", words
    tuned, last = load_folder(result(run), "tuned"), run.records()[-1]
    assert tuned.head == "classify" and tuned.model.config.id2label == {0: "green", 1: "small"}
    _same(run, last.step, read(tuned, SENTENCE))


@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_pairs(family, tmp_path):
    folder = save(family, tmp_path / family)
    run = create(
        FineTuneConfig("pairs", PAIRS, str(folder), watch="the small dog", epochs=2, batch_size=4),
        tmp_path,
    )
    state, words = fine_tune(run, lambda: False)
    assert state == "finished", words
    records = run.records()
    assert records[-1].loss < records[0].loss
    tuned = load_folder(result(run), "tuned")
    assert tuned.head == "seq2seq"
    _same(run, records[-1].step, read(tuned, ModelInputs("the small dog", target="dog small")))


def _same(run, step, reading) -> None:
    """The last frame is what the kept model does."""
    saved = trace_of(run.frame(step), 0, about(run)["sentences"][0], "run")
    assert [(item.kind, item.layer, item.queries) for item in saved.maps] == [
        (item.kind, item.layer, item.queries) for item in reading.trace.maps
    ]
    for item, real in zip(saved.maps, reading.trace.maps, strict=True):
        np.testing.assert_allclose(item.weights, real.weights, atol=1e-3)  # half floats
