"""Tasks of texts, documents and pictures, and metrics: what is asked, what is held out, and what is counted."""

import math
import re
from collections import Counter

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given, strategies as st

from core.entries import ConfigError
from core.models import ModelConfig, build_model, sentence_spans
from core.tasks import BOS, EOS, PAD, UNK, Example, TaskConfig, make_task
from core.tasks.base import is_held_out
from core.tasks.documents import ADJECTIVES, COURTS, VERBS, VERDICTS, Documents
from core.tasks.metrics import (
    balanced_accuracy,
    bleu,
    by_length,
    chrf,
    entropy,
    exact_match,
    majority_class,
)
from core.tasks.own import SONNETS
from core.tasks.pictures import Pictures, cut, deciding, digits
from core.tasks.text import COMMON, LONGEST, NAMES, Corpus, TextTask, split, topics
from core.tasks.translation import number_words
from core.training import evaluate, recommended, train
from core.training.evaluate import bits_by_length, measure_teacher_forced
from tests.cases import each, instance


def test_characters_and_words():
    assert (split("I'm\nhere ", "characters"), split("I'm\nhere, né ", "words")) == (
        ["I", "'", "m", "↵", "h", "e", "r", "e", " "],
        ["I", "'", "m", "↵", "here", ",", "né"],
    )


def test_the_reference_is_cut_by_topic():
    from pydoc_data.topics import topics as found

    corpus = topics("characters")
    held = [
        text.strip().replace("\n", "↵") for name, text in sorted(found.items()) if is_held_out(name)
    ]
    assert (
        held
        and "".join(corpus.held_out) == "↵↵".join(held)
        and len(corpus.trained) > 8 * len(corpus.held_out) > 80_000
    )


@each(
    "config",
    [
        TaskConfig.of("topics", length=24),
        TaskConfig.of("own_text", length=16),
        TaskConfig.of("topics", unit="words", length=16),
    ],
)
def test_windows_ask_for_their_own_next_token(config):
    task = instance(make_task(config), TextTask)
    batch = task.batch(8, torch.Generator().manual_seed(0))
    assert batch.target_in is None and batch.source.shape == (8, config["length"])
    assert torch.equal(batch.source[:, 1:], batch.target_out[:, :-1])
    assert torch.equal(batch.source, task.batch(8, torch.Generator().manual_seed(0)).source)
    between = "" if task.corpus.unit == "characters" else " "
    learned = between.join(task.corpus.trained)
    for example in task.held_out(100):
        assert between.join(example.source) not in learned
        assert example.source[1:] == example.target[:-1]
    assert all(
        between.join(task.source_vocab.decode(row)) in learned
        for row in batch.source.tolist()
        if UNK not in row
    )
    assert {len(example.source) for example in task.trained()} == {config["length"]}
    collated = task.collate(task.held_out(3))
    assert (
        torch.equal(collated.source[:, 1:], collated.target_out[:, :-1])
        and EOS not in collated.target_out
        and PAD not in collated.target_out
    )


def test_what_is_typed_has_no_next_token_of_its_last():
    task = make_task(TaskConfig.of("own_text"))
    batch = task.collate([task.example("Love\nis"), task.example("Lo")])
    assert batch.target_out.tolist()[1] == [batch.source.tolist()[1][1], *[PAD] * 6]
    assert batch.source_mask.sum(1).tolist() == [7, 2] and batch.tokens == 9


def test_words_that_are_not_learned_are_unknown():
    corpus = Corpus.of("a b a c", "a d d", "words")
    assert corpus.unknown == pytest.approx(2 / 3) and corpus.vocab.encode("d") == [UNK]


@each(
    ("params", "words"),
    [
        (
            dict(data=SONNETS[:150]),
            "The text has 150 characters, of which a tenth is held out: too few for a window of 32",
        ),
        (dict(data="ab\n" * 2000), "occurs word for word in the training text"),
        (dict(data=SONNETS, length=256, unit="words"), "too few for a window of 256"),
        (dict(data=""), "no text yet"),
        (dict(data="a\x00b"), "Line 1 holds the control character"),
        (dict(data="x" * 4_000_001), "at most 4000000 characters"),
    ],
)
def test_a_text_that_will_not_do(params, words):
    with pytest.raises(ConfigError, match=words):
        TaskConfig.of("own_text", **params)


def test_your_text_is_cut_at_a_line_and_nothing_of_it_is_lost():
    task = instance(make_task(TaskConfig.of("own_text")), TextTask)
    whole = "".join((*task.corpus.trained, *task.corpus.held_out))
    assert (
        whole == SONNETS.strip().replace("\n", "↵")
        and task.corpus.trained[-1] == "↵"
        and "Training uses" in task.notes[0]
    )


def test_a_language_model_learns_more_than_how_often_letters_come():
    task = instance(make_task(TaskConfig.of("own_text", length=16)), TextTask)
    model = ModelConfig.transformer(16, 2, kind="decoder", position="alibi", norm="pre")
    last = list(
        train(recommended(task, model=model, steps=120, learning_rate=1e-2, record_every=200))
    )[-1]
    letters = torch.tensor(
        [task.corpus.trained.count(token) for token in task.source_vocab.tokens[4:]]
    ).float()
    share = letters / letters.sum()
    assert last.loss < -float((share * share.log()).sum()) < task.baseline_loss
    assert last.maps["0:causal"].shape == (1, 2, 16, 16)
    assert len(last.examples[0].source) == 8 == len(last.examples[0].predicted)


def test_a_model_is_asked_about_lengths_that_it_never_saw():
    config = TaskConfig.of("own_text", length=16)
    torch.manual_seed(0)
    model = build_model(
        ModelConfig.transformer(8, 2, kind="decoder", position="alibi"), make_task(config).shape
    ).eval()
    bits = bits_by_length(model, config, (16, 40), windows=6)
    longer = make_task(TaskConfig.of("own_text", length=40))
    given = measure_teacher_forced(model, longer, longer.held_out(6), "cpu")
    assert bits[40] == pytest.approx(given["loss"] / math.log(2)) and set(bits) == {16, 40}


# Sentences with two names, and with a verb after another noun: read again by their words, not by the task's code.


NAME = "|".join(NAMES)
GIVING = re.compile(
    rf"(?:when|after|while) ({NAME}) and ({NAME}) \w+ (?:to|at) the (?:\w+ )*?\w+ , ({NAME}) \w+ the "
    rf"(?:\w+ )*?\w+ to ({NAME}) \."
)
BEING = re.compile(
    r"the (?:\w+ )*?(\w+) (?:near|behind|beside|above|below|with) the (?:\w+ )*?(\w+) (is|are) \w+ \."
)


def lines(count=400, **params):
    task, generator = make_task(TaskConfig.of("names", **params)), torch.Generator().manual_seed(1)
    return task, [task.draw(generator, held_out=False) for _ in range(count)]


def test_the_last_name_is_the_one_that_does_not_act():
    seen = set()
    for _, words in lines(sentences="names")[1]:
        first, second, acts, last = GIVING.fullmatch(" ".join(words)).groups()
        assert first != second and {acts, last} == {first, second}
        seen.add(acts == first)
    assert seen == {True, False}, "either may act, so that no position tells"


def test_a_verb_agrees_with_its_subject_and_not_with_the_noun_before_it():
    seen = set()
    for _, words in lines(sentences="agreement")[1]:
        subject, other, verb = BEING.fullmatch(" ".join(words)).groups()
        assert (verb == "are") == subject.endswith("s")
        seen.add((verb, other.endswith("s")))
    assert len(seen) == 4, "the noun before the verb has either number"


def test_both_kinds_come_by_default_and_fit():
    task, examples = lines()
    kinds = [bool(GIVING.fullmatch(" ".join(words))) for _, words in examples]
    assert 0.4 < sum(kinds) / len(kinds) < 0.6
    assert max(len(words) for words, _ in examples) == LONGEST
    batch = task.collate(examples)
    assert (
        UNK not in batch.source
        and (batch.source[:, 0] == BOS).all()
        and torch.equal(batch.target_out == PAD, ~batch.source_mask)
    )
    real = batch.source_mask[:, 1:]
    assert torch.equal(batch.source[:, 1:][real], batch.target_out[:, :-1][real])


@each(
    ("sentence", "words"),
    [
        ("when ann and ben went to the shop , ben gave the red book to", {"ann": "ann"}),
        ("the old dogs near the tree", {"are": "dogs"}),
    ],
)
def test_where_the_deciding_word_looks(sentence, words):
    task = make_task(TaskConfig.of("names"))
    ((answer, place),) = words.items()
    example = task.example(sentence)
    example = example._replace(target=(*example.source[1:], answer))
    places = task.places(example)
    assert [example.source[one] for one in places[-1]] == [place]
    assert not any(places[:-1])


# Repeated passages: lines that say a passage again, tell each next word, and are trained as any language model.


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
    assert (
        batch.source.shape == batch.target_out.shape == (1000, 60)
        and (batch.source[:, 0] == BOS).all()
        and batch.target_in is None
    )
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


def test_where_each_word_may_look(task):
    line = ("<bos>", "the", "cat", "sat", "the", "cat", "ran", "the")
    places = task.places(Example(line[:-1], line[1:]))
    assert places == ((), (), (), (), (2,), (), ())
    twice = tuple("<bos> a b a b a".split())
    assert task.places(Example(twice[:-1], twice[1:])) == ((), (), (), (2,), (3,))


def test_the_commonest_words_come_most(task):
    counts = torch.bincount(
        task.batch(500, torch.Generator().manual_seed(2)).target_out.flatten(), minlength=254
    )
    often = counts[task.source_vocab.encode(COMMON)].float()
    assert len(COMMON) == len(set(COMMON)) == 250 and often[:20].mean() > 3 * often[-20:].mean() > 0


def test_it_is_trained_as_it_is_recommended():
    task = make_task(TaskConfig.of("repeats", length=24, passage=6, gap=2))
    records = list(train(recommended(task, steps=24, warmup=0, record_every=12, held_out=8)))
    assert (
        records[-1].loss < 0.97 * records[0].loss
        and records[-1].expected is not None
        and 0 < records[-1].even < 0.5
    )


# Documents: the highest court decides, no count of words tells the class, and no document is on both sides.

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
        assert (
            place == spans[number]
            and set(words) <= set(place)
            and CLASS_OF[ruling] == verdict
            and COURTS.index(court) == max(ruled)[0]
        )
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
    assert (len(by_class["guilty"]) / len(examples)) == pytest.approx(0.5, abs=0.05)
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
    batch = task.batch(2_000, torch.Generator().manual_seed(5))
    words = [tuple(task.source_vocab.decode(ids)) for ids in batch.source.tolist()]
    assert not held & set(words)
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


# Digits in patches and pictures of numbers: real pixels, a split that shares none of them, words from the right digit.


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
    assert (
        len(held) + len(trained) == 1797
        and len(held) == 359
        and not {e.source for e in held} & {e.source for e in trained}
    )
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
    assert (len(number_words(language)[number]), deciding(language, number)) == (
        len(places),
        places,
    )


@each("params", [dict(), dict(language="en", digits=2, patch="8"), dict(language="es", patch="2")])
def test_a_picture_shows_the_number_that_its_words_say(params):
    task = instance(make_task(TaskConfig.of("pictures", **params)), Pictures)
    words, (pictures, labels) = number_words(task.language), digits()
    label = {row.tobytes(): int(digit) for row, digit in zip(pictures.numpy(), labels, strict=True)}
    batch = task.batch(40, torch.Generator().manual_seed(0))
    assert (
        (batch.target_in[:, 0] == BOS).all()
        and ((batch.target_out == EOS).sum(1) == 1).all()
        and torch.equal(batch.target_in[:, 1:] != PAD, batch.target_out[:, 1:] != PAD)
    )
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
        assert (
            records[-1].expected is not None
            and records[-1].maps["0:cross"].shape[-1] == 2
            and records[-1].even == pytest.approx(0.5)
        )


# Metrics against counts made by hand and against sacrebleu's own reading.


def words(*lines):
    return [line.split() for line in lines]


def test_exact_match_by_hand():
    targets = [tuple("abcd"), tuple("ab"), tuple("abc")]
    assert exact_match([list("abcd"), list("b"), list("abx")], targets) == pytest.approx(1 / 3)


def test_bleu_is_sacrebleus_and_100_when_all_is_right():
    targets = words("drei und zwanzig ; sieben hundert vier", "ein hundert zwei und vier zig")
    guesses = words("drei und zwanzig ; sieben vier", "ein hundert zwei und fünf zig")
    theirs = sacrebleu.corpus_bleu(
        [" ".join(g) for g in guesses], [[" ".join(t) for t in targets]], tokenize="none"
    )
    assert (bleu(guesses, targets), bleu(targets, targets)) == (
        pytest.approx(theirs.score),
        pytest.approx(100),
    )
    assert bleu([["zehn"]], [["zehn"]]) == pytest.approx(100), "a target of one word can be right"
    assert bleu([[]], [["zehn"]]) == 0


TEXT = st.lists(st.text(alphabet="abc de", max_size=14), min_size=1, max_size=5)


@given(
    TEXT.flatmap(
        lambda targets: st.tuples(
            st.lists(
                st.text(alphabet="abc de", max_size=14),
                min_size=len(targets),
                max_size=len(targets),
            ),
            st.just(targets),
        )
    )
)
def test_scores_of_any_texts_are_sacrebleus(pair):
    guesses, targets = pair
    assert chrf(guesses, targets) == pytest.approx(
        sacrebleu.CHRF().corpus_score(guesses, [targets]).score
    )
    rows, wanted = ([line.split() for line in lines] for lines in pair)
    orders = max(1, min(4, max(map(len, wanted))))
    metric = sacrebleu.BLEU(tokenize="none", max_ngram_order=orders, force=True)
    assert bleu(rows, wanted) == pytest.approx(metric.corpus_score(guesses, [targets]).score)


def test_bleu_by_hand_halves_what_is_missing_again_and_again():
    """Words 3 of 4, pairs 1 of 3, triples 0 of 2, fours 0 of 1: what is missing counts 1/2, then 1/4."""
    expected = 100 * (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** 0.25
    assert bleu(words("a b x d"), words("a b c d")) == pytest.approx(expected)
    assert chrf(["ab"], ["ab"]) == pytest.approx(100) and chrf(["x"], ["ab"]) == 0


def test_buckets_by_source_length():
    sources = [["x"] * n for n in (1, 10, 11, 60)]
    output, targets = [["a"], ["b"], ["b"], ["a"]], [["a"]] * 4
    assert by_length(sources, output, targets, exact_match) == {
        "1–10": (0.5, 2),
        "11–20": (0.0, 1),
        "51–60": (1.0, 1),
    }


@each("metric", [exact_match, bleu])
def test_counts_must_agree(metric):
    for predictions in ([["a"]], []):
        with pytest.raises(ValueError, match="one by one"):
            metric(predictions, [])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_confusion_and_balanced_accuracy_are_those_of_scikit_learn(pairs):
    from sklearn.metrics import confusion_matrix, recall_score

    right, predicted = map(list, zip(*pairs, strict=True))
    counts = evaluate.confusion_matrix(
        torch.nn.functional.one_hot(torch.tensor(predicted), 5).float(), torch.tensor(right)
    ).tolist()
    assert counts == confusion_matrix(right, predicted, labels=range(5)).tolist()
    there = sorted(
        set(right)
    )  # balanced_accuracy_score is this mean, but warns of classes that are only predicted
    assert balanced_accuracy(counts) == pytest.approx(
        recall_score(right, predicted, labels=there, average="macro")
    )


def test_the_majority_is_of_what_is_trained_on_and_its_share_of_what_is_tested():
    assert (majority_class("aabaa", "abbb"), entropy("aab")) == (
        ("a", 0.25),
        pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))),
    )
    assert entropy("abcd") == pytest.approx(math.log(4)) and entropy("aa") == 0
    with pytest.raises(ValueError, match="empty confusion matrix"):
        balanced_accuracy([[0, 0], [0, 0]])
