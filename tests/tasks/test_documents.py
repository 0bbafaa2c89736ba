"""Documents: the highest court decides, no count of words tells the class, and no document is on both sides."""

from collections import Counter

import pytest
import torch

from core.models import ModelConfig, build_model, sentence_spans
from core.tasks import UNK, Example, TaskConfig, make_task
from core.tasks.documents import ADJECTIVES, COURTS, VERBS, VERDICTS, Documents
from tests.cases import each, instance

CONFIGS = [
    TaskConfig.of("documents"),
    TaskConfig.of("documents", sentences=3, courts=3, seed=2),
    TaskConfig.of("documents", sentences=11, courts=6),
]
CLASS_OF = {word: VERDICTS[i] for words in (ADJECTIVES, VERBS) for i in (0, 1) for word in words[i]}


def rulings(example):
    """(rank of the court, class, sentence) of each sentence that has both, read from the text."""
    found = []
    for number, line in enumerate(" ".join(example.source).removesuffix(" .").split(" . ")):
        words = line.split()
        verdicts = [CLASS_OF[word] for word in words if word in CLASS_OF]
        courts = [COURTS.index(words[i - 1]) for i, word in enumerate(words) if word == "court"]
        assert len(verdicts) == len(courts) <= 1
        found += [(court, verdict, number) for court, verdict in zip(courts, verdicts, strict=True)]
    return found


@each("config", CONFIGS)
def test_the_highest_court_decides_and_another_disagrees(config):
    task = instance(make_task(config), Documents)
    examples, sizes = task.held_out(400), Counter[int]()
    for example in examples:
        ruled = rulings(example)
        assert (
            len({court for court, _, _ in ruled}) == len(ruled) >= 2
            and len({v for _, v, _ in ruled}) == 2
        )
        assert min(court for court, _, _ in ruled) >= len(COURTS) - config["courts"]
        _, verdict, number = max(ruled)
        assert example.target == (verdict,)
        spans = sentence_spans(example.source)
        place, words = task.deciding(example)
        court, ruling = sorted(
            (example.source[i] for i in words), key=lambda word: word in CLASS_OF
        )
        assert place == spans[number] and set(words) <= set(place)
        assert CLASS_OF[ruling] == verdict and COURTS.index(court) == max(ruled)[0]
        assert task.places(example) == (tuple(place),)
        sizes[len(spans)] += 1
        assert len(example.source) <= task.max_source and UNK not in task.source_vocab.encode(
            example.source
        )
    assert set(sizes) == set(range(2, task.sentences + 1)), "documents of every length"


def test_no_count_of_words_tells_the_class():
    """Neither the number of verdicts nor any word is more frequent with one class, and naive Bayes guesses."""
    task = make_task(TaskConfig.of("documents"))
    examples = task.held_out(1_000)
    by_class = {name: [e for e in examples if e.target == (name,)] for name in VERDICTS}
    share = len(by_class["guilty"]) / len(examples)
    assert share == pytest.approx(0.5, abs=0.05)
    guilty = [sum(v == "guilty" for _, v, _ in rulings(e)) / len(rulings(e)) for e in examples]
    means = [
        sum(g for e, g in zip(examples, guilty, strict=True) if e.target == (name,))
        / len(by_class[name])
        for name in VERDICTS
    ]
    assert means[0] == pytest.approx(means[1], abs=0.04), (
        "as many verdicts of each class, whatever the class"
    )
    name, score = task.baseline()
    assert name == "naive Bayes on word counts" and score == pytest.approx(0.5, abs=0.05)


def test_sides_share_no_document_and_a_batch_is_its_examples():
    task = make_task(TaskConfig.of("documents", sentences=3, courts=3))
    held = {e.source for e in task.held_out(800)}
    generator = torch.Generator().manual_seed(5)
    for _ in range(30):
        batch = task.batch(64, generator)
        for ids, mask in zip(batch.source, batch.source_mask, strict=True):
            assert tuple(task.source_vocab.tokens[i] for i in ids[mask].tolist()) not in held
    classes = [VERDICTS[i] for i in task.collate(task.held_out(5)).target_out.tolist()]
    assert classes == [e.target[0] for e in task.held_out(5)]


def test_by_hand_and_what_a_person_types():
    task = make_task(TaskConfig.of("documents"))
    typed = task.example(
        "The supreme court acquitted him. It rained. The high court found him guilty."
    )
    assert task.deciding(typed) == (range(6), (1, 3)) and typed.source[5] == "."
    assert task.places(typed) == ((0, 1, 2, 3, 4, 5),)
    nothing = Example(("it", "rained", "."), ())
    assert task.deciding(nothing) is None and task.places(nothing) == ((),)
    assert task.source_vocab.tokens[task.shape.sentence_end] == "."


@each(
    ("start", "end", "kinds"),
    [
        ("It broke. ", " times.", ["classifier", "hierarchical"]),
        ("", " times.", ["classifier"]),
        ("", " times", ["classifier"]),
    ],
)
def test_a_persons_own_texts_have_sentences_where_some_have_two(start, end, kinds):
    lines = [
        f'"{start}I {"hate" if n % 2 else "love"} it {n}{end}",{"ab"[n % 2]}' for n in range(24)
    ]
    task = make_task(TaskConfig.of("own_table", data="text,kind\n" + "\n".join(lines)))
    assert list(task.recommended) == kinds
    end_mark = task.shape.sentence_end
    assert task.source_vocab.tokens[end_mark] == "." if "hierarchical" in kinds else end_mark == 0
    for recipe in task.recommended.values():
        model, batch = (
            build_model(ModelConfig.from_json(recipe.model), task.shape),
            task.collate(task.held_out(3)),
        )
        assert model(batch.source, batch.source_mask).logits.shape == (3, 2)
    assert task.deciding(task.held_out(1)[0]) is None
