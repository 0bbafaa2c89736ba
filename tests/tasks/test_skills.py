"""Tasks that ask at marked places: their answers, and those of the authors' code, by solvers of this file.

published.json.gz holds rows that the authors' code made once, with its own seeds: zoology (Apache-2.0, d88d6f5), mad-lab
(MIT, 0f49a45), NX-AI's formal_language (Apache-2.0, 032a6fb), DeepMind's neural_networks_chomsky_hierarchy (Apache-2.0,
2b8eb4b), and PhysicsLM4's depo.py and mano.py (Apache-2.0, 7580696; depo.py without its last assertion, whose name it
does not define).
"""

import gzip
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sympy.combinatorics import Permutation

from core.entries import ConfigError
from core.models import ModelConfig, build_model
from core.tasks import PAD, SPECIALS, UNK, TaskConfig, make_task
from core.tasks.base import Example
from core.tasks.skills import SKILLS
from core.training import RunConfig, train
from core.training.evaluate import measure_free, measure_teacher_forced
from tests.cases import each

PUBLISHED = json.loads(gzip.decompress(Path(__file__).with_name("published.json.gz").read_bytes()))
BLANK = SPECIALS[PAD]


def rows(task, count=200):
    """Sources and answers of held-out examples, as tokens."""
    return [(one.source, one.target) for one in task.held_out(count)]


def recalled(source, target):
    """Each answer is the value after the last earlier occurrence of its key, in all that was read."""
    for i, answer in enumerate(target):
        if answer != BLANK:
            (at,) = [j for j in range(i) if source[j] == source[i]][-1:]
            yield answer, source[at + 1]


def recalled_in_pairs(pairs):
    def solve(source, target):
        last = dict(zip(source[: 2 * pairs : 2], source[1 : 2 * pairs : 2], strict=True))
        return [(one, last[key]) for key, one in zip(source, target, strict=True) if one != BLANK]

    return solve


def fuzzy(source, target):
    """A key has three tokens; its value, up to the next key, is queried token by token."""
    texts = "".join("k" if one[0] == "k" else "v" if one[0] == "v" else "." for one in source)
    values: dict[Any, Any] = {}
    at = texts.rindex(".") + 1 if "." in texts else 0
    while at < len(source):
        key, start = source[at : at + 3], at + 3
        at = next((j for j in range(start, len(source)) if texts[j] == "k"), len(source))
        value = source[start:at]
        for i, token in enumerate(values.get(key, ())):
            if target[start + i - 1] != BLANK:
                yield target[start + i - 1], token
        values.setdefault(key, value)


def copied(source, target):
    tokens = [one for one in source if one.startswith("t")]
    answers = [one for one in target if one != BLANK]
    return zip(answers, tokens, strict=True)


def arithmetic(source, target):
    yield target[-1], str(eval("".join(source[:-1])) % 5)  # of digits and signs


def prefix(tokens):
    head = tokens.pop(0)
    if head not in "+-*":
        return int(head)
    of = {"+": operator.add, "-": operator.sub, "*": operator.mul}[head]
    return of(prefix(tokens), prefix(tokens)) % 23


def mental(source, target):
    yield target[-1], str(prefix(list(source[1:-1])))


def steps_on(source, target):
    """Follow the edges one by one."""
    start = next(i for i, one in enumerate(source) if one.startswith("+"))
    after = dict(zip(source[:start:2], source[1:start:2], strict=True))
    for i, answer in enumerate(target):
        if answer != BLANK:
            node = source[i - 1]
            for _ in range(int(source[i - 2][1:])):
                node = after[node]
            yield answer, node


def products(source, target):
    so_far = Permutation(size=len(source[0]))
    for one, answer in zip(source, target, strict=True):
        so_far = so_far * Permutation([int(digit) - 1 for digit in one])
        yield answer, "".join(str(i + 1) for i in so_far.array_form)


def odd(source, target):
    yield target[-1], str(source.count("1") % 2)


def last_written(source, target):
    bit = None
    for i, token in enumerate(source):
        bit = source[i + 1] if token == "w" else bit
        if token == "r":
            yield target[i], bit


def numbers_of(source, target):
    digits = 3
    name = source[-digits]
    at = source.index(name)
    yield from zip([one for one in target if one != BLANK], source[at + 1 : at + 4], strict=True)


def repeated(source, target):
    length = len(source) // 2
    yield from zip(target[-length:], source[:length], strict=True)


SOLVED: tuple[Any, ...] = (
    ("mqar", {}, recalled_in_pairs(4)),
    ("mqar", {"updates": 2}, recalled_in_pairs(6)),
    ("in_context_recall", {}, recalled),
    ("in_context_recall", {"noise": 0.5}, recalled),
    ("fuzzy_recall", {}, fuzzy),
    ("selective_copy", {}, copied),
    ("parity", {}, odd),
    ("modular_arithmetic", {}, arithmetic),
    ("modular_arithmetic", {"multiply": "no"}, arithmetic),
    ("modular_arithmetic", {"brackets": "yes"}, arithmetic),
    ("group_words", {}, products),
    ("group_words", {"items": 4}, products),
    ("flip_flop", {}, last_written),
    ("depo", {}, steps_on),
    ("mano", {}, mental),
    ("phone_book", {}, numbers_of),
    ("string_copy", {}, repeated),
)


@each("key, params, solve", SOLVED)
def test_answers_follow_from_what_was_read(key, params, solve):
    task, count = make_task(TaskConfig.of(key, **params)), 0
    for source, target in rows(task):
        pairs = list(solve(source, target))
        assert len(pairs) == sum(one != BLANK for one in target) and pairs
        assert all(given == right for given, right in pairs)
        count += len(pairs)
    assert count >= 200


def test_memorized_values_are_one_a_key_and_never_shown():
    task, values = make_task(TaskConfig.of("memorize")), dict[Any, Any]()
    for source, target in rows(task):
        for key, mark, answer in zip(source[::2], source[1::2], target[1::2], strict=True):
            assert mark == "?" and answer not in source
            assert values.setdefault(key, answer) == answer
    assert len({*values.values()}) == len(values) == 64


def read_rows(key, names):
    """Rows of the authors' code as tokens of ours."""
    data = PUBLISHED[key]
    for inputs, labels in zip(data["inputs"], data["labels"], strict=True):
        yield (
            tuple(names[i] for i in inputs),
            tuple(BLANK if i < 0 else names[i] for i in labels),
        )


ARRAYS: tuple[Any, ...] = (  # the published array, our task and how it is solved
    ("mqar", "mqar", {}, recalled_in_pairs(4)),
    ("forgetting_mqar", "mqar", {"updates": 2}, recalled_in_pairs(6)),
    ("in_context_recall", "in_context_recall", {"length": 32}, recalled),
    ("noisy_recall", "in_context_recall", {"length": 32, "noise": 0.2}, recalled),
    ("fuzzy_recall", "fuzzy_recall", {}, fuzzy),
    ("selective_copy", "selective_copy", {}, copied),
)


@each("published, key, params, solve", ARRAYS)
def test_rows_of_the_authors_code_are_solved_alike_and_look_alike(published, key, params, solve):
    task: Any = make_task(TaskConfig.of(key, **params))
    theirs, count = [*read_rows(published, task.names)], 0
    for source, target in theirs:
        pairs = list(solve(source, target))
        assert all(given == right for given, right in pairs)
        count += len(pairs)
        if task.places(Example(source, target)) is not None:
            places = task.places(Example(source, target))
            right = [
                (one, source[at[0]]) for one, at in zip(target, places, strict=True) if one != BLANK
            ]
            assert right == [(one, one) for one, _ in right]

    assert count >= len(theirs) / 2, "MAD's fuzzy recall asks for keys that were not shown, too"

    def figures(every):
        """Of each row: how much is queried, where in the mean, and how many tokens differ."""
        queried = [[i for i, one in enumerate(target) if one != BLANK] for _, target in every]
        return np.array(
            [
                (len(places), np.mean(places), len({*source}))
                for places, (source, _) in zip(queried, every, strict=True)
            ],
            dtype=float,
        )

    ours, same = figures(rows(task, 400)), figures(theirs)
    assert {len(source) for source, _ in theirs} == {task.max_source}
    error = np.sqrt(ours.var(0) / len(ours) + same.var(0) / len(same))
    assert (np.abs(ours.mean(0) - same.mean(0)) <= 4 * error + 1e-9).all()


def test_parity_and_sums_of_the_authors_code():
    data = PUBLISHED["parity"]
    for tokens, mask in zip(data["inputs"], data["labels"], strict=True):
        at = mask.index(1)
        assert tokens[at] - 1 == sum(one - 1 for one in tokens[:at]) % 2
    data, names = PUBLISHED["modular"], dict(enumerate("?+-*=01234"))
    for tokens, mask in zip(data["inputs"], data["labels"], strict=True):
        at = mask.index(1)
        text = "".join(names[one] for one in tokens[:at])
        assert list(arithmetic((*text,), (names[tokens[at]],))) == [(names[tokens[at]],) * 2]
    for text, value in PUBLISHED["brackets"]:
        assert eval(text) % 5 == value


def test_cycles_and_prefix_sums_of_the_authors_code():
    for tokens, labels in PUBLISHED["depo"]:
        words = [
            "=" if one == 9500 else f"+{one - 9000}" if one > 9000 else str(one)
            for one in tokens[1:]
        ]
        answers = [BLANK] * len(words)
        for i, label in enumerate(labels[1:]):
            if label and words[i] != "=":
                answers[i - 1] = words[i]
        assert all(one == node for one, node in steps_on(words, answers))
    for tokens in PUBLISHED["mano"]:
        words = [{1: "+", 2: "-", 3: "*"}.get(one, str(one - 5000)) for one in tokens[2:-2]]
        assert prefix(words) == tokens[-1] - 5000 and not words


@each("entry", SKILLS)
def test_held_out_lengths_and_a_typed_source(entry):
    task = make_task(TaskConfig.of(entry.key))
    held, batch = task.held_out(200), task.batch(4, torch.Generator().manual_seed(0))
    lengths = {len(one.source) for one in held}
    assert max(lengths) <= task.max_source and batch.source.shape == batch.target_out.shape
    if task.longest_trained:
        assert min(lengths) <= task.longest_trained < max(lengths)
    typed = task.example(" ".join(held[0].source))
    answers = task.collate([typed]).target_out[0]
    assert answers[-1] == UNK and not answers[:-1].any(), "the last place is queried"


@each("entry", SKILLS)
def test_least_values_leave_sources_to_hold_out(entry):
    least = {one.key: one.low for one in entry.params if one.low is not None}
    assert len(make_task(TaskConfig.of(entry.key, **least)).held_out(200)) == 200


def test_a_task_with_one_source_says_so():
    task: Any = make_task(TaskConfig.of("parity"))
    task.numbers = lambda count, *_: (torch.zeros(count, 4, dtype=torch.long),) * 2
    said = []
    for held_out in (False, True):
        try:
            task.draw(torch.Generator(), held_out)
        except ValueError as error:
            said.append(str(error))
    assert said == ["task = parity has too few different sources to hold some out."]


def test_a_model_that_recalls_is_measured_at_marked_places_alone():
    config = RunConfig(
        TaskConfig.of("mqar", length=16, pairs=2, vocab=16),
        ModelConfig.transformer(32, 2, 2, kind="decoder", norm="pre", position="rope"),
        steps=300,
        learning_rate=5e-3,
        record_every=100,
        held_out=100,
        device="cpu",
    )
    first, *_, last = train(config)
    assert first.token_accuracy < 0.5 < last.token_accuracy
    assert 0 < last.sequence_accuracy <= last.token_accuracy and last.expected is not None


def test_what_is_read_later_changes_no_answer():
    task = make_task(TaskConfig.of("flip_flop", length=24, tested=0))
    model = build_model(ModelConfig.transformer(16, 2, kind="decoder"), task.shape).eval()
    examples = task.held_out(6)
    predictions = measure_free(model, task, examples, "cpu")
    for example, prediction in zip(examples, predictions, strict=True):
        assert prediction.target == task.display_tokens(example)[1]
        assert len(prediction.predicted) == len(prediction.target)
    right = sum(
        a == b for one in predictions for a, b in zip(one.predicted, one.target, strict=True)
    )
    measured = measure_teacher_forced(model, task, examples, "cpu")["token_accuracy"]
    assert measured == pytest.approx(right / sum(len(one.target) for one in predictions))


@each(
    "key, params, words",
    (
        ("mqar", {"length": 17}, "must be even"),
        ("mqar", {"pairs": 9}, "take length ≥ 36"),
        ("mqar", {"updates": 5, "length": 64}, "take updates ≤ 4"),
        ("mqar", {"vocab": 8}, "take vocab ≥ 10"),
        ("in_context_recall", {"noise": 0.5, "noise_vocab": 0}, "take noise_vocab ≥ 1"),
        ("selective_copy", {"copied": 30}, "take length ≥ 62"),
        ("phone_book", {"people": 8, "tested": 9}, "take more people"),
    ),
)
def test_what_has_no_room_is_refused(key, params, words):
    pytest.raises(ConfigError, TaskConfig.of, key, **params).match(words)
