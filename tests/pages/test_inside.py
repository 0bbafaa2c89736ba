"""What the pages of Look inside share: links, families of models, a head that goes from page to page."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from transformers import Lfm2ForCausalLM
from transformers.integrations import use_kernel_func_from_hub_with_fallback

from core.pretrained.model_inputs import picture
from core.tasks import digits, task_of
from core.tasks.tables import iris
from core.tasks.text import topics
from dashboard.fields.model import TokenField, choose_head, current_head_of
from dashboard.server.cache import store
from dashboard.ui.models import EMBEDDED, ModelRef
from tests.pages.app import (
    Case,
    assert_case,
    assert_script,
    everything,
    figures,
    open_at,
    page_text,
    query_value,
    set_state,
    visit_cases,
)
from tests.tiny_models import FAMILIES, SENTENCE, build, ids_of, save, tokenizer

ROLE, HEAD = "head_roles:role", "head_roles:head"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")


# Every control of the pages of Look inside is in their links: set each, open the link anew, compare.


CONTROLS: list[tuple[str, str, dict[str, str], list[tuple[str, str, Any, str]]]] = [
    (
        "pretrained",
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
    (
        "inside_weight",
        "numbers",
        {},
        [
            ("selectbox", "inside_weight:kind", "causal", "Decoder"),
            ("segmented_control", "inside_weight:order", "largest", "Largest first"),
            ("text_input", "inside:target", "neun", "neun"),
        ],
    ),
    (
        "evidence",
        "induction",
        {},
        [
            ("selectbox", "evidence:quantity", "logit", "logit"),
            ("multiselect", "evidence:off:induction", ["all of L0"], "all of L0"),
        ],
    ),
    (
        "lens",
        "induction",
        {},
        [
            ("segmented_control", "lens:view", "who", "Who wrote it"),
            ("selectbox", "inside:output:induction", "wolf", "wolf"),
            ("selectbox", "inside:contrast:induction", "river", "river"),
        ],
    ),
    (
        "head_roles",
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
    (
        "corpus",
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
    (
        "generate",
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
    (
        "two_models",
        "numbers",
        {},
        [
            ("segmented_control", "two_models:mode", "models", "Two models"),
            ("toggle", "two_models:nearest", True, "true"),
        ],
    ),
    (
        "use_model",
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
    (
        "generate",
        "induction",
        {"generate:strategy": "Sampling"},
        [
            ("select_slider", "generate:temperature", 0.5, "0.5"),
            ("number_input", "generate:top_k", 3, "3"),
            ("slider", "generate:top_p", 0.5, "0.5"),
            ("slider", "generate:samples", 2, "2"),
            ("number_input", "generate:seed", 7, "7"),
        ],
    ),
]


@pytest.mark.parametrize(("page", "model", "more", "controls"), CONTROLS)
def test_a_link_opens_every_control_as_it_was(page, model, more, controls):
    link = {"inside:model": model} | more
    app = open_at(page, **link)
    for kind, key, value, text in controls:
        getattr(app, kind)(key=key).set_value(value).run()
        assert getattr(app, kind)(key=key).proto.query_param_key == key
        link[key] = text
    again = open_at(page, **link)
    for kind, key, value, _ in controls:
        assert getattr(again, kind)(key=key).value == value


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
    assert (
        query_value(set_state(app, store, app.session_state[store] | {"pin": (4, 1)}), name)
        == "4.1"
    )
    set_state(app, store, app.session_state[store] | {"pin": None})
    assert name not in app.query_params and app.session_state[store]["pin"] is None


# A link opens a model on a page, which says what it reads of it, or why it cannot.


JOBS = {"bert": "The masked word is", "roberta": "The masked word is", "bert_classifier": "The class is",
        "bert_labels": "The class is", "bert_answers": "write the passage that answers it as Sentence B",
        "bert_encoder": "is most similar to", "gpt2": "The next token is", "gpt_oss": "The next token is",
        "t5": "The model writes", "whisper": "The model writes", "vit": "The class is",
        "longformer": "The masked word is", "deberta_v2": "The masked word is", "bloom": "The next token is",
        "bart": "The model writes"}  # fmt: skip
MEASURES = ("Weights", "Written", "Gradient", "Rollout", "Flow", "Measured")
# The page, the model (of the lab, or a family in a folder), the rest of the link; what is said, and what is not
SAYS: list[tuple[str, str, dict[str, str], tuple[str, ...], tuple[str, ...]]] = [
    *(("pretrained", "", {name: value}, ("The link says", "In head L3·H1"), ())
      for name, value in (("head", "6.0"), ("head", "a.b"), ("pin", "999.0"), ("pin", "<b>"))),
    *(("pretrained", model, {}, (f"{model}, ", " takes "), ("The link says",))
      for model in ("numbers", "induction", "only-attention")),
    ("pretrained", "digits", {}, ("digits, ", " takes ", "2,1 is in row 2, column 1"), ()),
    *((page, "mamba", {}, ("State layers, without softmax (L0–1: a selective state space (Mamba; H: groups",), ())
      for page in ("pretrained", "evidence", "head_roles")),
    ("inside_weight", "mamba", {}, ("Left out: state layers, which have no softmax", "Take a model with attention"), ()),
    ("circuits", "mamba", {}, ("has no attention whose matrices can be read",), ()),
    ("lens", "mamba", {}, ("mamba, ", "L1 is a state layer, a selective state space", "is the likeliest from L1 on"), ()),
    ("lens", "mamba", {"lens:view": "Who wrote it"}, ("Sum of all ",), ("in its own code",)),
    ("generate", "mamba", {}, ("State layers, without softmax", "5 samples give"), ()),
    ("pretrained", "big_bird_sparse", {}, ("original", "open that folder"), ()),
    ("inside_weight", "", {"head": "9.1", "cell": "1.1"}, ("0.0 to 5.11", "In head L3·H1, the query the"), ()),
    ("inside_weight", "", {"head": "1.1", "cell": "99.1"}, ("0.0 to 15.15", "In head L1·H1, the query"), ()),
    ("inside_weight", "", {"head": "x", "cell": "1.1"}, ("two whole numbers", "In head L3·H1, the query the"), ()),
    ("inside_weight", "longformer", {}, ("attends within windows", "queries, keys and values", "Use "), ()),
    *(("inside_weight", family, {}, ("b_{ij}", "b is all that the family adds"), ())
      for family in ("bloom", "deberta_v2", "mpt", "xlnet")),
    ("inside_weight", "gpt_neo", {}, ("not at all",), ("b_{ij}",)),
    ("evidence", "gpt_neo", {}, MEASURES, ("Only the weights",)), ("lens", "gpt_neo", {}, ("L1",), ()),
    ("head_roles", "gpt_neo", {"head_roles:view": "Standard tests"}, ("random tokens",), ()),
    ("circuits", "gpt_neo", {"circuits:head": "L1·H2"}, ("Head L1·H2",), ()),
    ("inside_weight", "induction", {"head": "0.0", "cell": "2.5"},
     ("In head L0·H0, ", "but the cell is masked, so its weight is 0", r"-\infty"), ()),
    *(("inside_weight", model, {}, (says,), ()) for model, says in (
        ("induction", "At the same position, rotation changes nothing"), ("induction", "query heads share 2"),
        ("numbers", "q·k"), ("digits", "This weight adds α·v of"), ("gpt2", r"q_i^\top k_j}{\sqrt{D}"),
        ("gemma2", r"\kappa \tanh"), ("gpt_oss", r"e^{\text{sink}}"), ("gemma3", r"c\, q_i^\top k_j"),
        ("gpt_oss", "The rotation also scales both by 1.35"),  # YaRN: 0.1 ln 32 + 1
        ("diffllama", "s_{ij}"), ("diffllama", "the model subtracts a learned share"))),
    ("inside_weight", "t5", {"inside_weight:kind": "Encoder"},
     (r"q_i^\top k_j + b_{ij}", "not at all", "by the distance"), ()),
    ("why_key", "bloom", {"head": "1.1", "cell": "5.3"}, ("is what the model adds for the distance",), ()),
    *(("why_key", model, {}, (says,), ()) for model, says in (
        ("gemma2", "is split before its cap"),
        ("gpt_oss", "A learned sink scores"), ("t5", "By the parts, with all else held"),
        ("vit", "By the parts, with all else held"), ("whisper", "By the parts, with all else held"),
        ("xlnet", "Take a model such as GPT-2"),
        ("longformer", "attends within windows"), ("mamba", "Use "))),
    ("evidence", "induction", {}, ("the probability of the answer river falls from 0.73 to 0.043", "change of 8 heads",
     "of the head's contribution is where it attends", "matters most: hidden, the answer loses", *MEASURES), ()),
    *(("evidence", "bert_encoder", {"inside:text": text}, ("Without L", "matters most: hidden"), ("<script",))
      for text in ("a", "🙂🙂", "<script>alert(1)</script> **x** $y$", "too too too")),
    # Without another sentence an embedding is held against itself.
    ("evidence", "bert_encoder", {"evidence:against": ""}, ("the similarity with itself falls from 1.00",),
     ("estimated change", "Gradient")),
    ("evidence", "bert_encoder", {"inside:text": "  "}, ("write a sentence",), ()),
    ("head_roles", "", {"inside:text": " "}, ("write a sentence",), ()),
    ("evidence", "numbers", {}, ("the logit of the answer sieben", "change of 24 heads", *MEASURES), ()),
    ("evidence", "digits", {}, ("the logit of the class 3", "change of 8 heads", *MEASURES), ()),
    ("evidence", "numbers", {"at": "2"}, ("the logit of the answer drei",), ()),
    ("evidence", "numbers", {"at": "1" * 5000}, ("the logit of the answer",), ()),
    ("evidence", "induction", {"head": "0.2"}, ("In L0·H2, ",), ()),
    ("evidence", "induction", {"head": "9.9"}, ("The link says", "Without L"), ()),
    ("evidence", "induction", {"evidence:output:induction": "king"}, ("the probability of the token king",),
     ("Until then",)),
    ("evidence", "induction", {"evidence:output:induction": "zebra"},
     ("is not in the vocabulary of induction", "Until then, the most likely"), ()),
    ("evidence", "induction", {"evidence:output:induction": "#99999"},
     ("has no token #99999", "Until then, the most likely"), ()),
    ("evidence", "digits", {"evidence:output:digits": "ten"},
     ("has no class “ten”", "Until then, the most likely"), ()),
    ("evidence", "digits", {"evidence:output:digits": "#7"}, ("the logit of the class 7",), ("Until then",)),
    ("evidence", "longformer", {}, ("Only the weights are known here", "Rollout", "matters most: hidden"), ("Written",)),
    ("evidence", "bloom", {}, MEASURES, ("Only the weights",)),
    ("circuits", "bloom", {"circuits:head": "L1·H2"}, ("Head L1·H2",), ()), ("lens", "bloom", {}, ("L1",), ()),
    ("evidence", "gpt_oss", {}, ("sink", "Written", "Without L"), ()),
    ("evidence", "bert", {"inside:text": "[SEP]"}, ("no word that could be masked",), ()),
    ("lens", "all-MiniLM-L6-v2", {}, ("gives no probabilities to tokens", "Use induction", "Use names"), ()),
    ("circuits", "all-MiniLM-L6-v2", {"circuits:head": "L2·H9"},
     ("Head L2·H9", "the query of river matches the key river most", "read through the embedding"), ()),
    ("circuits", "numbers", {}, ("takes from seven",), ()),
    ("circuits", "numbers", {"circuits:token": "seven"}, ("The decoder has no embedding of “seven”",), ()),
    ("circuits", "llama", {"circuits:head": "L1·H5"}, ("6 query heads share 2", "Head L1·H5"), ()),
    ("circuits", "t5", {"circuits:head": "cross L1·H2"}, ("Special tokens", "Head cross L1·H2"), ()),
    ("circuits", "vit", {"circuits:head": "L1·H2"}, ("It reads no tokens", "Head L1·H2"), ()),
    ("circuits", "qwen3", {"circuits:head": "L1·H5"}, ("normalizes queries", "Head L1·H5"), ("no QK",)),
    ("circuits", "deepseek_v3", {}, ("there is no QK circuit", "normalizes queries, keys or values"), ()),
    ("circuits", "only-attention", {"circuits:text_b:only-attention": "the dark"}, ("write texts of equal length",), ()),
    ("circuits", "only-attention", {"circuits:edge": "L1·H3 → answer"}, ("Text B along L1·H3 → answer alone",), ()),
    ("circuits", "induction", {}, ("L0·H3 → K of L1·H3 moves the lead most", "such stand out",
     "the other heads make up for it", "In three models"), ("counts all its paths",)),
    ("circuits", "names", {"circuits:paths": "60"}, ("All 29 edges", "the 29 strongest measured"), ()),
    ("circuits", "llama", {}, ("No edge between two heads stands out",), ()),
    ("circuits", "gemma2", {}, ("gives the same answer to both texts",), ("add up",)),
    ("circuits", "bloom", {}, ("computes attention in code of its own", "Take a decoder"), ()),
    ("circuits", "all-MiniLM-L6-v2", {}, ("Paths are followed in a model that reads a text and writes",), ()),
    ("head_roles", "induction", {"head_roles:view": "Syntax"}, ("knows the words of 0 of the 179 sentences",), ()),
    ("head_roles", "digits", {"head_roles:view": "Standard tests"}, ("no tokens to repeat",), ()),
    ("head_roles", "digits", {}, ("30 handwritten digits", "In this picture"), ("one per line",)),
    ("head_roles", "whisper", {}, ("measured on the input above", "In this sound"), ()),
    ("generate", "", {"inside:text": " "}, ("nothing to read yet",), ()),
    ("generate", "", {"inside:text": "the king " * 200}, ("fills all",), ()),
    ("generate", "all-MiniLM-L6-v2", {}, ("generates no text",), ()),
    ("generate", "digits", {}, ("generates no text",), ()),
    ("generate", "", {"generate:strategy": "Beam"}, ("A beam of 4 ranks",), ()),
    ("generate", "", {"generate:strategy": "Sampling"}, ("5 samples give",), ()),
    ("generate", "", {"head": "0.1"}, ("Head L0·H1 takes",), ()),
    ("generate", "", {"head": "x"}, ("expected two whole numbers",), ()),
    ("generate", "", {"head": "9999.1"}, ("here these run from 0.0",), ()),
    ("generate", "", {"at": "9999.1"}, ("here these run from 0.0",), ()),
    *(("two_models", name, {"two_models:mode": mode}, (words,), ()) for name, mode, words in (
        ("all-MiniLM-L6-v2", "Two models", "pieces are merged into words"),
        ("all-MiniLM-L6-v2", "Two models", "the most similar head of B"),
        ("numbers", "Two texts", "rows are in both"), ("numbers", "Two models", "in model B"),
        ("numbers", "Trained and untrained", "in the untrained model"),
        ("induction", "Two texts", "rows are in both"),
        ("induction", "Trained and untrained", "in the untrained model"),
        ("digits", "Two pictures", "in picture B"), ("digits", "Trained and untrained", "in the untrained model"),
        ("digits", "Two models", "two models are compared on one text"))),
    ("two_models", "induction", {"two_models:text:induction": "the old"}, ("write texts of equal length",), ()),
    ("two_models", "induction", {"two_models:answer:A:induction": "zebra"}, ("is not in the vocabulary",), ()),
    ("two_models", "numbers", {"two_models:mode": "Two models", "two_models:model:numbers": "all-MiniLM-L6-v2"},
     ("numbers and all-MiniLM-L6-v2",), ()),
    *(("use_model", family, {}, (says,), ()) for family, says in JOBS.items()),
    ("use_model", "bert_answers", {"inside:second": "A boat."}, ("The answer is",), ("write the passage",)),
    ("use_model", "bert_labels", {"use_model:word": "2"}, ("The likeliest label of each token", "LABEL_"), ()),
    ("evidence", "bert_labels", {"at": "2"}, ("of the class LABEL_", *MEASURES), ()),
    ("evidence", "bert_answers", {}, ("of the answer ", *MEASURES), ()),
    *(("use_model", "numbers", {"use_model:word": word}, (f"For {token}, head",), ())
      for word, token in (("1", "tausend"), ("77777", "und"), ("x", "und"))),
    ("pretrained", "", {"pretrained:special": "true"}, ("Special tokens are hidden", "divided by what is left"), ("CLS",)),
    ("pretrained", "", {"inside:text": "Tokenization of unbelievable things.", "pin": "1.2", "pretrained:words": "true"},
     ("Pieces of a word are merged", "tokenization"), ()),
    ("pretrained", "", {"head": "0.2", "pin": "6.8_10.9"}, ("In head L0·H2, it takes", "from because", "cross → street"), ()),
    ("evidence", "digits", {}, ("before the softmax) of the class 3 falls from", "The most likely has a probability of 0.9"),
     ("Minus the logit of",)),
    ("evidence", "digits", {"evidence:quantity": "probability"}, ("the probability of the class 3",), ("changes little",)),
    ("evidence", "digits", {"evidence:quantity": "logit difference", "evidence:output:digits": "5"},
     ("the logit of the class 5 minus that of 3",), ()),
    ("evidence", "digits", {"evidence:quantity": "logit difference", "evidence:output:digits": "5",
                            "evidence:contrast:digits": "8"}, ("the logit of the class 5 minus that of 8",), ()),
    ("lens", "induction", {"at": "3", "lens:layer:induction": "L0", "lens:output:induction": "king"},
     ("At king, king is not the likeliest at the end: its rank is", "What L0 takes from", "L0·H3"), ("L1·H0",)),
    ("lens", "induction", {"lens:tokens:induction": "zzz"}, ("“zzz” is not in the vocabulary of induction",), ()),
    ("lens", "induction", {"inside:text": "the old king walked to the dark river . " * 12, "at": "50"},
     ("Tokens 32 to 95 of 97, around", "At to, the is the likeliest"), ()),
    ("lens", "numbers", {}, ("sieben is the likeliest from L1 on", "The layers are those of the decoder", "cross"), ()),
    ("lens", "numbers", {"lens:view": "Who wrote it"}, ("by cross L1·H3", "Sum of all 31 parts"), ()),
    ("lens", "induction", {"lens:view": "Who wrote it", "lens:contrast:induction": "wolf", "head": "0.1"},
     ("minus that of wolf", "What L0·H1 takes from"), ()),
    ("lens", "bert", {"inside:text": "The street was late."}, ("At [MASK,",), ()),
    ("lens", "bert", {"inside:text": "The street was late.", "lens:view": "Who wrote it"},
     ("Sum of all", "the gates of the activation before the unembedding, are held"), ()),
    ("circuits", "", {"circuits:head": "L0·H1", "circuits:kind": "V: values", "circuits:edges": "3",
                      "circuits:token": "King"},
     ("Where L0·H1 takes from King", "the query of King matches", "No head that it reads comes before it",
      "No head takes its values from an earlier one more than random matrices would"), ()),
    ("circuits", "", {"circuits:token": "zyzzyva"}, ("has no token for “zyzzyva”", "takes from river"), ()),
    ("circuits", "names", {"circuits:kind": "K: keys"},
     ("L1·H0 brings back 100\u00a0% of the difference. It takes 0.97 from “ben”",
      "L0·H1 brings back 88\u00a0% of the difference. It takes 0.99 from “dogs”",
      "No head takes its keys from an earlier one more than random matrices"), ()),
    ("head_roles", "induction", {"head_roles:view": "Standard tests"}, ("L1·H2 takes 0.97 ±",), ()),
    ("head_roles", "", {"head_roles:view": "Standard tests"}, ("On random tokens that repeat, L2·H9 takes",), ()),
    ("head_roles", "", {"head_roles:view": "Standard tests", "head_roles:test": "Previous token",
                        "head_roles:tested": "L2·H11"}, ("L2·H11 takes", "L0·H2 has the highest score"), ()),
    ("head_roles", "", {"head_roles:view": "Standard tests", "head_roles:test": "Successor", "head_roles:order": "days"},
     ("No head of this model is a successor head.", "This model has no unembedding"), ()),
    ("corpus", "induction", {"corpus:head": "L0·H2"}, ("from the token before, the mean over",), ()),
    ("corpus", "induction", {"corpus:head": "L0·H2", "corpus:measure": "Distance", "corpus:view": "Typical"},
     ("L0·H2: its distance is", "decile"), ()),
    ("corpus", "induction", {"corpus:head": "L0·H2", "corpus:view": "Queries and keys"},
     ("queries and keys of L0·H2 from the first 5 texts",), ()),
    ("generate", "numbers", {"inside:text": "forty-seven"},
     ("sieben und vier zig", "What each new token takes from the source", '"show": "both"'), ()),
    ("generate", "numbers", {"generate:kind": "What was said"}, ("new token takes from the text",), ()),
    ("two_models", "all-MiniLM-L6-v2", {"two_models:text:all-MiniLM-L6-v2": SENTENCE},
     ("Overlap 1.00", "One weight differs by 0.25 in 0 of 72"), ()),
    *(("two_models", name, {}, (f"head {head} brings back",), ("unk",)) for name, head in (
        ("all-MiniLM-L6-v2", "L5·H9"), ("induction", "L1·H2"), ("only-attention", "L0·H2"), ("names", "L1·H0"),
        ("numbers", "cross L1·H3"))),
    ("use_model", "", {"inside:text": "  "}, ("nothing to read",), ()),
    ("use_model", "", {"use_model:more": "A tired animal stayed on its side of the street.\n\n"},
     ("stayed on its side", "all 1 pairs"), ()),
    ("use_model", "", {"use_model:more": "\n".join(f"Sentence {i}." for i in range(30))}, ("at most 12",), ()),
    ("use_model", "", {"use_model:more": " "}, ("nothing to compare with",), ()),
    ("use_model", "induction", {}, ("The next token is river with", "none of 8 heads changes it more"), ()),
    ("use_model", "digits", {}, ("The class is 3", "the patch in row"), ()),
    ("use_model", "", {"head": "2.3"}, ("Head L2·H3", "picked here; L5·H11 is the one on which"), ()),
    ("use_model", "digits", {"inside:picture": "Digit 7"}, ("The class is 7",), ()),
    ("use_model", "numbers", {"inside:target": "neun und", "inside:text": "forty-seven"},
     ("The model reads your target neun und",), ()),
    ("use_model", "numbers", {"inside:target": "neun und", "inside:text": "forty-seven", "use_model:word": "0"},
     ("For sieben, head",), ()),
    ("fine_tune", "", {"fine_tune:task": "Pairs of sequences"},
     ("sequence accuracy is", "10 words were not in its vocabulary", "sieben tausend drei hundert vier", "7 3 0 4"), ()),
    ("use_model", "bert", {"inside:text": "[SEP]"}, ("no word that could be masked",), ()),
]  # fmt: skip


FINE_TUNED = "two_models:model:induction"
WHO = {"lens:view": "Who wrote it"}
# The same where something is done there first
DOES: list[tuple[str, str, Case]] = [
    # Another answer depends on other heads.
    *(
        (
            page,
            "induction",
            Case(
                {name: pair}, do=[("text_input", "inside:text", "the old king")], query={name: None}
            ),
        )
        for page, name, pair in (("evidence", "pin", "3.2"), ("use_model", "head", "1.1"))
    ),
    # A notice tells what is brought back, so that is what the picture shows
    (
        "two_models",
        "induction",
        Case(
            {"two_models:direction": "Take away: from B into A"},
            ["brings back"],
            ["takes away"],
            do=[("button", "two_models:try:0", None)],
            controls={"two_models:direction": "denoise"},
        ),
    ),
    (
        "evidence",
        "numbers",
        Case(
            {"at": "2"},
            ["the logit of the answer hundert"],
            do=[("text_input", "inside:text", "seven hundred")],
            query={"at": None},
        ),
    ),
    (
        "evidence",
        "induction",
        Case(
            {"evidence:off:induction": ["all of L0", "all of L1"]},
            ["Together they help the answer by +0.73; one at a time, by +2.13 in all"],
        ),
    ),
    # A link with an earlier name
    (
        "two_models",
        "induction",
        Case(
            {"two_models:mode": "Two models", FINE_TUNED: "Fine-tuned: numbers, kept"},
            controls={FINE_TUNED: "Fine-tuned: numbers, example"},
        ),
    ),
    (
        "lens",
        "numbers",
        Case(
            WHO,
            ["What cross L1·H2 takes from"],
            do=[("selectbox", "lens:head:numbers", "cross L1·H2")],
        ),
    ),
]


@pytest.fixture(scope="session")
def families(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("families")


def model_at(model: str, families: Path) -> dict[str, str]:
    """The link to a model of the lab, or to a family's, which is saved once and loaded by the first page."""
    if model in FAMILIES:
        folder = families / model
        return {"inside:model": str(folder if folder.exists() else save(model, folder))}
    return {"inside:model": model} if model else {}


# One model after the other, since a server keeps eight.
CASES: list[tuple[str, str, Case]] = [(row[0], row[1], Case(*row[2:])) for row in SAYS] + DOES
CASES.sort(key=lambda case: case[1])


@pytest.mark.parametrize(
    ("page", "model", "case"),
    CASES,
)
def test_a_page_says_what_it_reads_or_why_it_cannot(page, model, case, families):
    assert_case(open_at(page, **model_at(model, families), **case.link), case)


# As on a slow machine: the first few are measured, the rest once it is asked for, and then for all sessions.


@pytest.mark.parametrize(("page", "model", "link", "name", "first", "then"), [
    ("circuits", "t5", {}, "circuits:measured", "1 of 6 layers measured", "Best composition"),
    ("head_roles", "only-attention", {"head_roles:view": "Standard tests"}, "head_roles:lines",
     "1 of 8 lines of random tokens measured", "8 lines of 25 different random tokens"),
    ("corpus", "only-attention", {"corpus:view": "Queries and keys"}, "corpus:vectors", "from the first 1 texts",
     "from the first 8 texts"),
    ("lens", "induction", {}, "lens:read", "1 of 3 parts measured", "is the likeliest from L1 on"),
    ("lens", "induction", WHO, "lens:attributed", "1 of 3 passes measured", "Sum of all 13 parts"),
    ("use_model", "induction", {}, "use_model:heads", "1 of 8 heads measured", "none of 8 heads changes it more"),
    ("evidence", "digits", {}, "evidence:heads", "1 of 10 heads and layers measured",
     "the largest change of 8 heads")])  # fmt: skip
def test_a_large_model_waits_for_a_press(
    page, model, link, name, first, then, families, monkeypatch
):
    for key in [key for key in store().entries if key[1][0] == name]:
        del store().entries[key]  # what an earlier test measured is measured again
    monkeypatch.setattr("dashboard.page.UNASKED", 0)
    monkeypatch.setattr("dashboard.ui.progress.AT_ONCE", 0)
    monkeypatch.setattr("dashboard.ui.progress.TIMED", 1)
    monkeypatch.setattr("core.interpret.lens.CELLS", 1)  # a part a layer
    link = link | model_at(model, families)
    app = open_at(page, **link)
    assert first in everything(app) and then not in everything(app)
    app.button(key=f"{name}:go").click().run()
    for one in (app, open_at(page, **link)):
        assert then in everything(one) and f"{name}:go" not in [each.key for each in one.button]


# Every family, opened as a folder on the page that draws all heads.


@pytest.mark.parametrize(
    ("family", "sentence", "pages"),
    [
        ("deepseek_v3", "deepseek_v3, 13 tokens", ()),
        ("longformer_classifier", "15 tokens (2 special)", ()),
        ("bloom", "13 tokens", ()),
        ("diffllama", "the model subtracts a learned share", ()),
        ("t5", "columns: 17 tokens", ()),
        ("vit", "10 tokens (1 special)", ("evidence", "two_models", "use_model")),
        ("whisper", "columns: 50 tokens", ("lens", "circuits")),
        (
            "gpt_oss",
            "columns: 14 tokens (1 special). A learned sink",
            ("evidence", "lens", "circuits", "head_roles"),
        ),
        ("bert", "tokens", ("evidence", "lens", "use_model")),
        ("bert_labels", "tokens", ("evidence", "two_models", "use_model")),
        ("bert_answers", "tokens", ("evidence", "two_models", "use_model")),
        ("bart", "15 tokens (2 special)", ("inside_weight", "generate")),
    ],
)
def test_the_pages_of_a_family_show_its_heads(families, family, sentence, pages):
    link = model_at(family, families)
    app = open_at("pretrained", **link)
    assert "In head L" in page_text(app) and page_text(app).count(sentence) == 1
    for one in (app, *(open_at(page, **link) for page in pages)):
        assert_script(one)


# A head that is picked on one page of Look inside is the one that the next page shows.


INDUCTION = {"inside:model": "induction"}
test_a_head_that_was_picked_goes_from_page_to_page = visit_cases(
    {
        "and is in the link of each": [
            ("inside_weight", Case(says=["L1·H3</b>"])),
            ("pretrained", Case(says=["L1·H3</b>"])),
            ("pretrained", Case({"head": "0.2"})),
            ("inside_weight", Case(says=["L0·H2</b>"], query={"head": "0.2"})),
            ("", Case(do=[("selectbox", "inside_weight:head", "L0·H1")])),
            *(
                (page, Case(says=["L0·H1</b>"]))
                for page in ("evidence", "two_models", "pretrained")
            ),
            (
                "head_roles",
                Case(controls={HEAD: "L0·H1", ROLE: "previous"}, query={HEAD: "L0·H1"}),
            ),
            # another role begins with its own head, which nobody picked
            ("", Case(do=[("selectbox", ROLE, "induction")])),
            ("", Case(do=[("session_state", "again", 1)], controls={HEAD: "L1·H2"})),
            ("pretrained", Case(says=["L0·H1</b>"])),
        ]
    },
    INDUCTION,
)


# For each page of Look inside with heads, its field of a head; pages on a corpus or on weights alone read no text.
HEAD_FIELDS = {
    "inside_weight": "inside_weight:head",
    "head_roles": HEAD,
    "circuits": "circuits:head",
    "corpus": "corpus:head",
    "evidence": "evidence:head:induction",
    "lens": "lens:head:induction",
    "two_models": "two_models:head",
}


READ, READERS = (
    {"inside:text": "the old dog walked . the old dog"},
    ("evidence", "lens", "two_models"),
)
test_every_page_shows_one_model_one_text_and_one_head = visit_cases(
    {
        f"of {first}": [
            ("pretrained", Case(READ | WHO)),
            # another one first: a page may begin with this head
            (first, Case(do=[("selectbox", HEAD_FIELDS[first], f"L{one}·H0") for one in (1, 0)])),
            *(
                (page, Case(WHO, controls={key: "L0·H0"} | (READ if page in READERS else {})))
                for page, key in HEAD_FIELDS.items()
            ),
            ("pretrained", Case(says=["L0·H0</b>"], controls=READ)),
        ]
        for first in sorted(HEAD_FIELDS.keys() - {"lens"})
    },
    INDUCTION,
)


def test_another_model_and_another_kind_have_other_heads(monkeypatch):
    monkeypatch.setattr("streamlit.session_state", {})
    choose_head(EMBEDDED, "self", (4, 7))
    assert current_head_of(EMBEDDED, "self", (6, 12)) == (4, 7)
    assert current_head_of(EMBEDDED, "cross", (6, 12)) is None
    assert current_head_of(EMBEDDED, "self", (6, 7)) is None, "a smaller model"
    assert current_head_of(ModelRef("lab", "numbers"), "self", (6, 12)) is None


def test_a_link_names_a_word_by_its_number():
    word = TokenField("Word", {0: "one", 1: "0"}, 0, link="word")
    assert [word.value_of(text, None) for text in "01"] == [0, 1]


def test_positions_are_a_list_by_their_texts():
    app = open_at("lens", "inside:", model="induction", text="the old king")
    place = next(one for one in app.selectbox if one.label == "Answer at position")
    assert place.options[-1].endswith(" · after king")


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
    written = [str((box.value, box.options)) for box in app.selectbox]
    written += [page_text(app), *(part.proto.spec for part in figures(app))]
    found = re.findall(r'\bL(\d+)·H\d|"layer": ?"L?(\d)"', " ".join(written))
    return {int(layer) for one in found for layer in one if layer}


ALL, ATTEND = {0, 1, 2, 3, 4}, {2, 4}  # layers of the hybrid; the others are short convolutions


@pytest.mark.parametrize(
    ("page", "link", "some"),
    [
        ("head_roles", {}, ALL),
        ("head_roles", {HEAD: "L4·H1"}, ALL),
        ("circuits", {}, ATTEND),
        ("two_models", {"two_models:mode": "Trained and untrained"}, ALL),
        (
            "two_models",
            {"two_models:mode": "Two texts", "inside:text": "xx qq", "two_models:text:{}": "xx zz"},
            ALL,
        ),
        ("use_model", {}, {0}),
    ],
)
def test_pages_call_layers_by_the_model_s_numbers(hybrid, page, link, some):
    named = {name.format(hybrid): value for name, value in link.items()}
    most = ATTEND if page == "circuits" else ALL
    assert some <= layers_of(open_at(page, **{"inside:model": hybrid}, **named)) <= most


def test_patching_says_which_layers_have_no_softmax(hybrid):
    link = {"inside:model": hybrid, "two_models:mode": "Two texts", "inside:text": "xx qq"}
    app = open_at("two_models", **link, **{f"two_models:text:{hybrid}": "xx zz"})
    said = "State layers, without softmax (L0–1, 3: a short convolution (H: groups of channels))"
    assert said in page_text(app)


def test_text_b_follows_text_a_until_a_person_writes_it():
    key, same = "two_models:text:induction", "Text B is text A so far"
    app = open_at("two_models", **{"inside:model": "induction"})
    example = app.text_input(key=key).value
    assert example and same not in page_text(app)
    for typed in ("the old king walked", "the dark house"):
        app.text_input(key="inside:text").set_value(typed).run()
        assert app.text_input(key=key).value == typed and same in page_text(app)
    app.text_input(key=key).set_value("the cold river").run()
    app.text_input(key="inside:text").set_value("the old river").run()
    assert app.text_input(key=key).value == "the cold river" and same not in page_text(app)


def test_a_page_says_that_kernels_wait_for_a_gpu(hybrid, monkeypatch):
    said = "the kernels of causal_conv1d, which are installed here, need a GPU"
    assert said not in page_text(open_at("pretrained"))
    store().entries.clear()  # of the models that were loaded
    kernels = SimpleNamespace(causal_conv1d_fn=lambda *_, **__: pytest.fail("ran on the CPU"))
    monkeypatch.setitem(sys.modules, "causal_conv1d", kernels)
    home = sys.modules[Lfm2ForCausalLM.__module__]
    take = use_kernel_func_from_hub_with_fallback("causal_conv1d_fn", "causal_conv1d")
    own = getattr(home.causal_conv1d_fn, "args", [home.causal_conv1d_fn])[0]  # what is recorded
    monkeypatch.setattr(home, "causal_conv1d_fn", take(own))
    app = open_at("pretrained", **{"inside:model": hybrid})
    assert said in page_text(app) and "L0–1, 3: a short convolution" in page_text(app)
    other = ModelRef("folder", hybrid)
    monkeypatch.setattr("dashboard.page.local_models", lambda: (other,))
    link = {"two_models:mode": "Two models", "two_models:model:writer": other.written}
    assert said in page_text(open_at("two_models", **link)), "of the second model, too"


@pytest.mark.parametrize(("page", "link", "file"), [
    ("pretrained", {"inside:model": "digits"}, "digits.csv.gz"),
    ("train", {"train:task": "iris"}, "iris.csv"),
    ("train", {"train:task": "topics"}, "topics.json"),
])  # fmt: skip
def test_a_page_says_that_data_was_changed(page, link, file, monkeypatch):
    for load in (picture, iris, digits, topics, task_of):
        load.cache_clear()
    whole = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda self: b"changed" if self.name == file else whole(self)
    )
    app = open_at(page, **link)
    said = " ".join(part.value for part in [*app.info, *app.error, *app.warning])
    assert f"{file} is not the data" in said.replace("\\", "") and not app.exception
