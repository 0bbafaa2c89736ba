"""What comes through a door costs no more than its length: twice as much takes about twice as long.

Each door reads texts on which a search, a comparison or a sort by each of their signs shows, as the content of
something that it takes otherwise: a cell, a token, a key.
"""

import gzip
import io
import json
import time
import wave
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from safetensors import numpy as safetensors

from core import tokens
from core.attention import text as text_of_mechanism
from core.attention.formula import FormulaError, parse as parse_formula
from core.entries import ConfigError, Param
from core.interpret import pairs as contrast_pairs
from core.interpret.corpus import split_texts
from core.interpret.head_tests import parse_conllu
from core.interpret.map_transform import align, group_by_word
from core.interpret.roles import Text
from core.pretrained import Line, PretrainedError
from core.pretrained.cards import parse_card
from core.pretrained.finetune import parse as parse_rows
from core.pretrained.hub import parse as parse_name
from core.pretrained.model_inputs import decode_wav, read_arrays
from core.runs import archive
from core.studies.compare import from_query
from core.studies.heads import check as check_matrices, parse as parse_matrices
from core.tasks import TaskConfig, make_task
from core.tasks.reading import decode_text, read_rows
from core.tasks.tables import date, number, parse_table
from core.tasks.text import Corpus, unseen
from dashboard.draw import formats, glossary
from dashboard.fields import link as links
from dashboard.ui import bars, export
from dashboard.ui.lessons import (
    LessonError,
    clean_name,
    decode,
    from_json,
    make_question,
    parse_link,
    parse_numbers,
    read_code,
    to_json,
)

WORDS = (ConfigError, FormulaError, LessonError, PretrainedError, ValueError, KeyError)


def repeated(part: str, end: str = "") -> Callable[[int], str]:
    return lambda size: part * (size // len(part)) + end


def numbered(between: str) -> Callable[[int], str]:
    return lambda size: between.join(map(str, range(size // 6)))


CONTENTS: dict[str, Callable[[int], str]] = {
    repr(part): repeated(part)
    for part in ("a", "1", " ", "(", "[", "'", '"', "\\", "`", "-", ":", "_", ".", ",", "\n", "�")
    + (
        "1a",
        "a ",
        "a_",
        "a\n",
        "a,",
        ",;",
        "](",
        "()",
        '""',
        "'\\",
        "#1",
        "1 ",
        "1,",
        "a.b/",
        "<a>",
    )
    + ("and ", "é", "\u0327\u0301", "ﷺ", "a=b ", "a,b\n", "a\tb\n", "&lt;", "$a", "0.", "**", "//")
} | {
    "digits, a sign": repeated("9", "x"),
    "digits, almost last": repeated("1", "a1a"),
    "brackets, closed": lambda size: "(" * (size // 2) + ")" * (size // 2),
    "lists, closed": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "objects": repeated('{"a":'),
    "halves": lambda size: 2 * ("a" * (size // 2) + "b"),
    "words": numbered(" "),
    "lines": numbered("\n"),
    "cells": numbered(","),
    "signs before a word": repeated("a))"),
    "word, signs": lambda size: "a" + ")" * size + "a",
}


@dataclass(frozen=True)
class Door:
    """`enter` reads a text; it is given texts of `most` signs and fewer."""

    name: str
    enter: Callable[[str], object]
    most: int = 16_000


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def table(cell: str, name: str = "size") -> str:
    rows = "".join(f"{i},{'ab'[i % 2]}\n" for i in range(30))
    return f"{quoted(name)},class\n{rows}{quoted(cell)},a\n"


def pairs(cell: str) -> str:
    return "".join(f"s{i},t{i}\n" for i in range(40)) + f"{quoted(cell)},x\n"


def columns(text: str) -> object:
    names = ",".join(quoted(text[i : i + 2_000]) for i in range(0, len(text), 2_000)[:60])
    rows = "".join(",".join([str(i)] * names.count('","')) + ",1,a\n" for i in range(25))
    return parse_table(f"{names},class\n{rows}", "yes", "", "", text[:4_000])


def own_text(text: str) -> object:
    return make_task(TaskConfig.of("own_text", data=text, length=16)).held_out(20)


def windows(unit: str) -> Callable[[str], object]:
    def enter(text: str) -> object:
        corpus = Corpus.of(text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :], unit)
        return list(islice(unseen(corpus, 64, 0), 20)) if len(corpus.held_out) > 64 else None

    return enter


MAPS = np.full((1, 2, 2), 0.5, np.float32)


def tensor(key: str) -> object:
    return read_arrays(safetensors.save({key: MAPS}), "file")


def label(text: str) -> object:
    given = {"tokens": json.dumps([text[: len(text) // 2], text[len(text) // 2 :]])}
    return read_arrays(safetensors.save({"self_0": MAPS}, given), "file")


def header(text: str) -> object:
    raw = text.encode()
    return read_arrays(len(raw).to_bytes(8, "little") + raw + bytes(9), "file")


def member(text: str) -> object:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file, file.open(f"{text[:9_000]}.npy", "w") as one:
        np.save(one, MAPS)
    return read_arrays(out.getvalue(), "file")


def numpy_header(text: str) -> object:
    out, raw = io.BytesIO(), text.encode()[:60_000] + b"\n"
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a.npy", b"\x93NUMPY\x01\0" + len(raw).to_bytes(2, "little") + raw)
    return read_arrays(out.getvalue(), "file")


def sound(text: str) -> object:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8_000, 0, "NONE", ""))
        file.writeframes(bytes(20))
    chunks = text.encode()[: len(text) // 8 * 8]
    whole = out.getvalue()
    return decode_wav(whole[:12] + chunks + whole[12:], 16_000)


def in_zip(text: str) -> object:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("run.json", text)
        file.writestr(text[:9_000], "")
    return archive.unpack(out.getvalue(), Path("/nowhere"))


def line(text: str) -> Line:
    words = tuple(text.split()[:500]) + tuple(text[i : i + 40] for i in range(0, len(text), 40))
    words = words[:500]
    nothing = (False,) * len(words)
    return Line((0,) * len(words), words, nothing, (0,) * len(words), (0,) * len(words))


def roles(text: str) -> object:
    return Text(line(text)).words, group_by_word(line(text).word)


def lesson(**changes: Any) -> str:
    return json.dumps(json.loads(to_json(decode("attention"))) | changes)


def link_of(text: str) -> Any:
    return patch.object(links, "st", SimpleNamespace(query_params={"head": text}))


def read_pairs(text: str) -> object:
    with link_of(text):
        return links.read_pairs("head", (3, 5)), links.read_pair("head", (3, 5))


def report(text: str) -> object:
    view = {"title": text, "svg": f"<svg {text}>", "page": "heads", "query": {"a": text}}
    path = export._path("0" * 16)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps({"title": text, "views": [view]}).encode()))
    return export.read_report("0" * 16)


CONLLU = "1\t{0}\t{0}\tNOUN\t_\t_\t0\troot\t_\t{0}\n"
TYPED = Param("text", "Text", default="")
DOORS = (
    Door("text", lambda text: decode_text(text.encode())),
    Door("text as Windows-1252", lambda text: decode_text(text.encode("cp1252", "ignore"))),
    Door("rows", read_rows),
    *(
        Door(
            f"table, {name} = {value}",
            partial(
                _table := lambda options, text: parse_table(
                    **{"data": table(text), "header": "auto", "label": "", "text": ""} | options
                ),
                {name: value},
            ),
        )
        for name, value in (
            ("header", "yes"),
            ("header", "no"),
            ("decimal", "auto"),
            ("decimal", "point"),
            ("decimal", "comma"),
            ("decimal", "table"),
            ("dates", "numbers"),
            ("dates", "categories"),
            ("columns", "*"),
            ("text", "1"),
        )
    ),
    Door("whole table", lambda text: parse_table(text, "auto", "", "")),
    Door("names of columns", columns),
    Door("label of a table", lambda text: parse_table(table("1"), "auto", text, "")),
    Door("cell", lambda text: [number(text, comma) for comma in (False, True)] + [date(text)]),
    Door("row of a table", lambda text: make_task(TaskConfig.of("own_table")).example(text)),
    Door("table task", lambda text: make_task(TaskConfig.of("own_table", data=table(text)))),
    Door("pair", lambda text: make_task(TaskConfig.of("own_pairs", data=pairs(text)))),
    Door("pairs", lambda text: make_task(TaskConfig.of("own_pairs", data=text))),
    Door("own text", own_text, 64_000),
    Door("windows of characters", windows("characters"), 64_000),
    Door("windows of words", windows("words"), 64_000),
    Door("CoNLL-U", parse_conllu),
    Door("word of CoNLL-U", lambda text: parse_conllu(CONLLU.format(text.replace("\n", "")))),
    Door("tensor", tensor),
    Door("labels", label),
    Door("header of tensors", header),
    Door("typed tokens", lambda text: read_arrays(safetensors.save({"a": MAPS}), "file", text)),
    Door("member of an NPZ", member),
    Door("header of an NPZ", numpy_header),
    Door("sound", sound),
    Door("run", in_zip),
    Door("report", report),
    Door("lesson", from_json),
    Door("lesson in a link", decode),
    Door("text of a lesson", lambda text: from_json(lesson(text=text))),
    Door(
        "query of a lesson",
        lambda text: from_json(lesson(query=[["", ""]] * (len(text) // 8))).parameters,
    ),
    Door("link in a lesson", lambda text: parse_link("https://a/masks?" + text)),
    Door("parameters in a lesson", lambda text: parse_link("https://a/masks?a=" + text)),
    Door("code", read_code),
    Door("name", clean_name),
    Door("teacher's Markdown", bars.teacher_markdown),
    Door("numbers", parse_numbers),
    Door("answer", lambda text: make_question("text", "?", "a").check(text)),
    Door("right answer", lambda text: make_question("text", "?", text.replace("\n", ""))),
    Door("mechanism", lambda text: text_of_mechanism.from_text(text, (16, 2))),
    Door("choice", lambda text: text_of_mechanism.choice_from_text(text, "mask")),
    Door(
        "formula in a choice",
        lambda text: text_of_mechanism.choice_from_text(f"formula(formula={text}", "mask"),
    ),
    Door("score", lambda text: parse_formula(text, "score")),
    Door("matrices", lambda text: check_matrices(parse_matrices(text))),
    Door("cells of matrices", lambda text: check_matrices(parse_matrices(f"1,{text}|1|1"))),
    Door("model", parse_name),
    Door("rows to fine-tune on", lambda text: parse_rows("classify", text)),
    Door("row to fine-tune on", lambda text: parse_rows("pairs", f"source,target\n{pairs(text)}")),
    Door("texts of a corpus", lambda text: split_texts(text, "lines")),
    Door("paragraphs of a corpus", lambda text: split_texts(text, "paragraphs")),
    Door("pairs of a link", read_pairs),
    Door("contrast pairs", contrast_pairs.read_pairs),
    Door("contrast pairs as JSON", lambda text: contrast_pairs.read_pairs(f"{{{text}")),
    Door(
        "link of Compare",
        lambda text: from_query({"source": text, "seed": text, "text": text, "m": [text]}),
    ),
    Door("number of a link", lambda text: links.between(0, 9, float)(text)),
    Door("whole number of a link", lambda text: links.between(0, 9)(text)),
    Door("parameter", lambda text: TYPED.check(text, "a page")),
    Door("sentence", lambda text: tokens.labels(tokens.tokenize(text).tokens)),
    Door("token", tokens.token_text),
    Door("words of a line", roles),
    Door("two lines", lambda text: align(text, text.translate({ord("a"): "b"})), 1_000),
    Door("config", lambda text: parse_card(text, "model")),
    Door("field of a config", lambda text: parse_card(json.dumps({text: text}), text)),
    Door("type of a config", lambda text: parse_card(json.dumps({"model_type": text}), "model")),
    Door(
        "Markdown", lambda text: (formats.plain(text), formats.spoken(text), formats.shorten(text))
    ),
    Door("terms", lambda text: (glossary.explain_markdown(text), glossary.find_terms(text))),
)
SLOW, FIRST = 0.002, 250  # seconds, less of which is not measured well; signs


def seconds(door: Door, given: str) -> float:
    start = time.thread_time()
    with suppress(*WORDS):
        door.enter(given)
    return time.thread_time() - start


def growth(door: Door, content: Callable[[int], str]) -> str:
    """The times of a content that grow by three and more a doubling, each the least of three, or "".

    The texts differ, as readers remember what they have read.
    """
    size = FIRST
    while size <= door.most // 4 and seconds(door, content(size)) < SLOW:
        size *= 2
    times = [0.0]
    for factor in (1, 2, 4):
        lengths = [factor * (size + 8 * attempt) for attempt in range(3)]
        times.append(min(seconds(door, content(length)) for length in lengths))
        if times[-1] < max(SLOW, 3 * times[-2]):
            return ""
    return f"{size:,} signs and more: " + ", ".join(f"{each:.3f} s" for each in times[1:])


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_door_takes_no_longer_than_its_text(door, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path))
    seconds(door, "a")  # imports
    slow = {name: found for name, content in CONTENTS.items() if (found := growth(door, content))}
    assert not slow
