"""Contrast pairs: files and templates, means and intervals by hand, and a run that was killed and continued."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from core.entries import ConfigError
from core.interpret import pairs as study
from core.interpret.corpus import half_interval
from core.interpret.interventions import BY_KEY, head_effects
from core.interpret.pairs import (
    COLUMNS,
    LINES,
    OWN,
    Pair,
    PairsConfig,
    baselines,
    load_lines,
    measure_pairs,
    pairs_of_template,
    position_effects,
    read_measurement,
    read_pairs,
    to_csv,
    work,
)
from core.interpret.patching import rerun_rows
from core.pretrained import ModelInputs, PretrainedError, encode, load_lab_model
from core.pretrained.forward import target_ids
from core.runs import worker
from tests.cases import each
from tests.close import assert_close
from tests.tiny_models import tiny
from tests.training.small import run_command

WAYS = ("zero", "mean", "patched")
OWN_PAIRS = pairs_of_template(*OWN["names"])[:4]
CONFIG = PairsConfig("lab:names", to_csv(OWN_PAIRS), WAYS, positions=True)


@pytest.fixture(scope="module")
def model():
    return load_lab_model("names")


@pytest.fixture(scope="module")
def effects(model):
    return measure_pairs(model, OWN_PAIRS, WAYS, positions=True)


# Files and templates.


@each(
    "text",
    [
        'other,clean,answer,corrupted\nben,"a, b",ann,a c\n',
        "Clean\tCorrupted\tAnswer\tOther\na, b\ta c\tann\tben\n",
        '\n{"clean": "a, b", "corrupted": "a c", "answer": "ann", "other": "ben", "note": 1}\n',
    ],
)
def test_a_file_is_a_table_with_named_columns_or_json(text, tmp_path):
    (tmp_path / "pairs").write_text(text, encoding="utf-8")
    expected = Pair("a, b", "a c", "ann", "ben", 2)
    assert read_pairs(text) == read_pairs(tmp_path / "pairs") == (expected,)
    assert read_pairs(to_csv([expected])) == (expected,)


@each(
    "text",
    [
        "clean,corrupted,answer,other,Target,[A],[B]\na,b,c,d,so,x,y\n",
        '\n{"clean": "a", "corrupted": "b", "answer": "c", "other": "d", "target": "so", "[A]": "x", "[B]": "y"}\n',
    ],
)
def test_further_columns_are_the_target_and_the_words(text):
    expected = Pair("a", "b", "c", "d", 2, "so", ("x", "y"))
    assert read_pairs(text) == read_pairs(to_csv([expected])) == (expected,)
    (half,) = read_pairs(text.replace("[B]", "note"))
    assert half == replace(expected, words=()) and read_pairs(to_csv([half])) == (half,)


@each(
    "text, words",
    [
        ("clean,corrupted,answer\na,b,c\n", "no column other"),
        ("a,b,c,d\n1,2,3,4\n", "names clean, corrupted, answer, other; this one names a, b, c, d"),
        ("clean,corrupted,answer,other\n", "no pair below it"),
        ('{"clean": 1}\n{"cle', "Line 2 is no JSON"),
        ('{"clean": 1}\n[2]', "Line 2 is no object"),
        ('{"a":' + 100_000 * "[", "Line 1 is no JSON"),
        ("clean,corrupted,answer,other\na, b,c,d,e\n", "quotation marks"),
        ("one column", "single column"),
        (" ", "There is no list of pairs yet"),
        ("clean,corrupted,answer,other\n" + 1001 * "a,b,c,d\n", "at most 1,000"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        read_pairs(text)


def test_a_template_takes_both_orders_and_each_couple_once():
    clean, corrupted = "[A] and [B], [B]", "[A] and [B], [A]"
    pairs = pairs_of_template(clean, corrupted, ["x", "y"], ["y", "z"])
    assert [one.clean for one in pairs] == [
        "x and y, y", "y and x, x", "x and z, z", "z and x, x", "y and z, z", "z and y, y",
    ]  # fmt: skip
    assert pairs[1] == Pair("y and x, x", "y and x, y", "y", "x", 3, words=("x", "y"))
    assert read_pairs(to_csv(pairs)) == pairs
    assert [one.line for one in read_pairs(to_csv(pairs))] == [one.line for one in pairs]
    (one,) = pairs_of_template("the [A]", "the [B]", ["dog"], ["dogs"], "is", "are", False)
    assert one == Pair("the dog", "the dogs", "is", "are", 2, words=("dog", "dogs"))


@each(
    "change, words",
    [
        ({"clean": "a", "corrupted": "b"}, "no slot"),
        ({"corrupted": "[A]"}, "are the same"),
        ({"first": ["x"], "second": ["x"]}, "different words"),
        ({"second": []}, "different words"),
    ],
)
def test_a_template_without_a_contrast_is_refused(change, words):
    given = {"clean": "[A]", "corrupted": "[B]", "first": ["x"], "second": ["y"]}
    with pytest.raises(ConfigError, match=words):
        pairs_of_template(**given | change)


@each(
    "change, words",
    [
        ({"ways": ("zero", "none")}, "take ways = one of zero"),
        ({"ways": ()}, "take ways = one of zero"),
        ({"quantity": "odds"}, "quantity"),
        ({"model": "lab:digits"}, "no pairs for lab:digits"),
    ],
)
def test_a_config_that_cannot_be_measured_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        PairsConfig(**change)
    assert len(PairsConfig().pairs) == 24


# What is measured.


def test_half_of_an_interval_is_as_by_hand():
    # of 1, 2, 3, 4: s = √(5/3), t with 3 degrees of freedom 3.182446; of two the distance times t / 2, 12.706205 / 2
    four = np.array([1.0, 2, 3, 4])[:, None]
    assert half_interval(four) == pytest.approx([3.182446 * (5 / 12) ** 0.5])
    assert half_interval(np.array([[0.0, 5], [2, 5]])) == pytest.approx([12.706205, 0], abs=1e-5)
    assert np.isnan(half_interval(np.ones((1, 3)))).all()


def test_pairs_that_share_words_are_no_sample_of_their_own():
    # x + y of three words and two: the means vary by s²/3 of 0, 3, 6 and s²/2 of 0, 4, whatever is paired with what
    lists = [*zip(*((a, b) for a in "abc" for b in "xy"), strict=True)]
    values = np.array([[0.0, 4, 3, 7, 6, 10]]).T
    parts, freedom = np.array([9 / 3, 8 / 2]), np.array([2, 1])
    satterthwaite = parts.sum() ** 2 / (parts**2 / freedom).sum()
    expected = stats.t.ppf(0.975, satterthwaite) * parts.sum() ** 0.5
    assert half_interval(values, lists) == pytest.approx([expected])
    assert half_interval(values)[0] < expected / 2
    # Where no two share a word, Student's t; and of one word in a list nothing is known
    own = [list("abcdef"), 6 * ["x"]]
    assert half_interval(values, own) == pytest.approx(half_interval(values))
    assert half_interval(0 * values, lists).tolist() == [0]
    effects = measure_pairs(load_lab_model("names"), OWN_PAIRS, ["zero"])
    by_word = half_interval(effects.effects["zero"], [4 * ["ann"], ["ben", "ben", "leo", "leo"]])
    assert_close(effects.half("zero"), by_word)
    plain = replace(effects, pairs=tuple(replace(one, words=()) for one in effects.pairs))
    assert_close(plain.half("zero"), half_interval(effects.effects["zero"]))


def test_effects_are_those_of_each_pair_and_their_mean(model, effects):
    each_clean = [baselines(model, one) for one in OWN_PAIRS]
    assert effects.pairs == OWN_PAIRS and effects.refused == ()
    assert_close(effects.clean, [clean.value for clean, _ in each_clean])
    for way in ("zero", "patched"):
        alone = [
            [*head_effects(clean, way, other=corrupted).values()] for clean, corrupted in each_clean
        ]
        assert_close(effects.effects[way], alone)
        assert_close(effects.mean(way), np.mean(alone, 0))
    # The head that carries the name, by every way; and + says that it helps
    (best,) = {int(effects.mean(way).argmax()) for way in WAYS}
    assert effects.names[best].startswith("L1") and effects.mean("zero")[best] > 1


@each("quantity", ["log-probability", "kl"])
def test_every_way_is_measured_in_every_quantity(model, quantity):
    effects = measure_pairs(model, OWN_PAIRS[:2], quantity=quantity)
    clean, corrupted = baselines(model, OWN_PAIRS[0], quantity)
    for way in ("zero", "patched", "direct"):
        alone = [*head_effects(clean, way, other=corrupted).values()]
        assert_close(effects.effects[way][0], alone)
        assert np.abs(alone).max() > 1e-3
    assert (quantity == "kl") == (effects.clean.max() > -1e-6)


@each("place", [-1, -6])
@each("head", [("causal", 0, 0), ("causal", 0, 1), ("causal", 1, 0)])
def test_a_head_at_one_token_is_that_head_patched_there(model, effects, head, place):
    clean, corrupted = baselines(model, OWN_PAIRS[1])
    (row,) = position_effects(clean, corrupted, [head])
    assert_close(row, effects.positions[1, effects.heads.index(head)])
    theirs, own = (
        study.outputs_of(model, one.batch)[head[:2]].replaceable[0] for one in (clean, corrupted)
    )
    mixed = own.clone()
    mixed[place] = theirs[place]
    (value,) = rerun_rows(corrupted, [(0, *head, mixed)], clean)
    assert row[place] == pytest.approx(value - effects.corrupted[1], rel=1e-4, abs=1e-5)


def test_a_token_before_the_texts_differ_has_no_effect(effects):
    # <bos> when A and B went to the shop , B gave the book to: the texts differ in the name before "gave"
    differ = effects.tokens.index("gave") - 1
    assert effects.tokens[1] == "when" and effects.tokens[differ] == "ben …"
    assert not effects.positions[..., :differ].any() and effects.positions[..., differ:].any()


def test_pairs_of_other_lengths_have_no_common_positions(model):
    longer = [replace(one, clean=f"{text} a", corrupted=f"{text} the") for one, text in [
        (OWN_PAIRS[0], OWN_PAIRS[0].clean)]]  # fmt: skip
    joined = measure_pairs(model, [OWN_PAIRS[0], *longer], ["patched"], positions=True)
    assert len(joined.pairs) == 2 - len(joined.refused)
    assert (joined.positions is None) == (len(joined.pairs) == 2)


@each(
    "change, words",
    [
        ({"other": ""}, "other is empty"),
        ({"corrupted": "when ann"}, "15 and 3 tokens.* texts of equal length"),
        ({"answer": "ann ben"}, "cuts it into 2 .* Type one token"),
        ({"answer": "ben", "other": "ben"}, "answer and other are the same"),
        ({"answer": "zzz"}, "not in the vocabulary"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_measured(model, change, words):
    rows = [OWN_PAIRS[0], replace(OWN_PAIRS[1], **change), OWN_PAIRS[2]]
    result = measure_pairs(model, rows, ["patched"])
    (why,) = result.refused
    assert why.startswith("Row 3: ") and len(result.pairs) == 2
    with pytest.raises(PretrainedError, match=words):
        measure_pairs(model, rows[1:2], ["patched"])
    if "corrupted" in change:  # which only needs equal texts where one is put into the other
        assert not measure_pairs(model, rows, ["zero"]).refused


def test_a_model_without_answers_says_so_once():
    with pytest.raises(PretrainedError, match=r"^\w+ answers no text .* a text of its own.$"):
        measure_pairs(tiny("bert_encoder"), 2 * [Pair("a", "b", "c", "d")])


@each("target", ["", "the street"])
@each("family", ["t5", "bart", "marian"])
def test_an_encoder_decoder_answers_after_the_target(family, target):
    # Without one, with the first token that it writes
    model = tiny(family)
    texts = [f"the {one} was tired" for one in ("animal", "street")]
    pair = Pair(texts[0], texts[1], "#5", "#9", target=target)
    effects = measure_pairs(model, [pair], positions=True)
    assert effects.positions is None and not effects.refused
    assert {kind for kind, *_ in effects.heads} == {"self", "causal", "cross"}
    with torch.no_grad():
        ids = target_ids(model, target)
        batch = encode(model, ModelInputs(texts[0], target="a"))[0]
        batch["decoder_input_ids"] = torch.tensor([ids])
        logits = model.model(**batch).logits[0, -1]
    assert effects.clean[0] == pytest.approx(float(logits[5] - logits[9]), rel=1e-4, abs=1e-5)
    clean, corrupted = baselines(model, pair)
    for way in ("zero", "resampled"):
        alone = [*head_effects(clean, way, other=corrupted).values()]
        assert_close(effects.effects[way][0], alone)
        assert np.abs(alone).max() > 1e-5


def test_a_target_is_of_an_encoder_decoder(model):
    with pytest.raises(PretrainedError, match="names is none. Leave it out"):
        measure_pairs(model, [replace(OWN_PAIRS[0], target="so")])


@each("family", ["bert", "llama", "gpt_oss", "mamba"])
def test_other_families_are_measured_by_every_way(family):
    model = tiny(family)
    mask = "[MASK]" if family == "bert" else "tired"
    texts = [f"the {one} was {mask}" for one in ("animal", "street")]
    effects = measure_pairs(model, 2 * [Pair(texts[0], texts[1], "#5", "#9")], positions=True)
    assert not effects.refused and effects.positions.shape == (
        2,
        len(effects.heads),
        len(effects.tokens),
    )
    assert all(np.abs(values).max() > 1e-4 for values in effects.effects.values())
    assert_close(effects.half("zero"), np.zeros(len(effects.heads)))


# A run of its own.


def test_a_killed_worker_continues_without_a_pair_twice(tmp_path, effects):
    run = CONFIG.create(tmp_path / "run")
    assert read_measurement(run).done == 0
    stop = iter([False, True]).__next__
    assert work(run, stop) == ("stopped", "Stopped after 2 of 4 pairs, which are saved.")
    lines = (run.path / LINES).read_bytes()
    (run.path / LINES).write_bytes(lines[:-40])  # the second one was being written
    assert read_measurement(run).done == 1
    measured = list[Any]()
    assert work(run, lambda: False, measured.append) == ("finished", "Measured 4 pairs.")
    assert [one["pair"]["line"] for one in measured] == [3, 4, 5] and len(load_lines(run)) == 4
    whole = read_measurement(run)
    assert (whole.done, whole.count, whole.config) == (4, 4, CONFIG)
    for way in WAYS:
        assert_close(whole.effects.effects[way], effects.effects[way])
    assert_close(whole.effects.positions, effects.positions)
    assert whole.effects.names == effects.names and whole.effects.heads == effects.heads


def test_the_command_measures_a_file_and_goes_on(tmp_path, capsys):
    bad = replace(OWN_PAIRS[1], other="")
    file = tmp_path / "my_pairs.csv"
    file.write_text(to_csv([OWN_PAIRS[0], bad, OWN_PAIRS[2]]), encoding="utf-8")
    words = ["pairs", str(file), "--model", "names", "--folder", str(tmp_path / "run")]
    for _ in range(2):
        assert run_command("dashboard", *words, "--ways", "zero", "direct") == 0
        out = capsys.readouterr().out
        assert "Row 3: other is empty." in out and "head,pairs,zero,zero ±,direct,direct ±" in out
    assert run_command("dashboard", *words, "--ways", "zero") == 1
    assert "a measurement of other pairs" in capsys.readouterr().err
    assert run_command("dashboard", *words[:4], "--ways", "none") == 1
    assert f"one of {', '.join(BY_KEY)}" in capsys.readouterr().err
    assert worker.WORK["pairs"] and json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert all(name in to_csv(OWN_PAIRS).split("\n")[0] for name in COLUMNS)


def test_the_document_s_example_runs(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "contrast-pairs.md").read_text("utf-8")
    (file,), (block,) = (
        re.findall(rf"```{form}[^\n]*\n(.*?)```", text, re.DOTALL) for form in ("csv", "python")
    )
    (tmp_path / "my_pairs.csv").write_text(file, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs", "exec"), {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert re.match(r"L3·H2 \d+\.\d+ ± \d+\.\d+", first) and second.startswith("() (3, 36) ")
    assert third == "8 When John and Mary went to the shop, Mary gave a book to John"
