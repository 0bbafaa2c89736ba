"""A tiny encoder and a tiny encoder–decoder in folders of their own, so that a whole run takes a second."""

import gc
from pathlib import Path

import pytest
import torch
import transformers
from streamlit.testing.v1 import AppTest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dashboard.server import jobs
from tests.pages.app import app_at

WORDS = (
    "red",
    "blue",
    "green",
    "one",
    "two",
    "three",
    "four",
    "dog",
    "cat",
    "sun",
    "is",
    "the",
    "not",
)


def small_model(folder, kind, config, **marks) -> Path:
    """The folder, with a model of a few words and its tokenizer in it."""
    vocab = {word: place for place, word in enumerate((*marks.values(), *WORDS))}
    made = Tokenizer(models.WordLevel(vocab, marks["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = ("[CLS]", "[SEP]") if "cls_token" in marks else ("</s>",)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]" if "cls_token" in marks else "$A </s>",
        special_tokens=[(sign, vocab[sign]) for sign in ends],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **marks)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    model = getattr(transformers, kind)
    model(model.config_class(vocab_size=len(vocab), **config)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def _imported():
    """Each training collects garbage at its start and end, which shall not go through all that was imported."""
    from transformers import Trainer  # noqa: F401

    gc.freeze()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory, _imported) -> Path:
    """A BERT of 2 layers × 3 heads that knows a few words."""
    config = dict(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    return small_model(
        tmp_path_factory.mktemp("encoder"),
        "BertModel",
        config,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


@pytest.fixture(scope="session")
def translator(tmp_path_factory, _imported) -> Path:
    """A BART of 1 + 1 layers × 2 heads that knows a few words."""
    config = dict(
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=24,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        dropout=0.0,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    return small_model(
        tmp_path_factory.mktemp("translator"),
        "BartForConditionalGeneration",
        config,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )


@pytest.fixture(scope="session")
def colours() -> str:
    """Rows whose label is the colour in them, wherever it stands."""
    others = [w for w in WORDS if w not in ("red", "blue")]
    rows = [f"the {other} is {colour},{colour}y" for other in others for colour in ("red", "blue")]
    rows += [f"{colour} is the {other},{colour}y" for other in others for colour in ("red", "blue")]
    return "text,label\n" + "\n".join(rows)


@pytest.fixture
def page(monkeypatch):
    """Opens the Fine-tune page with what the session holds, in a lab of its own without workers."""
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "_give", lambda run: None)

    def open_page(model: str = "", **state) -> AppTest:
        app = app_at("fine_tune")
        picked = {"inside:model": model, "inside:picked": True} if model else {}
        for key, value in {**picked, **state}.items():
            app.session_state[key] = value
        return app.run()

    return open_page
