from functools import partial

from streamlit.testing.v1 import AppTest

from core.interpret import patching
from tests.pages.app import Case, open_at, page_cases, page_text

open_page = partial(open_at, "two_models", "inside:")


def figure(app: AppTest, name: str) -> str:
    return next(item.value for item in app.metric if item.label == name)


def test_one_word_moves_a_few_heads_and_another_seed_other_ones():
    app = open_page()
    assert 0.85 < float(figure(app, "Overlap")) < 0.99
    app.segmented_control(key="two_models:mode").set_value("untrained").run()
    first = page_text(app)
    assert float(figure(app, "Overlap")) < 0.75 and "Untrained weights are drawn" in first
    assert page_text(app.number_input(key="two_models:seed").set_value(1).run()) != first


def test_pictures_are_not_called_texts_and_kinds_have_one_name_everywhere():
    assert "Two pictures" in open_page(model="digits").button_group[0].options
    kinds = open_page(model="numbers").button_group[1]
    assert kinds.options == ["Encoder", "Decoder", "Cross"] and kinds.value == "cross"
    app = open_at("two_models", **{"inside:model": "numbers", "two_models:kind:3": "Decoder"})
    assert app.button_group[1].value == "causal"


def test_patching_finds_the_induction_circuit_and_a_pressed_pair_sets_both_texts(monkeypatch):
    app = open_page(model="induction")
    app.button(key="two_models:try:1").click().run()
    text, whole = page_text(app), "all heads of L1 together 100"
    assert "The logit of king minus that of the" in text and whole in text and not app.exception
    assert "the attention of layer 0 brings the answer back" in text.lower()
    with monkeypatch.context() as without:
        for name in ("pair_of", "patch_source", "estimate_heads"):
            without.setattr(patching, name, None)  # a rerun runs neither text again
        assert not app.run().exception and whole in page_text(app)
    app.segmented_control(key="two_models:direction").set_value("noise").run()
    assert "From B into A" in page_text(app)


MOVES = {
    0: "The logit of king minus that of queen",
    2: "head L0·H2 brings back 50",
    3: "head L1·H0 brings back 100",
    4: "head L0·H1 brings back 88",
    5: "The logit of drei minus that of vier",
    6: "The cosine with the embedding of text A is +1.00",
}
test_each_pair_to_begin_with_is_patched = page_cases(
    "two_models",
    {
        words: Case(
            {"inside:model": "induction"},
            [words, "effects by "],
            do=[("button", f"two_models:try:{move}", None)],
        )
        for move, words in MOVES.items()
    },
)
