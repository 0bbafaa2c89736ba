"""The chooser that the pages of Look inside share, without a browser: every source, every refusal, every limit."""

import io
import re
import time
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from core.pretrained import PretrainedError
from dashboard.inside import downloads
from dashboard.inside.inputs import opened_picture, opened_sound
from dashboard.inside.models import EMBEDDED, ModelRef, stored
from dashboard.inside.opening import loopback
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, online, serving
from tests.tiny_models import save

DEMO = Path(__file__).parent / "inside_demo.py"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(str(DEMO), default_timeout=60)


def said(app: AppTest) -> str:
    assert not app.exception
    return app.code[0].value


def told(app: AppTest) -> str:
    """What the page says beside the controls, without the signs that keep Markdown off."""
    parts = [*app.info, *app.error, *app.warning, *app.markdown, *app.caption]
    return " ".join(part.value for part in parts).replace("\\", "")


def button(app: AppTest, label: str):
    return next(one for one in app.button if label in one.label)


def test_first_sight_reads_a_sentence_with_the_embedded_model(app):
    app.run()
    assert said(app).startswith("embedded all-MiniLM-L6-v2 (6, 12) ('self',) [CLS] the animal")


@pytest.mark.parametrize(("name", "starts"), [
    ("numbers", "lab numbers (6, 4) ('self', 'causal', 'cross') nine thousand"),
    ("induction", "lab induction (2,"), ("digits", "lab digits (2, 4) ('self',) [class]")])  # fmt: skip
def test_each_of_the_labs_models_reads_its_own_example(app, name, starts):
    app.run()
    app.selectbox(key="inside:model").set_value(name).run()
    assert said(app).startswith(starts)
    assert "<unk>" not in said(app)


def test_the_text_of_each_language_comes_back_as_it_was(app):
    app.run()
    app.text_input(key="inside:text").set_value("My own sentence.").run()
    app.selectbox(key="inside:model").set_value("numbers").run()
    app.text_input(key="inside:text").set_value("seven hundred").run()
    assert "seven hundred | <bos> sieben hundert" in said(app)
    app.text_input(key="inside:target").set_value("acht").run()
    assert "| <bos> acht" in said(app)
    app.selectbox(key="inside:model").set_value("all-MiniLM-L6-v2").run()
    assert "my own sentence" in said(app)
    app.selectbox(key="inside:model").set_value("numbers").run()
    assert "seven hundred | <bos> sieben hundert" in said(app)


def test_a_second_sentence_is_read_with_the_first(app):
    app.run()
    app.text_input(key="inside:text").set_value("One.").run()
    app.text_input(key="inside:second").set_value("Two.").run()
    assert "[CLS] one . [SEP] two ." in said(app)


@pytest.mark.parametrize("text", ["", "   \n"])
def test_an_empty_text_asks_for_one(app, text):
    app.run()
    app.text_input(key="inside:text").set_value(text).run()
    assert said(app) == "nothing" and "write a sentence" in told(app)


def test_ten_thousand_words_are_cut_and_it_is_said(app):
    app.run()
    app.text_input(key="inside:text").set_value("word " * 10_000).run()
    assert "(6, 12)" in said(app) and "has 50,000 characters; all-MiniLM-L6-v2 reads at most 512 tokens" in told(app)
    app.text_input(key="inside:text").set_value("word " * 600).run()
    assert "has 602 tokens; all-MiniLM-L6-v2 reads at most 512 tokens" in told(app)


def test_a_page_that_needs_more_begins_with_a_model_that_has_it_and_refuses_others_in_words(app):
    app.session_state["needs"] = ("generate",)
    app.run()
    assert said(app).startswith("lab induction")
    app.selectbox(key="inside:model").set_value("all-MiniLM-L6-v2").run()
    assert said(app) == "nothing" and "all-MiniLM-L6-v2 writes no text" in told(app)
    button(app, "Use numbers").click().run()
    assert said(app).startswith("lab numbers")


def test_what_nobody_chose_gives_way_to_what_the_next_page_needs(app):
    app.run()
    app.session_state["needs"] = ("generate",)
    app.run()
    assert said(app).startswith("lab induction")
    app.session_state["needs"] = ()
    app.run()
    assert said(app).startswith("embedded")
    app.selectbox(key="inside:model").set_value("numbers").run()
    app.session_state["needs"] = ("generate",)
    app.run()
    assert said(app).startswith("lab numbers"), "what a person chose stays"


def test_what_is_loaded_is_weighed_for_the_one_who_waits(tmp_path):
    assert stored(EMBEDDED) == 90_868_376 and 10**5 < stored(ModelRef("lab", "numbers")) < 10**6
    (tmp_path / "model.safetensors").write_bytes(b"1234567")
    assert stored(ModelRef("folder", str(tmp_path))) == 7 and stored(ModelRef("hub", "a/b", "0" * 40)) == 0
    assert stored(ModelRef("array", "mine.npz (array 0123456789ab)")) == 0


@pytest.mark.parametrize(("needs", "name", "why"), [(("head",), "all-MiniLM-L6-v2", "an embedding"),
                                                    (("generate",), "digits", "writes no text")])
def test_what_a_model_lacks_is_named(app, needs, name, why):
    app.session_state["needs"] = needs
    app.query_params["inside:model"] = name
    app.run()
    assert said(app) == "nothing" and why in told(app) and button(app, "Use induction")


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
    assert said(app) == "nothing" and "at most 600 MB" in told(app)
    app.text_input(key="inside:typed").set_value("lab/bert").run()
    assert "lab/bert is a bert model" in told(app).replace("*", "") and COMMIT[:7] in told(app)
    assert not [path for path in there.asked if "safetensors" in path], "nothing is fetched before it is asked for"
    button(app, "Load").click().run()
    assert button(app, "Stop")
    settle(app)
    assert said(app).startswith(f"hub lab/bert@{COMMIT} (2, 3) ('self',) [CLS] the")
    there.repos.clear()
    again = AppTest.from_file(str(DEMO), default_timeout=60)
    again.query_params["inside:model"] = "lab/bert"
    assert said(again.run()).startswith(f"hub lab/bert@{COMMIT}"), "what is kept needs no hub"


def test_two_downloads_at_a_time_and_a_third_is_told_to_wait(there):
    for name in ("lab/one", "lab/two", "lab/three"):
        there.repos[name] = Repo(bert_files(), seconds_a_step=0.2)
        app = AppTest.from_file(str(DEMO), default_timeout=60)
        app.query_params["inside:model"] = name
        app.run()
        button(app, "Load").click().run()
    assert "lab/one and lab/two are being fetched" in told(app)
    for name in ("lab/one", "lab/two"):
        downloads.following(name).stop()
    button(app, "Try again").click().run()
    button(app, "Load").click().run()
    button(app, "Stop").click().run()
    assert button(app, "Load") and said(app) == "nothing"


def test_a_download_that_fails_says_so_and_begins_again(app, there):
    there.repos["lab/bert"].swapped["model.safetensors"] = b"short"
    app.query_params["inside:model"] = "lab/bert"
    app.run()
    button(app, "Load").click().run()
    settle(app)
    assert said(app) == "nothing" and "incomplete or changed" in told(app)
    there.repos["lab/bert"].swapped.clear()
    button(app, "Try again").click().run()
    button(app, "Load").click().run()
    settle(app)
    assert said(app).startswith("hub lab/bert@")


def test_a_download_can_be_stopped(app, there):
    there.repos["lab/bert"].seconds_a_step = 0.2
    app.query_params["inside:model"] = "lab/bert"
    app.run()
    button(app, "Load").click().run()
    button(app, "Stop").click().run()
    assert said(app) == "nothing" and button(app, "Load")


@pytest.mark.parametrize(("name", "why"), [
    ("lab/none", "no model lab/none"), ("lab/five", "is 5.0 GB"), ("lab/pickle", "pickle"), ("lab/gated", "gated"),
])  # fmt: skip
def test_what_the_hub_cannot_give_is_said_and_there_is_a_way_on(app, there, name, why):
    app.query_params["inside:model"] = name
    app.run()
    assert said(app) == "nothing" and why in told(app)
    button(app, "Use all-MiniLM-L6-v2").click().run()
    assert said(app).startswith("embedded")


def test_a_gated_model_opens_with_the_token_of_the_secrets(app, there):
    there.repos["lab/gated"].token = "hf_right"
    app.secrets["HF_TOKEN"] = "hf_right"
    app.query_params["inside:model"] = "lab/gated"
    app.run()
    button(app, "Load").click().run()
    settle(app)
    assert said(app).startswith("hub lab/gated@")
    assert set(there.tokens) == {"Bearer hf_right"}


def test_no_network_is_said_and_trying_again_asks_again(app, there):
    there.repos["lab/bert"].status = 500
    app.query_params["inside:model"] = "lab/bert"
    app.run()
    assert "500" in told(app)
    there.repos["lab/bert"].status = None
    asked = len(there.asked)
    app.run()
    assert len(there.asked) == asked, "a rerun does not ask again"
    button(app, "Try again").click().run()
    assert button(app, "Load")


@pytest.mark.parametrize("name", ["no such name!", "a/b/c", "<b>", "x.npz (array 0123456789ab)", "$x$"])
def test_a_link_that_names_nothing_is_said(app, name):
    app.query_params["inside:model"] = name
    app.run()
    assert said(app) == "nothing" and ("write owner/name" in told(app) or "upload the file again" in told(app))


def test_a_folder_is_read_where_folders_may_be_opened(app, tmp_path, monkeypatch):
    folder = tmp_path / "own model"
    folder.mkdir()
    for name, data in bert_files().items():
        (folder / name).write_bytes(data)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(folder)
    assert said(app.run()).startswith(f"folder {folder} (2, 3)")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "0")
    app.run()
    assert said(app) == "nothing" and "not open to visitors" in told(app)


@pytest.mark.parametrize(("family", "starts"), [
    ("gpt2", "(2, 3) ('causal',) The animal"), ("t5", "(6, 3) ('self', 'causal', 'cross') the ani"),
    ("vit", "(2, 3) ('self',) [class] 0,0"), ("whisper", "(5, 3) ('self', 'causal', 'cross') 0.00 s")])  # fmt: skip
def test_a_model_is_given_what_its_family_reads(app, tmp_path, monkeypatch, family, starts):
    save(family, tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(tmp_path)
    assert starts in said(app.run())


def test_a_family_without_attention_says_why(app, tmp_path, monkeypatch):
    save("mamba", tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(tmp_path)
    assert said(app.run()) == "nothing" and "has no attention to draw" in told(app)


def test_whatever_a_foreign_model_raises_is_a_sentence(app, tmp_path, monkeypatch):
    """Its tokenizer knows more words than its weights have rows for, so that the library fails in the middle."""
    from safetensors.torch import load_file, save_file

    for name, data in bert_files().items():
        (tmp_path / name).write_bytes(data)
    weights, rows = load_file(tmp_path / "model.safetensors"), "embeddings.word_embeddings.weight"
    save_file(weights | {rows: weights[rows][:6].clone()}, tmp_path / "model.safetensors", {"format": "pt"})
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(re.sub(r'"vocab_size": \d+', '"vocab_size": 6', config))
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app.query_params["inside:model"] = str(tmp_path)
    app.run()
    assert said(app) == "nothing" and "does not take this: index out of range" in told(app)


@pytest.mark.parametrize(("address", "own"), [
    (None, True), ("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("nonsense", False),
    ("::ffff:10.0.0.1", False), ("8.8.8.8", False)])
def test_who_sits_at_this_computer(address, own):
    assert loopback(address) is own


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def png(*size: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "white").save(out, "PNG")
    return out.getvalue()


def test_a_picture_of_ones_own_is_read_and_what_is_none_is_said(app):
    app.query_params["inside:model"] = "digits"
    app.run()
    app.selectbox(key="inside:picture").set_value("Your own…").run()
    assert said(app) == "nothing" and "Upload a picture" in told(app)
    app.file_uploader(key="inside:picture-file").upload("a.png", b"no picture", "image/png").run()
    assert said(app) == "nothing" and "no picture that can be opened" in told(app)
    app.file_uploader(key="inside:picture-file").set_value(("b.png", png(30, 20), "image/png")).run()
    assert said(app).startswith("lab digits (2, 4)")


def test_pictures_and_sounds_are_bounded():
    assert opened_picture(png(1024, 64)).shape == (32, 512, 3)
    with pytest.raises(PretrainedError, match="at most 40 million"):
        opened_picture(png(10_000, 4_001))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.repeat(np.arange(-8000, 8000, dtype="<i2"), 2).tobytes())
    sound = opened_sound(out.getvalue(), 16_000).numpy()
    assert sound.shape == (32_000,) and abs(sound[0] + 8000 / 32768) < 1e-6
    np.testing.assert_allclose(sound[1] - sound[0], 0.5 / 32768, atol=1e-7)
    for bad in (b"", b"RIFF", out.getvalue()[:40]):
        with pytest.raises(PretrainedError, match="WAV"):
            opened_sound(bad, 16_000)


def test_arrays_become_a_source_and_the_limits_are_said_first(app):
    app.run()
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    assert "at most 200 MB" in told(app) and "2,048 tokens" in told(app)
    app.file_uploader(key="inside:array-file").upload("mine.npz", npz(scores=np.full((2, 3, 3), -1.5)), "").run()
    assert said(app) == "nothing" and "softmax" in told(app)
    even = npz(layer_0=np.full((2, 3, 3), 1 / 3), tokens=np.array(["a", "b", "c"]))
    app.file_uploader(key="inside:array-file").set_value(("good.npz", even, "")).run()
    assert said(app).startswith("array good.npz (array ") and "(1, 2) ('self',) a b c" in said(app)
    app.session_state["needs"] = ("model",)
    app.run()
    assert said(app) == "nothing" and "weights of attention alone" in told(app)
