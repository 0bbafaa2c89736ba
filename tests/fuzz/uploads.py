"""The doors of uploads: tables, pairs, texts, trees, arrays, pictures, sounds and lessons."""

import io
import json
import random
import wave
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save

from core.entries import ConfigError
from core.interpret.syntax import OWN as CONLLU, parse_conllu
from core.pretrained import PretrainedError
from core.pretrained.arrays import read_arrays
from core.pretrained.example_inputs import decode_picture, decode_wav
from core.pretrained.finetune import own_rows, parse
from core.tasks import TaskConfig, make_task, own
from core.tasks.reading import decode_text, read_rows, validate_text
from dashboard.ui.lessons import LessonError, decode, from_json, to_json
from tests.damage import PIECES, damaged, damaged_bytes, damaged_text
from tests.fuzz.guard import Door, seeded

TABLE = "name;size;born;colour;class\n" + "".join(
    f"n{i};{i % 7},5;{1 + i % 28:02}.03.2020;{'red blue green'.split()[i % 3]};{'ab'[i % 2]}\n"
    for i in range(30)
)
SHEETS = {
    "own_table": TABLE,
    "own_pairs": "\n".join(own.roman_pairs().splitlines()[:60]),
    "own_text": own.SONNETS[:3_000],
}
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "own_table": {
        "header": ("auto", "yes", "no"),
        "label": ("", "1", "colour", "x"),
        "text": ("", "name", "2"),
        "dates": ("out", "numbers", "categories"),
        "decimal": ("auto", "point", "comma", "table"),
        "columns": ("", "*", "size,born", "9"),
    },
    "own_pairs": {"header": ("auto", "yes", "no"), "unit": ("auto", "characters", "words")},
    "own_text": {"length": (16, 64), "unit": ("auto", "characters", "words")},
}
ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1")


def sheet(rng: random.Random) -> tuple[str, bytes, str, dict[str, Any]]:
    """A task of a person's own data, an uploaded file, the encoding it is read in, and the task's settings."""
    key = rng.choice(list(SHEETS))
    text = damaged_text(SHEETS[key], rng) if rng.random() < 0.8 else SHEETS[key]
    data = text.encode(rng.choice(ENCODINGS), "replace")
    data = damaged_bytes(data, rng) if rng.random() < 0.2 else data
    options = {
        name: rng.choice(values) for name, values in OPTIONS[key].items() if rng.random() < 0.4
    }
    return key, data, rng.choice(("utf-8", "utf-8", "cp1252")), options


def own_data(case: tuple[str, bytes, str, dict[str, Any]], _: Path) -> None:
    key, data, encoding, options = case
    text = validate_text(decode_text(data, encoding))
    task = make_task(TaskConfig.of(key, data=text, **options))
    example = task.held_out(1)[0]
    assert task.collate([example]).source.shape[0] == 1 and "".join(task.notes).encode()


def rows(text: str, _: Path) -> None:
    table, _mark = read_rows(text)
    assert len({len(row.cells) for row in table}) == 1
    assert [row.line for row in table] == sorted({row.line for row in table})
    assert table[-1].line <= validate_text(text).count("\n") + 1


def fine_tune_rows(case: tuple[str, str], _: Path) -> None:
    task, text = case
    parsed = parse(task, text)
    assert parsed.learned and parsed.held_out


@cache
def conllu() -> str:
    return "\n\n".join(CONLLU.read_text("utf-8").split("\n\n")[:4]) + "\n"


def even(*shape: int) -> np.ndarray:
    weights = np.random.default_rng(86).random(shape, dtype=np.float32) + 0.01
    return weights / weights.sum(-1, keepdims=True)


DESCR = (
    "<f4",
    "<f8",
    "<U1",
    "|O",
    "<c8",
    "|b1",
    "<m8",
    "x",
    "",
    "<f16",
    [("a", "<f4")],
    None,
    5,
    "<U999999",
    "<U100000000",
)
SHAPES = (
    (2, 4, 4),
    (4, 4),
    (),
    (-1, 4),
    (2.0, 4),
    ("a",),
    None,
    [2, 4],
    (10**400,),
    (10**6, 10**6),
    (0, 4),
    2,
)
HEADER = {
    "__metadata__": {"tokens": '["a","b","c","d"]'},
    "self_0": {"dtype": "F32", "shape": [2, 4, 4], "data_offsets": [0, 128]},
}


def npz(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def arrays(rng: random.Random) -> bytes:
    """An NPZ or safetensors file whose bytes, names or header are not what they were."""
    how = rng.randrange(4)
    if how == 0:
        header = {
            "descr": rng.choice(DESCR),
            "fortran_order": rng.choice((False, True, 3)),
            "shape": rng.choice(SHAPES),
        }
        text = repr(header).encode() + b"\n"
        data = b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(128)
        return npz({rng.choice(("self_0.npy", "tokens.npy", "../x.npy", "/etc/x.npy")): data})
    if how == 1:
        raw = json.dumps(damaged(HEADER, rng, rng.choice((1, 2)))).encode()
        return len(raw).to_bytes(8, "little") + raw + bytes(128)
    good = (
        npz({"self_0.npy": npy(even(2, 4, 4)), "tokens.npy": npy(np.array(list("abcd")))})
        if how == 2
        else save({"a": even(2, 4, 4)}, {"tokens": '["a","b","c","d"]'})
    )
    return damaged_bytes(good, rng)


def array_file(data: bytes, _: Path) -> None:
    for item in read_arrays(data, "fuzz").trace.maps:
        assert (
            np.isfinite(item.weights).all() and item.weights.min() >= 0 and item.weights.max() <= 1
        )
        assert item.weights.shape[1:] == (len(item.queries), len(item.keys))


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(/etc/passwd) run\nshowpage\n%%EOF\n"
FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
    "GIF",
    "TIFF",
    "BMP",
    "PPM",
    "TGA",
    "ICO",
    "PCX",
    "SGI",
    "PDF",
    "JPEG2000",
    "DDS",
)


@cache
def drawn(kind: str, mode: str) -> bytes:
    out = io.BytesIO()
    try:
        Image.fromarray(np.arange(12 * 9 * 3, dtype=np.uint8).reshape(12, 9, 3)).convert(mode).save(
            out, kind
        )
    except (OSError, KeyError, ValueError):  # a format that this build cannot write
        return EPS
    return out.getvalue()


def picture(rng: random.Random) -> bytes:
    data = (
        EPS
        if rng.random() < 0.05
        else drawn(rng.choice(FORMATS), rng.choice(("RGB", "L", "P", "1", "CMYK")))
    )
    return damaged_bytes(data, rng) if rng.random() < 0.9 else data


def picture_file(data: bytes, _: Path) -> None:
    pixels = decode_picture(data).numpy()
    assert pixels.dtype == np.uint8 and pixels.shape[2:] == (3,) and max(pixels.shape) <= 512


def sound(rng: random.Random) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams(
            (
                rng.choice((1, 2, 9)),
                rng.choice((1, 2, 3)),
                rng.choice((1, 8_000, 2**20)),
                0,
                "NONE",
                "",
            )
        )
        file.writeframes(bytes(rng.randrange(256) for _ in range(rng.randrange(60))))
    data = out.getvalue()
    return damaged_bytes(data, rng) if rng.random() < 0.9 else data


def sound_file(data: bytes, _: Path) -> None:
    samples = decode_wav(data, 16_000).numpy()
    assert samples.ndim == 1 and np.isfinite(samples).all() and len(samples) <= 30 * 16_000


def lesson(rng: random.Random) -> str:
    whole = json.loads(to_json(decode(rng.choice(("attention", "patterns", "variants")))))
    if rng.random() < 0.2:
        return damaged_bytes(json.dumps(whole).encode(), rng).decode("utf-8", "replace")
    return json.dumps(damaged(whole, rng, rng.randint(1, 3)))


def lesson_file(text: str, _: Path) -> None:
    read = from_json(text)
    assert from_json(to_json(read)).id == read.id and json.dumps(read.parameters)


ROWS = st.text(alphabet='ab1.,;|\t\n\r" \x00é', max_size=120)
LABELS = "text,label\n" + "\n".join(f"sentence {i},{'ab'[i % 2]}" for i in range(12))
DOORS = (
    Door("table, pairs or text", seeded(sheet), own_data, (ConfigError,), 60),
    Door(
        "bytes as text",
        st.binary(max_size=300),
        lambda data, _: decode_text(data),
        (ConfigError,),
        60,
    ),
    Door("rows", ROWS | seeded(lambda rng: damaged_text(TABLE, rng)), rows, (ConfigError,), 80),
    Door(
        "rows to fine-tune on",
        st.tuples(
            st.sampled_from(["classify", "pairs"]),
            ROWS
            | seeded(lambda rng: damaged_text(rng.choice((LABELS, own_rows("pairs")[:900])), rng)),
        ),
        fine_tune_rows,
        (ConfigError,),
        60,
    ),
    Door(
        "CoNLL-U",
        seeded(lambda rng: damaged_text(conllu(), rng)) | st.sampled_from(PIECES),
        lambda text, _: parse_conllu(text),
        (ConfigError,),
        60,
    ),
    Door("arrays", seeded(arrays), array_file, (PretrainedError,), 100),
    Door("picture", seeded(picture), picture_file, (PretrainedError,), 100),
    Door("sound", seeded(sound), sound_file, (PretrainedError,), 60),
    Door("lesson file", seeded(lesson), lesson_file, (LessonError,), 60),
)
