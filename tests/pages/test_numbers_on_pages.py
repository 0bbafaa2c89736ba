"""One value, one text: every number with decimals on these pages stands as `dashboard.draw.formats` writes it.

A number that is written again from its own text comes out the same, so a second precision of it cannot stand anywhere.
"""

import ast
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest

from dashboard.draw.formats import cell, number, percent
from tests.pages.app import app_at

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "evidence": "induction",
    "head_roles": "induction",
    "corpus": "induction",
    "generate": "induction",
    "two_models": "induction",
    "use_model": "digits",
    "pretrained": "induction",
}
OWN_DECIMALS = {
    "inside_weight",
    "mechanisms",
    "normalizers",
    "one_query",
    "sweeps",
    "why",
}  # still to be converted
DECIMAL = re.compile(
    r"(?<![\w.,])([+−]?)(\d[\d,]*\.\d+|\.\d+|\d+e−\d+)(?![\w.])"
    r"(?!\u00a0(?:[mµ]?s|[kMGT]B?)\b)"
)  # amounts have their own formatters
PERCENT = re.compile(r"[\d.,]+\s?%")
FORMAT = re.compile(r"\.[1-9]\d*~?[feg]|%")
UNIT = re.compile(r"\s?([kMG]i?B|[mµ]s)\b")
VEGA_FORMAT = re.compile(r"[+,]?\.\d+~?[fgse%]")


def written(app: AppTest) -> list[str]:
    """Every text of a page: sentences, tables, equations, tooltips and labels, without tags, styles and links."""
    texts = [element.proto.body for element in app.get("html")]
    texts += [
        element.value for kind in ("markdown", "caption", "latex") for element in getattr(app, kind)
    ]
    for chart in app.get("vega_lite_chart"):
        texts += strings(json.loads(chart.proto.spec))
        data = [chart.proto.data.data, *(named.data.data for named in chart.proto.datasets)]
        for frame in map(convert_arrow_bytes_to_pandas_df, filter(None, data)):
            texts += [text for column in frame for text in frame[column] if isinstance(text, str)]
    return [
        re.sub(r"<style>.*?</style>|<[^>]+>|\]\([^)]*\)|\\(?=\W)", " ", text, flags=re.DOTALL)
        for text in texts
    ]


def strings(spec: object) -> list[str]:
    """What the rows of a chart hold as text: not its colours and expressions."""
    if isinstance(spec, dict):
        rows = spec.get("values") if isinstance(spec.get("values"), list) else []
        own = [
            text
            for row in rows
            if isinstance(row, dict)
            for text in row.values()
            if isinstance(text, str)
        ]
        return own + [text for part in spec.values() for text in strings(part)]
    return [text for part in spec for text in strings(part)] if isinstance(spec, list) else []


@pytest.mark.parametrize(("page", "model"), PAGES.items())
def test_every_number_stands_as_the_rule_writes_it(page, model):
    app = app_at(page, "inside:", model=model).run()
    count = 0
    for text in written(app):
        for _, digits in DECIMAL.findall(text):
            again = number(float(digits.replace(",", "").replace("−", "-")))
            assert digits in (again, cell(again)), (
                f"{digits} would be written {again}: {text[:300]}"
            )
            count += 1
        for share in PERCENT.findall(text):
            assert share == percent(float(re.sub(r"[^\d.]", "", share)) / 100), text[:300]
    assert count > 2, "no number was looked at"


def test_no_number_is_formatted_beside_the_rule():
    """No decimals of its own in an f-string or a Vega format, but in CSV for other programs."""
    views = ROOT / "dashboard" / "views"
    for path in sorted(
        path
        for path in [*views.rglob("*.py"), *(ROOT / "pages").glob("*.py")]
        if path.stem not in OWN_DECIMALS and path.parent.name not in OWN_DECIMALS
    ):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        exempt = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef) and "csv" in function.name
            for node in ast.walk(function)
        }
        exempt |= {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if isinstance(part, ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FormattedValue)
                and node.format_spec is not None
                and id(node) not in exempt
            ):
                own = "".join(
                    str(part.value)
                    for part in ast.walk(node.format_spec)
                    if isinstance(part, ast.Constant)
                )
                assert not FORMAT.search(own), (
                    f"{path.name}:{node.lineno} formats with :{own}; take charts.numbers"
                )
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in exempt
            ):
                assert not VEGA_FORMAT.fullmatch(node.value), (
                    f"{path.name}:{node.lineno} has the format {node.value}"
                )


def test_no_amount_is_written_beside_the_formatters():
    """Bytes and times are written by `byte_size` and `duration` alone, so that MB means one thing on every page."""
    for path in sorted(
        {*(ROOT / "dashboard").rglob("*.py"), *(ROOT / "pages").glob("*.py")}
        - {ROOT / "dashboard" / "draw" / "formats.py"}
    ):
        for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(text, ast.JoinedStr):
                for value, after in pairwise(text.values):
                    unit = UNIT.match(str(after.value)) if isinstance(after, ast.Constant) else None
                    assert not (unit and isinstance(value, ast.FormattedValue)), (
                        f"{path}:{after.lineno}"
                    )
