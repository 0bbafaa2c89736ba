"""Each page says and draws what it did: at first sight, at another value of each declared control, and at some links.

What it did stands in snapshots/PAGE.txt: a line a sentence or a picture. `make generated` writes again the lines that
differ, so that their diff is what a change changed.
"""

import os
import re
import zlib
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.attention import AXES
from dashboard.fields.base import Field, Fields, Number, Options, Text, Toggle
from dashboard.fields.link import UNBOUND
from dashboard.navigation import STEPS
from dashboard.server.cache import store
from tests.pages.app import (
    TIMES,
    assert_script,
    controls_of,
    elements,
    open_page,
    own_paths,
    pictures_of,
    script_of,
    shown,
    without_terms,
)
from tests.pages.script_links import LINKS

SAVED = Path(__file__).with_name("snapshots")
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?:e[−+-]?\d+)?")
# below 1e-4: another in each place
ROUNDING = re.compile(r"[\d.]+(?:e[−-]| ?cdot 10\^\{-)(?:[5-9]|1\d)\}?")
MEASURED = (", s", ", bytes")  # columns of times and memory, as in TIMES
LETTERS = str.maketrans("0123456789", "abcdefghij")  # of checksums, which are no numbers
# read as s: a busy machine takes longer
SHORT_TIME = re.compile(r"(?<=[\d?]\s)(ms|µs|min)(?![a-z])")
# of a number, beside one and a half of its last digit: another processor's arithmetic
TOLERANCE = 2e-3

TIES = ("corpus:view=Typical",)  # whose rows are picked by differences in the last bits
# pages whose controls are those of the next run
FOR_A_RUN = ("efficient", "sweeps", "train", "why")
STILL = (
    "cache:form",  # which moves the sentence for other models than the first
    "decode:no_repeat",  # the first outputs repeat nothing: the time alone would differ
    "generate:no_repeat",
)
# Controls whose link has another name or is of something else: that page's own links and tests set them.
ELSEWHERE = (
    "decode:run",
    "fine_tune:head",
    "generate:output",
    "inside_weight:head",
    "inside_weight:key",
    "inside_weight:query",
    *(f"one:{name}" for name in ("preset", "temperature", *AXES)),
    "transformer:weights",
    "why_key:head",
    "why_key:key",
    "why_key:query",
)
# the links of pages that open without their fields
# whose controls all depend on runs, or a report, or are a list of questions, which test_report drives
OF_WHAT_IT_SHOWS = ("compare_runs", "report", "questions")
OPENED = {"transformer": {"run": "seeded"}, "quiz": {"quiz:seed": "0"}}


def another(field: Field, value: Any, drawn: Any) -> tuple[str, Any] | None:
    """A text of a link and the value it brings, which differs from the present one; None where there is none.

    Of options or bounds that are a function, the widget that is drawn has those of the moment.
    """
    if field.also == UNBOUND:
        return None
    if depends(field):
        if isinstance(field, Options):
            many = isinstance(value, list)
            now = value if many else [drawn.format_func(value)]
            others = [text for text in drawn.options if text not in now]
            return (others[0], others[:1] if many else others[0]) if others else None
        other = type(value)(drawn.min if value != drawn.min else drawn.max)
        return str(other), other
    if isinstance(field, Options):
        texts = field.texts(Fields())
        many = isinstance(value, list)
        other = next((one for one in texts if one != value and [one] != value), None)
        return None if other is None else (texts[other], [other] if many else other)
    if isinstance(field, Number):
        other = field.low if value != field.low else field.high
        return str(other), type(value)(other)
    if isinstance(field, Toggle):
        return str(not value).lower(), not value
    return (f"{value} 1", f"{value} 1") if isinstance(field, Text) else None


def depends(field: Field) -> bool:
    return any(callable(getattr(field, name, None)) for name in ("options", "low"))


def takes_any_text(field: Field) -> bool:
    return isinstance(field, Text) or bool(getattr(field, "typed", False))


def digest(values: np.ndarray) -> str:
    """The shape of an array, and sums that a changed number, sign or order changes; of words, their checksum."""
    if values.dtype.kind not in "fiub":
        text = SHORT_TIME.sub("s", "|".join(map(str, values.flat)))
        return f"{values.shape} {str(zlib.crc32(NUMBER.sub('', text).encode())).translate(LETTERS)}"
    flat = np.nan_to_num(values.astype(float), posinf=0.0, neginf=0.0).ravel()
    sums = (np.abs(flat).sum(), np.abs(flat) @ np.linspace(1, 2, flat.size), flat.clip(0).sum())
    return f"{values.shape} " + " ".join(f"{round(one, 4):.4g}" for one in sums)


def view(app: AppTest) -> list[str]:
    """What a page says, without tags, then the digests of its pictures and of its script's results."""
    said = (app.markdown, app.caption, app.latex, app.info, app.warning, app.error, app.success)
    texts = [str(one.value) for kind in said for one in kind]
    texts += [
        re.sub(r"(?s)<style>.*?</style>|<[^>]+>", " ", without_terms(one.proto.body))
        .replace("&#34;", "&quot;")  # html.escape and templates write quotation marks in two ways
        .replace("&#39;", "&#x27;")
        for one in app.get("html")
    ]
    plain = [" ".join(without_terms(text).replace("\\", "").split()) for text in texts]
    lines = [ROUNDING.sub("0", SHORT_TIME.sub("s", TIMES.sub(r"?\1", line))) for line in plain]
    for key, picture in pictures_of(app).items():
        lines += [
            f"{key} {name}: {array.shape if name.endswith(MEASURED) else digest(array)}"
            for name, array in picture.arrays().items()
        ]
    scripts = app.session_state["page_pictures"].scripts
    results = script_of(app).results if scripts else {}
    return lines + [f"{name}: {digest(np.asarray(value))}" for name, value in results.items()]


def states(page: str) -> Iterator[tuple[str, AppTest]]:
    """The page at first sight, at another value of each control that it declares, and at its links, by their names.

    A declared control comes from its link and moves what the page shows; a text that it cannot read leaves it.
    At its links, the page's script computes what it shows.
    """
    opened = open_page(page, OPENED.get(page, {}))
    yield "first sight", opened
    names = vars(import_module(f"pages.{page}")).values()
    classes = [one for one in names if isinstance(one, type) and issubclass(one, Fields)]
    declared = [
        one for one in classes if not all(callable(each.key) for each in one.declared.values())
    ]
    for fields in declared if page != "compare" else ():  # whose link has names of its own
        # From where the link counts, on a page that once opened on other values.
        name, start = f"{fields.page_key}:start", controls_of(opened)
        link = {name: opened.session_state[name]} if name in opened.session_state else {}
        link |= OPENED.get(page, {})
        before = shown(opened)
        keys = {
            one.key_of(fields()): one for one in fields.declared.values() if not callable(one.key)
        }
        checked = 0
        drawn = elements(opened)
        for key in [key for key in keys if key in start and key not in ELSEWHERE]:
            if (other := another(keys[key], start[key], drawn[key])) is not None:
                app = open_page(page, link | {key: other[0]})
                value = app.session_state[key]
                one_of_some = isinstance(keys[key], Options) and not isinstance(value, list)
                if depends(keys[key]) and one_of_some:
                    value = elements(app)[key].format_func(value)
                assert value == other[1], key
                assert shown(app) != before or page in FOR_A_RUN or key in STILL, (
                    f"{key} moves nothing"
                )
                checked += 1
                if (state := f"{key}={other[0]}") not in TIES and not depends(keys[key]):
                    yield state, app  # what depends is driven, and not saved
        assert checked or page in OF_WHAT_IT_SHOWS
        bad = {key: "?!" for key in keys if key in start and not takes_any_text(keys[key])}
        app = open_page(page, link | bad)
        assert not app.error and controls_of(app) == start
    for at, link in enumerate(link for name, link in LINKS if name == page):
        app = open_page(page, link)
        assert shown(app) != shown(opened), f"link {at} moves nothing"
        assert_script(app)
        yield f"link {at}", app


without_numbers = cache(partial(NUMBER.sub, "#"))


def differs(line: str, saved: str) -> bool:
    if without_numbers(line) != without_numbers(saved):
        return True
    for text, other in zip(NUMBER.findall(line), NUMBER.findall(saved), strict=True):
        now, then = (float(one.replace(",", "").replace("−", "-")) for one in (text, other))
        mantissa, _, exponent = other.replace("−", "-").partition("e")
        digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * ("." in mantissa)
        if abs(now - then) > 1.5 * digit + TOLERANCE * abs(then):
            return True
    return False


def merged(now: list[str], saved: list[str]) -> tuple[list[str], list[str]]:
    """The lines of a page as they are now, with the saved one where both say the same, and what differs."""
    lines, differences = list[str](), list[str]()
    shapes = [[without_numbers(line) for line in side] for side in (saved, now)]
    for kind, *at in SequenceMatcher(None, shapes[0], shapes[1], autojunk=False).get_opcodes():
        old, new = saved[at[0] : at[1]], now[at[2] : at[3]]
        if kind == "equal":
            pairs = [*zip(old, new, strict=True)]
            lines += [line if differs(line, before) else before for before, line in pairs]
            old, new = (
                [pair[side] for pair in pairs if differs(pair[1], pair[0])] for side in (0, 1)
            )
        else:
            lines += new
        differences += [f"- {line}" for line in old] + [f"+ {line}" for line in new]
    return lines, differences


# before the name of a state, and before each further sentence of a text
HEADING, MORE = ("== ", "\n    ")


def to_text(views: dict[str, list[str]]) -> str:
    return "".join(
        HEADING + name.replace("\n", r"\n") + "\n"
        + "".join(re.sub(r"(?<=[.?!]) (?=\S)", MORE, line) + "\n" for line in lines)
        for name, lines in views.items()
    )  # fmt: skip


def from_text(text: str) -> dict[str, list[str]]:
    views: dict[str, list[str]] = {}
    for line in re.findall("(.*)\n", text.replace(MORE, " ")):
        if line.startswith(HEADING):
            lines = views[line.removeprefix(HEADING).replace(r"\n", "\n")] = []
        else:
            lines.append(line)
    return views


@pytest.mark.parametrize("page", [step.key for step in STEPS])
def test_a_page_at_its_links_is_what_was_saved(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where a script writes what it trains
    monkeypatch.setattr("dashboard.ui.progress.AT_ONCE", 600.0)
    for key in [key for key in store().entries if key[0] == "results"]:
        del store().entries[key]  # what an earlier test measured is measured again
    views = {}
    for name, app in states(page):
        views[name] = view(app)
        assert own_paths(app) == [], name
    first = views["first sight"]
    for name in list(views)[1:]:  # what differs from first sight
        views[name] = [line for line in views[name] if all(differs(line, other) for other in first)]
    file, wrong = SAVED / f"{page}.txt", list[str]()
    saved = from_text(file.read_text("utf-8")) if file.exists() else {}
    wrong += [f"- == {name}" for name in saved if name not in views]
    for name, lines in views.items():
        views[name], differences = merged(lines, saved.get(name, []))
        wrong += [f"== {name}", *differences] if differences or name not in saved else []
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(to_text(views), encoding="utf-8")
    else:
        assert not wrong, "\n".join(["`make generated` saves what should differ:", *wrong[:40]])
