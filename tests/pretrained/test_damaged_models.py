"""Model folders whose settings are put wrong by hand; tests/fuzz does it at random."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
from safetensors import safe_open

from core.models.decoding import SearchSettings
from core.pretrained import PretrainedError, load_folder, read
from core.pretrained.base import first_line
from core.pretrained.generate import generate
from core.pretrained.hub import check_folder
from core.pretrained.load import MAX_PARTS, counts
from tests.cases import each
from tests.tiny_architectures import CONFIG_MAPPING, default
from tests.tiny_models import given, save


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in ("bert", "gpt2")}


def test_models_that_load_at_once_are_whole_and_leave_the_library_as_it_was(folders):
    """transformers replaces `tie_weights` of all models while it loads one, and puts back what it found."""
    tie_weights = transformers.PreTrainedModel.tie_weights
    try:
        with ThreadPoolExecutor(4) as pool:
            models = list(pool.map(load_folder, [*folders.values()] * 8, [*folders] * 8))
        assert transformers.PreTrainedModel.tie_weights is tie_weights
    finally:
        transformers.PreTrainedModel.tie_weights = tie_weights
    assert len(models) == 8 * len(folders)


PATTERN = {
    "type": "Split",
    "pattern": {"Regex": "(a+a+)+$|(?=(\\w+)+!)x"},
    "behavior": "Isolated",
    "invert": False,
}


@pytest.mark.parametrize(("change", "words"), [
    ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1,000,000"), ({"vocab_size": 10**8}, "asks for"),
    ({"num_hidden_layers": 10**400}, "more than 10^18"), ({"hidden_size": 0}, "cannot be loaded"),
    ({"num_attention_heads": "3"}, "num_attention_heads"),
    ({"num_attention_heads": -3}, "num_attention_heads = -3; expected 1 or more"),
])  # fmt: skip
def test_a_config_that_does_not_fit_its_weights_is_refused_before_a_model_is_built(
    change, words, folders, tmp_path
):
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | change
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(PretrainedError) as refused:
        load_folder(folder, "damaged")
    assert words in str(refused.value)


def test_no_config_with_the_defaults_of_its_class_has_too_many_parts():
    for model_type, kind in CONFIG_MAPPING.items():
        assert all(count <= max(usual, MAX_PARTS) for _, count, usual in counts(default(kind))), (
            model_type
        )


@each(
    ("field", "past"), [("num_experts", True), ("num_hidden_layers", True), ("pad_token_id", False)]
)
def test_a_count_past_the_default_of_its_class_is_seen_in_every_part(field, past):
    doge = CONFIG_MAPPING["doge"]
    for config in (
        doge(**{field: 10**6}),
        CONFIG_MAPPING["llava"](text_config=doge(**{field: 10**6})),
    ):
        found = [
            (name, count) for name, count, usual in counts(config) if count > max(usual, MAX_PARTS)
        ]
        assert found == [(field, 10**6)] * past


def test_a_panic_in_the_tokenizer_is_a_sentence(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["pre_tokenizer"] = PATTERN
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PretrainedError, match="cannot read this"):
        read(load_folder(folder, "damaged"), f"{'a' * 5000}!")


def test_a_token_past_the_vocabulary_in_the_settings_of_generation_is_a_sentence(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    (folder / "generation_config.json").write_text(
        json.dumps({"forced_eos_token_id": 10**6}), encoding="utf-8"
    )
    with pytest.raises(PretrainedError, match="do not fit its vocabulary"):
        generate(load_folder(folder, "damaged"), given("gpt2"), SearchSettings(longest=2))


def test_a_folder_without_a_vocabulary_says_which_files_it_lacks(folders, tmp_path):
    folder = shutil.copytree(
        folders["bert"], tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer.json")
    )
    with pytest.raises(
        PretrainedError, match=r"has no tokenizer: none of the files .*tokenizer\.json"
    ):
        load_folder(folder, "damaged")


def test_an_error_that_lists_is_quoted_past_its_colon():
    assert first_line(ValueError("Expected one of:\n(1) a file,\n(2) a folder.")) == (
        "Expected one of: (1) a file, (2) a folder."
    )


@pytest.fixture
def parts(folders, tmp_path):
    """A folder whose weights are one shard and its index."""
    folder = shutil.copytree(folders["bert"], tmp_path / "parts")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    with safe_open(folder / "model-00001-of-00001.safetensors", framework="pt") as weights:
        keys = list(weights.keys())

    def index(file):
        (folder / "model.safetensors.index.json").write_text(
            json.dumps(
                {
                    "metadata": {},
                    "weight_map": {
                        **dict.fromkeys(keys, "model-00001-of-00001.safetensors"),
                        keys[0]: file,
                    },
                }
            ),
            encoding="utf-8",
        )
        return folder

    return index


DOORS = {
    "load_folder": lambda folder: load_folder(folder, "parts"),
    "text": lambda folder: load_folder(str(folder), "parts"),
    "page": lambda folder: check_folder(str(folder), 10**9),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_index_leads_to_the_shards_beside_it_alone(door, parts, tmp_path):
    DOORS[door](parts("model-00001-of-00001.safetensors"))
    torch.save({}, tmp_path / "parts" / "pytorch_model.bin")
    for file in ("pytorch_model.bin", "../model-00001-of-00001.safetensors", "/etc/passwd", 3):
        with pytest.raises(PretrainedError, match="an index that names"):
            DOORS[door](parts(file))
    (tmp_path / "parts" / "model.safetensors.index.json").write_text("[]", encoding="utf-8")
    with pytest.raises(PretrainedError, match="no model.safetensors.index.json that can be read"):
        DOORS[door](tmp_path / "parts")


@pytest.mark.skipif(os.name != "posix", reason="needs a device file")
@each(
    "name",
    [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "chat_template.jinja",
        "emoji.json",
        "vocab.bpe",
        "additional_chat_templates/a.jinja",
        "whatever",
    ],
)
@each("door", DOORS)
def test_only_regular_files_are_opened(door, name, folders, tmp_path_factory):
    folder = shutil.copytree(folders["gpt2"], tmp_path_factory.mktemp("device") / "model")
    (folder / name).unlink(missing_ok=True)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(
        PretrainedError, match=rf"{name}.* (not|other than) a regular file|no config.json"
    ):
        DOORS[door](folder)


@each(
    "name",
    ["tokenizer.json", "chat_template.jinja", "dict.txt", "additional_chat_templates/a.jinja"],
)
@each("door", DOORS)
def test_what_is_read_beside_the_weights_is_bounded(door, name, folders, tmp_path_factory):
    folder = shutil.copytree(folders["gpt2"], tmp_path_factory.mktemp("large") / "model")
    (folder / name).parent.mkdir(exist_ok=True)
    with open(folder / name, "wb") as file:
        file.truncate(300_000_000)  # a sparse file
    with pytest.raises(PretrainedError, match=r"300,000,000 bytes; at most 256,000,000 are read"):
        DOORS[door](folder)
