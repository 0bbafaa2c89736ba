"""A hybrid, of whose five layers two have attention: every page calls them by the model's own numbers, 2 and 4."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from pages.head_roles import HEAD
from tests.pages.app import app_at, figures
from tests.tiny_models import build, ids_of, tokenizer

SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 5, "num_attention_heads": 2,
         "num_key_value_heads": 2, "full_attn_idxs": [2, 4]}  # fmt: skip


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    folder, reader = tmp_path_factory.mktemp("lfm2"), tokenizer("bytes")
    reader.save_pretrained(folder)
    build("Lfm2ForCausalLM", {**SIZES, **ids_of(reader, "Lfm2ForCausalLM")}).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def open_page(hybrid, monkeypatch):
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


def test_head_roles_calls_layers_by_the_model_s_numbers(open_page):
    app = open_page("head_roles")
    assert layers_of(app) == {2, 4}
    app.selectbox(key=HEAD).set_value("L4·H1").run()
    assert layers_of(app) == {2, 4}


@pytest.mark.parametrize("mode", ["texts", "untrained"])
def test_two_models_calls_layers_by_the_model_s_numbers(open_page, mode):
    layers = layers_of(open_page("two_models", two_models__mode=mode))
    assert layers and layers <= {2, 4}


def test_patching_calls_layers_by_the_model_s_numbers(open_page, hybrid):
    app = open_page(
        "two_models",
        two_models__mode="texts",
        inside__text="xx qq",
        **{f"two_models:text:{hybrid}": "xx zz"},
    )
    [heads] = [part.proto.spec for part in figures(app) if '"all heads of L2"' in part.proto.spec]
    assert set(re.findall(r'"layer": ?"(L\d)"', heads)) == {"L2", "L4"}


def test_use_a_model_calls_layers_by_the_model_s_numbers(open_page):
    layers = layers_of(open_page("use_model"))
    assert layers and layers <= {2, 4}


def test_circuits_call_layers_by_the_model_s_numbers(open_page):
    app = open_page("circuits")
    assert layers_of(app) == {2, 4}
    grid = next(part.proto.spec for part in figures(app) if '"change"' in part.proto.spec)
    assert set(re.findall(r'"layer": ?"L(\d)"', grid)) == {"2", "4"}
