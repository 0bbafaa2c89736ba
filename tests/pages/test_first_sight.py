"""Each page at first sight: it explains terms and controls where it first uses them, and Export has its pictures."""

import ast
import csv
import io
import json
import re
from ctypes.util import find_library
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block

from core.claims.catalogue import CLAIMS
from core.claims.run import shipped
from dashboard.draw import pictures as figure_files
from dashboard.draw.claims import results_figure
from dashboard.draw.figures import figure, layer, table_columns
from dashboard.draw.formats import cell, number, percent
from dashboard.draw.glossary import explain, find_terms
from dashboard.draw.picture_files import (
    FORMATS,
    NUMBERS,
    PAGE,
    TYPES,
    WIDTHS,
    NotForPaper,
    Source,
    framed_svg,
    paper_drawing,
    paper_parts,
    paper_words,
    picture_file,
)
from dashboard.draw.pictures import ChartPicture, DrawnPicture, Picture, TablePicture, size_of
from dashboard.navigation import STEPS
from dashboard.server.session import CURRENT
from dashboard.ui.export import REQUESTED
from docs.site import gallery
from tests.cases import each
from tests.pages.app import controls_of, open_at, pictures_of, set_state, shown
from tests.pages.picture_programs import (
    assert_drawn,
    assert_pdf_has,
    assert_svg_has,
    run_here,
    words_of,
)
from tests.pretrained.test_foreign import BY_HAND, write

SENTENCES = ("markdown", "subheader", "caption", "info", "warning", "error", "success")
INPUTS = (
    "checkbox",
    "file_uploader",
    "multiselect",
    "number_input",
    "radio",
    "select_slider",
    "selectbox",
    "slider",
    "text_area",
    "text_input",
    "toggle",
    "button_group",
)
CONTROLS = (*INPUTS, "button", "download_button", "metric")
# No sentence: code, LaTeX, addresses, and what a fact quotes in bold or in the accent.
SILENT = re.compile(r"<(b|span)\b.*?</\1>|```.*?```|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|\\", re.DOTALL)
SOURCE = Source("Page", "2026-11-23", {}, {})
# pages of words, strips and links
WITHOUT = ("cards", "claims", "glossary", "lessons", "questions", "quiz")
# A label that several pages explain in different words, and the one thing that all of them mean by it.
SHARED_LABELS = {
    "Block": "how many tokens a kernel computes at once",
    "Equation of": "what the equation below is written for",
    "Head": "one of the heads, by its number",
    "Heads": "how many heads",
    "Held-out example": "one held-out input",
    "Key": "one of the keys",
    "Mask": "which keys a query may attend to",
    "Model": "what computes the output from the input",
    "Query": "one of the words, which attends",
    "Score": "how a query is compared with a key",
    "Seed": "the number that fixes all random choices",
    "Sentence": "the words that the layer reads",
    "Task": "what a model learns",
    "Text B": "the text that another one is held against",
    "Temperature": "how flat a softmax is",
    "Training step": "a step of a run",
    "Weights": "where the parameters come from",
    "d_model": "how many numbers the vector of each token has",
}
SOFTMAX = explain("Softmax gives weights", set())
EXPLAINED = re.compile(r'<abbr class="term"[^>]*>(.*?)</abbr>')


def texts(block: Block) -> list[tuple[str, str]]:
    """Each sentence and label of a page from top to bottom, and its help."""
    found = []
    for node in block.children.values():
        if isinstance(node, Block):
            panel = getattr(node.proto, node.type, node.proto)
            found += [(getattr(panel, "label", ""), getattr(panel, "help", "")), *texts(node)]
        elif node.type in SENTENCES and not str(node.value).startswith("# "):
            # the name of the page
            found.append((str(node.value), getattr(node.proto, "help", "")))
        elif node.type == "html" and node.proto.body.startswith("<p"):  # a fact
            found.append((node.proto.body, ""))
        elif node.type in CONTROLS:
            found.append((node.proto.label, node.proto.help))
    return found


def unexplained(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each term that is used before it is explained, and the text that uses it."""
    known: set[str] = set()
    faults = []
    for text, help_text in found:
        known |= {term.name for part in EXPLAINED.findall(text) for term in find_terms(part)}
        terms = {term.name for term in find_terms(SILENT.sub(" ", EXPLAINED.sub(" ", text)))}
        faults += [] if help_text else [(name, text[:200]) for name in sorted(terms - known)]
        known |= terms
    return faults


@cache
def opened(page: str) -> AppTest:
    return open_at(page)


@pytest.mark.parametrize("page", [step.key for step in STEPS if step.key != "glossary"])
def test_a_page_explains_its_controls_and_terms(page):
    app = opened(page)
    found = texts(app.main)
    assert len(found) > 4 and not unexplained(found)
    assert not [
        node.proto.label
        for node in app.main
        if node.type in INPUTS and not node.proto.help and not node.proto.label_visibility.value
    ]


@each(
    "found, names",
    [
        ([("Softmax gives weights", ""), (SOFTMAX, "")], ["softmax"]),
        ([(SOFTMAX, ""), ("softmax of logits", "")], ["logit"]),
        ([(SOFTMAX, ""), ("softmax", ""), ("Seed", "The number of the random choices")], []),
    ],
)
def test_a_term_without_its_explanation_is_found(found, names):
    assert [name for name, _ in unexplained(found)] == names


def test_a_label_on_two_pages_means_one_thing():
    # It has the same help on both, or stands in SHARED_LABELS: a new one needs another label or a line there.
    helps: dict[str, set[str]] = {}
    for step in STEPS:
        for node in opened(step.key).main:
            if node.type in INPUTS and node.proto.label and not node.proto.label_visibility.value:
                helps.setdefault(node.proto.label, set()).add(
                    re.sub(r"[\d,]+", "#", node.proto.help).rstrip(".")
                )
    several = {label for label, texts in helps.items() if len(texts) > 1}
    assert len(helps) > 100 and several == set(SHARED_LABELS)


DRAWING = {"fill", "ink", "faint", "mark", "short", "picked", "told", "place", "x", "y", "end"}
DRAWN = re.compile(r"#[0-9A-F]{6}|transparent|[+−-]?[\d,]*\.\d+")  # a colour, a number as text
WRITTEN = re.compile(r"[<≤×+±−-]?\s?\d[\d,]*(\.\d+)?(e−?\d+)?(\s.*)?")  # with its unit, or another


def assert_numbers_come_back(picture: Picture) -> None:
    files = {name: picture_file(picture, name, SOURCE) for name in NUMBERS}
    head, rows = picture.table()
    if isinstance(picture, ChartPicture):
        bare = [f"column {at + 1}" for at, name in enumerate(head) if not name.strip()]
        assert not bare, f"{picture.title}: give {bare} a title, that of the chart or of its field"
        assert len({*head}) == len(head), f"{picture.title}: two columns have one name, {head}"
        reserved = sorted({*head} & DRAWING)  # the fields of marks that no title names
        assert not reserved, f"{picture.title}: name these columns otherwise: {', '.join(reserved)}"
        assert not [
            cell for row in rows for cell in row if isinstance(cell, str) and DRAWN.fullmatch(cell)
        ], (picture.title, head, rows[:2])
        assert rows and len({*map(len, rows)}) == 1
    if isinstance(picture, TablePicture) and head[0] != "setting":
        assert len({*head}) == len(head)
        assert not [
            cell
            for row in rows
            for cell in row
            if isinstance(cell, str) and WRITTEN.fullmatch(cell)
        ], (picture.title, head, rows[:2])
    first, *cells = csv.reader(io.StringIO(files["CSV"].decode()))
    assert len(first) == len(head)
    assert [
        (float(text), value)
        for line, row in zip(cells, rows, strict=True)
        for text, value in zip(line, row, strict=True)
        if isinstance(value, float) and not (float(text) == value or np.isnan(value))
    ] == []
    numbers = json.loads(files["JSON"])["numbers"]
    for name, array in picture.arrays().items():
        if array.dtype.kind == "f":
            np.testing.assert_array_equal(
                np.array(numbers[name], dtype=float), np.where(np.isfinite(array), array, np.nan)
            )
    assert len(np.load(io.BytesIO(files["NPZ"])).files) > 0
    assert files["LaTeX"].count(b"{") == files["LaTeX"].count(b"}")


@each("title, says", [("end", "name these columns otherwise: end"), ("", "give \\['column 1'\\]")])
def test_a_column_without_a_title_is_named(title, says):
    spec = figure([layer("point", [{"end": 0.5}], {})], 100) | table_columns({"end": title})
    with pytest.raises(AssertionError, match=says):
        assert_numbers_come_back(ChartPicture("Points", spec))


HEADS = {
    "head_roles": 72,
    "two_models": 36,
    "corpus": 72,
    "evidence": 36 + 6,
    "circuits": 8,
    "pairs": 36,
}


@each("page", list(HEADS))
def test_a_figure_of_heads_has_a_row_for_each(page):
    picture, rows = next(
        (one, rows)
        for one in pictures_of(opened(page)).values()
        if isinstance(one, ChartPicture)
        and "head" in (table := one.table())[0]
        and (rows := table[1])
    )
    assert len(rows) == HEADS[page], picture.title
    numbers = [cell for row in rows for cell in row if isinstance(cell, float)]
    assert max(abs(round(one, 4) - one) for one in numbers) > 1e-7, "in full precision"


def test_the_composition_of_every_pair_is_a_table():
    head, rows = pictures_of(opened("circuits"))["circuits:pairs"].table()
    assert head == ["composition", "from head", "to head", "above random"]
    pairs = {(kind, one, other) for kind, one, other, _ in rows}
    assert len(pairs) == len(rows) and {kind for kind, *_ in pairs} == {"Q", "K", "V"}


@pytest.mark.first
@pytest.mark.parametrize("page", [step.key for step in STEPS])
def test_every_picture_of_a_page_comes_back_from_every_file(page, monkeypatch):
    # The smallest of each kind from PDF, too, and the smallest of all from PNG, and as cairo draws it: of all heads at
    # once neither says more, and each takes a second.
    monkeypatch.setattr(figure_files, "render", run_here)
    pictures = pictures_of(opened(page))
    assert len({picture.title for picture in pictures.values()} - {""}) == len(pictures)
    kinds, drawn = set[type](), list[tuple[str, Picture]]()
    for picture in pictures.values():
        assert_numbers_come_back(picture)
        if picture.drawn:
            drawn.append((framed_svg(picture, SOURCE), picture))
    for svg, picture in sorted(drawn, key=lambda one: len(one[0])):
        words = words_of(picture, SOURCE.line)
        assert_svg_has(svg, words)
        if not kinds:
            assert_drawn(figure_files.drawing_file(svg, "png", 2.0), svg, 2.0)
            if find_library("cairo"):
                from cairosvg import svg2png

                assert_drawn(svg2png(svg.encode()), svg, 1.0)
        if type(picture) not in kinds:
            assert_pdf_has(svg, words)
        kinds.add(type(picture))
    # the first three draw before the title
    assert (kinds or page in WITHOUT) and gallery.PICTURES.get(page) in {None, *pictures}


@pytest.mark.parametrize("page", [step.key for step in STEPS if step.key not in WITHOUT])
def test_every_figure_fits_a_paper(page):
    for picture in pictures_of(opened(page)).values():
        for millimetres in WIDTHS.values() if picture.drawn else ():
            parts = paper_parts(picture, millimetres)
            try:
                paper_words(parts, millimetres)
            except NotForPaper:
                assert isinstance(picture, DrawnPicture), "maps and charts always fit"
                continue
            for part in parts:
                job = {**paper_drawing(part, millimetres), "format": "svg"}
                svg = job.get("svg") or run_here({"": job})[""].decode()
                width, height = size_of(svg)
                assert height / width * millimetres <= PAGE + 0.5, (picture.title, millimetres)
                points = millimetres / 25.4 * 72 / width
                types = map(float, re.findall(r'font-size[:=]\s?"?([\d.]+)', svg))
                assert min(types, default=12.0) * points > TYPES[-1] - 0.01, picture.title


@pytest.mark.parametrize("page", [step.key for step in STEPS if step.key not in WITHOUT])
def test_a_page_opens_with_a_picture_not_a_table(page):
    assert next(iter(pictures_of(opened(page)).values())).drawn


def axes(spec: Any) -> list[dict[str, Any]]:
    """The quantitative encodings with an axis, of all layers."""
    parts = [*spec.values()] if isinstance(spec, dict) else spec if isinstance(spec, list) else []
    own = [spec] if isinstance(spec, dict) and spec.get("type") == "quantitative" else []
    return [*own, *(axis for part in parts for axis in axes(part))]


def exponents(spec: Any) -> list[str]:
    """The axes that may write 2e+1: by a format with exponents, or a logarithmic scale without any format."""
    faults = []
    for one in axes(spec):
        axis = one.get("axis") or {}
        scale = one.get("scale") or {}
        form = axis.get("format", "" if scale.get("type") == "log" and one.get("axis") else ",")
        if "labelExpr" not in axis and (not form or form[-1] in "ge"):
            faults.append(str(one.get("title") or one.get("field")))
    return faults


@pytest.mark.parametrize("page", [step.key for step in STEPS])
def test_an_axis_writes_plain_numbers(page):
    for picture in pictures_of(opened(page)).values():
        if isinstance(picture, ChartPicture):
            assert not exponents(picture.spec), picture.title


def test_every_figure_of_a_claim_writes_plain_numbers():
    for claim in CLAIMS:
        if result := shipped(claim):
            for figure_of in claim.figures:
                spec = results_figure(figure_of, {"": result}, "light")
                assert not exponents(spec), (claim.key, figure_of.title)
                assert all(
                    np.log10(value) % 1 == pytest.approx(0, abs=1e-9)
                    for one in axes(spec)
                    if "labelExpr" in (one.get("axis") or {})
                    and (one.get("scale") or {}).get("type") == "log"
                    for value in one["axis"]["values"]
                ), "a power of ten is written at itself alone"


# The Export dialog lists the pictures and the script of the page, also after the page has run again.


@pytest.mark.parametrize("page", ["heads", "positions", "compare", "masks", "claims"])
def test_dialog_lists_same_after_page_has_run_again(page):
    app = open_at(page)
    titles = [picture.title for picture in pictures_of(app).values()]
    app.run()
    set_state(app, REQUESTED.key)
    assert any(code.value.startswith("# Attention Lab") for code in app.code)
    if titles:
        assert app.selectbox(key="export:picture").options == titles
        # a drawing such as the hand of a clock has one size
        formats = FORMATS if page != "positions" else {"SVG", "PDF", "CSV"}
        assert set(formats) <= {button.proto.label for button in app.get("download_button")}
        assert app.selectbox(key="export:paper").options == [*WIDTHS]
    assert bool(titles) == (page != "claims")
    assert [picture.title for picture in pictures_of(app.run()).values()] == titles


# One value, one text: every number with decimals on these pages stands as `dashboard.draw.formats` writes it.


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
# still to be converted
OWN_DECIMALS = {"inside_weight", "mechanisms", "normalizers", "one_query", "sweeps", "why"}
# amounts have their own formatters
DECIMAL = re.compile(
    r"(?<![\w.,])([+−]?)(\d[\d,]*\.\d+|\.\d+|\d+e−\d+)(?![\w.])"
    r"(?!\u00a0(?:[mµ]?s|[kMGT]B?)\b)"
)
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
    texts = written(open_at(page, "inside:", model=model))
    # The cells of one map have as many decimals as its smallest number needs, and no 0 before the point.
    numbers = [
        digits
        for text in texts
        for _, digits in DECIMAL.findall(text)
        if not digits.startswith(".")
    ]
    assert len(numbers) > 2, "no number was looked at"
    again = {one: number(float(one.replace(",", "").replace("−", "-"))) for one in numbers}
    assert {one: text for one, text in again.items() if one not in (text, cell(text))} == {}
    shares = [share for text in texts for share in PERCENT.findall(text)]
    assert [one for one in shares if one != percent(float(re.sub(r"[^\d.]", "", one)) / 100)] == []


def test_no_number_is_formatted_beside_the_rule():
    # No decimals of its own in an f-string or a Vega format, but in CSV for other programs.
    for path in [one for one in (ROOT / "pages").glob("*.py") if one.stem not in OWN_DECIMALS]:
        tree = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        of_csv = [one for one in tree if isinstance(one, ast.FunctionDef) and "csv" in one.name]
        exempt = {id(part) for one in of_csv for part in ast.walk(one)}
        nodes = [one for one in tree if id(one) not in exempt]
        strings = [one for one in nodes if isinstance(one, ast.JoinedStr)]
        inside = {id(part) for one in strings for part in ast.walk(one)}
        texts = [
            one.value
            for one in nodes
            if isinstance(one, ast.Constant)
            and isinstance(one.value, str)
            and id(one) not in inside
        ]
        own = [one.format_spec for one in nodes if isinstance(one, ast.FormattedValue)]
        formats = [ast.unparse(spec) for spec in own if spec is not None]
        assert [one for one in formats if FORMAT.search(one)] == [], path.name
        assert [one for one in texts if VEGA_FORMAT.fullmatch(one)] == [], path.name


def test_no_amount_is_written_beside_the_formatters():
    # Bytes and times are written by `byte_size` and `duration` alone, so that MB means one thing on every page.
    assert [
        f"{path}:{after.lineno}"
        for folder in ("dashboard", "pages")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "formats.py"
        for text in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(text, ast.JoinedStr)
        for value, after in pairwise(text.values)
        if isinstance(value, ast.FormattedValue)
        and isinstance(after, ast.Constant)
        and UNIT.match(str(after.value))
    ] == []


# Every press at first sight changes something in sight, or says why it does not.

WORKS = {  # seconds or a worker each
    "Train",
    "Run it",
    "Measure",
    "Measure on this machine",
    "Measure on 50 held-out sources",
    "Compare it",
    "Start sweep",
    "Fine-tune",
}


def in_sight(app: Any) -> tuple[object, ...]:
    """What a page says, draws and offers, its link and its page, but the notice that follows a move of Try this."""
    says = [one for one in shown(app) if not one.startswith("**Notice:**")]
    tells = [one.value for kind in ("info", "warning", "error", "toast") for one in app.get(kind)]
    buttons = [(one.label, one.disabled) for one in app.main.button if one.label]
    return (
        (says, tells, buttons, {key: str(one) for key, one in controls_of(app).items()})
        + (dict(app.query_params), [one.label for one in app.expander])
        + (app.session_state[CURRENT.key],)
    )


@pytest.mark.parametrize("page", [step.key for step in STEPS])
def test_every_press_changes_something_in_sight(page):
    app = open_at(page)
    pressed = {one.key: one.label for one in app.main.button if not one.disabled}
    idle = []
    for key, label in pressed.items():
        button = next((one for one in app.main.button if one.key == key and not one.disabled), None)
        if label in WORKS or button is None:  # taken away by a press before
            continue
        before = in_sight(app)
        button.click().run()
        idle += [label] * (in_sight(app) == before)
        if app.session_state[CURRENT.key] != page:
            app.run()  # AppTest has not seen that the press led to another page
    assert idle == []


def test_dialog_begins_with_what_is_drawn(tmp_path, monkeypatch):
    path = str(write(tmp_path, BY_HAND))
    monkeypatch.setattr("dashboard.fields.model.is_local", lambda *_: True)
    monkeypatch.setattr("dashboard.fields.model.allowed_files", {path})
    app = open_at("pretrained", **{"inside:model": path})
    set_state(app, REQUESTED.key)
    first, *_, last = app.selectbox(key="export:picture").options
    assert first == "All heads" and last == "The modules whose attention was read"
