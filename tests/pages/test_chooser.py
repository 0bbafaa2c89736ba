"""The chooser that the pages of Look inside share: models that are here, of a hub of our own, of folders; inputs, arrays."""

import io
import json
import sys
import wave
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest

from core import plugins
from core.pretrained import PretrainedError, hub
from core.pretrained.foreign import record
from core.pretrained.model_inputs import decode_picture, decode_wav, read_arrays
from dashboard.fields.model import OTHER, example_arrays, full_name, listed_name
from dashboard.server.session import CURRENT
from dashboard.server.visitors import is_local
from dashboard.ui.models import (
    EMBEDDED,
    WRITES,
    ModelRef,
    downloads,
    folder_name,
    model_cell,
    stored_bytes,
)
from tests.cases import each, wait_for
from tests.pages.app import set_state
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, serving
from tests.pretrained.test_foreign import BY_HAND, UNET, write as write_model
from tests.tiny_models import FAMILIES, save


def chooser() -> None:
    """The chooser alone, and what it chose in one line; what it needs is in the session."""
    import streamlit as st

    from dashboard.fields.model import choose_model
    from dashboard.ui.models import EMBEDDED

    usual = st.session_state.get("usual", EMBEDDED)
    chosen = choose_model(st.session_state.get("needs", ()), usual=usual)
    if chosen is None:
        st.code("nothing")
    else:
        reading = chosen.reading
        st.code(
            f"{chosen.ref.source} {chosen.ref.written} {reading.trace.shape} {reading.trace.kinds} "
            f"{' '.join(reading.source.tokens[:6])} | {' '.join(reading.target.tokens) if reading.target else ''}"
        )


def code_text(app: AppTest) -> str:
    return app.code[0].value


def message_text(app: AppTest) -> str:
    return " ".join(
        part.value for part in [*app.info, *app.error, *app.warning, *app.markdown, *app.caption]
    ).replace("\\", "")


def button(app: AppTest, label: str):
    return next(one for one in app.button if label in one.label)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_function(chooser, default_timeout=60)


def choose(app: AppTest, name: str) -> AppTest:
    return app.selectbox(key="inside:model").set_value(name).run()


def write(app: AppTest, text: str, field: str = "text") -> AppTest:
    return app.text_input(key=f"inside:{field}").set_value(text).run()


def test_the_text_of_each_language_comes_back_as_it_was(app):
    write(app.run(), "My own sentence.")
    choose(app, "numbers")
    assert "seven hundred | <bos> sieben hundert" in code_text(write(app, "seven hundred"))
    assert "| <bos> acht" in code_text(write(app, "acht", "target"))
    assert "my own sentence" in code_text(choose(app, "all-MiniLM-L6-v2"))
    assert "seven hundred | <bos> sieben hundert" in code_text(choose(app, "numbers"))


def test_a_page_begins_with_its_own_model(app):
    app.run()
    for usual in WRITES, EMBEDDED:
        assert code_text(set_state(app, "usual", usual)).startswith(usual.source), (
            "what nobody chose gives way"
        )
    choose(app, "numbers")
    for name, need, starts, says in (
        ("numbers", "generate", "lab numbers", ""),  # what a person chose stays
        ("digits", "generate", "nothing", "digits generates no text"),
        ("all-MiniLM-L6-v2", "head", "nothing", "an embedding"),
    ):
        app.session_state["needs"] = (need,)
        assert code_text(choose(app, name)).startswith(starts) and says in message_text(app)
    assert code_text(press(app, "Use names")).startswith("lab names")
    # what one page could not open, the next one leaves
    assert code_text(choose(app, OTHER)) == "nothing"
    app.query_params.clear()
    assert code_text(set_state(app, CURRENT.key, "lens")).startswith("lab names")


def test_the_writer_says_which_words_it_never_read(app):
    assert "It never saw" not in message_text(set_state(app, "usual", WRITES))
    write(app, "Mary found a <b>quantum")
    # The letter b is one of its pieces.
    assert "It never saw “quantum”: it reads" in message_text(app)


def test_what_is_loaded_is_weighed_for_the_one_who_waits(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1234567")
    sizes = {
        EMBEDDED: 90_868_376,
        ModelRef("folder", str(tmp_path)): 7,
        ModelRef("hub", "a/b", "0" * 40): 0,
    }
    assert {ref: stored_bytes(ref) for ref in sizes} == sizes
    assert 10**5 < stored_bytes(ModelRef("lab", "numbers")) < 10**6


def test_the_example_of_arrays_can_itself_be_uploaded():
    arrays = read_arrays(example_arrays(), "attention.npz")
    assert arrays.trace.shape == (6, 12) and arrays.source.tokens[:3] == ("[CLS]", "the", "animal")
    assert arrays.source.special[:2] == (True, False)


def test_a_picture_of_ones_own_is_read():
    app = opened("digits")
    app.selectbox(key="inside:picture").set_value("Your own…").run()
    assert code_text(app) == "nothing" and "Upload a picture" in message_text(app)
    for name, data, starts, says in (
        ("a.png", b"no picture", "nothing", "not a readable picture"),
        ("b.png", png(30, 20), "lab digits (2, 4)", ""),
    ):
        app.file_uploader(key="inside:picture-file").set_value((name, data, "image/png")).run()
        assert code_text(app).startswith(starts) and says in message_text(app)


def png(width: int, height: int) -> bytes:
    Image.new("RGB", (width, height), "white").save(out := io.BytesIO(), "PNG")
    return out.getvalue()


def test_pictures_and_sounds_are_bounded():
    assert decode_picture(png(1024, 64)).shape == (32, 512, 3)
    pytest.raises(PretrainedError, decode_picture, png(10_000, 4_001)).match("at most 40 million")
    with wave.open(out := io.BytesIO(), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.repeat(np.arange(-8000, 8000, dtype="<i2"), 2).tobytes())
    sound = decode_wav(out.getvalue(), 16_000).numpy()
    assert sound.shape == (32_000,)  # with its own samples at every other place
    np.testing.assert_allclose(sound[::2], np.arange(-8000, 8000) / 32768, atol=1e-4)
    for bad in (b"", b"RIFF", out.getvalue()[:40]):
        pytest.raises(PretrainedError, decode_wav, bad, 16_000).match("WAV")


def test_arrays_become_source_and_limits_are_said_first(app):
    choose(app.run(), "Your own arrays…")
    assert "at most 200 MB" in message_text(app) and "2,048 tokens" in message_text(app)
    for name, weight, starts, says in (
        ("mine.npz", -1.5, "nothing", "softmax"),
        ("good.npz", 1 / 3, "array good.npz (array ", "(1, 2) ('self',) a b c"),
    ):
        out, layer = io.BytesIO(), np.full((2, 3, 3), weight)
        np.savez(out, layer_0=layer, tokens=np.array(["a", "b", "c"]))
        app.file_uploader(key="inside:array-file").set_value((name, out.getvalue(), "")).run()
        assert code_text(app).startswith(starts) and says in code_text(app) + message_text(app)
    assert code_text(set_state(app, "needs", ("model",))) == "nothing"
    assert "is read for its attention alone" in message_text(app)


ADVICE = "write owner/name"


@pytest.mark.parametrize(("name", "link", "starts", "says"), [
    ("", {}, "embedded all-MiniLM-L6-v2 (6, 12) ('self',) [CLS] the animal", ""),
    ("", {"text": "One.", "second": "Two."}, "embedded", "[CLS] one . [SEP] two ."),
    *(("", {"text": text}, "nothing", "write a sentence") for text in ("", "   \n")),
    # Ten thousand words are cut, and it is said
    ("", {"text": "word " * 10_000}, "embedded all-MiniLM-L6-v2 (6, 12)",
     "has 50,000 characters; all-MiniLM-L6-v2 reads at most 512 tokens"),
    ("", {"text": "word " * 600}, "embedded", "has 602 tokens; all-MiniLM-L6-v2 reads at most 512 tokens"),
    ("numbers", {}, "lab numbers (6, 4) ('self', 'causal', 'cross') nine thousand", ""),
    ("induction", {}, "lab induction (2,", ""), ("digits", {}, "lab digits (2, 4) ('self',) [class]", ""),
    *((name, {}, "nothing", "write owner/name") for name in ("no such name!", "a/b/c", "<b>", "$x$")),
    ("x.npz (array 0123456789ab)", {}, "nothing", "upload the file again"),
    ("gpt2", {}, "folder", "(2, 3) ('causal',) The animal"),
    ("t5", {}, "folder", "(6, 3) ('self', 'causal', 'cross') the ani"),
    ("vit", {}, "folder", "(2, 3) ('self',) [class] 0,0"),
    ("whisper", {}, "folder", "(5, 3) ('self', 'causal', 'cross') 0.00 s"),
    ("mamba", {}, "folder", "(2, 8) ('causal',)"),
    # A link to another computer is not followed
    *((name, {}, "nothing", "is on another computer") for name in (r"\\there\share\model", "//there/share/model")),
])  # fmt: skip
def test_a_link_opens_a_model_or_says_why_not(tmp_path, monkeypatch, name, link, starts, says):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    if "there" in name:
        monkeypatch.setattr("core.pretrained.hub.check_folder", lambda *_: pytest.fail("looked at"))
    app = opened(save(name, tmp_path) if name in FAMILIES else name, **link)
    assert code_text(app).startswith(starts) and "<unk>" not in code_text(app)
    assert says in code_text(app) + message_text(app)


# Models of a hub, and folders.


def opened(name: object, app: AppTest | None = None, **link: str) -> AppTest:
    app = AppTest.from_function(chooser, default_timeout=60) if app is None else app
    for key, value in ({"model": str(name)} | link).items():
        app.query_params[f"inside:{key}"] = value
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
    with serving(repos, tmp_path / "home", monkeypatch) as hub:
        yield hub


def settle(app: AppTest) -> None:
    wait_for(lambda: all("Stop" not in one.label for one in app.run().button))


def test_model_of_hub_is_looked_up_weighed_fetched_and_read(app, there):
    choose(app.run(), OTHER)
    assert code_text(app) == "nothing" and "at most 600 MB" in message_text(app)
    write(app, "lab/bert", "typed")
    message = message_text(app).replace("*", "")
    assert "lab/bert is a bert model" in message and COMMIT[:7] in message
    assert not [path for path in there.requests if "safetensors" in path], (
        "nothing is fetched before it is asked for"
    )
    settle(press(app, "Load", "Stop", "Load"))
    assert code_text(app).startswith(f"hub lab/bert@{COMMIT} (2, 3) ('self',) [CLS] the")
    there.repos.clear()
    assert code_text(opened("lab/bert")).startswith(f"hub lab/bert@{COMMIT}"), (
        "what is here needs no hub"
    )


def test_two_downloads_at_time_and_third_is_told_to_wait(there):
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
def test_what_hub_cannot_give_is_said_and_there_is_way_on(there, name, why):
    app = opened(name)
    assert code_text(app) == "nothing" and why in message_text(app)
    assert code_text(press(app, "Use all-MiniLM-L6-v2")).startswith("embedded")


def test_a_gated_model_opens_with_the_token_of_the_secrets(app, there):
    there.repos["lab/gated"].token = app.secrets["HF_TOKEN"] = "hf_right"
    settle(press(opened("lab/gated", app), "Load"))
    assert code_text(app).startswith("hub lab/gated@")
    assert set(there.tokens["hub.test"]) == {"Bearer hf_right"}


def test_no_network_is_said_and_trying_again_asks_again(there):
    there.repos["lab/bert"].status = 500
    app = opened("lab/bert")
    assert "500" in message_text(app)
    there.repos["lab/bert"].status = None
    requests = len(there.requests)
    app.run()
    assert len(there.requests) == requests, "a rerun does not ask again"
    assert button(press(app, "Try again"), "Load")


def bert_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in bert_files().items():
        (folder / name).write_bytes(data)
    return folder


def test_a_folder_is_read_where_folders_may_be_opened(tmp_path, monkeypatch):
    folder = bert_in(tmp_path / "own model")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    assert code_text(opened(folder)).startswith(f"folder {folder_name(folder)} (2, 3)")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "0")
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    assert code_text(opened(bert_in(tmp_path / "runs" / "one" / "model"))).startswith("folder")
    for text in (folder, f"{tmp_path}/runs/../own model", "~/../../etc", "/etc"):
        app = opened(text)
        assert code_text(app) == "nothing" and "not open to visitors" in message_text(app)


def test_whatever_a_foreign_model_raises_is_a_sentence(tmp_path, monkeypatch):
    bert_in(tmp_path)
    # Its tokenizer knows more words than its weights have rows for
    weights, rows = load_file(tmp_path / "model.safetensors"), "embeddings.word_embeddings.weight"
    weights[rows] = weights[rows][:6].clone()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 6}), "utf-8")
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    app = opened(tmp_path)
    assert code_text(app) == "nothing" and "the model embeds only 6" in message_text(app)


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
    assert is_local(address, {}) is own


def test_a_longer_name_may_be_typed(tmp_path, monkeypatch):
    # The field of the browser hands over the rest alone; a visitor learns nothing of folders
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


LISTED = ("all-MiniLM-L6-v2", "writer", "names", "numbers", "only-attention", "lab/gpt2-medium@0a1",
          "lab/bert@0a1", "Your own arrays…", "/home/me/model.py")  # fmt: skip


@each(
    ("typed", "name"),
    [
        ("all-MiniLM", 0), ("minilm", 0), (" All MiniLM-L6-v2 ", 0), ("l6", 0), ("WRITER", 1),
        ("sentence-transformers/all-MiniLM-L6-v2", 0), ("writer · stories of 3,000 words", 1), ("attention", 4),
        ("bert", 6), ("lab/BERT", 6), ("lab/bert@0a1", 6), ("own arrays", 7), ("model.py", 8),
        ("n", "n"), ("gpt2", "gpt2"), ("lab/gpt2", "lab/gpt2"), ("lab/bert@main", "lab/bert@main"),
        (" owner/writer ", "owner/writer"), ("'/home/me/bert'", "/home/me/bert"), (" ", ""),
    ],
)  # fmt: skip
def test_a_typed_part_opens_the_model_of_the_list(typed, name):
    assert listed_name(typed, LISTED) == (name if isinstance(name, str) else LISTED[name])


def test_what_is_typed_opens_or_names_what_is_near(app, monkeypatch):
    def unreached(repo, *_, **__):
        raise PretrainedError("The hub cannot be reached.")

    monkeypatch.setattr(hub, "plan", unreached)
    app.run()

    def type_in(text: str) -> str:
        box = app.selectbox(key="inside:model")
        box.options.append(text)  # the browser adds what was typed
        box.set_value(text).run()
        return app.selectbox(key="inside:model").value

    assert type_in("all-MiniLM") == "all-MiniLM-L6-v2" and type_in("digi") == "digits"
    assert not app.error
    for typed, near in (("n", {"names", "numbers"}), ("only-atention", {"only-attention"})):
        assert type_in(typed) == typed
        used = {one.label for one in app.button if one.label.startswith("Use ")}
        assert used == {f"Use {name}" for name in near}
    app.button(key="inside:use:only-attention").click().run()
    assert app.selectbox(key="inside:model").value == "only-attention" and not app.exception


# A model that a person wrote.


OWN = "Your own model…"


@pytest.fixture
def local(monkeypatch):
    monkeypatch.setattr("dashboard.fields.model.is_local", lambda *_: True)
    monkeypatch.setattr("dashboard.fields.model.allowed_files", set())


def test_a_python_file_is_a_source_and_follows_its_file(app, tmp_path, local, monkeypatch):
    choose(app.run(), OWN)
    assert "def build():" in code_text(app) and "KEYS" in message_text(app)
    path = write_model(tmp_path, BY_HAND)
    app.text_input(key="inside:own-file").set_value(f' "{path}" ').run()
    assert code_text(app).startswith("array mine.py (array ")
    assert "(2, 2) ('causal',) the cat sat down" in code_text(app)
    assert app.query_params["inside:model"] == str(path)
    name = code_text(app).removeprefix("array ").partition(" (2, ")[0]
    scope: dict = {}
    monkeypatch.chdir(tmp_path)  # its script, beside the person's file
    exec(model_cell(ModelRef("array", name, "0")).code, scope)
    assert scope["reading"].trace.shape == (2, 2)
    write_model(tmp_path, BY_HAND.replace("Attention(), Attention()", "Attention()"))
    assert "(1, 2) ('causal',)" in code_text(app.run())
    write_model(tmp_path, BY_HAND.replace("/ 2", "/ two"))
    assert code_text(app.run()) == "nothing"
    assert "mine.py, line 13: NameError: name 'two' is not defined." in message_text(app)
    write_model(tmp_path, BY_HAND)
    button(app, "Read again").click().run()
    assert "(2, 2) ('causal',)" in code_text(app)
    runs = tmp_path / "runs.txt"  # as weights would be: the file itself stays as it is
    write_model(tmp_path, f"{BY_HAND}\nopen({str(runs)!r}, 'a').write('.')")
    app.run()
    app.run()
    button(app, "Read again").click().run()
    assert runs.read_text("utf-8") == ".." and "(2, 2)" in code_text(app)


def test_the_field_of_a_python_file_takes_no_other(app, tmp_path, local):
    choose(app.run(), OWN)
    for name in (str(tmp_path), "owner/name", "mine.txt", "~"):
        app.text_input(key="inside:own-file").set_value(name).run()
        assert f"{name} does not end with .py." in message_text(app) and "build()" in code_text(app)


def test_a_link_to_a_python_file_asks_before_it_runs(tmp_path, local):
    path = write_model(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{BY_HAND}")
    app = opened(path)
    assert code_text(app) == "nothing" and not (tmp_path / "ran").exists()
    assert "runs with all your rights" in message_text(app)
    button(app, "Run").click().run()
    assert code_text(app).startswith("array mine.py") and (tmp_path / "ran").exists()
    app = set_state(app, "needs", ("model",))
    assert (
        "mine.py is read for its attention alone; this page runs parts of a model"
        in message_text(app)
    )
    (tmp_path / "mine.py").unlink()
    assert "There is no file" in message_text(set_state(app, "needs", ()))
    for name in ("~nobody-of-this-name/mine.py", "mine\0.py", "//there/mine.py"):
        app = opened(name)
        assert code_text(app) == "nothing" and not app.exception, name


@pytest.mark.parametrize("hosted", ["1", ""])
def test_no_code_of_visitors_runs(tmp_path, monkeypatch, hosted):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", hosted)
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")  # opens folders to visitors, and runs nothing
    monkeypatch.setattr("dashboard.fields.model.is_local", lambda *_: bool(hosted))
    monkeypatch.setattr("core.pretrained.foreign.record", lambda *_, **__: pytest.fail("ran"))
    for name in (OWN, write_model(tmp_path, BY_HAND)):
        app = opened(name)
        assert code_text(app) == "nothing" and not app.button
        assert "attention-lab record my_model.py -o maps.zip" in message_text(app)


def test_plug_ins_with_a_model_stand_in_the_list(app, tmp_path, local, monkeypatch):
    path, module = write_model(tmp_path, BY_HAND), ModuleType("mine")
    module.__file__ = str(path)
    vars(module)["build"] = None
    monkeypatch.setitem(sys.modules, f"{plugins.PACKAGE}.mine", module)
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    assert str(path) in app.run().selectbox(key="inside:model").options
    assert code_text(choose(app, str(path))).startswith("array mine.py")


@pytest.mark.parametrize("hosted", ["1", ""])
def test_a_file_of_maps_opens_in_each_size(app, tmp_path, monkeypatch, hosted):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", hosted)
    data = record(write_model(tmp_path, UNET + "\nTOKENS = 'one two'"))
    choose(app.run(), "Your own arrays…")
    app.file_uploader(key="inside:array-file").set_value(("maps.zip", data, "")).run()
    assert "(1, 2) ('self',) 0,0 0,1" in code_text(app)
    assert "TOKENS has 2 words" in message_text(app)
    sizes = app.selectbox(key="inside:maps")
    assert len(sizes.options) == 3
    sizes.set_value(sizes.options[2]).run()
    assert "(1, 2) ('cross',) a red house | 0,0 0,1" in code_text(app)
    link = {"inside:model": app.query_params["inside:model"], "inside:maps": sizes.options[2]}
    again = AppTest.from_function(chooser, default_timeout=60)
    for name, value in link.items():
        again.query_params[name] = value
    # on a public copy each person's uploads are their own
    assert code_text(again.run()) == ("nothing" if hosted else code_text(app))
    # another file has other sizes
    data = record(write_model(tmp_path, UNET.replace("3, 8, 2, 2", "3, 8, 3, 3")))
    choose(again, "Your own arrays…")
    again.file_uploader(key="inside:array-file").set_value(("other.zip", data, "")).run()
    assert "(1, 2) ('self',) 0,0 0,1" in code_text(again) and not again.exception
