"""The chooser that the pages of Look inside share, without a browser: the models that are here, inputs, arrays."""

import io
import wave

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from core.pretrained import PretrainedError
from core.pretrained.arrays import read_arrays
from core.pretrained.example_inputs import decode_picture, decode_wav
from dashboard.ui.model_picker import example_arrays
from dashboard.ui.models import EMBEDDED, ModelRef, stored_bytes
from tests.pages.inside_app import DEMO, button, code_text, message_text


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(str(DEMO), default_timeout=60)


def test_first_sight_reads_a_sentence_with_the_embedded_model(app):
    app.run()
    assert code_text(app).startswith("embedded all-MiniLM-L6-v2 (6, 12) ('self',) [CLS] the animal")


@pytest.mark.parametrize(("name", "starts"), [
    ("numbers", "lab numbers (6, 4) ('self', 'causal', 'cross') nine thousand"),
    ("induction", "lab induction (2,"), ("digits", "lab digits (2, 4) ('self',) [class]")])  # fmt: skip
def test_each_of_the_labs_models_reads_its_own_example(app, name, starts):
    app.run()
    app.selectbox(key="inside:model").set_value(name).run()
    assert code_text(app).startswith(starts)
    assert "<unk>" not in code_text(app)


def test_the_text_of_each_language_comes_back_as_it_was(app):
    app.run()
    app.text_input(key="inside:text").set_value("My own sentence.").run()
    app.selectbox(key="inside:model").set_value("numbers").run()
    app.text_input(key="inside:text").set_value("seven hundred").run()
    assert "seven hundred | <bos> sieben hundert" in code_text(app)
    app.text_input(key="inside:target").set_value("acht").run()
    assert "| <bos> acht" in code_text(app)
    app.selectbox(key="inside:model").set_value("all-MiniLM-L6-v2").run()
    assert "my own sentence" in code_text(app)
    app.selectbox(key="inside:model").set_value("numbers").run()
    assert "seven hundred | <bos> sieben hundert" in code_text(app)


def test_a_second_sentence_is_read_with_the_first(app):
    app.run()
    app.text_input(key="inside:text").set_value("One.").run()
    app.text_input(key="inside:second").set_value("Two.").run()
    assert "[CLS] one . [SEP] two ." in code_text(app)


@pytest.mark.parametrize("text", ["", "   \n"])
def test_an_empty_text_asks_for_one(app, text):
    app.run()
    app.text_input(key="inside:text").set_value(text).run()
    assert code_text(app) == "nothing" and "write a sentence" in message_text(app)


def test_ten_thousand_words_are_cut_and_it_is_said(app):
    app.run()
    app.text_input(key="inside:text").set_value("word " * 10_000).run()
    assert "(6, 12)" in code_text(app)
    assert "has 50,000 characters; all-MiniLM-L6-v2 reads at most 512 tokens" in message_text(app)
    app.text_input(key="inside:text").set_value("word " * 600).run()
    assert "has 602 tokens; all-MiniLM-L6-v2 reads at most 512 tokens" in message_text(app)


def test_a_page_that_needs_more_begins_with_a_model_that_has_it_and_refuses_others_in_words(app):
    app.session_state["needs"] = ("generate",)
    app.run()
    assert code_text(app).startswith("lab induction")
    app.selectbox(key="inside:model").set_value("all-MiniLM-L6-v2").run()
    assert code_text(app) == "nothing" and "all-MiniLM-L6-v2 generates no text" in message_text(app)
    button(app, "Use names").click().run()
    assert code_text(app).startswith("lab names")


def test_what_nobody_chose_gives_way_to_what_the_next_page_needs(app):
    app.run()
    app.session_state["needs"] = ("generate",)
    app.run()
    assert code_text(app).startswith("lab induction")
    app.session_state["needs"] = ()
    app.run()
    assert code_text(app).startswith("embedded")
    app.selectbox(key="inside:model").set_value("numbers").run()
    app.session_state["needs"] = ("generate",)
    app.run()
    assert code_text(app).startswith("lab numbers"), "what a person chose stays"


def test_what_is_loaded_is_weighed_for_the_one_who_waits(tmp_path):
    assert (
        stored_bytes(EMBEDDED) == 90_868_376
        and 10**5 < stored_bytes(ModelRef("lab", "numbers")) < 10**6
    )
    (tmp_path / "model.safetensors").write_bytes(b"1234567")
    assert (
        stored_bytes(ModelRef("folder", str(tmp_path))) == 7
        and stored_bytes(ModelRef("hub", "a/b", "0" * 40)) == 0
    )
    assert stored_bytes(ModelRef("array", "mine.npz (array 0123456789ab)")) == 0


@pytest.mark.parametrize(
    ("needs", "name", "why"),
    [
        (("head",), "all-MiniLM-L6-v2", "an embedding"),
        (("generate",), "digits", "generates no text"),
    ],
)
def test_what_a_model_lacks_is_named(app, needs, name, why):
    app.session_state["needs"] = needs
    app.query_params["inside:model"] = name
    app.run()
    assert code_text(app) == "nothing" and why in message_text(app) and button(app, "Use induction")


def test_the_example_of_arrays_can_itself_be_uploaded():
    arrays = read_arrays(example_arrays(), "attention.npz")
    assert arrays.trace.shape == (6, 12) and arrays.source.tokens[:3] == ("[CLS]", "the", "animal")
    assert arrays.special[0] and not arrays.special[1]


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **arrays)
    return out.getvalue()


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(out, "PNG")
    return out.getvalue()


def test_a_picture_of_ones_own_is_read_and_what_is_none_is_said(app):
    app.query_params["inside:model"] = "digits"
    app.run()
    app.selectbox(key="inside:picture").set_value("Your own…").run()
    assert code_text(app) == "nothing" and "Upload a picture" in message_text(app)
    app.file_uploader(key="inside:picture-file").upload("a.png", b"no picture", "image/png").run()
    assert code_text(app) == "nothing" and "not a readable picture" in message_text(app)
    app.file_uploader(key="inside:picture-file").set_value(
        ("b.png", png(30, 20), "image/png")
    ).run()
    assert code_text(app).startswith("lab digits (2, 4)")


def test_pictures_and_sounds_are_bounded():
    assert decode_picture(png(1024, 64)).shape == (32, 512, 3)
    with pytest.raises(PretrainedError, match="at most 40 million"):
        decode_picture(png(10_000, 4_001))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.repeat(np.arange(-8000, 8000, dtype="<i2"), 2).tobytes())
    sound = decode_wav(out.getvalue(), 16_000).numpy()
    assert sound.shape == (32_000,) and abs(sound[0] + 8000 / 32768) < 1e-6
    np.testing.assert_allclose(sound[1] - sound[0], 0.5 / 32768, atol=1e-7)
    for bad in (b"", b"RIFF", out.getvalue()[:40]):
        with pytest.raises(PretrainedError, match="WAV"):
            decode_wav(bad, 16_000)


def test_arrays_become_a_source_and_the_limits_are_said_first(app):
    app.run()
    app.selectbox(key="inside:model").set_value("Your own arrays…").run()
    assert "at most 200 MB" in message_text(app) and "2,048 tokens" in message_text(app)
    app.file_uploader(key="inside:array-file").upload(
        "mine.npz", npz(scores=np.full((2, 3, 3), -1.5)), ""
    ).run()
    assert code_text(app) == "nothing" and "softmax" in message_text(app)
    even = npz(layer_0=np.full((2, 3, 3), 1 / 3), tokens=np.array(["a", "b", "c"]))
    app.file_uploader(key="inside:array-file").set_value(("good.npz", even, "")).run()
    assert code_text(app).startswith(
        "array good.npz (array "
    ) and "(1, 2) ('self',) a b c" in code_text(app)
    app.session_state["needs"] = ("model",)
    app.run()
    assert code_text(app) == "nothing" and "attention weights only" in message_text(app)
