"""Repeated passages: lines that say a passage again, tell each next word, and are trained as any language model."""

import pytest
import torch

from core.entries import ConfigError
from core.models import ModelConfig, Shape, build_model
from core.tasks import BOS, PAD, UNK, Example, TaskConfig, make_task
from core.tasks.text import COMMON
from core.training import train
from core.training.config import recommended
from tests.cases import each


@pytest.fixture(scope="module")
def task():
    return make_task(TaskConfig.of("repeats", length=60, passage=12, gap=6))


def turn(words):
    """The step after which most of a line's words come again, and the share that does."""
    shares = {
        step: sum(a == b for a, b in zip(words, words[step:], strict=False)) / (len(words) - step)
        for step in range(4, 19)
    }  # 4 to 12 words of a passage, 0 to 6 between
    return max(shares.items(), key=lambda item: item[1])


def test_a_line_says_its_passage_again(task):
    batch = task.batch(1000, torch.Generator().manual_seed(1))
    assert batch.source.shape == batch.target_out.shape == (1000, 60)
    assert (batch.source[:, 0] == BOS).all()
    assert batch.target_in is None
    assert torch.equal(batch.source[:, 1:], batch.target_out[:, :-1])
    positions = [turn(row.tolist()) for row in batch.source[:, 1:]]
    assert min(share for _, share in positions) > 0.25, (
        "of the shortest passages with the most words between: 4 of 10"
    )
    assert {step for step, _ in positions} == set(range(4, 19)), (
        "passages and what stands between them vary"
    )
    assert any(share == 1 for _, share in positions), (
        "with nothing between, all of a line comes again"
    )


def test_held_out_lines_are_never_trained_on_and_depend_on_no_seed(task):
    held = {example.source for example in task.held_out(50)}
    batch = task.batch(2000, torch.Generator().manual_seed(0))
    assert not held & {
        tuple(task.source_vocab.tokens[i] for i in row) for row in batch.source.tolist()
    }
    again = make_task(TaskConfig.of("repeats", length=60, passage=12, gap=6))
    assert {example.source for example in again.held_out(50)} == held


def test_where_each_word_may_look(task):
    line = ("<bos>", "the", "cat", "sat", "the", "cat", "ran", "the")
    places = task.places(Example(line[:-1], line[1:]))
    assert places == ((), (), (), (), (2,), (), ())
    twice = tuple("<bos> a b a b a".split())
    assert task.places(Example(twice[:-1], twice[1:])) == ((), (), (), (2,), (3,))


def test_a_typed_sentence_is_read_word_by_word(task):
    example = task.example("The cat sat. THE cat")
    assert example.source == ("<bos>", "the", "cat", "sat", ".", "the", "cat")
    batch = task.collate([example])
    assert UNK not in batch.source
    assert batch.target_out[0].tolist() == [*batch.source[0, 1:].tolist(), PAD]
    with pytest.raises(ValueError, match="at least one"):
        task.collate([])


def test_the_commonest_words_come_most(task):
    counts = torch.bincount(
        task.batch(500, torch.Generator().manual_seed(2)).target_out.flatten(), minlength=254
    )
    often = counts[task.source_vocab.encode(COMMON)].float()
    assert len(COMMON) == len(set(COMMON)) == 250
    assert often[:20].mean() > 3 * often[-20:].mean() > 0


@each("params", [{"length": 32, "passage": 16, "gap": 1}])
def test_a_line_without_room_is_refused(params):
    with pytest.raises(ConfigError, match="take length ≥ 34"):
        TaskConfig.of("repeats", **params)


def test_it_is_trained_as_it_is_recommended():
    task = make_task(TaskConfig.of("repeats", length=24, passage=6, gap=2))
    records = list(train(recommended(task, steps=24, warmup=0, record_every=12, held_out=8)))
    assert records[-1].loss < 0.97 * records[0].loss
    assert records[-1].expected is not None
    assert 0 < records[-1].even < 0.5


def test_a_model_without_an_output_bias_has_that_many_numbers_less():
    of = lambda flag, kind: build_model(  # noqa: E731
        ModelConfig.transformer(8, 2, kind=kind, output_bias=flag),
        Shape(9, 9, 5, one_vocabulary=True),
    )
    for kind in ("decoder", "transformer"):
        with_bias, without = of(True, kind), of(False, kind)
        assert "output.bias" not in dict(without.named_parameters())
        assert (
            sum(p.numel() for p in with_bias.parameters())
            - sum(p.numel() for p in without.parameters())
            == 9
        )


@each(
    "data",
    [
        ModelConfig.recurrent(8).to_json(),
        ModelConfig.transformer(8, 2, kind="classifier").to_json(),
    ],
)
def test_other_models_do_not_read_it(data):
    with pytest.raises(ConfigError, match="does not read output_bias"):
        ModelConfig.from_json(data | {"output_bias": False})
