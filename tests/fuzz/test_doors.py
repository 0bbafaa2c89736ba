"""Whatever comes through a door is taken, or refused in a sentence; nothing else happens, and it takes no time.

`make test` reads as many cases a door as seconds allow, always the same; `make fuzz` thousands, others each time,
from a seed that it prints.
"""

import gc
import gzip
import io
import json
import os
import random
import resource
import shutil
import stat
import sys
import tempfile
import threading
import time
import wave
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, note, strategies as st
from PIL import Image
from safetensors import numpy as safetensors
from transformers import AutoConfig

from core.attention import PRESETS, text as codec
from core.attention.formula import FormulaError, parse as parse_formula
from core.claims.base import CellResult
from core.claims.run import ClaimConfig
from core.entries import Choice, ConfigError
from core.interpret.corpus import CorpusConfig
from core.interpret.head_tests import (
    OWN as CONLLU,
    parse_conllu,
)
from core.models import ModelConfig
from core.models.cards import card
from core.pretrained import PretrainedError, load_folder, read
from core.pretrained.cards import parse_card
from core.pretrained.finetune import FineTuneConfig, own_rows, parse
from core.pretrained.foreign import ABOUT, read_maps
from core.pretrained.generate import SearchSettings, generate
from core.pretrained.hub import model_folder, parse as parse_name, storage_folder
from core.pretrained.model_inputs import decode_picture, decode_wav, read_arrays, small
from core.runs import archive
from core.runs.folder import ENDED, UNDER_WAY
from core.runs.runs import Run, create_run
from core.runs.sweeps import Sweep, create_sweep, sweep_comparisons
from core.runs.worker import work
from core.studies.compare import default_controls, from_query, link_texts, to_query
from core.studies.heads import check as check_matrices, parse as parse_matrices
from core.studies.runs import SweepData, load_sweep
from core.tasks import TaskConfig, make_task, own
from core.tasks.reading import decode_text, read_rows, validate_text
from core.training import RunConfig
from core.training.sweeps import SweepConfig
from dashboard.draw import cards as draw_cards, sweeps as sweep_words
from dashboard.draw.pictures import size_of
from dashboard.fields import link as links
from dashboard.navigation import STEPS
from dashboard.server import queue
from dashboard.ui import export
from dashboard.ui.lessons import (
    LessonError,
    decode,
    encode,
    from_json,
    make_question,
    page_query,
    parse_link,
    read_code,
    to_json,
)
from dashboard.ui.runs import summarize
from pages import report as report_compute
from tests.cases import each, instance
from tests.damage import PIECES, damaged, damaged_bytes, damaged_text
from tests.pages.app import WIDGETS, app_at, open_at
from tests.pages.test_report import VIEW
from tests.tiny_architectures import ARCHITECTURES
from tests.tiny_models import given, save
from tests.training.small import parts, small_run, trained

# What no door may do with what it is given: run code, start a process, connect, or write outside of one folder.


LONGEST = 5.0  # seconds of the processor for one case
# bytes by which the peak of a door's cases may exceed what the process had
MAX_MEMORY = 1_000_000_000
ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.startfile",
    "pty.spawn",
    "socket.connect",
    "socket.getaddrinfo",
    "pickle.find_class",
    "code.__new__",
}
CHANGES = {
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.utime",
    "shutil.rmtree",
    "shutil.move",
    "shutil.copyfile",
    "shutil.copytree",
    "shutil.unpack_archive",
}
# What st.cache_data keeps in memory is of these packages.
CACHED = {"streamlit", "dashboard", "core", "numpy", "pandas", "altair", "torch", "collections"}
BASES = "fuzz-base-"  # folders that cases copy: read, and never changed
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What makes classes and functions of text that is its own.
MAKERS = (
    "dataclasses.py",
    "collections/__init__.py",
    "typecheck.py",
    "enum.py",
    "functools.py",
    "/typing.py",
    "_make.py",
    "jaxtyping",
    "beartype",
)


class Audit:
    """What happened while a case was read: sentences about each thing that no case may cause."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self.readable = (
            self.folder,
            str(ROOT),
            os.path.realpath(sys.prefix),
            sys.base_prefix,
            "/usr",
            "/proc",
            "/sys",
            "/dev",
            "/lib",
            "/etc",
            "/bin",
            os.path.join(tempfile.gettempdir(), BASES),
            os.path.expanduser("~/.streamlit"),
        )
        self.faults: list[str] = []
        self.seconds = 0.0  # of the processor
        self.deaf_to = set[int | None]()  # threads of tests before, which wait for a run's end

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = bool((flags or 0) & WRITES) or any(sign in str(mode or "") for sign in "wax+")
            if not isinstance(path, int) and not self.inside(path, writes):
                self.faults.append(f"{'writes' if writes else 'reads'} {path!r}")
        elif event in CHANGES:
            # the folder that a relative path begins in
            at = next(
                (
                    f"/proc/self/fd/{part}"
                    for part in args
                    if isinstance(part, int) and part >= 0 and event in {"os.remove", "os.rmdir"}
                ),
                "",
            )
            paths = [
                os.path.join(at, os.fsdecode(part))
                for part in args
                if isinstance(part, str | bytes | os.PathLike)
            ]
            paths = paths[1:] if event in {"shutil.copyfile", "shutil.copytree"} else paths
            self.faults += [f"{event} {path!r}" for path in paths if not self.inside(path, True)]
        elif event == "exec":
            file = getattr(args[0], "co_filename", "<")  # what is timed, timeit runs
            if file.startswith("<") and file != "<timeit-src>" and not _made():
                self.faults.append(f"runs {args[0]!r} ")
        elif event == "pickle.find_class" and str(args[0]).partition(".")[0] in CACHED:
            pass
        elif (
            event in OUTSIDE
            or event == "ctypes.dlopen"
            and args[0]
            and not self.inside(args[0], False)
        ):
            self.faults.append(f"{event} {args!r:.200}")

    def inside(self, path: Any, writes: bool) -> bool:
        whole = os.path.realpath(os.fsdecode(path))
        # of Python and of torch
        own = whole == "/dev/null" or "__pycache__" in whole or "torchinductor" in whole
        return own or whole.startswith((self.folder,) if writes else self.readable)


def _made() -> bool:
    """Whether the code that is run belongs to an import, or was made by one of MAKERS."""
    frame, caller = sys._getframe(2), ""
    while frame is not None:
        name = frame.f_code.co_filename
        caller = caller or (name if name != __file__ else "")
        if name.startswith("<frozen importlib"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return any(part in caller for part in MAKERS)


_current: list[Audit] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _current and threading.get_ident() not in _current[-1].deaf_to:
        watch = _current.pop()  # what the watch itself opens is not watched
        try:
            watch.note(event, args)
        finally:
            _current.append(watch)


@cache
def install() -> None:
    """Begin to hear what the process does; a hook stays until the process ends, and is deaf outside of `watched`."""
    sys.addaudithook(_hook)


@contextmanager
def watched(folder: Path) -> Iterator[Audit]:
    """AssertionError where the block does what no door may, or takes longer than LONGEST."""
    install()
    watch, start = Audit(folder), time.process_time()
    watch.deaf_to = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    _current.append(watch)
    try:
        yield watch
    finally:
        _current.clear()
        watch.seconds = time.process_time() - start
    assert not watch.faults, watch.faults
    assert watch.seconds < LONGEST, f"{watch.seconds:.1f} s"


def peak() -> int:
    """The peak of this process's memory in bytes, since `reset_peak` where the system can."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> int:
    """Begin to measure the peak anew; returns the memory of now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return peak()


# A door: a way by which something that somebody else wrote comes into the lab, and what may come of it.


@dataclass(frozen=True)
class Door:
    """`enter` reads a case, with a folder for what it writes; `errors` are those whose message a person reads.

    `short` cases are read in `make test`.
    """

    name: str
    cases: st.SearchStrategy[Any]
    enter: Callable[[Any, Path], object]
    errors: tuple[type[Exception], ...]
    short: int = 60


def seeded(make: Callable[[random.Random], Any]) -> st.SearchStrategy[Any]:
    """Cases that a seeded generator makes; hypothesis draws the seed."""
    return st.integers(0, 2**40).map(lambda seed: make(random.Random(seed)))


# The doors through which text comes: formulas, links, codes, answers and names, and each page opened by a link.


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
MECHANISMS = tuple(codec.to_text(item.config(16, 2)) for item in PRESETS[:12]) + (
    "d=16 h=2 position=alibi mask=and(causal,local(window=3)) normalizer=softmax(temperature=0.5)",
    "position=formula(formula='score / (i - j)')",
    "mask=causal;mask=local(window=2);kernel=exact",
)
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

ANY = st.text(max_size=60)


def near(*texts: str) -> st.SearchStrategy[str]:
    """Texts that were right before something happened to them, and any others."""
    return seeded(lambda rng: damaged_text(rng.choice(texts), rng)) | ANY


FORMULA_TEXTS = (
    near(
        "score - 0.5*abs(i-j)",
        "j <= i and i - j < 3 or j == 0",
        "where(h == 0, score, score/sqrt(1+i))",
    )
    | st.lists(st.sampled_from(FORMULA), max_size=24).map(" ".join)
    | st.text("ijhTS score0123456789.+-*/%<>=!()&|,^eandornotwhmixqlg_[]{}'\"\\\n", max_size=60)
)


def formula(kind: Any) -> Any:
    """A formula is read and computed; its error points into the text."""

    def enter(text: str, _: Path) -> None:
        try:
            result = parse_formula(text, kind)(CELLS, None if kind == "mask" else SCORES)
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
    repo, revision = parse_name(text)
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
    """Each reader gives a value, or a ValueError or KeyError, for which the page has its own."""
    page, values = case
    for name, text in values.items():
        with suppress(ValueError, KeyError):
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


# What the pages, the workers and the shell read of folders and files, and how these are put wrong.


NAMES = (
    "0x1",
    "1abc",
    "000001x",
    "1",
    "0000001",
    "-00001",
    "99999999999999999999",
    "000003",
    *("１", "²") * (sys.getfilesystemencoding() != "ascii"),
)
SPOILT = (
    "run.json",
    "status.json",
    "status.json",
    "metrics.jsonl",
    "stop",
    "frames",
    "checkpoints",
)
LONGEST_MESSAGE = 900  # the longest list of choices that a message names is some 400 characters


def _changed(text: str, rng: random.Random) -> str:
    try:
        return json.dumps(damaged(json.loads(text), rng))
    except (ValueError, IndexError, RecursionError):
        return text


def read_everything(run: Run) -> None:
    """What the pages read of a folder."""
    status = run.status()
    assert (
        status.state in (*UNDER_WAY, *ENDED)
        and status.message.encode() is not None
        and 0 <= status.at < 1e11
    )
    assert status.pid is None or status.pid > 1
    assert run.stop_request() in ("", "stop", "pause") and run.stop_age() >= 0 and run.name.encode()
    for step in run.frame_steps():
        assert all(maps.ndim == 4 for maps in run.frame(step).values())
    line = summarize(run)
    assert len(line.trouble) <= LONGEST_MESSAGE and isinstance(line.loss, float | int | None)
    assert (line.name + line.parent + line.sweep + line.trouble).encode()
    for record in run.records():
        json.dumps(record.to_json()).encode()
    for step in run.checkpoint_steps():
        try:
            run.model(step)
        except ValueError as error:
            assert len(str(error)) <= LONGEST_MESSAGE


def sweep_with_outcomes(path) -> tuple[Sweep, dict]:
    """A sweep of two values and two seeds whose runs have all ended, and its file's content."""
    config = SweepConfig(small_run(), "score", ("dot", "general"), (0, 1))
    sweep = create_sweep(config, path)
    outcome = {
        "state": "finished",
        "message": "",
        "steps": [0, 4],
        "train_seconds": [0.0, 1.5],
        "held_out": 20,
        "even": 0.1,
        "elapsed": 2.0,
        "measures": {"sequence_accuracy": [None, 0.5], "loss": [2.0, 1.0], "expected": [0.2, 0.4]},
    }
    data = sweep.data() | {
        "outcomes": {f"{place}:{seed}": outcome for place, seed in config.cells},
        "runs": {
            f"{place}:{seed}": f"20261120-12000{place}-00000{seed}" for place, seed in config.cells
        },
    }
    return sweep, data


NUMBERS = (0, -1, 3, 10**5, 2**31, 2**40, 10**9, 0.5, None, "x", [1])


HOSTILE = (
    "../run.json",
    "/etc/passwd",
    "a/../../run.json",
    "frames/../../000000.safetensors",
    "run.json/x",
    "evil.py",
    "frames/x.safetensors",
    "checkpoints/000000.pt",
    "frames\\000000.safetensors",
    "run.json\n",
    "stop",
    "lock",
    "frames/000009.safetensors",
    "data/" + "0" * 64 + ".txt",
    "C:\\x",
    "~/x",
    "frames/",
    "\x00",
    "__MACOSX/._x",
)


@cache
def base() -> tempfile.TemporaryDirectory[str]:
    """A folder for what cases copy, deleted with the process."""
    return tempfile.TemporaryDirectory(prefix=BASES)


@cache
def whole() -> Run:
    """A small run that has really trained."""
    return trained(Path(base().name))


@cache
def files() -> dict[str, bytes]:
    return parts(archive.pack(whole()))


def zipped(rng: random.Random) -> bytes:
    """The zip of a run, with members damaged, added, left out or made links, or damaged itself."""
    members = dict(files())
    for _ in range(rng.randint(0, 2)):
        name = rng.choice(list(members))
        how = rng.randrange(5)
        if how == 0:
            members[rng.choice(HOSTILE)] = members[name]
        elif how == 1:
            del members[name]
        elif how == 2 and name.endswith("json") and name in files():
            members[name] = json.dumps(damaged(json.loads(files()[name]), rng, 2)).encode()
        elif how == 3:
            members[rng.choice(HOSTILE)] = bytes(rng.choice((10, 3_000_000)))
        else:
            members[name] = damaged_bytes(members[name], rng)
    out, top = io.BytesIO(), rng.choice(("", "a/"))
    kind = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))
    with zipfile.ZipFile(out, "w") as file:
        # Rarely odd: one that is refused hides what is wrong with the others.
        for name, data in members.items():
            info = zipfile.ZipInfo((top if rng.random() < 0.99 else "b/") + name)
            mode = rng.choice((0o100644, 0o100644, stat.S_IFLNK | 0o777, 0o060777))
            info.external_attr = mode << 16
            file.writestr(
                info,
                data,
                kind if rng.random() < 0.99 else rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
                1,
            )
    return damaged_bytes(out.getvalue(), rng) if rng.random() < 0.3 else out.getvalue()


def unpack(rng: random.Random, folder: Path) -> None:
    """A run that is taken is whole; of one that is refused nothing is left."""
    root = folder / "runs"
    try:
        run = archive.unpack(zipped(rng), root)
    except ValueError:
        assert not root.exists() or list(root.iterdir()) == []
        raise
    read_everything(run)
    assert not any(path.is_symlink() for path in root.rglob("*"))
    shutil.rmtree(root)


def run_folder(rng: random.Random, folder: Path) -> None:
    """Whatever the folder of a run holds, what pages and workers read of it answers."""
    run = Run(folder / whole().id)
    shutil.rmtree(run.path, ignore_errors=True)
    shutil.copytree(whole().path, run.path)
    for _ in range(rng.randint(1, 3)):
        file = run.path / rng.choice(SPOILT)
        if file.is_dir():
            name = file / f"{rng.choice(NAMES)}.safetensors"
            inside = sorted(path for path in file.iterdir() if path.is_file())
            how = rng.randrange(4)
            if how == 0 and not name.exists():
                name.mkdir()
            elif how == 1 and not name.is_dir():
                name.write_bytes(damaged_bytes(b"\x08\0\0\0\0\0\0\0{}      ", rng))
            elif inside:
                chosen = rng.choice(inside)
                chosen.write_bytes(damaged_bytes(chosen.read_bytes()[:4000], rng))
        elif file.name == "stop" or rng.random() < 0.3 or not file.exists():
            file.write_bytes(damaged_bytes(file.read_bytes() if file.exists() else b"pause", rng))
        else:
            text = file.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if line.startswith("{")]
            lines = lines if file.suffix == ".jsonl" else [text]
            file.write_text("".join(_changed(line, rng) + "\n" for line in lines), encoding="utf-8")
    read_everything(run)


@cache
def settings() -> tuple[tuple[type[Any], dict[str, Any]], ...]:
    """Each class of settings that a JSON file holds, and the content of one."""
    recurrent = small_run(model=ModelConfig.recurrent(8))
    padded = Choice.of("and", Choice("causal"), Choice("padding"))
    masked = small_run(model=ModelConfig.transformer(8, 2, mask=padded))
    sweep = SweepConfig(small_run(), "score", ("dot", "general"), (0, 1))
    cell = {
        "condition": "a",
        "seed": 1,
        "seconds": 1.0,
        "values": [["loss", 0.5, None], ["loss", 0.25, 2.0]],
    }
    return tuple(
        (type_, json.loads(json.dumps(data)))
        for type_, data in (
            (RunConfig, small_run().to_json()),
            (RunConfig, recurrent.to_json()),
            (RunConfig, masked.to_json()),
            (SweepConfig, sweep.to_json()),
            (FineTuneConfig, FineTuneConfig("classify", own_rows("classify")).to_json()),
            (CorpusConfig, asdict(CorpusConfig())),
            (ClaimConfig, ClaimConfig("scaling", {}).to_json()),
            (CellResult, cell),
        )
    )


def config(rng: random.Random, _: Path) -> None:
    type_, data = rng.choice(settings())
    data = damaged(data, rng, rng.randint(1, 3))
    note(f"{type_.__name__} {data!r:.2000}")
    read_config = type_.from_json(data)
    json.dumps(asdict(read_config) if type_ is CorpusConfig else read_config.to_json())
    assert type_ is not RunConfig or isinstance(hash(read_config), int)


def records(rng: random.Random, folder: Path) -> None:
    """The records of an uploaded run, a value of some of them changed."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in files()["metrics.jsonl"].splitlines()]
    lines = [damaged(line, rng) if rng.random() < 0.5 else line for line in lines]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    data = damaged_bytes(data, rng) if rng.random() < 0.2 else data
    note(f"{data!r:.2000}")
    path.write_bytes(data)
    for record in archive.read_records(path):
        json.dumps(record.to_json()).encode()


def sweep_file(rng: random.Random, folder: Path) -> None:
    """What the page and the shell do with a sweep's file."""
    sweep, data = sweep_with_outcomes(folder / "one.json")
    text = json.dumps(damaged(data, rng, rng.randint(1, 3))).encode()
    sweep.path.write_bytes(damaged_bytes(text, rng) if rng.random() < 0.1 else text)
    shown = load_sweep(sweep)
    if isinstance(shown, str):
        assert len(shown.encode()) and len(shown) <= LONGEST_MESSAGE
    else:
        for measure in shown.measures():
            words = (
                sweep_words.fact_text(shown, measure),
                sweep_words.caption_text(shown, measure, "train_seconds"),
            )
            assert "".join(words).encode()
            sweep_words.pairs(shown, measure), sweep_words.table_text(shown, measure)
            sweep_comparisons(shown.config, shown.outcomes, measure)
            shown.lines(measure, "train_seconds"), shown.lines(measure, "steps")
        sweep_words.failures(shown), sweep_words.progress(shown, 2)
        sweep_words.numbers_csv(shown)
        [sweep_words.run_line(shown, cell, outcome) for cell, outcome in shown.outcomes.items()]
        sweep.missing()
    try:
        queue.stop_sweep(sweep)
    except ConfigError as error:
        assert len(str(error)) <= LONGEST_MESSAGE


WHOLE_VIEW = {**vars(VIEW), "query": dict(VIEW.query)}


def saved_report(packed: bytes) -> export.Report | None:
    """What is read of a report's file."""
    path = export.runs_folder() / "reports" / f"{'0' * 16}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed)
    return export.read_report("0" * 16)


def report(rng: random.Random, _: Path) -> None:
    """A report is read and drawn, or is none."""
    whole = {"title": "T", "views": [WHOLE_VIEW, WHOLE_VIEW | {"id": "b"}]}
    whole = damaged(whole, rng, rng.randint(1, 2))
    data = json.dumps(whole).encode()
    note(f"{data!r:.2000}")
    packed = gzip.compress(damaged_bytes(data, rng) if rng.random() < 0.1 else data)
    saved = saved_report(damaged_bytes(packed, rng) if rng.random() < 0.2 else packed)
    for one in saved.views if saved is not None else ():
        "".join((one.title, one.sentence, one.note, one.source)).encode()
        [[str(value) for value in row] for row in one.rows]
        if one.svg:
            size_of(report_compute.on_paper(one.svg))


@cache
def models() -> dict[str, Path]:
    """The folders of small models of four families."""
    folders = {family: Path(base().name) / family for family in ("bert", "gpt2", "t5", "vit")}
    for family, folder in folders.items():
        folder.mkdir()
        save(family, folder)
    return folders


def folder_of_a_model(rng: random.Random, folder: Path) -> None:
    """One file of a model is changed: its config, its tokenizer, its settings, or the header of its weights."""
    family = rng.choice(list(models()))
    shutil.rmtree(folder / "model", ignore_errors=True)
    path = shutil.copytree(models()[family], folder / "model")
    file = rng.choice(
        [path / "config.json", *sorted(path.glob("*.json")), path / "model.safetensors"]
    )
    data = file.read_bytes()
    if file.suffix == ".json":
        content = json.loads(data)
        if file.name == "config.json" and rng.random() < 0.5:
            sizes = [key for key, value in content.items() if isinstance(value, int)]
            content[rng.choice(sizes)] = rng.choice(NUMBERS)
        else:
            content = damaged(content, rng, rng.choice((1, 2)))
        file.write_text(json.dumps(content), "utf-8")
    else:
        length = int.from_bytes(data[:8], "little")
        header = json.dumps(damaged(json.loads(data[8 : 8 + length]), rng)).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    pretrained = load_folder(path, "damaged")
    if pretrained.head in ("next", "seq2seq"):
        generate(pretrained, given(family), SearchSettings(longest=2))
    read(pretrained, given(family))


RANDOM = st.randoms(use_true_random=True)  # a failure shows its seed
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


def own_data(rng: random.Random, _: Path) -> None:
    """A task of a person's own data, an uploaded file, the encoding it is read in, and the task's settings."""
    key = rng.choice(list(SHEETS))
    text = damaged_text(SHEETS[key], rng) if rng.random() < 0.8 else SHEETS[key]
    data = text.encode(
        rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1")), "replace"
    )
    data = damaged_bytes(data, rng) if rng.random() < 0.2 else data
    options = {
        name: rng.choice(values) for name, values in OPTIONS[key].items() if rng.random() < 0.4
    }
    note(f"{key} {data!r:.2000} {options}")
    text = validate_text(decode_text(data, rng.choice(("utf-8", "utf-8", "cp1252"))))
    task = make_task(TaskConfig.of(key, data=text, **options))
    example = task.held_out(1)[0]
    assert task.collate([example]).source.shape[0] == 1 and "".join(task.notes).encode()


def rows(text: str, _: Path) -> None:
    table, _mark = read_rows(text)
    assert (
        len({len(row.cells) for row in table}) == 1
        and [row.line for row in table] == sorted({row.line for row in table})
        and table[-1].line <= validate_text(text).count("\n") + 1
    )


def fine_tune_rows(case: tuple[str, str], _: Path) -> None:
    task, text = case
    parsed = parse(task, text)
    assert parsed.learned and parsed.held_out


@cache
def conllu() -> str:
    return "\n\n".join(CONLLU.read_text("utf-8").split("\n\n")[:4]) + "\n"


WEIGHTS = np.random.default_rng(86).dirichlet(np.ones(4), (2, 4)).astype(np.float32)
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


ABOUT_MAPS = {
    "source": "Model",
    "parts": [{"modules": [["layers.0", "softmax", 1e-7]], "queries": [2, 2], "keys": [2, 2]}],
    "notes": ["Not read: x"],
}


def npz(**members: bytes | np.ndarray) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            with file.open(name, "w") as member:
                member.write(data) if isinstance(data, bytes) else np.save(member, data)
    return out.getvalue()


def arrays(rng: random.Random) -> bytes:
    """An NPZ or safetensors file whose bytes, names or header are not what they were."""
    how = rng.randrange(6)
    if how > 3:
        text = json.dumps(damaged(ABOUT_MAPS, rng, 1) if how == 4 else ABOUT_MAPS).encode()
        maps = safetensors.save({"self_0": WEIGHTS}, {"keys": '["a","b","c","d"]'})
        whole = npz(**{ABOUT: text, "0.safetensors": maps})
        return whole if how == 4 else damaged_bytes(whole, rng)
    if how == 0:
        header = {
            "descr": rng.choice(DESCR),
            "fortran_order": rng.choice((False, True, 3)),
            "shape": rng.choice(SHAPES),
        }
        text = repr(header).encode() + b"\n"
        data = b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(128)
        return npz(**{rng.choice(("self_0.npy", "tokens.npy", "../x.npy", "/etc/x.npy")): data})
    if how == 1:
        raw = json.dumps(damaged(HEADER, rng, rng.choice((1, 2)))).encode()
        return len(raw).to_bytes(8, "little") + raw + bytes(128)
    good = (
        npz(**{"self_0.npy": WEIGHTS, "tokens.npy": np.array(list("abcd"))})
        if how == 2
        else safetensors.save({"a": WEIGHTS}, {"tokens": '["a","b","c","d"]'})
    )
    return damaged_bytes(good, rng)


def array_file(data: bytes, _: Path) -> None:
    maps = read_maps(data, "fuzz")
    assert all(label.isprintable() for label in maps.labels)
    for item in [item for reading in maps.readings for item in reading.trace.maps]:
        assert (
            np.isfinite(item.weights).all()
            and item.weights.min() >= 0
            and item.weights.max() <= 1
            and item.weights.shape[1:] == (len(item.queries), len(item.keys))
        )


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


def picture(rng: random.Random, _: Path) -> None:
    kind, mode = rng.choice(FORMATS), rng.choice(("RGB", "L", "P", "1", "CMYK"))
    data = EPS if rng.random() < 0.05 else drawn(kind, mode)
    data = damaged_bytes(data, rng) if rng.random() < 0.9 else data
    note(f"{data!r:.2000}")
    pixels = decode_picture(data).numpy()
    assert pixels.dtype == np.uint8 and pixels.shape[2:] == (3,) and max(pixels.shape) <= 512


def wav(frames: bytes, channels: int = 1, width: int = 2, rate: int = 8_000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(frames)
    return out.getvalue()


def sound(rng: random.Random, _: Path) -> None:
    params = map(rng.choice, ((1, 2, 9), (1, 2, 3), (1, 8_000, 2**20)))
    whole = wav(rng.randbytes(rng.randrange(60)), *params)
    data = damaged_bytes(whole, rng) if rng.random() < 0.9 else whole
    note(f"{data!r:.2000}")
    samples = decode_wav(data, 16_000).numpy()
    assert samples.ndim == 1 and np.isfinite(samples).all() and len(samples) <= 30 * 16_000


def lesson(rng: random.Random, _: Path) -> None:
    whole = json.loads(to_json(decode(rng.choice(("attention", "patterns", "variants")))))
    text = damaged_bytes(json.dumps(whole).encode(), rng).decode("utf-8", "replace")
    shape = json.dumps(damaged(whole, rng, rng.randint(1, 3)))
    given = text if rng.random() < 0.2 else shape
    note(given[:2000])
    read_lesson = from_json(given)
    assert from_json(to_json(read_lesson)).id == read_lesson.id and json.dumps(
        read_lesson.parameters
    )


SIZES: tuple[Any, ...] = (
    10**9,
    2**24,
    10**20,
    70_000,
    1,
    0,
    -1,
    2.5,
    1e9,
    "12",
    "wide",
    None,
    True,
    [],
    [1],
    {},
    [10**9],
)
MODEL_TYPES = (
    ARCHITECTURES
    if os.environ.get("ATTENTION_LAB_FUZZ")
    else ("llama", "deepseek_v4", "neomme", "diffllama")
)


@cache
def usual(model_type: str) -> dict[str, Any]:
    """The config.json of a class without settings, which is read once, so that no case waits for its code."""
    plain = {"model_type": model_type}
    with suppress(Exception):
        parse_card(json.dumps(plain), "usual")
        return json.loads(AutoConfig.for_model(model_type).to_json_string(use_diff=False))
    return plain


def config_json(rng: random.Random) -> str:
    """The config.json of any type of model: that alone, with sizes that none has, or with damaged fields."""
    model_type = rng.choice(MODEL_TYPES)
    whole = usual(model_type)
    if rng.random() < 0.5:
        return json.dumps(damaged(whole, rng, rng.randint(1, 3)) | {"model_type": model_type})
    own = {
        name: rng.choice(SIZES)
        for name in rng.sample(sorted(whole), min(rng.randrange(4), len(whole)))
    }
    parts: dict[str, Any] = {
        name: {} for name, value in whole.items() if isinstance(value, dict) and rng.random() < 0.2
    }
    return json.dumps(parts | own | {"model_type": model_type})


def model_card(text: str, _: Path) -> None:
    one = parse_card(text, "fuzz")
    json.dumps(one.to_json())
    figures, words = draw_cards.figures(one), (draw_cards.fact_text(one), draw_cards.note(one))
    assert all(figures) and all(words) and draw_cards.strips(one, None, "light")
    assert draw_cards.differences(one, card("gpt2")) is not None


ROWS = st.text(alphabet='ab1.,;|\t\n\r" \x00é', max_size=120)
LABELS = "text,label\n" + "\n".join(f"sentence {i},{'ab'[i % 2]}" for i in range(12))
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
        near("1,2|1,0;0,1|3;4", "1|1|1", "1,2;3,4|5,6;7,8|9;1"),
        lambda text, _: check_matrices(parse_matrices(text)),
        WORDS,
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
        near(
            "https://host/lab/masks?masks:tokens=a+b&m=1&m=2&lesson=x&embed=true",
            "http://host:8501/",
            "masks?a=b",
        ),
        lambda text, _: held(page_query(parse_link(text)[1])),
        (LessonError,),
        60,
    ),
    Door(
        "code of a student",
        near("Ann Lee 1A2B-3C01-F2AA-BB11", "x 0000-0000-0000-0000"),
        lambda text, _: read_code(text),
        (LessonError,),
        60,
    ),
    Door(
        "answer of a student",
        st.tuples(
            st.sampled_from(QUESTIONS),
            near("0.25", "1 2\n3 4", "[[1, 2], [3, 4]]", "j <= i", "score - abs(j - i)/2", "L3·H1"),
        ),
        lambda case, _: case[0].check(case[1]),
        (LessonError,),
        60,
    ),
    Door(
        "name of a model",
        near(
            "distilbert/distilgpt2",
            "owner/name@refs/pr/1",
            "https://huggingface.co/a/b/tree/main",
            "gpt2",
        ),
        hub_name,
        (PretrainedError,),
        60,
    ),
    Door("values of a link", seeded(texts), read_texts, (), 6),
    Door(
        "pairs of a link",
        seeded(lambda rng: near_to(rng.choice(("3.1_0.2", "2.4", "1")), rng)),
        read_pairs,
        (),
    ),
    Door("link of a page", seeded(link), open_link, (), 10),  # each draws the whole page
    Door("archive of a run", RANDOM, unpack, (ValueError,), 60),
    Door("folder of a run", RANDOM, run_folder, (), 40),
    Door("settings", RANDOM, config, (ValueError,), 100),
    Door("records of an archive", RANDOM, records, (ValueError,), 60),
    Door("file of a sweep", RANDOM, sweep_file, (ConfigError,), 60),
    Door("file of a report", RANDOM, report, (), 60),
    Door("folder of a model", RANDOM, folder_of_a_model, (PretrainedError,), 40),
    Door("table, pairs or text", RANDOM, own_data, (ConfigError,), 60),
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
    Door("config.json of a model card", seeded(config_json), model_card, (PretrainedError,), 60),
    Door("picture", RANDOM, picture, (PretrainedError,), 100),
    Door("sound", RANDOM, sound, (PretrainedError,), 60),
    Door("lesson file", RANDOM, lesson, (LessonError,), 60),
)


# Each door is opened.


CASES = int(os.environ.get("ATTENTION_LAB_FUZZ") or 0)  # of a door


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_door_takes_a_case_or_refuses_it_in_words(door: Door, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "lab"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(queue, "warm_up", lambda *_, **__: None)  # no worker is started for a page
    monkeypatch.setattr(queue, "_give", lambda run: None)
    seconds: list[float] = []  # of each case

    @hypothesis.settings(
        max_examples=CASES or door.short,
        derandomize=not CASES,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(door.cases)
    def enter(case):
        if not seconds:
            _enter(door, case, tmp_path)  # imports what it needs, unwatched
        with watched(tmp_path) as watch:
            _enter(door, case, tmp_path)
        seconds.append(watch.seconds)
        if len(seconds) % 100 == 0:
            gc.collect()  # which the tests put off: what is not a leak should not look like one

    before = reset_peak()
    enter()
    memory = peak() - before
    print(
        f"{door.name}: {len(seconds):,} cases, the longest {max(seconds):.2f} s, {memory / 1e6:.0f} MB more memory"
    )
    assert memory < MAX_MEMORY


def _enter(door: Door, case, folder) -> None:
    try:
        door.enter(case, folder)
    except door.errors as error:  # whose message is a sentence for a person
        text = str(error)
        assert len(text.encode()) > 10 and len(text) <= LONGEST_MESSAGE and "Traceback" not in text
        assert text.endswith(".") or "link" not in door.name


# What the doors once let in, each by itself.


LONE = "\ud800"  # half a character, which JSON can hold and UTF-8 cannot


def test_the_sweep_that_is_damaged_is_whole_before(tmp_path):
    sweep, data = sweep_with_outcomes(tmp_path / "one.json")
    sweep.path.write_text(json.dumps(data), encoding="utf-8")
    assert instance(load_sweep(sweep), SweepData).finished == 4


def test_a_picture_of_postscript_runs_no_ghostscript(monkeypatch):
    monkeypatch.setattr("subprocess.Popen", lambda *args, **named: pytest.fail(f"started {args}"))
    pytest.raises(PretrainedError, decode_picture, EPS).match("use a PNG or JPEG")


def large(kind: str, mode: str, side: int, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (side, side)).save(out, kind, **options)
    return out.getvalue()


# Of each format and mode about the largest that is opened; the last two as they would decode to more.
LARGE = {
    "PNG of colours with transparency": ("PNG", "RGBA", 6_300, {"compress_level": 1}),
    "PNG of grey with transparency": ("PNG", "LA", 6_300, {"compress_level": 1}),
    "PNG with a palette": ("PNG", "P", 6_300, {"compress_level": 1}),
    "PNG of 16 bits": ("PNG", "I;16", 6_300, {"compress_level": 1}),
    "PNG of black and white": ("PNG", "1", 6_300, {}),
    "JPEG": ("JPEG", "RGB", 6_300, {}),
    "progressive JPEG": ("JPEG", "RGB", 5_000, {"progressive": True, "subsampling": 0}),
    "WEBP": ("WEBP", "RGB", 2_990, {"method": 0}),
    "GIF with transparency": ("GIF", "P", 6_300, {"transparency": 0}),
}
HEAVY = 220_000_000  # bytes


@pytest.mark.parametrize("name", LARGE)
def test_the_largest_picture_takes_little_memory(name):
    kind, mode, side, options = LARGE[name]
    data = large(kind, mode, side, **options)
    decode_picture(drawn("PNG", "RGB"))  # imports what it needs, and gives back what others freed
    before = reset_peak()
    assert max(decode_picture(data).shape) == 512
    alone = peak() - before

    def three_at_once() -> int:
        before = reset_peak()
        with ThreadPoolExecutor(3) as pool:
            assert len({one.digest for one in pool.map(decode_picture, [data] * 3)}) == 1
        return peak() - before

    # Threads that other tests left in this process allocate too: what it takes itself it takes each time.
    most = max(1.5 * alone, 60_000_000)
    assert alone < HEAVY and any(three_at_once() < most for _ in range(3))


@pytest.mark.parametrize(
    ("kind", "mode", "side", "options"),
    [
        ("JPEG", "CMYK", 6_300, {"progressive": True}),
        ("WEBP", "RGB", 3_100, {"method": 0}),
        ("PNG", "L", 6_400, {"compress_level": 1}),
    ],
)
def test_a_picture_that_would_take_more_is_refused(kind, mode, side, options):
    data = large(kind, mode, side, **options)
    before = reset_peak()
    refused = pytest.raises(PretrainedError, decode_picture, data)
    refused.match(rf"has {side:,} × {side:,} pixels.*at most")
    assert peak() - before < 60_000_000


def test_a_picture_is_refused_where_memory_is_short(monkeypatch):
    monkeypatch.setattr("core.pretrained.model_inputs.room_bytes", lambda: 250_000)
    data = large("PNG", "RGBA", 300)
    pytest.raises(PretrainedError, decode_picture, data).match("at most 249 × 249 pixels")
    assert decode_picture(large("PNG", "RGBA", 249)).shape == (249, 249, 3)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16", "CMYK"])
@pytest.mark.parametrize("size", [(1_500, 1_100), (2_731, 513), (90, 40), (30_000, 3), (1, 4_000)])
def test_a_picture_is_reduced_as_if_it_were_converted_whole(mode, size):
    rows, columns = (one / max(one.max(), 1) for one in np.indices(size[::-1]))
    whole = 255 * np.stack([rows, columns, (rows + columns) / 2], -1)
    image = Image.fromarray(whole.astype(np.uint8)).convert("I" if mode == "I;16" else mode)
    image.convert(mode).save(out := io.BytesIO(), "TIFF" if mode == "CMYK" else "PNG")
    if mode == "I;16":  # which Pillow would clip
        out = io.BytesIO()
        Image.fromarray((257 * whole[..., 2]).astype(np.uint16)).save(out, "PNG")
        expected = Image.fromarray(whole[..., 2].astype(np.uint8)).convert("RGB")
    else:
        expected = Image.alpha_composite(
            Image.new("RGBA", size, "white"), Image.open(out).convert("RGBA")
        ).convert("RGB")
    expected.thumbnail((512, 512))
    with Image.open(out) as opened:
        pixels = small(opened).numpy()
    np.testing.assert_allclose(pixels, np.asarray(expected), atol=60 if mode in ("1", "P") else 6)


def test_no_array_or_sound_takes_more():
    bomb = b"\x93NUMPY\x02\0" + (900_000_000).to_bytes(4, "little") + b" " * 900_000_000
    data = npz(**{"self_0.npy": bomb})
    del bomb
    before = reset_peak()
    pytest.raises(PretrainedError, read_arrays, data, "bomb.npz").match("not a readable NPZ")
    assert peak() - before < 60_000_000
    data = npz(**{ABOUT: b" " * 500_000_000})
    before = reset_peak()
    pytest.raises(PretrainedError, read_maps, data, "bomb.zip").match("more than 4,000,000 bytes")
    assert peak() - before < 60_000_000
    for width in (2, 3, 4):
        sounds = wav(bytes(width * 8 * 192_000 * 32), 8, width, 192_000)
        before = reset_peak()
        assert decode_wav(sounds, 16_000).shape == (30 * 16_000,)
        assert peak() - before < HEAVY
    for channels, rate in ((9, 8_000), (30_000, 8_000), (1, 192_001), (1, 2**30)):
        refused = pytest.raises(
            PretrainedError, decode_wav, wav(bytes(240_000), channels, 2, rate), 16_000
        )
        refused.match("at most 8 channels of 192,000")


@each(
    "data",
    [
        wav(b"a"),
        wav(b"abc", 2),
        wav(bytes(40)).replace(b"fmt \x10", b"fmt \xff"),
        wav(bytes(40)).replace(b"fmt ", b"xxxx").replace(b"\x10\0\0\0", b"\xff\xff\0\0"),
    ],
)
def test_too_short_or_too_long_a_sound_is_refused(data):
    pytest.raises(PretrainedError, decode_wav, data, 16_000).match("WAV")


def test_half_a_character_is_refused_wherever_text_comes_in(tmp_path):
    for enter, error in (
        (lambda: parse_name(f"owner/{LONE}"), PretrainedError),
        (lambda: read_code(f"Ann{LONE} 1A2B-3C01-F2AA-BB11"), LessonError),
        (
            lambda: from_json(
                to_json(decode("attention")).replace('"text":"', '"text":"\\ud800', 1)
            ),
            LessonError,
        ),
    ):
        with pytest.raises(error) as refused:
            enter()
        str(refused.value).encode()
    # punctuation, which does not count
    assert make_question("text", "?", "a").check(f"a{LONE}") is True
    save("t5", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"dtype": LONE}), encoding="utf-8"
    )
    with pytest.raises(PretrainedError, match="cannot be loaded") as refused:
        load_folder(tmp_path, "own")
    str(refused.value).encode()


def test_checkpoint_of_another_size_is_refused_in_one_line(tmp_path, worker_here):
    work((run := create_run(small_run(), path=tmp_path / "run")).path)
    larger = replace(
        run.config(), model=ModelConfig.transformer(d_model=8, num_heads=2, layers=9, d_ff=64)
    )
    run.update_metadata(config=larger.to_json())
    with pytest.raises(ValueError, match="do not fit this model: ") as refused:
        run.model()
    assert len(str(refused.value).splitlines()) == 1
    run.requeue()
    assert work(run.path) == "failed" and len(run.status().message.splitlines()) == 1


def test_a_word_that_is_none_is_passed_over_in_a_link():
    for page, name, text in (
        ("sweeps", "sweeps:measure", ""),
        *(("positions", "positions:seed", number) for number in ("inf", "1e999", "-Infinity")),
    ):
        app = open_at(page, **{name: text})
        assert not app.exception and not app.error and not app.query_params.get(name)
    pytest.raises(
        ConfigError, FineTuneConfig.from_json, {"task": {"key": "classify"}, "data": "a,b"}
    ).match("expected one of classify, pairs")


@each(
    "values",
    [
        {"rows": [0.5]},
        {"rows": 7},
        {"query": []},
        {"head": "ab"},
        {"svg": "x"},
        {"svg": '<svg width="a">'},
        {"title": None},
        {"note": LONE},
        {"page": ["heads"]},
    ],
)
def test_a_report_whose_view_cannot_be_drawn_is_none(values):
    for view, found in ((WHOLE_VIEW, True), (WHOLE_VIEW | values, False)):
        data = json.dumps({"title": "T", "views": [view]}).encode()
        assert (saved_report(gzip.compress(data)) is not None) == found
