"""A person's own pairs: read from TSV or CSV, split by source, and learned like any translation."""

import pytest
import sacrebleu
import torch
from hypothesis import given, settings, strategies as st

from core.entries import ConfigError
from core.models import ModelConfig
from core.tasks import PAD, Example, TaskConfig, make_task
from core.tasks.base import UNK
from core.tasks.metrics import score
from core.tasks.own import OwnPairs, parse_pairs, roman
from core.tasks.reading import MAX_SIGNS
from core.tasks.recipes import MAX_STEPS, for_data
from core.training import prepare, recommended, train
from core.training.evaluate import measure_teacher_forced
from tests.cases import each, instance
from tests.tasks.grammar import sentence_pairs

LINES = [f"number {n}\tno {n}" for n in range(60)]
DATA = "\n".join(LINES)


@each(
    ("data", "header", "count", "first"),
    [
        (DATA, "auto", 60, "number"),
        ("source\ttarget\n" + DATA, "auto", 60, "number"),
        ("number 98\tno 98\n" + DATA, "yes", 60, "number"),
        (DATA.replace("\t", ","), "auto", 60, "number"),
        (DATA.replace("\n", "\tCC-BY\n") + "\tCC-BY", "auto", 60, "number"),
        (DATA + "\n" + LINES[3], "no", 60, "number"),
    ],
)
def test_pairs_are_read_with_and_without_a_header(data, header, count, first):
    pairs = parse_pairs(data, header, "words", seed=0)
    both = (*pairs.trained, *pairs.held_out)
    assert len(both) == len(set(both)) == count and len(pairs.held_out) == 6
    assert {pair.source[0] for pair in both} == {first}
    if "CC-BY" in data:
        assert "The first two of 3 columns are read." in pairs.notes
    if data.endswith(LINES[3]) and header == "no":
        assert "1 pair occurs more than once and counts once." in pairs.notes


@each(
    ("data", "words"),
    [
        ("\n".join(LINES[:9]), "9 different pairs; at least 30 are needed"),
        (DATA + "\n\tonly a target", "Line 61 has an empty source"),
        (DATA + "\nonly a source\t", "Line 61 has an empty target"),
        (DATA + "\n" + "x " * 129 + "\ty", "Line 61 has a source of 129 words; at most 128"),
        ("\n".join(f"same\tno {n}" for n in range(40)), "1 different sources"),
        (DATA + "\nbare", "line 1 has 2 cells, line 61 has 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(data, words):
    with pytest.raises(ConfigError, match=words):
        TaskConfig.of("own_pairs", data=data, unit="words")


def test_no_source_is_on_both_sides_and_the_split_is_the_seeds():
    data = DATA + "\n" + "\n".join(f"number {n}\tanother {n}" for n in range(60))
    for seed in (0, 1):
        task = instance(
            make_task(TaskConfig.of("own_pairs", data=data, unit="words", seed=seed)), OwnPairs
        )
        trained = {pair.source for pair in task.pool}
        assert len(task.held_out(1000)) == 12 and not trained & {
            pair.source for pair in task.held_out(1000)
        }
        batch = task.batch(16, torch.Generator().manual_seed(0))
        sources = map(task.source_vocab.decode, batch.source.tolist())
        targets = map(task.target_vocab.decode, batch.target_out.tolist())
        drawn = [Example(tuple(s), tuple(t)) for s, t in zip(sources, targets, strict=True)]
        assert set(drawn) <= set(task.pool)
        again = task.collate(drawn)
        assert all(
            torch.equal(a, b)
            for a, b in zip(vars(batch).values(), vars(again).values(), strict=True)
        )
    assert "no model can get those right" in task.notes[-1], "each number is one word"


def test_roman_numerals_stand_in_and_are_right():
    values = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
    for number in (4, 9, 14, 49, 1994, 888):
        digits = [values[sign] for sign in roman(number)]
        assert number == sum(
            -a if a < b else a for a, b in zip(digits, [*digits[1:], 0], strict=True)
        )
    task = instance(make_task(TaskConfig.of("own_pairs")), OwnPairs)
    assert len(task.pool) + len(task.held_out(1000)) == 1999
    assert task.example("MMX").source == ("M", "M", "X")


@each("kind", ["recurrent", "transformer", "decoder", "hybrid"])
def test_every_recommended_model_trains_on_them(kind):
    task = make_task(TaskConfig.of("own_pairs"))
    records = list(
        train(recommended(task, kind, steps=12, record_every=12, held_out=20, batch_size=16))
    )
    assert records[1].loss < records[0].loss and records[-1].held_out == 20
    assert records[-1].sequence_accuracy is not None and records[-1].chrf is not None


SPACED = "\n".join(
    f"the {a} dog saw {n} cats .\tder {a} hund sah {n} katzen ."
    for a in "abcdef"
    for n in range(10)
)


@each(
    ("data", "unit", "metrics"),
    [
        (SPACED, "words", ("sequence_accuracy", "bleu")),
        (
            "\n".join(f"{n}\t{roman(n)}" for n in range(1, 60)),
            "characters",
            ("sequence_accuracy", "chrf"),
        ),
        (
            "\n".join(f"{n} May\t2001-05-{n}" for n in range(1, 60)),
            "characters",
            ("sequence_accuracy", "chrf"),
        ),
        (
            "\n".join(f"{n}\tthe number {n}" for n in range(1, 60)),
            "characters",
            ("sequence_accuracy", "bleu", "chrf"),
        ),
    ],
)
def test_words_are_the_tokens_where_both_sides_have_spaces(data, unit, metrics):
    task = instance(make_task(TaskConfig.of("own_pairs", data=data)), OwnPairs)
    assert (task.pairs.unit, task.metrics) == (unit, metrics)
    best = recommended(task)
    assert best.model.kind == ("transformer" if unit == "words" else "recurrent")
    assert best.keep_best and best.patience > 0


def test_twenty_nine_thousand_pairs_fit_and_train():
    data = sentence_pairs(29_000)
    assert 3_000_000 < len(data) <= MAX_SIGNS
    task = instance(make_task(TaskConfig.of("own_pairs", data=data)), OwnPairs)
    assert len(task.pool) == 26_100 and len(task.held_out(10_000)) == 2_900
    small = ModelConfig.transformer(16, num_heads=2, position="sinusoidal")
    records = list(
        train(recommended(task, model=small, steps=3, record_every=3, held_out=20, batch_size=16))
    )
    assert records[1].loss < records[0].loss and records[-1].held_out == 20


def test_unknown_words_are_told_apart_from_the_loss():
    lines = [f"the dog {n} runs\tder hund {n} läuft" for n in range(70)]  # each number stands once
    task = make_task(TaskConfig.of("own_pairs", data="\n".join(lines), unit="words"))
    given = measure_teacher_forced(
        prepare(recommended(task, steps=1)).model.eval(), task, task.held_out(99), "cpu"
    )
    batch = task.collate(task.held_out(99))
    count, total = int((batch.target_out == UNK).sum()), int((batch.target_out != PAD).sum())
    assert count > 0 and given["unknown"] == pytest.approx(count / total)
    model = prepare(recommended(task, steps=1)).model.eval()
    loss = torch.nn.functional.cross_entropy(
        model(batch.source, batch.source_mask, batch.target_in).logits.flatten(0, 1),
        batch.target_out.masked_fill(batch.target_out == UNK, PAD).flatten(),
        ignore_index=PAD,
    )
    assert (
        given["known_loss"] == pytest.approx(loss.item(), rel=1e-4)
        and given["known_loss"] != given["loss"]
    )


@each("unit", ["words", "characters"])
def test_bleu_is_over_words_whatever_the_tokens_are(unit):
    task = make_task(TaskConfig.of("own_pairs", data=SPACED, unit=unit))
    lines = [
        "der a hund sah 3 katzen .",
        "der hund sah 4 katzen .",
        "der kater sah 4 katzen und den hund .",
    ]
    wrong = [
        "der a hund sah 4 katzen .",
        "der hund sieht 4 hunde .",
        "der kater sah 4 katzen . den hund .",
    ]
    scores = score(
        task, [task.tokens(line) for line in wrong], [task.tokens(line) for line in lines]
    )
    assert scores["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(wrong, [lines], tokenize="none").score
    )
    if unit == "characters":
        assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(wrong, [lines]).score)
        assert (
            scores["bleu"] + 20
            < sacrebleu.corpus_bleu(
                [" ".join(line) for line in wrong],
                [[" ".join(line) for line in lines]],
                tokenize="none",
            ).score
        )
    else:
        assert "chrf" not in scores


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(alphabet=st.sampled_from('ab\t, "\n'), max_size=12), min_size=30, max_size=40)
)
def test_any_list_is_pairs_or_refused(lines):
    try:
        pairs = parse_pairs("\n".join(lines), "auto", "characters", seed=0)
    except ConfigError as error:
        assert str(error).endswith((".", "?"))
    else:
        assert pairs.held_out and all(
            pair.source and pair.target for pair in (*pairs.trained, *pairs.held_out)
        )


def test_steps_follow_from_the_number_of_pairs():
    """Ten passes over many pairs, the recipe's own steps over few, and a limit to both."""
    data = ("\n".join(f"{n}\t{n}" for n in range(count)) for count in (100, 9_000))
    few, many = (
        instance(make_task(TaskConfig.of("own_pairs", data=each)), OwnPairs) for each in data
    )
    assert few.recommended["recurrent"].steps == 1_000
    steps = many.recommended["recurrent"].steps
    assert (steps - 1) * 64 < 10 * len(many.pairs.trained) <= steps * 64
    assert many.recommended["transformer"].steps == 1_500, "its own steps are more than ten passes"
    assert for_data(many.recommended, 10**6, 10)["transformer"].steps == MAX_STEPS
