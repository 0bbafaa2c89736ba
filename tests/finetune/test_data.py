"""Rows of a CSV: what is learned, what is held out, and words with a line number for whatever is wrong."""

from collections import Counter

import pytest

from core.entries import ConfigError
from core.pretrained.finetune import own_rows, parse

GOOD = "text,label\n" + "\n".join(f"sentence {i},{'ab'[i % 2]}" for i in range(12))


def test_a_quarter_of_each_label_is_held_out_and_nothing_is_in_both():
    rows = parse("classify", GOOD)
    assert Counter(pair.answer for pair in rows.held_out) == {"a": 1, "b": 1}
    assert Counter(pair.answer for pair in rows.learned) == {"a": 5, "b": 5}
    assert not {pair.text for pair in rows.learned} & {pair.text for pair in rows.held_out}
    assert parse("classify", GOOD, 1).learned != rows.learned


def test_our_own_rows_are_thirty_of_each_label():
    rows = parse("classify", own_rows("classify"))
    every = (*rows.learned, *rows.held_out)
    assert Counter(pair.answer for pair in every) == dict.fromkeys(rows.labels, 30)
    assert len(rows.labels) == 4 and len({pair.text for pair in every}) == 120
    assert rows.majority[1] == 0.25


def test_the_majority_is_that_of_what_is_learned():
    rows = parse(
        "classify", "text,label\n" + "\n".join(f"{i},{'yes' if i < 9 else 'no'}" for i in range(13))
    )
    assert rows.majority == ("yes", 2 / 3)


def test_quotation_marks_hold_commas_and_a_header_is_not_needed():
    rows = parse("classify", GOOD.removeprefix("text,label\n") + '\n"one, two, three",b')
    assert "one, two, three" in {pair.text for pair in (*rows.learned, *rows.held_out)}
    assert len(rows.learned) + len(rows.held_out) == 13


def test_a_row_that_stands_there_twice_is_taken_once():
    rows = parse("classify", GOOD + "\nsentence 3,b\nsentence 3,b")
    assert rows.repeated == 2 and len(rows.learned) + len(rows.held_out) == 12


@pytest.mark.parametrize(("data", "words"), [
    ("", "There is no file yet"),
    ("text,label", "0 different rows"),
    (GOOD + "\n,a", "no text in line 14"),
    (GOOD + "\nnothing,", "no label in line 14"),
    (GOOD + "\nsentence 0,b", "Lines 2 and 14 have the same text"),
    (GOOD + "\nlonely,c", "only once in the file: line 14"),
    (GOOD + "\na,b,c", "line 14 has 3"),
    (GOOD + '\n"open,a', "Line 14 opens a quotation mark"),
    (GOOD + "\n" + 1001 * "x" + ",a", "longer than 1,000 characters in line 14"),
    ("a,b,c\n" * 9, "Line 1 has 3 columns"),
    ("\n".join(f"{i},same" for i in range(9)), "Every row has the label 'same'"),
    ("\n".join(f"{i},{i // 2}" for i in range(99)), "at most 20 are allowed"),
    ("\n".join(f"{i},{i % 2}" for i in range(3_001)), "at most 3,000 are allowed"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(data, words):
    with pytest.raises(ConfigError, match=words):
        parse("classify", data)


def test_pairs_need_no_label_twice():
    rows = parse("pairs", "source,target\n" + "\n".join(f"{i},{i * i}" for i in range(10)))
    assert rows.labels == () and len(rows.held_out) == 2
