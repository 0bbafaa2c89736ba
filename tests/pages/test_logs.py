"""Whatever a reader types, sends or meets: no line of the log holds it."""

import json
import logging
import re
import subprocess
import sys
import threading
import time
import warnings

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from core import event_log
from core.models import ModelConfig
from core.runs import worker
from core.runs.runs import create_run
from core.tasks import TaskConfig
from core.training.config import RunConfig
from dashboard.server import jobs, logs
from dashboard.server.http_guard import HTTPGuard, known_path
from tests.pages.app import open_at
from tests.training.small import small_run

SECRET = "zq7secret"


@pytest.fixture(params=event_log.STYLES)
def lines(request, monkeypatch):
    """The lines of the log, in each style; Python's logging is as before at the end."""
    monkeypatch.setenv("ATTENTION_LAB_LOG", request.param)
    for place, name in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(place, name, getattr(place, name))
    factory, written = logging.getLogRecordFactory(), list[str]()
    event_log.install(request.param, logs._context)
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
    assert lines and not [line for line in lines if SECRET in line.lower() or "\n" in line]
    assert SECRET not in "".join(capfd.readouterr()).lower()
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
    thread = threading.Thread(target=fail, args=(SECRET,))
    thread.start()
    thread.join()
    assert_silent(lines, capfd)
    errors = [line for line in lines if "ValueError" in line]
    assert len(errors) == 3 and all("tests/pages/test_logs.py:" in line for line in errors)
    assert [number in line for line in errors] == [True, True, False]
    assert any("Reading %s failed" in line for line in lines) and any(
        "a plain sentence" in line for line in lines
    )


def test_an_error_of_a_page_shows_its_reference_and_no_words(lines, capfd, monkeypatch):
    from streamlit.testing.v1 import AppTest

    def script() -> None:
        from dashboard.server import logs

        try:
            raise ValueError("zq7secret is wrong")
        except ValueError as error:
            assert logs.on_script_error(error)

    app = AppTest.from_function(script).run()
    (text,) = [error.value for error in app.error]
    assert "reference" in text and SECRET not in text
    monkeypatch.delenv("ATTENTION_LAB_LOG")
    assert not logs.on_script_error(ValueError()), (
        "without the log Streamlit shows the error as ever"
    )


def test_an_error_of_the_disk_is_a_sentence_on_every_page():
    from streamlit.testing.v1 import AppTest

    def script() -> None:
        from dashboard.server import logs

        assert logs.on_script_error(OSError(30, "Read-only file system"))
        assert not logs.on_script_error(FileNotFoundError(2, "No such file or directory")), (
            "that is the lab's own"
        )

    (text,) = [error.value for error in AppTest.from_function(script).run().error]
    assert "can be read, but not written" in text and "Errno" not in text


def test_a_worker_that_meets_an_error(lines, capfd, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError(f"{SECRET} broke")

    monkeypatch.setattr(worker, "train_run", fail)
    model = ModelConfig.transformer(d_model=8, num_heads=1, layers=1, d_ff=8)
    run = create_run(
        RunConfig(TaskConfig.of("reverse", length=6, vocab=12), model, steps=2), name=SECRET
    )
    assert worker.work(run.path) == "failed"
    assert any("RuntimeError" in line for line in lines) and not [
        line for line in lines if SECRET in line
    ]
    assert SECRET not in capfd.readouterr().err, (
        "its standard error is the server's; its output is the run's own file"
    )


@pytest.mark.parametrize("page", ["pretrained", "runs"])
def test_names_and_contents_of_files(page, lines, capfd):
    app = open_at(page)
    if page == "pretrained":
        app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    assert app.file_uploader
    app.file_uploader[0].set_value(
        (f"{SECRET}.{'npz' if page == 'pretrained' else 'zip'}", SECRET.encode(), "")
    ).run()
    assert_silent(lines, capfd)


def test_the_end_of_a_run(lines, capfd, monkeypatch):
    for name in ("warm_up", "tick"):
        monkeypatch.setattr(jobs, name, lambda: None)
    run = create_run(small_run(), name=SECRET)
    run.set_status("finished", SECRET)
    jobs._wait_for(subprocess.Popen([sys.executable, "-c", ""]), run, time.time() - 7)
    assert_silent(lines, capfd)
    assert re.search(
        r"\brun\b.*finished.*\b([7-9]|\d\d)\b", lines[-1]
    )  # a busy machine waits longer
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


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/", "/"),
        ("/heads", "/heads"),
        ("/heads/x", "/heads"),
        ("/mine", "/other"),
        ("/_stcore/health", "/_stcore/health"),
        ("/_stcore/upload_file/a/b", "/_stcore/upload_file"),
        ("/_stcore/mine", "/_stcore/other"),
    ],
)
def test_only_addresses_of_the_server_are_named(path, known):
    assert known_path(path) == known


def test_a_wrong_setting_says_what_it_takes_and_none_changes_nothing(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LOG", "yaml")
    with pytest.raises(ValueError, match="take json or text"):
        logs.start()
    monkeypatch.delenv("ATTENTION_LAB_LOG")
    factory = logging.getLogRecordFactory()
    logs.start()
    assert logging.getLogRecordFactory() is factory and not event_log.style()
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert event_log.style() == "json"
