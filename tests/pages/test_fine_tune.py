import re
from typing import Any

from streamlit.testing.v1 import AppTest

from core.pretrained.finetune import build, parse, usual
from core.pretrained.finetune_run import config_of, create
from core.runs.runs import list_runs
from core.studies.decode import decodable_runs
from core.training import Record
from dashboard.ui.fine_tuned import EXAMPLE_RUNS
from pages.sweeps import own_runs
from pages.transformer import sources
from tests.pages.app import app_at, assert_script, page_text


def open_page(page: str = "fine_tune", sentence: str | None = None, **query: str) -> AppTest:
    app = app_at(page, **query)
    if sentence is not None:
        app.session_state["fine_tune:sentence"] = sentence
    return app.run()


def test_first_sight_is_the_kept_run_beside_what_it_beats():
    records, app = EXAMPLE_RUNS["classify"].records(), open_page()
    text, last = page_text(app), records[-1]
    before, after = (f"{round(100 * one.sequence_accuracy)}\u00a0%" for one in (records[0], last))
    assert f"At step {last.step:,}, accuracy is {after} on {last.held_out} held-out texts" in text
    assert f"before training it was {before}" in text
    assert last.sequence_accuracy > 0.8 and records[0].sequence_accuracy < 0.5
    heads = app.selectbox(key="fine_tune:head").options
    assert len(heads) == 72 and f"In head {heads[0]}," in text, "that moved most"
    slider = next(one for one in app.select_slider if one.label == "Training step")
    slider.set_value(0)
    text = page_text(app.run())
    assert "At step 0," in text and "has moved" not in text
    app.selectbox(key="fine_tune:task").set_value("pairs").run()
    assert len(app.selectbox(key="fine_tune:head").options) == 8, "of cross-attention"


def test_the_button_asks_for_what_the_controls_say():
    app = open_page(sentence="is the library open")
    assert "did not record your sentence" in page_text(app)
    app.session_state["fine_tune:seed:classify"] = 5  # read since the page was made
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert config_of(run) == usual("classify", logged_example="is the library open", seed=5)
    assert app.query_params["run"] == run.id
    keys = {button.key for button in app.button}
    assert "fine_tune:stop" in keys and "fine_tune:start" not in keys
    app.button(key="fine_tune:stop").click().run()
    assert run.stop_request() == "stop"


def test_any_sentence_is_read_by_the_model_before_and_after(monkeypatch):
    """A run whose encoder stayed as it was, so that before and after are the same, and a head that was drawn anew."""
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    config = usual("classify")
    run = create(config)
    build(config, parse("classify", config.data)).save(run.path)
    run.append(Record(0, loss=1.4, sequence_accuracy=0.25, held_out=28))
    run.append(Record(6, loss=1.3, sequence_accuracy=0.5, held_out=28, final=True))
    run.set_status("finished", "Finished.")
    app = open_page(sentence="is the library open", run=run.id)
    text = page_text(app)
    labels = r"(?:question|request|praise|complaint) \*\*(0\.\d\d)\*\*"
    shares = [float(share) for share in re.findall(labels, text)]
    assert len(shares) == 4 and shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 1) < 0.03
    assert "has moved" not in text and "At step 6, accuracy is 50" in text
    links: Any = app.get("page_link")
    assert [link.label for link in links][:3] == ["Pretrained models", "Evidence", "Use a model"]
    assert_script(app)


def test_a_file_that_cannot_be_learned_says_its_line():
    app, key = open_page(), "fine_tune:data:classify"
    app.session_state[key] = "text,label\n" + "".join(f"{i},a\n" for i in range(9)) + "x,"
    assert "There is no label in line 11" in page_text(app.run())
    assert app.button(key="fine_tune:start").disabled
    app.session_state[key] = "text,label\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(16))
    text = page_text(app.run())
    assert "The next run trains on 12 of your rows and holds out 4." in text
    assert not app.button(key="fine_tune:start").disabled


def test_a_link_to_a_run_of_pairs_brings_its_task_and_a_dead_one_is_said():
    run = create(usual("pairs"))
    run.append(Record(0, loss=9.0, sequence_accuracy=0.0, token_accuracy=0.1, held_out=100))
    run.set_status("failed", "It had no room.")
    app = open_page(run=run.id)
    assert app.selectbox(key="fine_tune:task").value == "pairs" and "It had no room." in page_text(
        app
    )
    assert "not on this machine" in page_text(open_page(run="20200101-000000-abcdef"))


def test_runs_lists_it_and_opens_it_here():
    run = create(usual("classify"))
    run.append(Record(0, loss=1.4, sequence_accuracy=0.25, held_out=28))
    run.append(Record(48, loss=0.3, sequence_accuracy=0.9, held_out=28, final=True))
    run.set_status("finished", "Finished after 48 steps.")
    app = open_page("runs", run=run.id)
    text = page_text(app)
    assert (
        "all-MiniLM-L6-v2, fine-tuned on labels reaches 90\u00a0% accuracy after 48 steps" in text
    )
    assert app.button(key="runs:duplicate").disabled
    assert run.id not in decodable_runs(()) and run.id not in sources() and run.id not in own_runs()
