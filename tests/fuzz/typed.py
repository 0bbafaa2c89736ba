"""The doors through which text comes: formulas, links, codes, answers and names, and each page opened by a link."""

import random
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from hypothesis import strategies as st

from core.attention import PRESETS, ConfigError
from core.attention.formula import FormulaError, parse
from core.pretrained import PretrainedError
from core.pretrained.hub import model_folder, parse as parse_hub, storage_folder
from core.studies.one_query import MatrixError, check as check_matrices, parse as parse_matrices
from dashboard.navigation import STEPS
from dashboard.ui import links, mechanism as codec
from dashboard.ui.lessons import (
    LessonError,
    decode,
    encode,
    make_question,
    page_query,
    parse_link,
    read_code,
)
from pages.compare import default_controls, from_query, link_texts, to_query
from tests.damage import PIECES, damaged_text
from tests.fuzz.guard import Door, seeded
from tests.pages.app import WIDGETS, app_at

T, S, H = 3, 5, 2
CELLS: Any = SimpleNamespace(
    i=torch.arange(2, 2 + T)[:, None],
    j=torch.arange(S)[None],
    num_heads=H,
    num_queries=T,
    num_keys=S,
)
SCORES = torch.randn(2, H, T, S, generator=torch.Generator().manual_seed(0))
FORMULA = "i j h T S score where ( ) , + - * / % ** < <= == and or not 1 2. abs min exp 1e30 log sqrt".split()
FORMULAS = (
    "score - 0.5*abs(i-j)",
    "j <= i and i - j < 3 or j == 0",
    "where(h == 0, score, score/sqrt(1+i))",
)
MECHANISMS = tuple(codec.to_text(item.config(16, 2)) for item in PRESETS[:12]) + (
    "d=16 h=2 position=alibi mask=and(causal,local(window=3)) normalizer=softmax(temperature=0.5)",
    "position=formula(formula='score / (i - j)')",
    "mask=causal;mask=local(window=2);kernel=exact",
)
CODES = ("Ann Lee 1A2B-3C01-F2AA-BB11", "x 0000-0000-0000-0000")
ANSWERS = ("0.25", "1 2\n3 4", "[[1, 2], [3, 4]]", "j <= i", "score - abs(j - i)/2", "L3·H1")
QUESTIONS = tuple(
    make_question(kind, "?", answer, tolerance=0.01)
    for kind, answer in (
        ("numbers", "0.25"),
        ("numbers", "1 2\n3 4"),
        ("text", "L3·H1"),
        ("mask", "j <= i"),
        ("score", "score - i"),
    )
)
NAMES = (
    "distilbert/distilgpt2",
    "owner/name@refs/pr/1",
    "https://huggingface.co/a/b/tree/main",
    "gpt2",
)
LESSONS = (
    "https://host/lab/masks?masks:tokens=a+b&m=1&m=2&lesson=x&embed=true",
    "http://host:8501/",
    "masks?a=b",
)
MATRICES = ("1,2|1,0;0,1|3;4", "1|1|1", "1,2;3,4|5,6;7,8|9;1")

ANY = st.text(max_size=60)


def near(*texts: str) -> st.SearchStrategy[str]:
    """Texts that were right before something happened to them, and any others."""
    return seeded(lambda rng: damaged_text(rng.choice(texts), rng)) | ANY


FORMULA_TEXTS = (
    near(*FORMULAS)
    | st.lists(st.sampled_from(FORMULA), max_size=24).map(" ".join)
    | st.text("ijhTS score0123456789.+-*/%<>=!()&|,^eandornotwhmixqlg_[]{}'\"\\\n", max_size=60)
)


def formula(kind: Any) -> Any:
    """A formula is read and computed; its error points into the text."""

    def enter(text: str, _: Path) -> None:
        try:
            result = parse(text, kind)(CELLS, None if kind == "mask" else SCORES)
        except FormulaError as error:
            assert (
                0 <= error.at <= max(len(text), 1)
                and error.why.endswith(".")
                and error.pointed().splitlines()[-1] == " " * error.at + "^"
            )
            raise
        assert result.isfinite().all() and result.dtype == (
            torch.bool if kind == "mask" else torch.float32
        )

    return enter


def mechanism(text: str, _: Path) -> None:
    config = codec.from_text(text, (16, 2))
    assert codec.from_text(codec.to_text(config)) == config


def held(value: object) -> None:
    """Something was read."""
    assert value is not None and value != []


def query(rng: random.Random) -> dict[str, Any]:
    """The parameters of a link of Compare, some of them changed."""
    whole = link_texts(default_controls()) | {
        "source": "5.11",
        "seed": "3",
        "length": "256",
        "text": "a b c",
        "m": ["score=dot", "position=alibi"],
    }
    names = rng.sample(sorted(whole), rng.randint(1, 3))
    return {
        name: [damaged_text(part, rng) for part in value]
        if isinstance(value := whole[name], list)
        else damaged_text(str(value), rng)
        for name in names
    }


def compare(link: dict[str, Any], _: Path) -> None:
    controls, sentences = from_query(link)
    assert to_query(from_query(to_query(controls))[0]) == to_query(controls) and all(
        len(sentence) < 2_000 and sentence.encode() for sentence in sentences
    )


def hub_name(text: str, folder: Path) -> None:
    repo, revision = parse_hub(text)
    path = model_folder(repo, "0" * 40).resolve()
    assert path.is_relative_to(storage_folder().resolve()) and ".." not in revision


WORDS = (ConfigError,)


# The doors of links: what each page reads of one, and each page opened by parameters near what it writes itself.


PAGES = tuple(step.key for step in STEPS)
COMMON = (
    "run",
    "runs",
    "sweep",
    "claim",
    "head",
    "cell",
    "lesson",
    "lesson-code",
    "report",
    "step",
    "m",
    "query",
    "visited",
)
VALUES = (
    "3.1",
    "0.0",
    "999999.1",
    "20261120-120000-abcdef",
    "example_run",
    "true",
    "-1",
    "1e400",
    "causal",
    "L1·H2",
)


@cache
def opened(page: str) -> tuple[dict[str, str], dict[str, links.Reader]]:
    """The values of a page's controls as texts, and the readers of what it takes from a link; both by name."""
    readers: dict[str, links.Reader] = {}
    whole = links.take_link

    def take(key: str, read: links.Reader, *, name: str | None = None) -> None:
        readers[name or key] = read
        whole(key, read, name=name)

    with patch.object(links, "take_link", take):
        app = app_at(page).run()
    drawn = {
        element.key: str(element.value)
        for kind in WIDGETS
        for element in list[Any](app.get(kind))
        if element.key
    }
    return drawn | {name: str(app.query_params[name]) for name in app.query_params}, readers


def near_to(usual: str, rng: random.Random) -> str:
    """A text near that one, or far from it, as a browser sends it."""
    usual = rng.choice((usual, *VALUES))
    text = damaged_text(usual, rng) if rng.random() < 0.6 else rng.choice((*VALUES, *PIECES))
    return text.encode("utf-8", "replace").decode()


def texts(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A page, and a text for each value that it reads of a link."""
    page = rng.choice(PAGES)
    known, readers = opened(page)
    return page, {name: near_to(known.get(name, ""), rng) for name in readers}


def read_texts(case: tuple[str, dict[str, str]], _: Path) -> None:
    """Each reader gives a value or a ValueError, for which the page has its own."""
    page, values = case
    for name, text in values.items():
        with suppress(ValueError):
            opened(page)[1][name](text)


def read_pairs(text: str, _: Path) -> None:
    """Pairs within their bounds, or a sentence."""
    with patch.object(links, "st", SimpleNamespace(query_params={"head": text})):
        pair, trouble = links.read_pair("head", (3, 5))
        pairs, more = links.read_pairs("head", (3, 5))
    assert all(0 <= a < 3 and 0 <= b < 5 for a, b in [*pairs, *[pair] * (pair is not None)])
    assert pair or trouble
    assert "".join(filter(None, (trouble, more))).encode() is not None


def link(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A page, and parameters of its link; the page was opened once, unwatched, for what it imports."""
    page = rng.choice(PAGES)
    known, _ = opened(page)
    names = [*known, *COMMON]
    names = rng.sample(names, min(len(names), rng.randint(1, 6)))
    return page, {name: near_to(known.get(name, ""), rng) for name in names}


def open_link(case: tuple[str, dict[str, str]], _: Path) -> None:
    """The page opens without an exception, whatever the link says."""
    page, values = case
    app = app_at(page)
    for name, value in values.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, [element.value for element in app.exception]


DOORS = (
    Door("score formula", FORMULA_TEXTS, formula("score"), (FormulaError,), 120),
    Door("mask formula", FORMULA_TEXTS, formula("mask"), (FormulaError,), 120),
    Door(
        "mechanism in a link",
        near(*MECHANISMS) | st.text("dh=16 posit(),'\\.abc_~-", max_size=80),
        mechanism,
        WORDS,
        160,
    ),
    Door(
        "pattern of layers in a link",
        near(*MECHANISMS),
        lambda text, _: held(codec.pattern_from_text(text, (16, 2))),
        WORDS,
        60,
    ),
    Door(
        "choice in a link",
        st.tuples(
            st.sampled_from(["mask", "position", "score", "normalizer"]),
            near(
                "and(causal,local(window=3))",
                "alibi",
                "softmax(temperature=0.5)",
                "formula(formula='i - j')",
            ),
        ),
        lambda case, _: held(codec.choice_from_text(case[1], case[0])),
        WORDS,
        60,
    ),
    Door("link of Compare", seeded(query), compare, (), 60),
    Door(
        "matrices in a link",
        near(*MATRICES),
        lambda text, _: check_matrices(parse_matrices(text)),
        (MatrixError,),
        60,
    ),
    Door(
        "lesson in a link",
        near(encode(decode("attention"))) | st.sampled_from(PIECES),
        lambda text, _: decode(text),
        (LessonError,),
        60,
    ),
    Door(
        "link in a lesson",
        near(*LESSONS),
        lambda text, _: held(page_query(parse_link(text)[1])),
        (LessonError,),
        60,
    ),
    Door("code of a student", near(*CODES), lambda text, _: read_code(text), (LessonError,), 60),
    Door(
        "answer of a student",
        st.tuples(st.sampled_from(QUESTIONS), near(*ANSWERS)),
        lambda case, _: case[0].check(case[1]),
        (LessonError,),
        60,
    ),
    Door("name of a model", near(*NAMES), hub_name, (PretrainedError,), 60),
    Door("values of a link", seeded(texts), read_texts, (), 6),
    Door(
        "pairs of a link",
        seeded(lambda rng: near_to(rng.choice(("3.1_0.2", "2.4", "1")), rng)),
        read_pairs,
        (),
    ),
    Door("link of a page", seeded(link), open_link, (), 10),  # each draws the whole page
)
