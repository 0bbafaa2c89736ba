"""Whatever comes through a door is taken, or refused in a sentence; nothing else happens, and it takes no time.

`make test` reads as many cases a door as seconds allow, always the same; `make fuzz` thousands, others each time,
from a seed that it prints.
"""

import gc
import gzip
import io
import json
import os
import wave
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from core.entries import ConfigError
from core.models import ModelConfig
from core.pretrained import PretrainedError, load_folder
from core.pretrained.example_inputs import decode_picture, decode_wav
from core.pretrained.finetune import FineTuneConfig
from core.pretrained.hub import parse
from core.runs.runs import create_run
from core.runs.worker import work
from dashboard.server import jobs
from dashboard.ui import export
from dashboard.ui.lessons import LessonError, decode, from_json, make_question, read_code, to_json
from tests.cases import each
from tests.fuzz import folders, typed
from tests.fuzz.folders import EPS
from tests.fuzz.guard import MAX_MEMORY, Door, peak, reset_peak, watched
from tests.pages.app import open_at
from tests.pages.test_report import VIEW
from tests.tiny_models import save
from tests.training.small import small_run

DOORS = (*typed.DOORS, *folders.DOORS)
LONGEST_MESSAGE = 2_000
CASES = int(os.environ.get("ATTENTION_LAB_FUZZ") or 0)  # of a door


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_door_takes_a_case_or_refuses_it_in_words(door: Door, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "lab"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(jobs, "warm_up", lambda: None)  # no worker is started for a page
    monkeypatch.setattr(jobs, "_give", lambda run: None)
    seconds: list[float] = []  # of each case

    @settings(
        max_examples=CASES or door.short,
        derandomize=not CASES,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(door.cases)
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


# What the doors once let in, each by itself.


LONE = "\ud800"  # half a character, which JSON can hold and UTF-8 cannot


def test_a_picture_of_postscript_runs_no_ghostscript(monkeypatch):
    monkeypatch.setattr("subprocess.Popen", lambda *args, **named: pytest.fail(f"started {args}"))
    with pytest.raises(PretrainedError, match="use a PNG or JPEG"):
        decode_picture(EPS)


def sound(frames: bytes, channels: int = 1) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((channels, 2, 8_000, 0, "NONE", ""))
        file.writeframes(frames)
    return out.getvalue()


@each(
    "data",
    [
        sound(b"a"),
        sound(b"abc", 2),
        sound(bytes(40)).replace(b"fmt \x10", b"fmt \xff"),
        sound(bytes(40)).replace(b"fmt ", b"xxxx").replace(b"\x10\0\0\0", b"\xff\xff\0\0"),
    ],
)
def test_a_sound_of_less_than_a_frame_or_of_a_chunk_too_long_is_refused(data):
    with pytest.raises(PretrainedError, match="WAV"):
        decode_wav(data, 16_000)


def test_half_a_character_is_refused_wherever_text_comes_in_also_in_the_config_of_a_model(tmp_path):
    for read, error in (
        (lambda: parse(f"owner/{LONE}"), PretrainedError),
        (lambda: read_code(f"Ann{LONE} 1A2B-3C01-F2AA-BB11"), LessonError),
        (
            lambda: from_json(
                to_json(decode("attention")).replace('"text":"', '"text":"\\ud800', 1)
            ),
            LessonError,
        ),
    ):
        with pytest.raises(error) as refused:
            read()
        str(refused.value).encode()
    assert (
        make_question("text", "?", "a").check(f"a{LONE}") is True
    )  # punctuation, which does not count
    save("t5", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"dtype": LONE}), encoding="utf-8"
    )
    with pytest.raises(PretrainedError, match="cannot be loaded") as refused:
        load_folder(tmp_path, "own")
    str(refused.value).encode()


def test_a_checkpoint_of_another_size_is_refused_in_one_line(tmp_path, worker_here):
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


def test_a_word_that_is_none_is_passed_over_in_a_link_and_refused_as_a_task():
    for page, name, text in (
        ("sweeps", "sweeps:measure", ""),
        *(("positions", "positions:seed", number) for number in ("inf", "1e999", "-Infinity")),
    ):
        app = open_at(page, **{name: text})
        assert not app.exception and not app.error and not app.query_params.get(name)
    with pytest.raises(ConfigError, match="expected one of classify, pairs"):
        FineTuneConfig.from_json({"task": {"key": "classify"}, "data": "a,b"})


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
    path = export.runs_folder() / "reports" / f"{'0' * 16}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    view = {**vars(VIEW), "query": dict(VIEW.query)}
    path.write_bytes(gzip.compress(json.dumps({"title": "T", "views": [view]}).encode()))
    assert export.read_report("0" * 16) is not None
    path.write_bytes(gzip.compress(json.dumps({"title": "T", "views": [view | values]}).encode()))
    assert export.read_report("0" * 16) is None
