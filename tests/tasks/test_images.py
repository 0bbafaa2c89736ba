"""Digits in patches and pictures of numbers: real pixels, a split that shares none of them, words from the right digit."""

import numpy as np
import pytest
import torch

from core.tasks import BOS, EOS, PAD, TaskConfig, make_task
from core.tasks.pictures import Pictures, cut, deciding, digits
from core.tasks.translation import number_words
from core.training import recommended, train
from tests.cases import each, instance


def whole(example, grid):
    """The picture that patches were cut from, put together another way than `cut`."""
    side = int(len(example.source[0]) ** 0.5)
    rows = [
        np.hstack(
            [np.array(example.source[r * grid[1] + c]).reshape(side, side) for c in range(grid[1])]
        )
        for r in range(grid[0])
    ]
    return np.vstack(rows)


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    pictures, labels = digits()
    theirs = load_digits()
    assert (
        np.array_equal(pictures.numpy() * 16, theirs.images)
        and labels.tolist() == theirs.target.tolist()
    )


def test_patches_are_cut_row_by_row():
    picture = torch.arange(32.0).reshape(1, 4, 8)
    assert cut(picture, 2).shape == (1, 8, 4)
    assert cut(picture, 2)[0, 5].tolist() == [18, 19, 26, 27], "second row of patches, second patch"
    assert torch.equal(cut(picture, 4)[0, 1], picture[0, :, 4:].flatten())


@each("patch", ["1", "2", "4"])
def test_a_digit_is_held_out_whole_and_comes_back_from_its_patches(patch):
    task = make_task(TaskConfig.of("digits", patch=patch))
    held, trained = task.held_out(10_000), task.trained()
    assert len(held) + len(trained) == 1797 and len(held) == 359
    assert not {e.source for e in held} & {e.source for e in trained}
    pictures, labels = digits()
    known = {
        (row.tobytes(), int(label)) for row, label in zip(pictures.numpy(), labels, strict=True)
    }
    for example in held[:20]:
        picture = whole(example, task.shape.grid).astype(np.float32)
        assert (picture.tobytes(), int(example.target[0])) in known
    batch = task.batch(12, torch.Generator().manual_seed(0))
    assert batch.source.shape == (12, task.shape.longest, task.shape.source)
    assert {tuple(map(tuple, row)) for row in batch.source.tolist()} <= {e.source for e in trained}
    assert task.display_tokens(held[0])[0][-1] == f"{8 // int(patch)},{8 // int(patch)}"


@each(
    ("language", "number", "places"),
    [
        ("en", 321, (0, -1, -1, 1, 2)),
        ("de", 321, (0, -1, 2, -1, 1)),
        ("fr", 321, (0, -1, 1, 2, 2)),
        ("es", 333, (0, 1, -1, 2)),
        ("de", 313, (0, -1, 2, 1)),
        ("en", 12, (-1,)),
        ("en", 4321, (0, -1, 1, -1, -1, 2, 3)),
    ],
)
def test_which_digit_decides_a_word(language, number, places):
    assert len(number_words(language)[number]) == len(places)
    assert deciding(language, number) == places


@each("params", [dict(), dict(language="en", digits=2, patch="8"), dict(language="es", patch="2")])
def test_a_picture_shows_the_number_that_its_words_say(params):
    task = instance(make_task(TaskConfig.of("pictures", **params)), Pictures)
    words, (pictures, labels) = number_words(task.language), digits()
    label = {row.tobytes(): int(digit) for row, digit in zip(pictures.numpy(), labels, strict=True)}
    batch = task.batch(40, torch.Generator().manual_seed(0))
    assert (batch.target_in[:, 0] == BOS).all() and ((batch.target_out == EOS).sum(1) == 1).all()
    assert torch.equal(batch.target_in[:, 1:] != PAD, batch.target_out[:, 1:] != PAD)
    sides: dict[bool, set[bytes]] = {False: set(), True: set()}
    trained = [
        type(e)(tuple(map(tuple, row.tolist())), tuple(task.target_vocab.decode(ids)))
        for e, row, ids in zip(
            task.held_out(40), batch.source, batch.target_out.tolist(), strict=True
        )
    ]
    numbers: dict[bool, set[int]] = {False: set(), True: set()}
    for side, examples in ((False, trained), (True, task.held_out(40))):
        for example in examples:
            picture = whole(example, task.shape.grid).astype(np.float32)
            parts = [
                np.ascontiguousarray(part).tobytes()
                for part in np.split(picture, task.count, axis=1)
            ]
            number = int("".join(str(label[part]) for part in parts))
            assert words[number] == example.target
            sides[side].update(parts)
            numbers[side].add(number)
    assert not sides[False] & sides[True] and not numbers[False] & numbers[True]


def test_a_word_may_look_at_every_patch_of_its_digit():
    task = instance(make_task(TaskConfig.of("pictures", language="en")), Pictures)
    example = next(e for e in task.held_out(200) if deciding("en", task.number[e.target])[0] == 0)
    assert task.places(example)[:2] == ((0, 1, 6, 7), ()), "the first of three digits, and hundred"


@each(
    ("config", "kind", "steps"),
    [
        (TaskConfig.of("digits", patch="4"), "classifier", 60),
        (TaskConfig.of("pictures", language="en", digits=2, patch="8"), "transformer", 60),
    ],
)
def test_pictures_are_learned(config, kind, steps):
    task = make_task(config)
    records = list(
        train(
            recommended(
                task, kind, steps=steps, record_every=steps, held_out=40, learning_rate=5e-3
            )
        )
    )
    assert records[1].loss < 0.6 * records[0].loss
    assert records[-1].examples[0].target == task.held_out(1)[0].target
    if kind == "transformer":
        assert records[-1].expected is not None
        assert records[-1].maps["0:cross"].shape[-1] == 2 and records[-1].even == pytest.approx(0.5)
