"""Files and pasted tables are read whole, or what is wrong is said with its line; nothing else ever happens."""

import csv
import io

import pytest
from hypothesis import given, settings, strategies as st

from core.entries import ConfigError
from core.tasks.reading import MAX_COLUMNS, MAX_SIGNS, decode_text, read_rows
from tests.cases import each


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
    assert mark == ","
    assert [tuple(row) for row in rows] == [
        (1, ("name", "said")),
        (3, ("ann", "a\nb")),
        (5, ("bob", 'c, "d"')),
    ]


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
