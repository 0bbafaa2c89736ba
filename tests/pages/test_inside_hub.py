"""The chooser of Look inside, without a browser: models of a hub of our own, and folders."""

import re
import time

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.ui.model_picker import downloads, full_name, loopback
from tests.pages.inside_app import DEMO, button, code_text, message_text
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, online, serving
from tests.tiny_models import save


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(str(DEMO), default_timeout=60)


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
    assert "lab/bert is a bert model" in message_text(app).replace("*", "") and COMMIT[
        :7
    ] in message_text(app)
    assert not [path for path in there.requests if "safetensors" in path], (
        "nothing is fetched before it is asked for"
    )
    button(app, "Load").click().run()
    assert button(app, "Stop")
    settle(app)
    assert code_text(app).startswith(f"hub lab/bert@{COMMIT} (2, 3) ('self',) [CLS] the")
    there.repos.clear()
    again = AppTest.from_file(str(DEMO), default_timeout=60)
    again.query_params["inside:model"] = "lab/bert"
    assert code_text(again.run()).startswith(f"hub lab/bert@{COMMIT}"), "what is kept needs no hub"


def test_two_downloads_at_a_time_and_a_third_is_told_to_wait(there):
    for name in ("lab/one", "lab/two", "lab/three"):
        there.repos[name] = Repo(bert_files(), seconds_a_step=0.2)
        app = AppTest.from_file(str(DEMO), default_timeout=60)
        app.query_params["inside:model"] = name
        app.run()
        button(app, "Load").click().run()
    assert "lab/one and lab/two are being downloaded" in message_text(app)
    for name in ("lab/one", "lab/two"):
        downloads[name].stop()
    button(app, "Try again").click().run()
    button(app, "Load").click().run()
    button(app, "Stop").click().run()
    assert button(app, "Load") and code_text(app) == "nothing"


def test_a_download_that_fails_says_so_and_begins_again(app, there):
    there.repos["lab/bert"].swapped["model.safetensors"] = b"short"
    app.query_params["inside:model"] = "lab/bert"
    app.run()
    button(app, "Load").click().run()
    settle(app)
    assert code_text(app) == "nothing" and "incomplete or changed" in message_text(app)
    there.repos["lab/bert"].swapped.clear()
    button(app, "Try again").click().run()
    button(app, "Load").click().run()
    settle(app)
    assert code_text(app).startswith("hub lab/bert@")


def test_a_download_can_be_stopped(app, there):
    there.repos["lab/bert"].seconds_a_step = 0.2
    app.query_params["inside:model"] = "lab/bert"
    app.run()
    button(app, "Load").click().run()
    button(app, "Stop").click().run()
    assert code_text(app) == "nothing" and button(app, "Load")


@pytest.mark.parametrize(("name", "why"), [
    ("lab/none", "no model lab/none"), ("lab/five", "is 5.0 GB"), ("lab/pickle", "pickle"), ("lab/gated", "gated"),
])  # fmt: skip
def test_what_the_hub_cannot_give_is_said_and_there_is_a_way_on(app, there, name, why):
    app.query_params["inside:model"] = name
    app.run()
    assert code_text(app) == "nothing" and why in message_text(app)
    button(app, "Use all-MiniLM-L6-v2").click().run()
    assert code_text(app).startswith("embedded")


def test_a_gated_model_opens_with_the_token_of_the_secrets(app, there):
    there.repos["lab/gated"].token = "hf_right"
    app.secrets["HF_TOKEN"] = "hf_right"
    app.query_params["inside:model"] = "lab/gated"
    app.run()
    button(app, "Load").click().run()
    settle(app)
    assert code_text(app).startswith("hub lab/gated@")
    assert set(there.tokens) == {"Bearer hf_right"}


def test_no_network_is_said_and_trying_again_asks_again(app, there):
    there.repos["lab/bert"].status = 500
    app.query_params["inside:model"] = "lab/bert"
    app.run()
    assert "500" in message_text(app)
    there.repos["lab/bert"].status = None
    requests = len(there.requests)
    app.run()
    assert len(there.requests) == requests, "a rerun does not ask again"
    button(app, "Try again").click().run()
    assert button(app, "Load")


@pytest.mark.parametrize(
    "name", ["no such name!", "a/b/c", "<b>", "x.npz (array 0123456789ab)", "$x$"]
)
def test_a_link_that_names_nothing_is_said(app, name):
    app.query_params["inside:model"] = name
    app.run()
    assert code_text(app) == "nothing"
    assert any(
        advice in message_text(app) for advice in ("write owner/name", "upload the file again")
    )


@pytest.mark.parametrize("name", [r"\\there\share\model", "//there/share/model"])
def test_a_link_to_another_computer_is_not_followed(app, name, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    monkeypatch.setattr(
        "core.pretrained.hub.check_folder", lambda *_: pytest.fail("it was looked at")
    )
    app.query_params["inside:model"] = name
    app.run()
    assert code_text(app) == "nothing" and "is on another computer" in message_text(app)


def test_a_folder_is_read_where_folders_may_be_opened(app, tmp_path, monkeypatch):
    folder = tmp_path / "own model"
    folder.mkdir()
    for name, data in bert_files().items():
        (folder / name).write_bytes(data)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(folder)
    assert code_text(app.run()).startswith(f"folder {folder} (2, 3)")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "0")
    app.run()
    assert code_text(app) == "nothing" and "not open to visitors" in message_text(app)


def test_what_was_fine_tuned_here_is_open_to_visitors_and_nothing_around_it(
    app, tmp_path, monkeypatch
):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "0")
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    for folder in (tmp_path / "runs" / "one" / "model", tmp_path / "private"):
        folder.mkdir(parents=True)
        for name, data in bert_files().items():
            (folder / name).write_bytes(data)
    app.query_params["inside:model"] = str(tmp_path / "runs" / "one" / "model")
    assert code_text(app.run()).startswith("folder")
    for text in (f"{tmp_path}/private", f"{tmp_path}/runs/../private", "~/../../etc", "/etc"):
        again = AppTest.from_file(str(DEMO), default_timeout=60)
        again.query_params["inside:model"] = text
        again.run()
        assert code_text(again) == "nothing" and "not open to visitors" in message_text(again)


@pytest.mark.parametrize(("family", "starts"), [
    ("gpt2", "(2, 3) ('causal',) The animal"), ("t5", "(6, 3) ('self', 'causal', 'cross') the ani"),
    ("vit", "(2, 3) ('self',) [class] 0,0"), ("whisper", "(5, 3) ('self', 'causal', 'cross') 0.00 s")])  # fmt: skip
def test_a_model_is_given_what_its_family_reads(app, tmp_path, monkeypatch, family, starts):
    save(family, tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(tmp_path)
    assert starts in code_text(app.run())


def test_a_family_without_attention_says_why(app, tmp_path, monkeypatch):
    save("mamba", tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(tmp_path)
    assert code_text(app.run()) == "nothing" and "has no attention to draw" in message_text(app)


def test_whatever_a_foreign_model_raises_is_a_sentence(app, tmp_path, monkeypatch):
    """Its tokenizer knows more words than its weights have rows for, so that the library fails in the middle."""
    from safetensors.torch import load_file, save_file

    for name, data in bert_files().items():
        (tmp_path / name).write_bytes(data)
    weights, rows = load_file(tmp_path / "model.safetensors"), "embeddings.word_embeddings.weight"
    save_file(
        weights | {rows: weights[rows][:6].clone()},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    config = (tmp_path / "config.json").read_text(encoding="utf-8")
    (tmp_path / "config.json").write_text(
        re.sub(r'"vocab_size": \d+', '"vocab_size": 6', config), encoding="utf-8"
    )
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(tmp_path)
    app.run()
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
    """The field of the browser hands over the rest alone."""
    (tmp_path / "bert").mkdir()
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    assert full_name(str(tmp_path), "/bert") == f"{tmp_path}/bert"
    assert full_name(str(tmp_path), "/nowhere") == "/nowhere"
    assert full_name(str(tmp_path), str(tmp_path / "bert")) == f"{tmp_path}/bert"
    assert full_name("lab/bert", "@main") == "lab/bert@main"
    assert full_name("lab", "lab/bert") == "lab/bert"
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "0")
    assert full_name(str(tmp_path), "/bert") == "/bert", "a visitor learns nothing of folders"
