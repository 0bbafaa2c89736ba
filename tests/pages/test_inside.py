"""The chooser that the pages of Look inside share, without a browser: the models that are here, inputs, arrays."""

import io
import re
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from core.pretrained import PretrainedError, read
from core.pretrained.arrays import read_arrays
from core.pretrained.example_inputs import decode_picture, decode_wav
from dashboard.ui.model_picker import example_arrays
from dashboard.ui.models import EMBEDDED, ModelRef, stored_bytes
from pages import inside_weight as weight
from pages.head_roles import HEAD, ROLE
from tests.pages.app import (
    APP,
    DEMO,
    assert_says,
    assert_script,
    button,
    code_text,
    figures,
    html_text,
    message_text,
    open_at,
    page_text,
    query_value,
)
from tests.tiny_models import build, given, ids_of, save, tiny, tokenizer


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(str(DEMO), default_timeout=60)


def choose(app: AppTest, name: str) -> AppTest:
    return app.selectbox(key="inside:model").set_value(name).run()


def write(app: AppTest, text: str, field: str = "text") -> AppTest:
    return app.text_input(key=f"inside:{field}").set_value(text).run()


def test_first_sight_reads_a_sentence_with_the_embedded_model(app):
    app.run()
    assert code_text(app).startswith("embedded all-MiniLM-L6-v2 (6, 12) ('self',) [CLS] the animal")
    write(app, "One.")
    assert "[CLS] one . [SEP] two ." in code_text(write(app, "Two.", "second"))
    write(app, "", "second")
    for text in ("", "   \n"):
        assert code_text(write(app, text)) == "nothing"
        assert "write a sentence" in message_text(app)
    # Ten thousand words are cut, and it is said
    assert "(6, 12)" in code_text(write(app, "word " * 10_000))
    assert "has 50,000 characters; all-MiniLM-L6-v2 reads at most 512 tokens" in message_text(app)
    write(app, "word " * 600)
    assert "has 602 tokens; all-MiniLM-L6-v2 reads at most 512 tokens" in message_text(app)


@pytest.mark.parametrize(("name", "starts"), [
    ("numbers", "lab numbers (6, 4) ('self', 'causal', 'cross') nine thousand"),
    ("induction", "lab induction (2,"), ("digits", "lab digits (2, 4) ('self',) [class]")])  # fmt: skip
def test_each_of_the_labs_models_reads_its_own_example(app, name, starts):
    app.query_params["inside:model"] = name
    assert code_text(app.run()).startswith(starts) and "<unk>" not in code_text(app)


def test_the_text_of_each_language_comes_back_as_it_was(app):
    write(app.run(), "My own sentence.")
    choose(app, "numbers")
    assert "seven hundred | <bos> sieben hundert" in code_text(write(app, "seven hundred"))
    assert "| <bos> acht" in code_text(write(app, "acht", "target"))
    assert "my own sentence" in code_text(choose(app, "all-MiniLM-L6-v2"))
    assert "seven hundred | <bos> sieben hundert" in code_text(choose(app, "numbers"))


def test_a_page_that_needs_more_begins_with_a_model_that_has_it_and_refuses_others_in_words(app):
    app.run()
    for needs, starts in (("generate",), "lab induction"), ((), "embedded"):
        app.session_state["needs"] = needs
        assert code_text(app.run()).startswith(starts), "what nobody chose gives way"
    choose(app, "numbers")
    app.session_state["needs"] = ("generate",)
    assert code_text(app.run()).startswith("lab numbers"), "what a person chose stays"
    choose(app, "all-MiniLM-L6-v2")
    assert code_text(app) == "nothing" and "all-MiniLM-L6-v2 generates no text" in message_text(app)
    button(app, "Use names").click().run()
    assert code_text(app).startswith("lab names")


def test_what_is_loaded_is_weighed_for_the_one_who_waits(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1234567")
    sizes = {
        EMBEDDED: 90_868_376,
        ModelRef("folder", str(tmp_path)): 7,
        ModelRef("hub", "a/b", "0" * 40): 0,
        ModelRef("array", "mine.npz (array 0123456789ab)"): 0,
    }
    assert {ref: stored_bytes(ref) for ref in sizes} == sizes
    assert 10**5 < stored_bytes(ModelRef("lab", "numbers")) < 10**6


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
    assert code_text(app.run()) == "nothing" and why in message_text(app)
    assert button(app, "Use induction")


def test_the_example_of_arrays_can_itself_be_uploaded():
    arrays = read_arrays(example_arrays(), "attention.npz")
    assert arrays.trace.shape == (6, 12) and arrays.source.tokens[:3] == ("[CLS]", "the", "animal")
    assert arrays.source.special[:2] == (True, False)


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
    upload = app.file_uploader(key="inside:picture-file").upload
    upload("a.png", b"no picture", "image/png").run()
    assert code_text(app) == "nothing" and "not a readable picture" in message_text(app)
    file = ("b.png", png(30, 20), "image/png")
    app.file_uploader(key="inside:picture-file").set_value(file).run()
    assert code_text(app).startswith("lab digits (2, 4)")


def test_pictures_and_sounds_are_bounded():
    assert decode_picture(png(1024, 64)).shape == (32, 512, 3)
    with pytest.raises(PretrainedError, match="at most 40 million"):
        decode_picture(png(10_000, 4_001))
    with wave.open(out := io.BytesIO(), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.repeat(np.arange(-8000, 8000, dtype="<i2"), 2).tobytes())
    sound = decode_wav(out.getvalue(), 16_000).numpy()
    assert sound.shape == (32_000,) and abs(sound[0] + 8000 / 32768) < 1e-6
    np.testing.assert_allclose(sound[1] - sound[0], 0.5 / 32768, atol=1e-7)
    for bad in (b"", b"RIFF", out.getvalue()[:40]):
        with pytest.raises(PretrainedError, match="WAV"):
            decode_wav(bad, 16_000)


def test_arrays_become_a_source_and_the_limits_are_said_first(app):
    choose(app.run(), "Your own arrays…")
    assert "at most 200 MB" in message_text(app) and "2,048 tokens" in message_text(app)
    negative = npz(scores=np.full((2, 3, 3), -1.5))
    app.file_uploader(key="inside:array-file").upload("mine.npz", negative, "").run()
    assert code_text(app) == "nothing" and "softmax" in message_text(app)
    even = npz(layer_0=np.full((2, 3, 3), 1 / 3), tokens=np.array(["a", "b", "c"]))
    app.file_uploader(key="inside:array-file").set_value(("good.npz", even, "")).run()
    text = code_text(app)
    assert text.startswith("array good.npz (array ") and "(1, 2) ('self',) a b c" in text
    app.session_state["needs"] = ("model",)
    assert code_text(app.run()) == "nothing" and "attention weights only" in message_text(app)


# Every control of the pages of Look inside is in their links: set each, open the link anew, compare.


CONTROLS: dict[str, tuple[str, dict[str, str], list[tuple[str, str, Any, str]]]] = {
    "pretrained": (
        "all-MiniLM-L6-v2",
        {},
        [
            ("segmented_control", "pretrained:show", "matrix", "Matrix"),
            ("toggle", "pretrained:special", True, "true"),
            ("toggle", "pretrained:sinks", True, "true"),
            ("radio", "pretrained:order", "keys", "Keys by weight"),
            ("radio", "pretrained:scale", "largest", "0 to the largest here"),
            ("slider", "pretrained:from", 0.1, "0.1"),
            ("text_input", "inside:text", "Rain falls.", "Rain falls."),
            ("text_input", "inside:second", "It is wet.", "It is wet."),
        ],
    ),
    "inside_weight": (
        "numbers",
        {},
        [
            ("selectbox", "inside_weight:kind", "causal", "Decoder"),
            ("segmented_control", "inside_weight:order", "largest", "Largest first"),
            ("text_input", "inside:target", "neun", "neun"),
        ],
    ),
    "evidence": (
        "induction",
        {},
        [
            ("selectbox", "evidence:quantity", "logit", "logit"),
            ("multiselect", "evidence:off:induction", ["all of L0"], "all of L0"),
        ],
    ),
    "lens": (
        "induction",
        {},
        [
            ("segmented_control", "lens:view", "who", "Who wrote it"),
            ("selectbox", "lens:output:induction", "wolf", "wolf"),
            ("selectbox", "lens:contrast:induction", "river", "river"),
        ],
    ),
    "head_roles": (
        "induction",
        {},
        [
            (
                "text_area",
                "head_roles:own",
                "the old dog and the old cat\nthe red fox saw the red fox",
                "the old dog and the old cat\nthe red fox saw the red fox",
            ),
            ("selectbox", "head_roles:role", "previous", "Previous token"),
            ("selectbox", "head_roles:head", "L0·H1", "L0·H1"),
            ("segmented_control", "head_roles:where", "set", "Clearest example"),
        ],
    ),
    "corpus": (
        "induction",
        {},
        [
            ("selectbox", "corpus:x", "sink", "Sink share"),
            ("selectbox", "corpus:y", "ablation", "Ablation effect"),
            ("selectbox", "corpus:head", "L0·H1", "L0·H1"),
            ("selectbox", "corpus:measure", "entropy", "Entropy"),
            ("segmented_control", "corpus:view", "map", "Queries and keys"),
            ("segmented_control", "corpus:colour", "position", "Position"),
        ],
    ),
    "generate": (
        "induction",
        {},
        [
            ("segmented_control", "generate:strategy", "Beam", "Beam"),
            ("slider", "generate:width", 2, "2"),
            ("slider", "generate:penalty", 0.5, "0.5"),
            ("slider", "generate:longest", 5, "5"),
            ("number_input", "generate:no_repeat", 2, "2"),
        ],
    ),
    "two_models": (
        "numbers",
        {},
        [
            ("segmented_control", "two_models:mode", "models", "Two models"),
            ("toggle", "two_models:nearest", True, "true"),
        ],
    ),
    "use_model": (
        "all-MiniLM-L6-v2",
        {},
        [
            (
                "text_area",
                "use_model:more",
                "Nobody came.\nAn umbrella.",
                "Nobody came.\nAn umbrella.",
            )
        ],
    ),
}


@pytest.mark.parametrize("page", CONTROLS)
def test_a_link_opens_every_control_as_it_was(page):
    model, more, controls = CONTROLS[page]
    link = {"inside:model": model} | more
    app = open_at(page, **link)
    for kind, key, value, text in controls:
        getattr(app, kind)(key=key).set_value(value).run()
        assert getattr(app, kind)(key=key).proto.query_param_key == key
        link[key] = text
    again = open_at(page, **link)
    for kind, key, value, _ in controls:
        assert getattr(again, kind)(key=key).value == value


def test_sampling_is_in_the_link_too():
    link = {
        "strategy": "Sampling",
        "temperature": "0.5",
        "top_k": "3",
        "top_p": "0.5",
        "samples": "2",
        "seed": "7",
    }
    now = open_at("generate", "generate:", **link).session_state["generate:going"].controls.settings
    assert (now.temperature, now.top_k, now.top_p, now.samples, now.seed) == (0.5, 3, 0.5, 2, 7)


@pytest.mark.parametrize(("page", "name", "store"), [
    ("head_roles", "pin", "head_roles:map:view"), ("generate", "pin", "generate:map:causal:view"),
    ("evidence", "pin", "evidence:maps:view"), ("two_models", "pin", "two_models:pin:link"),
    ("use_model", "pin", "use_model:head:view"), ("transformer", "transformer:cell", "transformer:map:cross:view"),
    ("masks", "masks:reach", "masks:stack:view"), ("masks", "masks:padded", "masks:batch:view"),
    ("scores", "scores:cell", "scores:maps:link"), ("mechanisms", "mechanisms:pin", "mechanisms:maps:link"),
    ("efficient", "efficient:pin", "efficient:maps:view"),
    ("positions", "positions:cell", "positions:shuffled:link")])  # fmt: skip
def test_a_pinned_cell_is_in_the_link_until_it_is_unpinned(page, name, store):
    link = {"inside:model": "induction", "transformer:depth": "2", "masks:first": "Causal local"}
    app = open_at(page, **link, **{name: "3.2"})
    assert app.session_state[store]["pin"] == (3, 2) and query_value(app, name) == "3.2"
    app.session_state[store] = app.session_state[store] | {"pin": (4, 1)}
    assert query_value(app.run(), name) == "4.1"
    app.session_state[store] = app.session_state[store] | {"pin": None}
    app.run()
    assert name not in app.query_params and app.session_state[store]["pin"] is None


def test_a_pinned_cell_and_a_picked_head_belong_to_their_text():
    """Another answer depends on other heads."""
    for page, name, pair in (("evidence", "pin", "3.2"), ("use_model", "head", "1.1")):
        app = open_at(page, **{"inside:model": "induction", name: pair})
        assert query_value(app, name) == pair
        write(app, "the old king walked to the old")
        assert name not in app.query_params


def test_links_with_earlier_names_open_what_they_did():
    app = open_at("generate", **{"inside:model": "numbers", "generate:kind": "What was said"})
    assert app.segmented_control(key="generate:kind").value == "causal"
    name, link = (
        "two_models:model:induction",
        {"inside:model": "induction", "two_models:mode": "Two models"},
    )
    other = open_at("two_models", **link, **{name: "Fine-tuned: numbers, kept"})
    assert other.selectbox(key=name).value == "Fine-tuned: numbers, example"
    assert "attends in the text before it" in str([e.proto.json for e in app.get("bidi_component")])


# Every family, opened as a folder on the page that draws all heads.


def family_at(page: str, folder: Path, family: str) -> AppTest:
    """A page with a family's model, opened as a folder."""
    (folder / family).mkdir(exist_ok=True)
    return open_at(page, **{"inside:model": str(save(family, folder / family))})


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("deepseek_v3", "deepseek_v3, 13 tokens"),
        ("longformer_classifier", "15 tokens (2 special)"),
        ("bloom", "13 tokens"),
        ("diffllama", "the model subtracts a learned share"),
        ("t5", "columns: 17 tokens"),
        ("vit", "10 tokens (1 special)"),
        ("whisper", "columns: 50 tokens"),
        ("gpt_oss", "columns: 14 tokens (1 special). A learned sink"),
    ],
)
def test_a_family_shows_its_heads_with_nothing_pressed(tmp_path, family, sentence):
    app = family_at("pretrained", tmp_path, family)
    trace = read(tiny(family), given(family)).trace
    maps = trace.of("cross").maps if family in ("t5", "whisper") else trace.maps
    layer, head = map(int, re.search(r"In head L(\d+)·H(\d+)", page_text(app)).groups())
    assert layer < len(maps) and head < len(maps[layer].weights)
    assert_says(app, sentence)
    assert_script(app)


@pytest.mark.parametrize(
    ("family", "pages"),
    [
        ("bert", ("evidence", "lens", "use_model")),
        ("gpt_oss", ("evidence", "lens", "circuits", "head_roles")),
        ("whisper", ("lens", "circuits")),
        ("vit", ("evidence", "two_models", "use_model")),
        ("bart", ("inside_weight", "generate")),
    ],
)
def test_the_scripts_of_a_family_compute_what_its_pages_show(tmp_path, family, pages):
    for page in pages:
        assert_script(family_at(page, tmp_path, family))


@pytest.mark.parametrize(
    ("family", "reason"), [("mamba", "no attention weights"), ("big_bird_sparse", "original")]
)
def test_a_family_without_maps_says_why(tmp_path, family, reason):
    why = family_at("pretrained", tmp_path, family).info[0].value
    assert reason in why and "Take" in why or "open that folder" in why


# A head that is picked on one page of Look inside is the one that the next page shows.


@pytest.fixture
def visit() -> AppTest:
    return AppTest.from_file(APP, default_timeout=60)


def open_page(app: AppTest, page: str, **query: str) -> str:
    """Another page of the same visit, as the sidebar opens it, without the link of the page before; what it says."""
    app.query_params.clear()
    for name, value in query.items():
        app.query_params[name] = value
    return html_text(app.switch_page(f"../pages/{page}.py").run())


def test_a_head_goes_from_page_to_page(visit):
    """The link of each page names it, too."""
    open_page(visit, "pretrained", head="2.8")
    assert "L2·H8</b>" in open_page(visit, "inside_weight")
    assert query_value(visit, "head") == "2.8"
    visit.selectbox(key=weight.HEAD).set_value("L1·H8").run()
    for page in ("evidence", "two_models", "pretrained"):
        assert "L1·H8</b>" in open_page(visit, page)
    open_page(visit, "head_roles")
    assert visit.selectbox(key=HEAD).value == "L1·H8" and visit.selectbox(key=ROLE).value == "next"
    assert query_value(visit, HEAD) == "L1·H8"
    # Another role begins with its own head, which nobody picked
    visit.selectbox(key=ROLE).set_value("same").run().run()
    assert visit.selectbox(key=HEAD).value == "L2·H9"
    assert "L1·H8</b>" in open_page(visit, "pretrained")


def test_a_head_that_nobody_picked_stays_where_it_is(visit):
    open_page(visit, "evidence")
    open_page(visit, "head_roles")
    assert "L3·H1</b>" in open_page(visit, "pretrained")


def test_another_model_and_another_kind_have_other_heads():
    def visit() -> None:
        import streamlit as st

        from dashboard.ui.model_picker import choose_head, current_head_of
        from dashboard.ui.models import EMBEDDED, ModelRef

        choose_head(EMBEDDED, "self", (4, 7))
        st.write(
            [
                current_head_of(EMBEDDED, "self", (6, 12)),
                current_head_of(EMBEDDED, "cross", (6, 12)),
                current_head_of(EMBEDDED, "self", (6, 7)),
                current_head_of(ModelRef("lab", "numbers"), "self", (6, 12)),
            ]
        )

    ran = AppTest.from_function(visit, default_timeout=60).run()
    assert ran.json[0].value.replace(" ", "").replace("\n", "") == "[[4,7],null,null,null]"


# A hybrid, of whose five layers two have attention: every page calls them by the model's own numbers, 2 and 4.


SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 5, "num_attention_heads": 2,
         "num_key_value_heads": 2, "full_attn_idxs": [2, 4]}  # fmt: skip


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    folder, reader = tmp_path_factory.mktemp("lfm2"), tokenizer("bytes")
    reader.save_pretrained(folder)
    build("Lfm2ForCausalLM", {**SIZES, **ids_of(reader, "Lfm2ForCausalLM")}).save_pretrained(folder)
    return str(folder)


def layers_of(app: AppTest) -> set[int]:
    """The layers of all heads that the page names, in what it writes and in its figures."""
    fields = [box for box in app.selectbox if not box.key.startswith("search:")]
    written = [str((box.value, box.options)) for box in fields]
    written += [page_text(app), *(part.proto.spec for part in figures(app))]
    return {int(layer) for layer in re.findall(r"\bL(\d+)·H\d", " ".join(written))}


@pytest.mark.parametrize(
    ("page", "link", "some"),
    [
        ("head_roles", {}, False),
        ("circuits", {}, False),
        ("two_models", {"two_models:mode": "Trained and untrained"}, True),
        ("two_models", "texts", True),
        ("use_model", {}, True),
    ],
)
def test_pages_call_layers_by_the_model_s_numbers(hybrid, page, link, some):
    text = {
        "two_models:mode": "Two texts",
        "inside:text": "xx qq",
        f"two_models:text:{hybrid}": "xx zz",
    }
    app = open_at(page, **{"inside:model": hybrid}, **(text if link == "texts" else link))
    layers = layers_of(app)
    assert layers <= {2, 4} if some else layers == {2, 4}
    assert layers
    specs = [part.proto.spec for part in figures(app)]
    if page == "head_roles":
        app.selectbox(key=HEAD).set_value("L4·H1").run()
        assert layers_of(app) == {2, 4}
    if link == "texts":
        [heads] = [spec for spec in specs if '"all heads of L2"' in spec]
        assert set(re.findall(r'"layer": ?"(L\d)"', heads)) == {"L2", "L4"}
    if page == "circuits":
        grid = next(spec for spec in specs if '"change"' in spec)
        assert set(re.findall(r'"layer": ?"L(\d)"', grid)) == {"2", "4"}
