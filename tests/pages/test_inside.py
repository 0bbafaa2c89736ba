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

from core.interpret.roles import SENTENCES
from core.pretrained import PretrainedError, read
from core.pretrained.arrays import read_arrays
from core.pretrained.example_inputs import decode_picture, decode_wav
from dashboard.ui.model_picker import example_arrays
from dashboard.ui.models import EMBEDDED, ModelRef, stored_bytes
from pages import inside_weight as weight
from pages.head_roles import HEAD, ROLE
from tests.pages.app import (
    APP,
    app_at,
    assert_script,
    captions,
    figures,
    html_text,
    open_at,
    page_text,
    query_value,
)
from tests.pages.inside_app import DEMO, button, code_text, message_text
from tests.tiny_models import build, given, ids_of, save, tiny, tokenizer


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


def control(app: AppTest, kind: str, key: str):
    return getattr(app, kind)(key=key)


@pytest.mark.parametrize("page", CONTROLS)
def test_a_link_opens_every_control_as_it_was(page):
    model, more, controls = CONTROLS[page]
    link = {"inside:model": model} | more
    app = open_at(page, **link)
    for kind, key, value, text in controls:
        control(app, kind, key).set_value(value).run()
        assert control(app, kind, key).proto.query_param_key == key
        link[key] = text
    again = open_at(page, **link)
    assert {key: control(again, kind, key).value for kind, key, *_ in controls} == {
        key: value for _, key, value, _ in controls
    }


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
    app = open_at(
        page,
        **{
            "inside:model": "induction",
            "transformer:depth": "2",
            "masks:first": "Causal local",
            name: "3.2",
        },
    )
    assert app.session_state[store]["pin"] == (3, 2) and query_value(app, name) == "3.2"
    app.session_state[store] = app.session_state[store] | {"pin": (4, 1)}
    assert query_value(app.run(), name) == "4.1"
    app.session_state[store] = app.session_state[store] | {"pin": None}
    app.run()
    assert name not in app.query_params and app.session_state[store]["pin"] is None


def test_a_pinned_cell_belongs_to_its_text():
    app = open_at("evidence", **{"inside:model": "induction", "pin": "3.2"})
    app.text_input(key="inside:text").set_value("the old king walked to the old").run()
    assert "pin" not in app.query_params


def test_a_picked_head_is_in_the_link_of_use_a_model():
    app = open_at("use_model", **{"inside:model": "induction", "head": "1.1"})
    assert "L1·H1</b>" in html_text(app) and query_value(app, "head") == "1.1"
    app.text_input(key="inside:text").set_value("the old king walked to the old").run()
    assert "head" not in app.query_params, "another answer depends on other heads"


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


def test_sentences_of_a_link_are_measured():
    app = open_at("head_roles", **{"head_roles:own": "\n".join(SENTENCES[:3])})
    assert "measured on 3 sentences of your own" in page_text(app)


# Every family, opened as a folder on the page that draws all heads.


@pytest.fixture
def pretrained(monkeypatch) -> AppTest:
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    return app_at("pretrained")


def open_family(pretrained: AppTest, folder: Path, family: str) -> str:
    """What the page says of the family."""
    folder = folder / family
    folder.mkdir()
    pretrained.query_params["inside:model"] = str(save(family, folder))
    pretrained.run()
    return re.sub(
        r"<[^>]+>", "", " ".join(element.proto.body for element in pretrained.get("html"))
    ) + captions(pretrained)


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("deepseek_v3", "deepseek\\_v3, 13 tokens"),
        ("longformer_classifier", "15 tokens (2 special)"),
        ("bloom", "13 tokens"),
        ("diffllama", "the model subtracts a learned share"),
        ("t5", "columns: 17 tokens"),
        ("vit", "10 tokens (1 special)"),
        ("whisper", "columns: 50 tokens"),
        ("gpt_oss", "columns: 14 tokens (1 special). A learned sink"),
    ],
)
def test_a_family_shows_its_heads_with_nothing_pressed(pretrained, tmp_path, family, sentence):
    text = open_family(pretrained, tmp_path, family)
    kind = "cross" if family in ("t5", "whisper") else None
    maps = [
        item for item in read(tiny(family), given(family)).trace.maps if kind in (None, item.kind)
    ]
    layer, head = map(int, re.search(r"In head L(\d+)·H(\d+)", text).groups())
    assert layer < len(maps) and head < len(maps[layer].weights) and sentence in text
    assert_script(pretrained)


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
def test_the_scripts_of_a_family_compute_what_its_pages_show(pretrained, tmp_path, family, pages):
    folder = tmp_path / family
    folder.mkdir()
    save(family, folder)
    for page in pages:
        assert_script(open_at(page, **{"inside:model": str(folder)}))


@pytest.mark.parametrize(
    ("family", "reason"), [("mamba", "no attention weights"), ("big_bird_sparse", "original")]
)
def test_a_family_without_maps_says_why(pretrained, tmp_path, family, reason):
    open_family(pretrained, tmp_path, family)
    assert (
        reason in pretrained.info[0].value
        and "Take" in pretrained.info[0].value
        or "open that folder" in pretrained.info[0].value
    )


# A head that is picked on one page of Look inside is the one that the next page shows.


@pytest.fixture
def visit() -> AppTest:
    return AppTest.from_file(APP, default_timeout=60)


def open_page(app: AppTest, page: str, **query: str) -> AppTest:
    """Another page of the same visit, as the sidebar opens it: without the link of the page before."""
    app.query_params.clear()
    for name, value in query.items():
        app.query_params[name] = value
    return app.switch_page(f"../pages/{page}.py").run()


def test_a_head_goes_from_page_to_page(visit):
    open_page(visit, "pretrained", head="2.8")
    assert "L2·H8</b>" in html_text(open_page(visit, "inside_weight"))
    assert visit.query_params["head"] in ("2.8", ["2.8"]), "the link of this page names it, too"
    visit.selectbox(key=weight.HEAD).set_value("L1·H8").run()
    assert "L1·H8</b>" in html_text(open_page(visit, "evidence"))
    assert "L1·H8</b>" in html_text(open_page(visit, "two_models"))
    assert "L1·H8</b>" in html_text(open_page(visit, "pretrained"))
    open_page(visit, "head_roles")
    assert visit.selectbox(key=HEAD).value == "L1·H8" and visit.selectbox(key=ROLE).value == "next"
    assert visit.query_params[HEAD] in ("L1·H8", ["L1·H8"]), "the link of this page names it, too"


def test_another_role_begins_with_its_own_head_although_one_was_picked(visit):
    open_page(visit, "pretrained", head="1.8")
    open_page(visit, "head_roles")
    visit.selectbox(key=ROLE).set_value("same").run().run()
    assert visit.selectbox(key=HEAD).value == "L2·H9"
    assert "L1·H8</b>" in html_text(open_page(visit, "pretrained")), (
        "nobody picked the head that the role began with"
    )


def test_a_head_that_nobody_picked_stays_where_it_is(visit):
    open_page(visit, "evidence")
    open_page(visit, "head_roles")
    assert "L3·H1</b>" in html_text(open_page(visit, "pretrained"))


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


@pytest.fixture
def open_hybrid(hybrid, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")

    def at(page, **state):
        app = app_at(page)
        app.query_params["inside:model"] = hybrid
        for name, value in state.items():
            app.session_state[name.replace("__", ":")] = value
        app.run()
        return app

    return at


def layers_of(app: AppTest) -> set[int]:
    """The layers of all heads that the page names, in what it writes and in its figures."""
    fields = [box for box in app.selectbox if not box.key.startswith("search:")]
    parts = [*app.markdown, *app.caption, *fields, *app.info]
    written = [str(part.value) for part in parts] + [part.proto.body for part in app.get("html")]
    written += [str(option) for box in fields for option in box.options]
    written += [part.proto.spec for part in figures(app)]
    return {int(layer) for layer in re.findall(r"\bL(\d+)·H\d", " ".join(written))}


def test_head_roles_calls_layers_by_the_model_s_numbers(open_hybrid):
    app = open_hybrid("head_roles")
    assert layers_of(app) == {2, 4}
    app.selectbox(key=HEAD).set_value("L4·H1").run()
    assert layers_of(app) == {2, 4}


@pytest.mark.parametrize("mode", ["texts", "untrained"])
def test_two_models_calls_layers_by_the_model_s_numbers(open_hybrid, mode):
    layers = layers_of(open_hybrid("two_models", two_models__mode=mode))
    assert layers and layers <= {2, 4}


def test_patching_calls_layers_by_the_model_s_numbers(open_hybrid, hybrid):
    app = open_hybrid(
        "two_models",
        two_models__mode="texts",
        inside__text="xx qq",
        **{f"two_models:text:{hybrid}": "xx zz"},
    )
    [heads] = [part.proto.spec for part in figures(app) if '"all heads of L2"' in part.proto.spec]
    assert set(re.findall(r'"layer": ?"(L\d)"', heads)) == {"L2", "L4"}


def test_use_a_model_calls_layers_by_the_model_s_numbers(open_hybrid):
    layers = layers_of(open_hybrid("use_model"))
    assert layers and layers <= {2, 4}


def test_circuits_call_layers_by_the_model_s_numbers(open_hybrid):
    app = open_hybrid("circuits")
    assert layers_of(app) == {2, 4}
    grid = next(part.proto.spec for part in figures(app) if '"change"' in part.proto.spec)
    assert set(re.findall(r'"layer": ?"L(\d)"', grid)) == {"2", "4"}
