"""A person's own long data: stored once by its checksum, referred to by settings, and whole in every run's folder."""

import csv
import io
import json
import os
import shutil
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.tasks import TARGETS, Figures, Row, Target, figures
from core.entries import ConfigError
from core.runs.archive import pack, unpack
from core.runs.runs import Run, create_run, duplicate, prune
from core.runs.worker import work
from core.tasks import TaskConfig, make_task, reading
from core.tasks.own import OwnPairs
from core.tasks.reading import MAX_COLUMNS, MAX_SIGNS, decode_text, read_rows
from core.training import Record, recommended
from core.training.__main__ import main
from core.training.sweeps import SweepConfig
from tests.cases import each, instance

DATA = "".join(f"the dog {n} runs .\tder hund {n} läuft .\n" for n in range(400))
SMALL = dict(steps=2, record_every=1, batch_size=4, held_out=6, num_examples=1)


@pytest.fixture(autouse=True)
def runs(monkeypatch, tmp_path):
    monkeypatch.setattr("core.training.loop.FINAL", 6)
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    reading._run_files.clear()
    reading._read.cache_clear()
    return tmp_path / "runs"


@pytest.fixture
def task():
    return TaskConfig.of("own_pairs", data=reading.put(DATA))


def forget(folder):
    """The store as another machine has it: empty."""
    shutil.rmtree(folder / ".data")
    reading._run_files.clear()
    reading._read.cache_clear()


def test_a_reference_is_the_text_and_the_same_text_has_the_same_one(task):
    reference = reading.put(DATA)
    assert reference == task["data"] and reading.read(reference) == DATA
    by_reference, inline = (
        instance(make_task(config), OwnPairs)
        for config in (task, TaskConfig.of("own_pairs", data=DATA))
    )
    assert by_reference.pairs == inline.pairs and by_reference.notes == inline.notes


def test_what_is_stored_is_refused_in_words_when_it_is_gone_or_changed(task, runs):
    with pytest.raises(ConfigError, match="not on this machine"):
        TaskConfig.of("own_text", data="sha256:" + "0" * 64)
    short = TaskConfig.of("own_text", data=reading.put("abc " * 9))  # it is read with the task
    with pytest.raises(ConfigError, match="too few for a window"):
        make_task(short)
    reading._read.cache_clear()
    reading.path_of(str(task["data"])).write_text("something else", encoding="utf-8")
    with pytest.raises(ConfigError, match="was changed"):
        make_task(replace(task, seed=1))


def test_a_run_is_whole_without_the_store(task, runs):
    run = create_run(recommended(make_task(task), "transformer", **SMALL))
    assert (run.path / "run.json").stat().st_size < 5_000
    forget(runs)
    assert work(run.path) == "finished", run.status().message
    copied = duplicate(run, "copy")
    came, config = unpack(pack(run), runs), run.config()
    shutil.rmtree(run.path)
    reading._run_files.clear()
    reading._read.cache_clear()
    for other in (copied, came):
        assert other.config() == config and instance(other.model()[1], OwnPairs).pairs.trained
        assert reading.read(str(other.config().task["data"])) == DATA


def test_a_zip_whose_data_is_not_what_it_says_is_refused(task, runs):
    run = create_run(recommended(make_task(task), "transformer", **SMALL))
    work(run.path)
    path = next((run.path / "data").glob("*.txt"))
    path.unlink()
    path.write_text(DATA + "one more\tline\n", encoding="utf-8")
    zipped = pack(run)
    forget(runs)
    shutil.rmtree(run.path)
    with pytest.raises(ValueError, match="was changed"):
        unpack(zipped, runs)


def test_text_too_long_for_a_setting_is_stored_when_a_run_is_made(monkeypatch, runs):
    monkeypatch.setattr(reading, "INLINE", 1_000)
    config = recommended(make_task(TaskConfig.of("own_pairs", data=DATA)), "transformer", **SMALL)
    run = create_run(config)
    assert (
        reading.is_reference(run.config().task["data"])
        and reading.read(str(run.config().task["data"])) == DATA == config.task["data"]
    )


def test_old_runs_with_their_data_inline_are_read(runs):
    config = recommended(
        make_task(TaskConfig.of("own_pairs", data=DATA, unit="words")), "transformer", **SMALL
    )
    run = create_run(config)
    assert (
        json.loads((run.path / "run.json").read_text(encoding="utf-8"))["config"]["task"]["params"][
            "data"
        ]
        == DATA
    )
    assert run.config() == config and not (run.path / "data").exists()


def test_a_sweep_and_the_shell_refer_to_it(monkeypatch, runs, tmp_path, capsys):
    monkeypatch.setattr(reading, "INLINE", 1_000)
    (tmp_path / "my.tsv").write_text(DATA, encoding="utf-8")
    assert main(["recipe", "own_pairs", "--data", str(tmp_path / "my.tsv")]) == 0
    printed = capsys.readouterr().out
    assert len(printed) < 5_000
    (tmp_path / "mine.json").write_text(json.dumps(json.loads(printed) | SMALL), encoding="utf-8")
    assert main(["train", str(tmp_path / "mine.json"), str(tmp_path / "run")]) == 0
    run = Run(tmp_path / "run")
    sweep = SweepConfig(run.config(), "score", ("scaled_dot", "additive"), seeds=(0, 1))
    assert len(json.dumps(sweep.to_json())) < 8_000
    cell = create_run(SweepConfig.from_json(sweep.to_json()).run(1, 1))
    forget(runs)
    assert reading.read(str(cell.config().task["data"])) == DATA


def test_data_that_no_run_has_goes_after_a_day(task, runs):
    used = create_run(recommended(make_task(task), "transformer", **SMALL))
    unused = reading.path_of(reading.put("unused"))
    fresh = reading.path_of(reading.put("fresh"))
    past = time.time() - 2 * reading.UNUSED
    for path in (reading._stored(str(task["data"])), unused):
        os.utime(path, (past, past))
    prune()
    assert (
        fresh.exists()
        and not unused.exists()
        and reading._stored(str(task["data"])).exists()
        and used.exists()
    )


# Files and pasted tables are read whole, or what is wrong is said with its line; nothing else ever happens.


@each("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_text_comes_back_from_its_bytes(coding):
    assert decode_text("Größe;µ\nπ".encode(coding)) == "Größe;µ\nπ"


@each(
    ("data", "words"),
    [
        (
            "a,b\nGrün,1\n".encode("latin-1"),
            "Line 2 is not UTF-8: its byte 3 is 0xFC .in Windows-1252 'ü'",
        ),
        (b"PK\x03\x04rest", "Excel workbook"),
        (b"%PDF-1.7", "a PDF"),
        (b"\xff\xfea\x00b", "UTF-16, but breaks off at byte"),
        (b"x" * (4 * MAX_SIGNS + 1), "16,000,001 bytes"),
    ],
)
def test_bytes_that_are_no_text_are_named(data, words):
    with pytest.raises(ConfigError, match=words):
        decode_text(data)


@each(
    ("text", "words"),
    [
        (" \n\t ", "no table yet"),
        (";;\n;;\n", "All cells"),
        ("ab\ncd\x00e\n", "Line 2 holds the control character U.0000"),
        ("ab\ud800", "Line 1 holds the control character U.D800"),
        ("x" * (MAX_SIGNS + 1), "4,000,001 characters; at most 4,000,000"),
        ("only one column\nof words\n", "single column"),
        (
            "a,b\n1,2\n\n3,4,5\n6\n",
            "line 1 has 2 cells, line 4 has 3; line 5 has 1. Commas separate",
        ),
        ("a\tb\n" + "1\n" * 5, "line 2 has 1; line 3 has 1; line 4 has 1; and 2 more"),
        (
            'a,b\n1,"two\nlines"\n"open,2\n3,4\n',
            "Line 4 opens a quotation mark that is never closed",
        ),
        ('a,b\n1,"x"y\n', "Line 2: a cell in quotation marks continues"),
        (",".join("x" * 80) + "\n", f"80 columns; at most {MAX_COLUMNS}"),
        ("a,b\n" + "x" * 140_000 + ",1\n", "Line 2 begins a cell of more than 131,072"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(text, words):
    with pytest.raises(ConfigError, match=words):
        read_rows(text)


def test_lines_are_counted_over_quoted_line_ends_and_blank_lines():
    rows, mark = read_rows('name,said\r\n\r\nann,"a\r\nb"\r\nbob,"c, ""d"""\r\n')
    assert (mark, [tuple(row) for row in rows]) == (
        ",",
        [
            (1, ("name", "said")),
            (3, ("ann", "a\nb")),
            (5, ("bob", 'c, "d"')),
        ],
    )


@each(
    ("text", "mark", "cells"),
    [
        ("1,5;2,5\n3,5;4,5\n", ";", ("1,5", "2,5")),
        ("a, b\tc\nd, e\tf\n", "\t", ("a, b", "c")),
        ("a|b\nc|d\n", "|", ("a", "b")),
        ("Hello; you,Salut\nBye,Adieu\n", ",", ("Hello; you", "Salut")),
        ('"Hi," she said\tfirst\nBye "now\tlast\n', "\t", ('"Hi," she said', "first")),
    ],
)
def test_the_separator_is_found(text, mark, cells):
    rows, separator = read_rows(text)
    assert (separator, rows[0].cells) == (mark, cells)


CELL = st.text(alphabet=st.sampled_from('ab1,;"\n é'), max_size=8).map(str.strip)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda width: st.lists(
            st.lists(CELL.filter(bool), min_size=width, max_size=width), min_size=1, max_size=6
        )
    ),
    st.sampled_from("\t,;"),
)
def test_what_was_written_is_read_back(table, mark):
    out = io.StringIO()
    csv.writer(out, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    rows, separator = read_rows(out.getvalue())
    if separator == mark:  # cells full of another mark may be cut at that one, as a person would
        assert [list(row.cells) for row in rows] == table


# The table of targets: every kind of model of every task made here has one, and a miss is told as a miss.

GOOD = Figures(steps=200, seconds=4.0, exact=99.5, bleu=float("nan"), mass=0.93, even=0.1, data=3.0)


def test_every_recipe_of_a_sequence_or_translation_has_a_target():
    targets = {(target.task, target.model) for target in TARGETS if not target.card}
    assert len({(target.task, target.model, target.card) for target in TARGETS}) == len(TARGETS)
    for key in (
        "copy",
        "reverse",
        "sort",
        "recall",
        "induction",
        "addition",
        "dates",
        "numbers",
        "language",
    ):
        assert {(key, kind) for kind in make_task(TaskConfig.of(key)).recommended} <= targets


RECALL = Target("recall", "decoder", 10, mass=0.9)
TWO = [replace(GOOD, exact=60.0, bleu=96.0), replace(GOOD, exact=70.0, bleu=98.0)]


@each(
    ("target", "found", "end"),
    [
        *(
            (RECALL, [replace(GOOD, **missed)], "| yes |" if met else "| no |")
            for missed, met in (
                ({}, True),
                ({"exact": 98.9}, False),
                ({"mass": 0.89}, False),
                ({"seconds": 10.1}, False),
            )
        ),
        # A target in BLEU asks no exact match, and several seeds tell their spread.
        (
            Target("numbers", "recurrent", 10, bleu=96.5),
            TWO,
            "| numbers | recurrent | 200 ± 0 | 4.0 ± 0.0 | 65.0 ± 7.1 | 97.0 ± 1.4 | 0.93 ± 0.00 | "
            "0.10 ± 0.00 | 3.0 ± 0.0 | BLEU ≥ 96.5, ≤ 10 s | yes |",
        ),
        # What a record does not say is a dash.
        (
            Target("language", "classifier", 10),
            [figures(Record(step=3, sequence_accuracy=1.0), 2.0)],
            "| language | classifier | 3 | 2.0 | 100.0 | – | – | – | – | exact ≥ 99, ≤ 10 s | yes |",
        ),
    ],
)
def test_all_parts_of_a_target_must_be_met(target, found, end):
    assert Row(target, found).markdown().endswith(end)
