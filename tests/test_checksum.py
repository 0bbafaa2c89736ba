"""The checksum at the end of a line: any changed bit is noticed, and lines without one are read as before."""

import json

import pytest

from core.files import read_checked, read_lines, with_checksum

VALUE = {
    "step": 12,
    "loss": 0.25,
    "examples": [{"source": ["é", '"}'], "cut": False}],
    "rate": None,
}

LINE = with_checksum(json.dumps(VALUE, ensure_ascii=False))


def test_a_line_is_json_and_comes_back():
    assert json.loads(LINE).keys() - VALUE.keys() == {"crc32"}
    assert (
        read_checked(LINE)
        == read_checked(LINE + b"  ")
        == read_checked(json.dumps(VALUE).encode())
        == VALUE
    )


def test_every_changed_bit_is_noticed():
    end = LINE.index(b', "crc32')
    for at in range(8 * len(LINE)):
        line = bytearray(LINE)
        line[at // 8] ^= 1 << at % 8
        try:
            value = read_checked(bytes(line))
        except ValueError:
            continue
        assert at // 8 > end and value.keys() - VALUE.keys(), (
            "only the name of the checksum, which is a field too many"
        )


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"3", b"{", b"\xff{}", b'{"a": 1, "crc32": "0000000g"}', b'{"crc32": "00000000"}'],
)
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ValueError):
        read_checked(text)


def test_damaged_lines_stand_among_the_others_and_a_last_one_without_an_end_is_left_out(tmp_path):
    (tmp_path / "lines").write_bytes(
        LINE + b"\n" + LINE.replace(b"12", b"13") + b"\n\n" + LINE + b"\n" + LINE
    )
    assert [value for _, value in read_lines(tmp_path / "lines", dict)] == [VALUE, None, VALUE]
    assert read_lines(tmp_path / "none", dict) == []
