"""Model folders whose settings are put wrong by hand; tests/fuzz does it at random."""

import json
import shutil

import pytest

from core.pretrained import PretrainedError, load_folder, read
from core.pretrained.generate import SearchSettings, generate
from tests.tiny_models import given, save


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in ("bert", "gpt2")}


PATTERN = {"type": "Split", "pattern": {"Regex": "(a+a+)+$|(?=(\\w+)+!)x"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(("change", "words"), [
    ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1,000,000"), ({"vocab_size": 10**8}, "asks for"),
    ({"num_hidden_layers": 10**400}, "more than 10^18"), ({"hidden_size": 0}, "cannot be loaded"),
    ({"num_attention_heads": "3"}, "num_attention_heads"),
])  # fmt: skip
def test_a_config_that_does_not_fit_its_weights_is_refused_before_a_model_is_built(change, words, folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | change
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(PretrainedError) as refused:
        load_folder(folder, "damaged")
    assert words in str(refused.value)


def test_a_panic_in_the_tokenizer_is_a_sentence(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["pre_tokenizer"] = PATTERN
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PretrainedError, match="cannot read this"):
        read(load_folder(folder, "damaged"), f"{'a' * 5000}!")


def test_a_token_past_the_vocabulary_in_the_settings_of_generation_is_a_sentence(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"forced_eos_token_id": 10**6}), encoding="utf-8")
    with pytest.raises(PretrainedError, match="do not fit its vocabulary"):
        generate(load_folder(folder, "damaged"), given("gpt2"), SearchSettings(longest=2))
