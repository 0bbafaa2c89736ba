"""Model folders and array files whose headers and settings are put wrong: read, or refused in one short sentence."""

import io
import json
import random
import resource
import shutil
import zipfile

import numpy as np
import pytest

from core.pretrained import PretrainedError, load_folder, read
from core.pretrained.arrays import read_arrays
from core.pretrained.generate import SearchSettings, generate
from tests.cases import each
from tests.damage import damaged
from tests.tiny_models import given, save

CASES, ARRAYS, LONGEST = 60, 60, 600
NUMBERS = (0, -1, 3, 10**5, 2**31, 2**40, 10**9, 0.5, None, "x", [1])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in ("bert", "gpt2", "t5", "vit")}


def refused_in_words(work):
    """What the work gives, or None where it was refused in words."""
    try:
        return work()
    except PretrainedError as error:
        assert 20 < len(str(error)) <= LONGEST
        return None


def spoil(folder, rng):
    """Change one file of a model: its config, its tokenizer, its settings, or the header of its weights."""
    file = rng.choice([folder / "config.json", *sorted(folder.glob("*.json")), folder / "model.safetensors"])
    data = file.read_bytes()
    if file.suffix == ".json":
        content = json.loads(data)
        sizes = [key for key, value in content.items() if isinstance(value, int)]
        if file.name == "config.json" and rng.random() < 0.5:
            content[rng.choice(sizes)] = rng.choice(NUMBERS)
        else:
            content = damaged(content, rng, rng.choice((1, 2)))
        file.write_text(json.dumps(content), "utf-8")
    else:
        length = int.from_bytes(data[:8], "little")
        header = json.dumps(damaged(json.loads(data[8:8 + length]), rng)).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length:])


@pytest.mark.parametrize("seed", range(CASES))
def test_a_damaged_folder_is_read_or_refused_in_words(seed, folders, tmp_path):
    rng = random.Random(seed)
    family = rng.choice(list(folders))
    folder = shutil.copytree(folders[family], tmp_path / "model")
    spoil(folder, rng)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def work():
        pretrained = load_folder(folder, "damaged")
        if pretrained.head in ("next", "seq2seq"):
            generate(pretrained, given(family), SearchSettings(longest=2))
        return read(pretrained, given(family))

    refused_in_words(work)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB


PATTERN = {"type": "Split", "pattern": {"Regex": "(a+a+)+$|(?=(\\w+)+!)x"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(("change", "words"), [
    ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1,000,000"), ({"vocab_size": 10**8}, "asks for"),
    ({"num_hidden_layers": 10**400}, "more than 10^18"), ({"hidden_size": 0}, "cannot be loaded"),
    ({"num_attention_heads": "3"}, "num_attention_heads"),
])  # fmt: skip
def test_a_config_that_does_not_fit_its_weights_is_refused_before_a_model_is_built(change, words, folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(PretrainedError) as refused:
        load_folder(folder, "damaged")
    assert words in str(refused.value)


def test_a_panic_in_the_tokenizer_is_a_sentence(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["pre_tokenizer"] = PATTERN
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(PretrainedError, match="cannot read this"):
        read(load_folder(folder, "damaged"), f"{'a' * 5000}!")


def test_a_token_past_the_vocabulary_in_the_settings_of_generation_is_a_sentence(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"forced_eos_token_id": 10**6}))
    with pytest.raises(PretrainedError, match="do not fit its vocabulary"):
        generate(load_folder(folder, "damaged"), given("gpt2"), SearchSettings(longest=2))


DESCR = ("<f4", "<f8", "<U1", "|O", "<c8", "|b1", "<m8", "x", "", "<f16", [("a", "<f4")], None, 5, "<U999999")
SHAPES = ((2, 4, 4), (4, 4), (), (-1, 4), (2.0, 4), ("a",), None, [2, 4], (10**400,), (0, 4), 2)
HEADER = {"__metadata__": {"tokens": '["a","b","c","d"]'},
          "self_0": {"dtype": "F32", "shape": [2, 4, 4], "data_offsets": [0, 128]}}  # fmt: skip


def npz(rng):
    """An NPZ whose header names another type, shape or order than it holds."""
    header = {"descr": rng.choice(DESCR), "fortran_order": rng.choice((False, True, 3)), "shape": rng.choice(SHAPES)}
    text = repr(header).encode() + b"\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(rng.choice(("self_0.npy", "tokens.npy")),
                         b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(128))
    return out.getvalue()


def safetensors(rng):
    raw = json.dumps(damaged(HEADER, rng, rng.choice((1, 2)))).encode()
    return len(raw).to_bytes(8, "little") + raw + bytes(128)


@each("seed", range(ARRAYS))
def test_a_damaged_header_of_arrays_is_read_or_refused_in_words(seed):
    rng = random.Random(seed)
    data = npz(rng) if seed % 2 else safetensors(rng)
    result = refused_in_words(lambda: read_arrays(data, "damaged"))
    assert result is None or all(np.isfinite(item.weights).all() for item in result.trace.maps)
