"""Two people on a public copy and the log: what each sees, may do and is told, and that no line holds what was typed."""

import gzip
import json
import logging
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from core import event_log
from core.files import PEOPLE, server_folder
from core.pretrained.base import PretrainedError
from core.pretrained.hub import DownloadPlan, File, config_bytes, download, parse, plan
from core.runs import worker
from core.runs.runs import Run, create_run, new_id
from core.runs.sweeps import Sweep, create_sweep
from core.training import Record, prepare
from core.training.sweeps import SweepConfig
from dashboard.server import health, hosting, queue, visitors
from dashboard.server.visitors import HTTPGuard, known_path
from dashboard.ui import export
from dashboard.ui.models import folder_name
from dashboard.ui.runs import EXAMPLE_FOLDER as EXAMPLES
from tests.pages.app import (
    Case,
    assert_case,
    open_at,
    page_text,
    query_value,
    script_of,
    set_state,
)
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, serving
from tests.training.small import small_run


@pytest.fixture
def browser(monkeypatch):
    """A browser whose cookie is that of a person; what is done in `browser("anna")` is hers."""
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    # it would hide the errors of later tests
    monkeypatch.setattr(hosting, "begin_hosting", lambda: None)
    monkeypatch.setattr(visitors, "_visits", {})
    cookies: dict[str, str] = {}
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.cookies", cookies)

    @contextmanager
    def of(name: str):
        cookies[visitors.COOKIE] = name.encode().hex().ljust(32, "0")
        yield
        cookies.clear()

    return of


def folder_of(name: str) -> Path:
    return server_folder() / PEOPLE / visitors.key_of(name.encode().hex().ljust(32, "0"))


def runs_of(name: str) -> list[Run]:
    return [Run(path) for path in folder_of(name).iterdir() if (path / "run.json").exists()]


def made(owner: str, state: str = "finished", **more) -> Run:
    run = create_run(small_run(), folder_of(owner), **more)
    run.append(Record(2, loss=1.0, sequence_accuracy=0.5, held_out=11, elapsed=1.0))
    run.set_status(state, "Paused at step 2." if state == "paused" else "Finished after 2 steps.")
    return run


def sweep_of(owner: str) -> Sweep:
    config = SweepConfig(small_run(), "batch_size", (4, 8), (0, 1))
    return create_sweep(config, folder_of(owner) / "sweeps" / f"{new_id()}.json")


def keys(app) -> set[str]:
    return {str(button.key) for button in app.button}


@pytest.mark.parametrize(
    "page", ["runs", "sweeps", "decode", "transformer", "compare_runs", "two_models"]
)
def test_no_page_shows_anything_of_another(browser, page):
    secret = made("anna", name="unmistakable")
    secret.save_checkpoint(prepare(secret.config()), secret.config())
    tuned = Run(folder_of("anna") / new_id())
    shutil.copytree(EXAMPLES / "fine_tune" / "numbers", tuned.path)
    tuned.update_metadata(name="unmistakable")
    tuned.set_status("finished")
    sweep_of("anna")
    shown = {}
    for name in ("anna", "ben"):
        with browser(name):
            app = open_at(page, **{"two_models:mode": "Two models"})
        options = [box.options for box in app.selectbox]
        shown[name] = f"{page_text(app)} {options} {[frame.value for frame in app.dataframe]}"
    assert (
        not {"unmistakable", secret.id} & set(re.findall(r"[\w-]+", shown["ben"]))
        and "unmistakable" in shown["anna"]
    )


def test_the_list_of_runs_is_ones_own(browser):
    hers, his = made("anna", name="hers"), made("ben", name="his")
    with browser("anna"):
        app = open_at("runs")
    assert (
        app.dataframe[0].value["name"].tolist()[0] == "hers"
        and "24 h after your last visit" in page_text(app)
        and "200\u00a0MB" in page_text(app)
    )
    with browser("ben"):
        app = open_at("runs", run=his.id)
        assert "hers" not in app.dataframe[0].value["name"].tolist()
        text = script_of(app).text("")
        assert his.id in text and not re.search(f"{server_folder()}|{folder_of('ben').name}", text)
        assert_case(
            app,
            Case(
                do=[("button", "runs:everything:go", None), ("session_state", "runs:source", True)]
            ),
        )
    assert (
        "No runs of your own yet" in page_text(app)
        and hers.exists()
        and not folder_of("ben").exists()
    )


@pytest.mark.parametrize("state", ["running", "paused", "finished"])
def test_link_shows_run_of_another_without_its_buttons(browser, state):
    # One may start a run of one's own beside one that goes on, and copy one that has ended.
    hers = made("anna", state)
    with browser("ben"), hers.lock():
        app = open_at("train", run=hers.id)
        assert (
            "belongs to another person" in page_text(app)
            and not {
                "train:stop",
                "train:pause",
                "train:continue",
            }
            & keys(app)
            and not [one for one in app.get("popover") if one.proto.popover.label == "Train longer"]
        )
        if state != "paused":
            app.button(key=f"train:{'train' if state == 'running' else 'copy'}").click().run()
            (own,) = runs_of("ben")
            assert query_value(app, "run") == own.id and "belongs to another" not in page_text(app)
    assert hers.status().state == state and not hers.stop_request()


def test_others_sweeps_open_by_their_links_at_most(browser):
    sweep, run = sweep_of("anna"), made("anna", "running")
    tuned = made("anna", finetune={"task": "classify"})
    sweep.add_runs({(0, 0): run})
    with run.lock(), browser("ben"):
        app = open_at("sweeps", sweep=sweep.id)
        assert (
            not {"sweeps:stop", "sweeps:continue", "sweeps:delete"} & keys(app)
            and "not on this machine" not in page_text(app)
            and sweep.path.exists()
        )
        runs = made("anna", name="hers"), made("ben", name="his")
        app = open_at("compare_runs", runs=",".join(run.id for run in runs))
        assert {"hers", "his"} <= set(
            app.selectbox(key="compare_runs:0").options
        ) and "belongs to another person" in page_text(open_at("fine_tune", run=tuned.id))
    report = export.Report(export.new_id(), "unmistakable")
    file = folder_of("anna") / "reports" / f"{report.id}.json.gz"
    file.parent.mkdir()
    file.write_bytes(gzip.compress(json.dumps({"title": report.title, "views": []}).encode()))
    for name, lost in (("ben", True), ("anna", False)):
        with browser(name):
            app = open_at("report", report=report.id)
        assert ("is not on this server" in page_text(app)) == lost


def test_a_page_says_the_limits_and_bounds_its_controls(browser, monkeypatch):
    with browser("ben"):
        words = page_text(open_at("fine_tune"))
        assert "a run stops after 120 s, and Continue gives it as many again" in words
        monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "steps=321 seconds=33 under_way=1")
        app = open_at("train")
        assert "a run may take 321 steps and 33 s" in page_text(app)
        app.button(key="train:train").click().run()
        (run,) = runs_of("ben")
        assert run.config().steps <= 321 and run.config().max_seconds <= 33
        app = open_at("train", **{"train:reverse:transformer:steps": "5000"})
        assert "a run may take" in page_text(app)
        app.button(key="train:train").click().run()
        assert "could not be started: 1 of your runs wait or train" in page_text(app)
        app = open_at("why")
    assert app.selectbox(key="why:seconds").options == ["50 steps", "5 s", "10 s", "20 s"]


def test_models_are_those_of_list_and_of_runs_by_their_ids(browser):
    # Whoever has the id of a fine-tuned run opens its model; no link, control or script holds a path of the server.
    run = made("anna", finetune={"task": "pairs"})
    tuned = EXAMPLES / "fine_tune" / "numbers" / "numbers-tuned"
    name = folder_name(shutil.copytree(tuned, run.path / tuned.name))
    assert name == f"./{run.id}/numbers-tuned"
    refused = {
        "gpt2": "opens these models of the hub: distilbert/distilgpt2",
        "/etc": "Folders of this computer are not open",
        f"{folder_of('anna')}/x": "Folders of this computer are not open",
        f"./{run.id}/../{run.id}/numbers-tuned": "not open to visitors",
        f"./{run.id[:22]}/numbers-tuned": "not open to visitors",
    }
    for person in ("anna", "ben"):
        with browser(person):
            app = open_at("pretrained", **{"inside:model": name})
            shown = page_text(app) + str(dict(app.query_params)) + script_of(app).text("")
            assert (
                "not open to visitors" not in shown
                and app.session_state["page_pictures"].pictures
                and str(server_folder()) not in shown
                and folder_of("anna").name not in shown
            )
            for model, words in refused.items():
                assert words in page_text(open_at("pretrained", **{"inside:model": model}))


LISTED, TYPED = "distilbert/distilgpt2", "someone/else"


@pytest.mark.parametrize(
    "name", [TYPED, "gpt2", f"{LISTED}@refs/pr/1", f"{LISTED}@{COMMIT}", LISTED]
)
@pytest.mark.parametrize("page", ["pretrained", "use_model", "cards"])
def test_the_hub_is_asked_for_models_of_the_list_alone(page, name, browser, tmp_path, monkeypatch):
    for module in ("fields.model", "page"):  # which has it once a page has asked for it
        monkeypatch.setattr(f"dashboard.{module}.secret", lambda name: "hf_of_the_operator")
    there = Repo(bert_files(), revisions=("main", "refs/pr/1"))
    with browser("anna"), serving({LISTED: there, TYPED: there}, tmp_path, monkeypatch) as hub:
        app = open_at(page, **{"inside:model": name})
        if page == "cards":
            app.text_input(key="cards:hub:0").set_value(name).run()
        assert not app.exception
        repo, revision = parse(name)
        if name == LISTED:
            assert hub.requests and set(hub.tokens["hub.test"]) == {"Bearer hf_of_the_operator"}
            return
        assert "This is a public copy, which opens" in page_text(app)
        by_hand = DownloadPlan(repo, COMMIT, "bert", (File("vocab.txt", 9, None),), 0)
        with pytest.raises(PretrainedError, match="public copy"):
            plan(repo, revision, token="hf_of_the_operator")
        with pytest.raises(PretrainedError, match="public copy"):
            config_bytes(repo, revision, token="hf_of_the_operator")
        if repo != LISTED:
            with pytest.raises(PretrainedError, match="public copy"):
                download(by_hand, token="hf_of_the_operator")
        assert not hub.requests


SECRET = "zq7secret"


@pytest.fixture(params=event_log.STYLES)
def lines(request, monkeypatch):
    """The lines of the log, in each style; Python's logging is as before at the end."""
    monkeypatch.setenv("ATTENTION_LAB_LOG", request.param)
    for place, name in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(place, name, getattr(place, name))
    factory, written = logging.getLogRecordFactory(), list[str]()
    event_log.install(request.param, health._context)
    own = logging.getLogRecordFactory()

    def record(*args, **named):
        made = own(*args, **named)
        written.append(made.getMessage())
        return made

    logging.setLogRecordFactory(record)
    yield written
    logging.setLogRecordFactory(factory)
    logging.captureWarnings(False)
    logging.getLogger("attention_lab").handlers.clear()


def assert_silent(lines: list[str], capfd) -> None:
    """No line and nothing that was printed holds the secret, and each line is one line."""
    assert (
        lines
        and not [line for line in lines if SECRET in line.lower() or "\n" in line]
        and SECRET not in "".join(capfd.readouterr()).lower()
    )
    if lines[0].startswith("{"):
        assert all({"time", "level", "event"} <= json.loads(line).keys() for line in lines)


@pytest.mark.parametrize(
    "page", ["masks", "heads", "scores", "pretrained", "runs", "glossary", "one_query"]
)
def test_what_is_typed_into_the_fields_of_a_page(page, lines, capfd):
    app = open_at(page, query=SECRET, **{f"{page}:text": SECRET})
    fields = [field.key for field in (*app.text_input, *app.text_area) if field.key]
    assert fields
    for key in fields:
        for kind in (app.text_input, app.text_area):
            for field in [field for field in kind if field.key == key]:
                field.set_value(f"{SECRET} + {SECRET}(")
        app.run()
    assert_silent(lines, capfd)
    assert any(page in line and ("ms=" in line or '"ms"' in line) for line in lines), (
        "a page's run is logged"
    )


def test_errors_keep_their_type_and_place_and_a_reference(lines, capfd):
    def fail(text: str) -> None:
        raise ValueError(f"{text} cannot be read")

    try:
        fail(SECRET)
    except ValueError as error:
        logging.getLogger("some.library").exception("Reading %s failed", SECRET)
        event_log.log_error(error)
        number = event_log.reference(error)
    logging.getLogger("some.library").error(f"{SECRET} is unknown")
    logging.getLogger("some.library").error("a plain sentence")
    warnings.warn(f"{SECRET} is old", UserWarning, stacklevel=1)
    for target in (fail, Image.open):  # a library's own thread
        thread = threading.Thread(target=target, args=(SECRET,))
        thread.start()
        thread.join()
    assert re.search(r'FileNotFoundError"?,? "?place"?[=:] ?"?PIL/Image\.py:\d+', lines[-1])
    assert event_log.place(ValueError()) == "" and len(number) == 8
    assert any("py.warnings" in line for line in lines)
    assert_silent(lines, capfd)
    errors = [line for line in lines if "ValueError" in line]
    assert (
        len(errors) == 3
        and all("tests/pages/test_hosted.py:" in line for line in errors)
        and [number in line for line in errors] == [True, True, False]
    )
    assert any("Reading %s failed" in line for line in lines) and any(
        "a plain sentence" in line for line in lines
    )


def test_an_error_shows_its_reference_and_no_words(lines, monkeypatch):
    def script() -> None:
        from dashboard.server import health

        assert health.on_script_error(
            OSError(30, "Read-only file system")
        ) and health.on_script_error(ValueError("zq7secret is wrong"))

    disk, other = [error.value for error in AppTest.from_function(script).run().error]
    assert (
        "can be read, but not written" in disk
        and "Errno" not in disk
        and "reference" in other
        and SECRET not in other
    )
    monkeypatch.delenv("ATTENTION_LAB_LOG")
    for error in (ValueError(), FileNotFoundError(2, "No such file or directory")):
        assert not health.on_script_error(error), "without the log Streamlit shows it as ever"
    assert health.on_script_error(OSError(30, "Read-only file system")), "also without the log"


def test_a_refusal_that_a_page_does_not_catch_is_shown(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")

    def script() -> None:
        from core.memory import TooMuch
        from core.pretrained import PretrainedError
        from dashboard.fields import link

        def view() -> None:
            raise PretrainedError("The text needs about 2 GB.")

        link.fragment(view)()
        with link.refusals():
            raise TooMuch("/home/lab/secret/file is too large.")

    app = AppTest.from_function(script).run()
    large, path = [error.value for error in app.error]
    assert large == "The text needs about 2 GB\\." and not app.exception
    assert "is too large" in path and "secret" not in path


def test_a_worker_that_meets_an_error(lines, capfd, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError(f"{SECRET} broke")

    monkeypatch.setattr(worker, "train_run", fail)
    assert (
        worker.work(create_run(small_run(), name=SECRET).path) == "failed"
        and any("RuntimeError" in line for line in lines)
        and SECRET not in "".join(lines)
    )
    # its standard error is the server's; its output is the run's own file
    assert SECRET not in capfd.readouterr().err


@pytest.mark.parametrize(
    "page, suffix, link",
    [("pretrained", "npz", {"inside:model": "Your own arrays…"}), ("runs", "zip", {})],
)
def test_names_and_contents_of_files(page, suffix, link, lines, capfd):
    open_at(page, **link).file_uploader[0].set_value(
        (f"{SECRET}.{suffix}", SECRET.encode(), "")
    ).run()
    assert_silent(lines, capfd)


def test_the_end_of_a_run(lines, capfd, monkeypatch):
    for name in ("warm_up", "tick"):
        monkeypatch.setattr(queue, name, lambda *_, **__: None)
    run = create_run(small_run(), name=SECRET)
    run.set_status("finished", SECRET)
    queue._wait_for(subprocess.Popen([sys.executable, "-c", ""]), run, time.time() - 7)
    assert_silent(lines, capfd)
    # a busy machine waits longer
    assert re.search(r"\brun\b.*finished.*\b([7-9]|\d\d)\b", lines[-1])
    assert run.id not in lines[-1]


def test_addresses_and_names_of_requests(lines, capfd):
    client = TestClient(Starlette(middleware=[Middleware(HTTPGuard)]), base_url="http://localhost")
    headers = {"User-Agent": SECRET, "Cookie": SECRET, "Referer": SECRET}
    for path in (
        "/",
        "/heads?text=",
        "/heads/",
        "/media/",
        "/_stcore/",
        f"/_stcore/upload_file/{SECRET}/",
    ):
        client.request(SECRET.upper(), path + SECRET, content=SECRET, headers=headers)
    ours = [line for line in lines if "request" in line]
    client.get("/", headers={"Host": f"{SECRET}.example"})
    assert len(ours) == 6 and "404" in ours[0] and "421" in lines[-1]
    assert_silent(lines, capfd)
    known = {
        "/": "/",
        "/heads": "/heads",
        "/heads/x": "/heads",
        "/mine": "/other",
        "/_stcore/health": "/_stcore/health",
        "/_stcore/upload_file/a/b": "/_stcore/upload_file",
        "/_stcore/mine": "/_stcore/other",
    }
    assert {path: known_path(path) for path in known} == known


def test_a_wrong_setting_says_what_it_takes(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LOG", "yaml")
    pytest.raises(ValueError, health.start_log).match("take json or text")
    monkeypatch.delenv("ATTENTION_LAB_LOG")
    factory = logging.getLogRecordFactory()
    health.start_log()
    assert logging.getLogRecordFactory() is factory and not event_log.style()
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert event_log.style() == "json"


def test_a_scoreboards_row_of_ones_own_is_nobody_elses(browser, monkeypatch):
    opened = "scoreboard:own"
    with browser("anna"):
        app = set_state(open_at("scoreboard"), opened)
        assert "a run stops after" in page_text(app) and "Nobody else sees yours" in page_text(app)
        app.button(key="scoreboard:start").click().run()
        assert app.button(key=f"{opened}:stop") and "kernel=gla" in page_text(app)
    with browser("bert"):
        app = set_state(open_at("scoreboard"), opened)
        assert not [one.key for one in app.button if one.key == f"{opened}:stop"]
        monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "under_way=0")
        app.button(key="scoreboard:start").click().run()
        assert "that a person may have here" in app.warning[0].value
