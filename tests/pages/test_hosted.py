"""Two people on a public copy: what each sees, what one may do with a run of the other, and what a page says first."""

import gzip
import hashlib
import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.files import PEOPLE, server_folder
from core.runs.runs import Run, create_run, new_id
from core.runs.sweeps import create_sweep
from core.training import Record, prepare
from core.training.sweeps import SweepConfig
from dashboard.server import hosting, jobs, limits, visitors
from dashboard.ui import export
from dashboard.ui.models import folder_name
from dashboard.ui.run_data import HERE as EXAMPLES
from tests.pages.app import app_at, open_at, page_text, script_of
from tests.training.small import small_run

LISTS = ("runs", "sweeps", "decode", "transformer", "compare_runs", "two_models")


@pytest.fixture(autouse=True)
def browser(monkeypatch):
    """A browser whose cookie is that of a person; what is done in `browser("anna")` is hers."""
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr(
        hosting, "begin_hosting", lambda: None
    )  # it would hide the errors of later tests
    monkeypatch.setattr(visitors, "_visits", {})
    cookies: dict[str, str] = {}
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.cookies", cookies)

    @contextmanager
    def of(name: str):
        cookies[visitors.COOKIE] = cookie_of(name)
        yield
        cookies.clear()

    return of


def cookie_of(name: str) -> str:
    return name.encode().hex().ljust(32, "0")


def folder_of(name: str) -> Path:
    return server_folder() / PEOPLE / hashlib.sha256(cookie_of(name).encode()).hexdigest()[:32]


def made(owner: str, state: str = "finished", **more) -> Run:
    """A run of a person."""
    run = create_run(small_run(), folder_of(owner), **more)
    run.append(Record(2, loss=1.0, sequence_accuracy=0.5, held_out=11, elapsed=1.0))
    run.set_status(state, "Paused at step 2." if state == "paused" else "Finished after 2 steps.")
    return run


def keys(app) -> set[str]:
    return {str(button.key) for button in app.button}


@pytest.mark.parametrize("page", LISTS)
def test_no_page_shows_anything_of_another(browser, page):
    secret = made("anna", name="unmistakable")
    config = secret.config()
    secret.save_checkpoint(prepare(config), config)
    tuned = Run(folder_of("anna") / new_id())
    shutil.copytree(EXAMPLES / "fine_tune" / "numbers", tuned.path)
    tuned.update_metadata(name="unmistakable")
    tuned.set_status("finished")
    sweep = SweepConfig(small_run(), "batch_size", (4, 8), (0, 1))
    create_sweep(sweep, folder_of("anna") / "sweeps" / f"{secret.id}.json")
    shown = {}
    for person_name in ("anna", "ben"):
        with browser(person_name):
            app = open_at(page, **{"two_models:mode": "Two models"})
        options = " ".join(str(option) for box in app.selectbox for option in box.options)
        shown[person_name] = (
            page_text(app) + options + str([frame.value for frame in app.dataframe])
        )
    assert not {"unmistakable", secret.id} & set(re.findall(r"[\w-]+", shown["ben"]))
    assert "unmistakable" in shown["anna"]


def test_the_list_of_runs_is_ones_own_and_says_how_long_it_lasts(browser):
    made("anna", name="hers")
    with browser("anna"):
        app = open_at("runs")
    assert app.dataframe[0].value["name"].tolist()[0] == "hers"
    assert "24 h after your last visit" in page_text(app) and "200\u00a0MB" in page_text(app)
    with browser("ben"):
        app = open_at("runs")
    assert "hers" not in app.dataframe[0].value[
        "name"
    ].tolist() and "No runs of your own yet" in page_text(app)


@pytest.mark.parametrize("state", ["running", "paused", "finished"])
def test_a_link_shows_the_run_of_another_without_its_buttons(browser, state):
    hers = made("anna", state)
    with browser("ben"), hers.lock():
        app = open_at("train", run=hers.id)
        assert "belongs to another person" in page_text(app)
        assert not {"train:stop", "train:pause", "train:continue"} & keys(app)
        assert not [one for one in app.get("popover") if one.proto.popover.label == "Train longer"]
    if state == "finished":
        with browser("ben"):
            app.button(key="train:copy").click().run()
        (copy,) = [path for path in folder_of("ben").iterdir() if (path / "run.json").exists()]
        assert app.query_params["run"] in (
            copy.name,
            [copy.name],
        ) and "belongs to another" not in page_text(app)
    assert hers.status().state == state and not hers.stop_request()


def test_a_new_run_does_not_end_that_of_another(browser):
    """Train, while the run of another is on the page, starts one's own and lets the other go on."""
    hers = made("anna", "running")
    with hers.lock(), browser("ben"):
        app = open_at("train", run=hers.id)
        app.button(key="train:train").click().run()
        assert not hers.stop_request()
    assert len([path for path in folder_of("ben").iterdir() if (path / "run.json").exists()]) == 1


def test_the_sweep_of_another_is_not_stopped_continued_or_deleted(browser):
    sweep = create_sweep(
        SweepConfig(small_run(), "batch_size", (4, 8), (0, 1)),
        folder_of("anna") / "sweeps" / f"{made('anna').id}.json",
    )
    run = create_run(small_run(), folder_of("anna"))
    sweep.add_runs({(0, 0): run})
    run.set_status("running")
    with run.lock(), browser("ben"):
        app = open_at("sweeps", sweep=sweep.id)
        assert not {"sweeps:stop", "sweeps:continue", "sweeps:delete"} & keys(app)
    assert "not on this machine" not in page_text(app) and sweep.path.exists()


def test_a_page_says_the_limits_and_bounds_its_controls(browser, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "steps=321 seconds=33")
    with browser("ben"):
        app = open_at("train")
        assert "a run may take 321 steps and 33 s" in page_text(app)
        app.button(key="train:train").click().run()
        (path,) = [path for path in folder_of("ben").iterdir() if (path / "run.json").exists()]
        config = Run(path).config()
        assert config.steps <= 321 and config.max_seconds <= 33
        app = app_at("train", **{"train:reverse:transformer:steps": "5000"}).run()
    assert "a run may take" in page_text(app)
    with browser("ben"):
        app = open_at("why")
    assert app.selectbox(key="why:seconds").options == ["50 steps", "5 s", "10 s", "20 s"]


def test_one_run_too_many_is_a_sentence_on_the_page(browser, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED_LIMITS", "under_way=1")
    create_run(small_run(), folder_of("ben")).set_status("queued")
    with browser("ben"):
        app = open_at("train")
        app.button(key="train:train").click().run()
    assert "could not be started: 1 of your runs wait or train" in page_text(app)


def test_the_place_in_the_queue_counts_turns_and_says_the_time(browser, monkeypatch):
    for _ in range(3):
        create_run(small_run(), folder_of("anna"), sweep={"id": "s"})
    his = create_run(small_run(), folder_of("ben"))
    monkeypatch.setattr(jobs, "max_workers", lambda: 0)
    with browser("ben"):
        app = open_at("train", run=his.id)
    (line,) = [bar.proto.text for bar in app.get("progress")]
    assert "number 2 in the queue, starts in about" in line


def test_models_of_the_hub_are_those_of_the_list(browser, monkeypatch):
    with browser("ben"):
        app = open_at("pretrained", **{"inside:model": "gpt2"})
        assert "opens these models of the hub: distilbert/distilgpt2" in page_text(app)
        app = open_at("pretrained", **{"inside:model": "/etc"})
        assert "Folders of this computer are not open" in page_text(app)
        app = open_at("pretrained", **{"inside:model": f"{folder_of('anna')}/x"})
        assert "Folders of this computer are not open" in page_text(app)


def test_everything_of_mine_is_deleted_by_one_button(browser):
    hers, his = made("anna"), made("ben", name="his")
    with browser("ben"):
        app = open_at("runs", run=his.id)
        app.button(key="runs:everything:go").click().run()
    assert (
        "No runs of your own yet" in page_text(app)
        and hers.exists()
        and not folder_of("ben").exists()
    )


def test_the_script_of_a_run_names_no_path_of_the_server(browser):
    run = made("ben")
    with browser("ben"):
        app = open_at("runs", run=run.id)
    text = script_of(app).text("")
    assert run.id in text and str(server_folder()) not in text and folder_of("ben").name not in text


def test_the_report_of_another_is_not_opened_by_its_link(browser):
    report = export.Report(export.new_id(), "unmistakable")
    folder = folder_of("anna") / "reports"
    folder.mkdir(parents=True)
    data = json.dumps({"title": report.title, "views": []}).encode()
    (folder / f"{report.id}.json.gz").write_bytes(gzip.compress(data))
    for name, lost in (("ben", True), ("anna", False)):
        with browser(name):
            app = open_at("report", report=report.id)
        assert ("is not on this server" in page_text(app)) == lost


def test_a_fine_tuned_model_is_named_by_its_run(browser):
    """Whoever has the run's id opens it; no link, control or script holds a path of the server."""
    run = made("anna", finetune={"task": "pairs"})
    shutil.copytree(
        EXAMPLES / "fine_tune" / "numbers" / "numbers-tuned", run.path / "numbers-tuned"
    )
    name = folder_name(run.path / "numbers-tuned")
    assert name == f"./{run.id}/numbers-tuned"
    for person_name in ("anna", "ben"):
        with browser(person_name):
            app = open_at("pretrained", **{"inside:model": name})
            assert (
                "not open to visitors" not in page_text(app)
                and app.session_state["page_pictures"].pictures
            )
            shown = page_text(app) + str(dict(app.query_params)) + script_of(app).text("")
            assert str(server_folder()) not in shown and folder_of("anna").name not in shown
            for other in (
                f"./{run.id}/../{run.id}/numbers-tuned",
                f"./{run.id[:22]}/numbers-tuned",
            ):
                assert "not open to visitors" in page_text(
                    open_at("pretrained", **{"inside:model": other})
                )


def test_a_page_of_turns_says_that_one_may_continue(browser):
    with browser("ben"):
        app = open_at("fine_tune")
    assert "a run stops after 120 s, and Continue gives it as many again" in page_text(app)


def test_runs_of_a_link_are_compared(browser):
    runs = made("anna", name="hers"), made("ben", name="his")
    with browser("ben"):
        app = open_at("compare_runs", runs=",".join(run.id for run in runs))
    assert {"hers", "his"} <= set(app.selectbox(key="compare_runs:0").options)


def test_a_fine_tuning_run_opens_by_its_link(browser):
    run = made("anna", finetune={"task": "classify"})
    with browser("ben"):
        app = open_at("fine_tune", run=run.id)
    assert "belongs to another person" in page_text(app) and limits.limits().steps == 2_000
