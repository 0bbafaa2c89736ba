"""The chooser of Look inside, without a browser: models of a hub of our own, and folders."""

import json
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.ui.model_picker import downloads, full_name, loopback
from tests.pages.app import DEMO, button, code_text, message_text
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, online, serving
from tests.tiny_models import save


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(str(DEMO), default_timeout=60)


def opened(name: object, app: AppTest | None = None) -> AppTest:
    """The chooser, opened by a link to this model."""
    app = AppTest.from_file(str(DEMO), default_timeout=60) if app is None else app
    app.query_params["inside:model"] = str(name)
    return app.run()


def press(app: AppTest, *labels: str) -> AppTest:
    for label in labels:
        button(app, label).click().run()
    return app


@pytest.fixture
def there(tmp_path, monkeypatch):
    repos = {"lab/bert": Repo(bert_files(), seconds_a_step=0.03), "lab/gated": Repo(bert_files(), gated=True),
             "lab/five": Repo({"config.json": b'{"model_type": "gpt2"}', "model.safetensors": b""},
                              stated={"model.safetensors": 5 * 10**9}),
             "lab/pickle": Repo({"config.json": b"{}", "pytorch_model.bin": b"\x80"})}  # fmt: skip
    with serving(repos) as hub:
        online(hub.address, tmp_path / "home", monkeypatch)
        yield hub


def settle(app: AppTest) -> None:
    """Run the page until what it fetches is there."""
    for _ in range(100):
        if not app.button or all("Stop" not in one.label for one in app.button):
            return
        time.sleep(0.05)
        app.run()


def test_a_model_of_the_hub_is_looked_up_weighed_fetched_and_read(app, there):
    app.run()
    app.selectbox(key="inside:model").set_value("Another model…").run()
    assert code_text(app) == "nothing" and "at most 600 MB" in message_text(app)
    app.text_input(key="inside:typed").set_value("lab/bert").run()
    message = message_text(app).replace("*", "")
    assert "lab/bert is a bert model" in message and COMMIT[:7] in message
    fetched = [path for path in there.requests if "safetensors" in path]
    assert not fetched, "nothing is fetched before it is asked for"
    press(app, "Load")
    assert button(app, "Stop")
    settle(app)
    assert code_text(app).startswith(f"hub lab/bert@{COMMIT} (2, 3) ('self',) [CLS] the")
    there.repos.clear()
    kept = code_text(opened("lab/bert"))
    assert kept.startswith(f"hub lab/bert@{COMMIT}"), "what is kept needs no hub"


def test_two_downloads_at_a_time_and_a_third_is_told_to_wait(there):
    for name in ("lab/one", "lab/two", "lab/three"):
        there.repos[name] = Repo(bert_files(), seconds_a_step=0.2)
        app = press(opened(name), "Load")
    assert "lab/one and lab/two are being downloaded" in message_text(app)
    for name in ("lab/one", "lab/two"):
        downloads[name].stop()
    press(app, "Try again", "Load", "Stop")
    assert button(app, "Load") and code_text(app) == "nothing"


def test_a_download_that_fails_says_so_and_begins_again(there):
    there.repos["lab/bert"].swapped["model.safetensors"] = b"short"
    app = press(opened("lab/bert"), "Load")
    settle(app)
    assert code_text(app) == "nothing" and "incomplete or changed" in message_text(app)
    there.repos["lab/bert"].swapped.clear()
    settle(press(app, "Try again", "Load"))
    assert code_text(app).startswith("hub lab/bert@")


@pytest.mark.parametrize(("name", "why"), [
    ("lab/none", "no model lab/none"), ("lab/five", "is 5.0 GB"), ("lab/pickle", "pickle"), ("lab/gated", "gated"),
])  # fmt: skip
def test_what_the_hub_cannot_give_is_said_and_there_is_a_way_on(there, name, why):
    app = opened(name)
    assert code_text(app) == "nothing" and why in message_text(app)
    assert code_text(press(app, "Use all-MiniLM-L6-v2")).startswith("embedded")


def test_a_gated_model_opens_with_the_token_of_the_secrets(app, there):
    there.repos["lab/gated"].token = app.secrets["HF_TOKEN"] = "hf_right"
    settle(press(opened("lab/gated", app), "Load"))
    assert code_text(app).startswith("hub lab/gated@")
    assert set(there.tokens) == {"Bearer hf_right"}


def test_no_network_is_said_and_trying_again_asks_again(there):
    there.repos["lab/bert"].status = 500
    app = opened("lab/bert")
    assert "500" in message_text(app)
    there.repos["lab/bert"].status = None
    requests = len(there.requests)
    app.run()
    assert len(there.requests) == requests, "a rerun does not ask again"
    assert button(press(app, "Try again"), "Load")


@pytest.mark.parametrize(
    "name", ["no such name!", "a/b/c", "<b>", "x.npz (array 0123456789ab)", "$x$"]
)
def test_a_link_that_names_nothing_is_said(name):
    app = opened(name)
    advice = ("write owner/name", "upload the file again")
    assert code_text(app) == "nothing" and any(one in message_text(app) for one in advice)


@pytest.mark.parametrize("name", [r"\\there\share\model", "//there/share/model"])
def test_a_link_to_another_computer_is_not_followed(name, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    monkeypatch.setattr(
        "core.pretrained.hub.check_folder", lambda *_: pytest.fail("it was looked at")
    )
    app = opened(name)
    assert code_text(app) == "nothing" and "is on another computer" in message_text(app)


def bert_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in bert_files().items():
        (folder / name).write_bytes(data)
    return folder


def test_a_folder_is_read_where_folders_may_be_opened(tmp_path, monkeypatch):
    """What was fine-tuned here is open to visitors, and nothing around it."""
    folder = bert_in(tmp_path / "own model")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    assert code_text(opened(folder)).startswith(f"folder {folder} (2, 3)")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "0")
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    run = bert_in(tmp_path / "runs" / "one" / "model")
    assert code_text(opened(run)).startswith("folder")
    for text in (folder, f"{tmp_path}/runs/../own model", "~/../../etc", "/etc"):
        app = opened(text)
        assert code_text(app) == "nothing" and "not open to visitors" in message_text(app)


@pytest.mark.parametrize(("family", "starts", "says"), [
    ("gpt2", "(2, 3) ('causal',) The animal", ""), ("t5", "(6, 3) ('self', 'causal', 'cross') the ani", ""),
    ("vit", "(2, 3) ('self',) [class] 0,0", ""), ("whisper", "(5, 3) ('self', 'causal', 'cross') 0.00 s", ""),
    ("mamba", "nothing", "has no attention to draw")])  # fmt: skip
def test_a_model_is_given_what_its_family_reads(tmp_path, monkeypatch, family, starts, says):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app = opened(save(family, tmp_path))
    assert starts in code_text(app) and says in message_text(app)


def test_whatever_a_foreign_model_raises_is_a_sentence(tmp_path, monkeypatch):
    """Its tokenizer knows more words than its weights have rows for, so that the library fails in the middle."""
    from safetensors.torch import load_file, save_file

    bert_in(tmp_path)
    weights, rows = load_file(tmp_path / "model.safetensors"), "embeddings.word_embeddings.weight"
    weights[rows] = weights[rows][:6].clone()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 6}), "utf-8")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app = opened(tmp_path)
    assert code_text(app) == "nothing" and "index out of range" in message_text(app)


@pytest.mark.parametrize(
    ("address", "own"),
    [
        (None, True),
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("nonsense", False),
        ("::ffff:10.0.0.1", False),
        ("8.8.8.8", False),
    ],
)
def test_who_sits_at_this_computer(address, own):
    assert loopback(address) is own


def test_a_longer_name_may_be_typed_over_one_that_it_begins_with(tmp_path, monkeypatch):
    """The field of the browser hands over the rest alone; a visitor learns nothing of folders."""
    (tmp_path / "bert").mkdir()
    here = str(tmp_path)
    for allowed, before, typed, name in (
        ("1", here, "/bert", f"{here}/bert"),
        ("1", here, "/nowhere", "/nowhere"),
        ("1", here, f"{here}/bert", f"{here}/bert"),
        ("1", "lab/bert", "@main", "lab/bert@main"),
        ("1", "lab", "lab/bert", "lab/bert"),
        ("0", here, "/bert", "/bert"),
    ):
        monkeypatch.setenv("ATTENTION_LAB_FOLDERS", allowed)
        assert full_name(before, typed) == name
