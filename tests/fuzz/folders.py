"""The doors of folders: archives of runs, run folders, settings, records, sweeps, reports, and models."""

import gzip
import io
import json
import random
import shutil
import stat
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from core.claims.base import CellResult
from core.claims.run import ClaimConfig
from core.entries import ConfigError
from core.interpret.corpus import CorpusConfig
from core.models import ModelConfig
from core.pretrained import PretrainedError, load_folder, read
from core.pretrained.finetune import FineTuneConfig, own_rows
from core.pretrained.generate import SearchSettings, generate
from core.runs import archive
from core.runs.folder import ENDED, UNDER_WAY
from core.runs.runs import Run
from core.runs.sweeps import Sweep, create_sweep, sweep_comparisons
from core.studies.sweeps import load_sweep
from core.training import RunConfig
from core.training.sweeps import SweepConfig
from dashboard.draw.pictures import size_of
from dashboard.ui import export
from dashboard.ui.export import Report
from dashboard.ui.run_data import summarize
from pages import report as report_compute, sweeps
from tests.damage import damaged, damaged_bytes
from tests.fuzz.guard import BASES, Door, seeded
from tests.pages.test_report import VIEW
from tests.tiny_models import given, save
from tests.training.small import parts, small_run, trained

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
LONGEST_MESSAGE = 900


def spoil_run(run: Run, rng: random.Random) -> None:
    """Change one to three things in a run's folder."""
    for _ in range(rng.randint(1, 3)):
        file = run.path / rng.choice(
            (
                "run.json",
                "status.json",
                "status.json",
                "metrics.jsonl",
                "stop",
                "frames",
                "checkpoints",
            )
        )
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
        elif file.suffix == ".jsonl":
            text = file.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if line.startswith("{")]
            file.write_text("".join(_changed(line, rng) + "\n" for line in lines), encoding="utf-8")
        else:
            file.write_text(
                _changed(file.read_text(errors="replace", encoding="utf-8"), rng), encoding="utf-8"
            )


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
    assert (
        len(line.trouble) <= LONGEST_MESSAGE
        and (line.name + line.parent + line.sweep + line.trouble).encode()
    )
    assert line.loss is None or isinstance(line.loss, float | int)
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


def use_sweep(sweep: Sweep) -> None:
    """What the page and the shell do with a sweep's file."""
    shown = load_sweep(sweep)
    if isinstance(shown, str):
        assert len(shown) <= LONGEST_MESSAGE
        shown.encode()
    else:
        for measure in shown.measures():
            "".join(
                [sweeps.fact_text(shown, measure), sweeps.caption_text(shown, "train_seconds")]
            ).encode()
            sweeps.pairs(shown, measure)
            sweep_comparisons(shown.config, shown.outcomes, measure)
            shown.lines(measure, "train_seconds"), shown.lines(measure, "steps")
        (
            sweeps.table_text(shown),
            sweeps.failures(shown),
            sweeps.progress(shown, 2),
            sweeps.numbers_csv(shown),
        )
        [sweeps.run_line(shown, cell, outcome) for cell, outcome in shown.outcomes.items()]
        sweep.missing()
    try:
        sweeps.stop(sweep)
    except ConfigError as error:
        assert len(str(error)) <= LONGEST_MESSAGE


NUMBERS = (0, -1, 3, 10**5, 2**31, 2**40, 10**9, 0.5, None, "x", [1])


def spoil_model(folder: Path, rng: random.Random) -> None:
    """Change one file of a model: its config, its tokenizer, its settings, or the header of its weights."""
    file = rng.choice(
        [folder / "config.json", *sorted(folder.glob("*.json")), folder / "model.safetensors"]
    )
    data = file.read_bytes()
    if file.suffix == ".json":
        content = json.loads(data)
        sizes = [key for key, value in content.items() if isinstance(value, int)]
        if file.name == "config.json" and rng.random() < 0.5:
            content[rng.choice(sizes)] = rng.choice(NUMBERS)
        else:
            content = damaged(content, rng, rng.choice((1, 2)))
        file.write_text(json.dumps(content), "utf-8")
    else:
        length = int.from_bytes(data[:8], "little")
        header = json.dumps(damaged(json.loads(data[8 : 8 + length]), rng)).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


def draw_report(report: Report) -> None:
    """What the page draws of a report."""
    for view in report.views:
        "".join((view.title, view.sentence, view.note, view.source)).encode()
        [[str(value) for value in row] for row in view.rows]
        if view.svg:
            size_of(report_compute.on_paper(view.svg))


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
ODD_KINDS = (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


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
    out, top, kind = (
        io.BytesIO(),
        rng.choice(("", "a/")),
        rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)),
    )
    with zipfile.ZipFile(out, "w") as file:
        for (
            name,
            data,
        ) in members.items():  # rarely odd: one that is refused hides what is wrong with the others
            info = zipfile.ZipInfo((top if rng.random() < 0.99 else "b/") + name)
            info.external_attr = (
                rng.choice((0o100644, 0o100644, stat.S_IFLNK | 0o777, 0o060777)) << 16
            )
            file.writestr(info, data, kind if rng.random() < 0.99 else rng.choice(ODD_KINDS), 1)
    return damaged_bytes(out.getvalue(), rng) if rng.random() < 0.3 else out.getvalue()


def unpack(seed: int, folder: Path) -> None:
    """A run that is taken is whole; of one that is refused nothing is left."""
    root = folder / "runs"
    try:
        run = archive.unpack(
            zipped(random.Random(seed)), root
        )  # not the case itself, all of which hypothesis holds
    except ValueError:
        assert not root.exists() or list(root.iterdir()) == []
        raise
    read_everything(run)
    assert not any(path.is_symlink() for path in root.rglob("*"))
    shutil.rmtree(root)


def run_folder(seed: int, folder: Path) -> None:
    """Whatever the folder of a run holds, what pages and workers read of it answers."""
    run = Run(folder / whole().id)
    shutil.rmtree(run.path, ignore_errors=True)
    shutil.copytree(whole().path, run.path)
    spoil_run(run, random.Random(seed))
    read_everything(run)


@cache
def settings() -> tuple[tuple[type[Any], dict[str, Any]], ...]:
    """Each class of settings that a JSON file holds, and the content of one."""
    masked = small_run(model=ModelConfig.recurrent(8))
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
            (RunConfig, masked.to_json()),
            (SweepConfig, sweep.to_json()),
            (FineTuneConfig, FineTuneConfig("classify", own_rows("classify")).to_json()),
            (CorpusConfig, CorpusConfig().to_json()),
            (ClaimConfig, ClaimConfig("scaling", {}).to_json()),
            (CellResult, cell),
        )
    )


def config(rng: random.Random) -> tuple[type[Any], Any]:
    type_, data = rng.choice(settings())
    return type_, damaged(data, rng, rng.randint(1, 3))


def read_config(case: tuple[type[Any], Any], _: Path) -> None:
    type_, data = case
    json.dumps(type_.from_json(data).to_json())


def records(rng: random.Random) -> bytes:
    """The records of an uploaded run, a value of some of them changed."""
    lines = [json.loads(line) for line in files()["metrics.jsonl"].splitlines()]
    lines = [damaged(line, rng) if rng.random() < 0.5 else line for line in lines]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return damaged_bytes(data, rng) if rng.random() < 0.2 else data


def read_records(data: bytes, folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_bytes(data)
    for record in archive.read_records(path):
        json.dumps(record.to_json()).encode()


def sweep_file(seed: int, folder: Path) -> None:
    sweep, data = sweep_with_outcomes(folder / "one.json")
    rng = random.Random(seed)
    text = json.dumps(damaged(data, rng, rng.randint(1, 3))).encode()
    sweep.path.write_bytes(damaged_bytes(text, rng) if rng.random() < 0.1 else text)
    use_sweep(sweep)


def report(rng: random.Random) -> bytes:
    view = {**vars(VIEW), "query": dict(VIEW.query)}
    data = json.dumps(
        damaged({"title": "T", "views": [view, view | {"id": "b"}]}, rng, rng.randint(1, 2))
    ).encode()
    packed = gzip.compress(damaged_bytes(data, rng) if rng.random() < 0.1 else data)
    return damaged_bytes(packed, rng) if rng.random() < 0.2 else packed


def report_file(data: bytes, folder: Path) -> None:
    """A report is read and drawn, or is none."""
    name = "0" * 16
    path = export.runs_folder() / "reports" / f"{name}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if (saved := export.read_report(name)) is not None:
        draw_report(saved)


@cache
def models() -> dict[str, Path]:
    """The folders of small models of four families."""
    folders = {family: Path(base().name) / family for family in ("bert", "gpt2", "t5", "vit")}
    for family, folder in folders.items():
        folder.mkdir()
        save(family, folder)
    return folders


def model_folder(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    family = rng.choice(list(models()))
    shutil.rmtree(folder / "model", ignore_errors=True)
    path = shutil.copytree(models()[family], folder / "model")
    spoil_model(path, rng)
    pretrained = load_folder(path, "damaged")
    if pretrained.head in ("next", "seq2seq"):
        generate(pretrained, given(family), SearchSettings(longest=2))
    read(pretrained, given(family))


SEEDS = seeded(lambda rng: rng.randrange(2**32))
DOORS = (
    Door("archive of a run", SEEDS, unpack, (ValueError,), 60),
    Door("folder of a run", SEEDS, run_folder, (), 40),
    Door("settings", seeded(config), read_config, (ValueError,), 100),
    Door("records of an archive", seeded(records), read_records, (ValueError,), 60),
    Door("file of a sweep", SEEDS, sweep_file, (ConfigError,), 60),
    Door("file of a report", seeded(report), report_file, (), 60),
    Door("folder of a model", SEEDS, model_folder, (PretrainedError,), 40),
)
