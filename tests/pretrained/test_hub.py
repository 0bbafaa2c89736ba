"""Model folders: of a hub of our own on this computer, of a person, of the lab, and those that a run is exported to."""

import io
import json
import os
import re
import shutil
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from core import command_line
from core.attention import Choice
from core.models import ModelConfig, build_model
from core.models.decoding import SearchSettings, greedy
from core.pretrained import (
    Array,
    ModelInputs,
    PretrainedError,
    answer,
    hub,
    load,
    load_folder,
    load_lab_model,
    read,
)
from core.pretrained.cards import parse_card
from core.pretrained.export import (
    app,
    check_logits,
    code_of,
    export,
    export_zip,
    hf_inputs,
    hf_tokenizer,
    vocabulary_words,
)
from core.pretrained.generate import generate
from core.pretrained.hf_conversion import convert_to_hf
from core.pretrained.hub import check_folder
from core.pretrained.load import LAB_MODELS, MAX_PARTS, counts
from core.runs.machine import line
from core.runs.runs import create_run
from core.runs.worker import work
from core.tasks import TaskConfig, Vocabulary, make_task
from core.training import RunConfig
from tests.cases import each, memory_is
from tests.pretrained.fake_hub import COMMIT, STORAGE, Repo, bert_files, serving
from tests.tiny_architectures import CONFIG_MAPPING, default
from tests.tiny_models import READABLE, given, save

PICKLE = {
    "config.json": b'{"model_type": "bert"}',
    "pytorch_model.bin": b"\x80\x04" * 9,
    "vocab.txt": b"a",
}


def with_config(**config: object) -> Repo:
    return Repo({"config.json": json.dumps(config).encode(), "model.safetensors": b"12345678"})


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A hub with one of each kind; asking goes there, and nothing is kept elsewhere than in tmp_path."""
    large = Repo(
        {"config.json": b'{"model_type": "llama"}', "model.safetensors": b""},
        stated={"model.safetensors": 5_000_000_000},
    )
    repos = {
        "lab/bert": Repo(bert_files() | {"pytorch_model.bin": b"pickle", "onnx/model.onnx": b"", "README.md": b"#"},
                         revisions=("main", "v1.0", "refs/pr/1")),
        "lab/pickle": Repo(PICKLE), "lab/five": large, "lab/gated": Repo(bert_files(), gated=True, token="hf_right"),
        "lab/unstated": Repo(bert_files(), stated={"model.safetensors": None}),
        "lab/adapter": Repo({"adapter_config.json": b"{}", "adapter_model.safetensors": b""}),
        "lab/flax": Repo({"config.json": b"{}", "flax_model.msgpack": b""}),
        "lab/busy": Repo({}, status=429), "lab/broken": Repo({}, status=500), "lab/barred": Repo({}, status=403),
        "lab/notes": Repo(bert_files() | {"config.json": b"[1]"}),
        "lab/pool": with_config(model_type="poolformer"), "lab/bird": with_config(model_type="big_bird"),
        "lab/alien": with_config(model_type="alien", architectures=["AlienModel"]),
        "lab/code": with_config(model_type="bert", architectures=["OurBert"], auto_map={"AutoModel": "ours.OurBert"}),
        "lab/typeless": with_config(architectures=["BertModel"]),
    }  # fmt: skip
    with serving(repos, tmp_path / "home", monkeypatch) as hub_there:
        yield hub_there


def test_a_model_is_planned_pinned_fetched_and_read(served):
    plan = hub.plan(*hub.parse("https://huggingface.co/lab/bert/tree/v1.0"))
    files = {file.name: bert_files()[file.name] for file in plan.files}
    assert plan.commit == COMMIT and plan.family == "bert" and not plan.is_downloaded
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files.keys()
    assert plan.size == sum(map(len, files.values()))
    assert not [path for path in served.requests if path.endswith(".safetensors")], (
        "planning fetches no weights"
    )
    progress: list[int] = []
    folder = hub.download(plan, progress=progress.append)
    assert progress == sorted(progress) and progress[-1] == plan.size and plan.is_downloaded
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    trace = read(hub.load("lab/bert", COMMIT), "the late streets").trace
    words = ("[CLS]", "the", "late", "str", "##eet", "##s", "[SEP]")
    assert trace.shape == (2, 3) and trace.map(0).keys == words
    assert hub.open_model("lab/bert").name == "lab/bert"
    served.requests.clear()
    assert hub.download(plan) == folder and hub.open_model("lab/bert", COMMIT).name == "lab/bert"
    assert not served.requests, "what is kept is not fetched again"


@pytest.mark.parametrize(("name", "message"), [
    ("lab/none", "no model lab/none"), ("lab/pickle", "refs/pr/1"), ("lab/five", "5.0 GB; this page downloads at most"),
    ("lab/unstated", "does not state the size"), ("lab/adapter", "adapter"), ("lab/flax", "only flax_model.msgpack"),
    ("lab/busy", "too many requests"), ("lab/broken", "500"), ("lab/barred", "forbids"), ("lab/notes", "JSON object"),
    ("lab/pool", "no attention to draw"), ("lab/bird", "original_full"), ("lab/alien", "AlienModel (alien)"),
    ("lab/code", "code of its own"), ("lab/typeless", "no model_type"), ("lab/gated", "HF_TOKEN"),
])  # fmt: skip
def test_what_cannot_be_opened_is_said_before_any_weights(served, name, message):
    pytest.raises(PretrainedError, hub.plan, name).match(
        message.replace("(", r"\(").replace(")", r"\)")
    )
    assert not [path for path in served.requests if path.endswith((".safetensors", ".bin"))]


def test_weights_take_four_bytes_each_in_memory(served):
    stored = len(bert_files()["model.safetensors"])
    assert hub.plan("lab/bert").memory == stored
    half = json.loads(bert_files()["config.json"]) | {"dtype": "bfloat16"}
    served.repos["lab/half"] = Repo(bert_files() | {"config.json": json.dumps(half).encode()})
    assert hub.plan("lab/half").memory == 2 * stored
    served.repos["lab/bert"].parameters = {"BF16": 1000, "F32": 11}
    assert hub.plan("lab/bert").memory == 4 * 1011


def test_owners_bound_full_disk_and_full_memory_are_said(served, monkeypatch):
    plan = hub.plan("lab/bert")
    free = SimpleNamespace(free=plan.size + 299_999_999)
    monkeypatch.setattr("shutil.disk_usage", lambda path: free)
    pytest.raises(PretrainedError, hub.download, plan).match("no room")
    free.free += 1
    assert hub.download(plan).is_dir()
    memory_is(monkeypatch, 10)
    pytest.raises(PretrainedError, hub.plan, "lab/bert").match("of memory")
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"model_mb={(plan.size - 1) / 1e6}")
    pytest.raises(PretrainedError, hub.plan, "lab/bert").match("this page downloads at most")


def test_the_token_is_handed_on_to_the_hub_alone(served):
    plan = hub.plan("lab/gated", token="hf_right")
    served.repos["lab/gated"].elsewhere = STORAGE
    assert hub.download(plan, token="hf_right").is_dir()
    assert served.tokens["storage.test"] == [None] * len(plan.files)
    assert set(served.tokens["hub.test"]) == {"Bearer hf_right"}
    pytest.raises(PretrainedError, hub.plan, "lab/gated", token="hf_wrong").match(
        "has no permission"
    )


def test_a_revision_is_named(served):
    assert hub.plan("lab/bert", "refs/pr/1").commit == COMMIT
    pytest.raises(PretrainedError, hub.plan, "lab/bert", "v9").match("no revision v9")


def test_no_network_offline_and_a_hub_that_never_answers(served, monkeypatch):
    for served.fails, words in (
        (httpx2.ReadTimeout("late"), "no answer within 10 s"),
        (httpx2.ConnectError("refused"), "cannot be reached"),
    ):
        pytest.raises(PretrainedError, hub.plan, "lab/bert").match(words)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    pytest.raises(PretrainedError, hub.plan, "lab/bert").match("HF_HUB_OFFLINE")


def test_a_broken_connection_is_taken_up_again(served):
    plan, stop = hub.plan("lab/bert"), threading.Event()
    served.repos["lab/bert"].seconds_a_step = 0.02
    with pytest.raises(hub.DownloadStopped):
        hub.download(
            plan, progress=lambda done: stop.set() if done > 4096 else None, stopped=stop.is_set
        )
    assert not plan.is_downloaded
    assert not [path for path in hub.storage_folder().rglob("*") if path.is_file()]
    served.repos["lab/bert"].seconds_a_step, served.repos["lab/bert"].breaks_at = 0.0, 8192
    assert (hub.download(plan) / "model.safetensors").read_bytes() == bert_files()[
        "model.safetensors"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data + b"x", "for model.safetensors"),
        (lambda data: data[:-1], "incomplete or changed"),
        (lambda data: data[:-1] + b"\xff", "incomplete or changed"),
    ],
)
def test_bytes_that_are_not_those_stated_are_not_kept(served, change, message):
    served.repos["lab/bert"].swapped["model.safetensors"] = change(
        bert_files()["model.safetensors"]
    )
    plan = hub.plan("lab/bert")
    pytest.raises(PretrainedError, hub.download, plan).match(message)
    assert not plan.is_downloaded


def test_the_oldest_model_leaves_when_there_is_no_room(served, monkeypatch):
    size = sum(len(data) for data in bert_files().values())
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"models_mb={str(2.5 * size / 1e6)}")
    for name in ("lab/b", "lab/c"):
        served.repos[name] = Repo(bert_files())
    first, second, third = (hub.plan(name) for name in ("lab/bert", "lab/b", "lab/c"))
    hub.download(first)
    hub.download(second)
    time.sleep(0.02)
    hub.load("lab/bert", COMMIT)
    parts = [hub.storage_folder() / "lab--x" / f"{age}.part" for age in (22_000, 21_000)]
    for part in parts:  # of processes that ended more and less than six hours ago
        part.mkdir(parents=True)
        os.utime(part, (time.time() - int(part.stem),) * 2)
    hub.download(third)
    assert [part.exists() for part in parts] == [False, True]
    assert (first.is_downloaded, second.is_downloaded, third.is_downloaded) == (True, False, True)
    assert hub.downloaded_commits("lab/bert") == (COMMIT,) and hub.downloaded_commits("lab/b") == ()
    pytest.raises(PretrainedError, hub.load, "lab/b", COMMIT).match("no longer on this computer")
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"models_mb={str(0.5 * size / 1e6)}")
    pytest.raises(PretrainedError, hub.download, second).match("models_mb in ATTENTION_LAB_LIMITS")


def test_a_folder_is_judged_in_the_same_words(tmp_path):
    good = save("bert_encoder", tmp_path / "good")
    assert hub.check_folder(f" {good} ", 10**6) == good

    other = damaged(good, tmp_path / "other", "config.json", {"model_type": "poolformer"})
    pickled = damaged(good, tmp_path / "pickled", "model.safetensors", None)
    (pickled / "pytorch_model.bin").touch()
    (tmp_path / "empty").mkdir()
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").touch()
    for text, most, words in (
        *(
            (text, 10**6, "no folder")
            for text in (tmp_path / "none", "", good / "config.json", "a\0b")
        ),
        (tmp_path / "empty", 10**6, "no config.json, so it holds no model. Write the path"),
        (tmp_path, 10**6, "so it holds no model. Its folder good does: write the path of that"),
        (adapter, 10**6, "holds an adapter to another model: put its files beside that model's"),
        (good, 10_000, "at most 10 kB"),
        (pickled, 10**6, "pickle"),
        (other, 10**6, "no attention to draw"),
    ):
        pytest.raises(PretrainedError, hub.check_folder, str(text), most).match(words)


def test_weights_that_are_missing_or_damaged_are_said(tmp_path):
    save("bert_encoder", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    pooled = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(pooled, tmp_path / "model.safetensors", {"format": "pt"})
    assert len(pooled) < len(weights) and load_folder(tmp_path, "own").model is not None
    fewer = {key: value for key, value in weights.items() if "layer.1.attention" not in key}
    save_file(fewer, tmp_path / "model.safetensors", {"format": "pt"})
    pytest.raises(PretrainedError, load_folder, tmp_path, "own").match(
        r"own lacks 10 of the weights .*layer\.1\.attention"
    )
    for damaged in (b"", b"damaged", bert_files()["model.safetensors"][:-1]):
        (tmp_path / "model.safetensors").write_bytes(damaged)
        pytest.raises(PretrainedError, load_folder, tmp_path, "own").match("own cannot be loaded")


def test_torchvision_for_another_pytorch_is_named(tmp_path, monkeypatch):
    # What its import raises beside PyTorch's CPU build, if it comes from PyPI.
    text = "raise RuntimeError('operator torchvision::nms does not exist')\n"
    (tmp_path / "torchvision.py").write_text(text, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PretrainedError, match="another PyTorch: .*nms.* uninstall torchvision"):
        load_lab_model("induction")


# Model folders whose settings are put wrong by hand; tests/fuzz does it at random.


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in ("bert", "gpt2")}


def test_models_that_load_at_once_are_whole(folders):
    # transformers replaces `tie_weights` of all models while it loads one, and puts back what it found.
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


def damaged(folder: Path, to: Path, file: str, change: dict | None) -> Path:
    """A copy of a folder in which one file of JSON is changed, or left out."""
    shutil.copytree(folder, to)
    if change is None:
        (to / file).unlink()
        return to
    content = json.loads((to / file).read_text("utf-8")) if (to / file).exists() else {}
    (to / file).write_text(json.dumps(content | change), encoding="utf-8")
    return to


@pytest.mark.parametrize(("family", "file", "change", "words"), [
    ("bert", "config.json", {"num_hidden_layers": 10**6}, "num_hidden_layers = 1,000,000"),
    ("bert", "config.json", {"vocab_size": 10**7}, "asks for"),
    ("bert", "config.json", {"num_hidden_layers": 10**400}, "more than 10^18"),
    ("bert", "config.json", {"hidden_size": 0}, "cannot be loaded"),
    ("bert", "config.json", {"num_attention_heads": "3"}, "num_attention_heads"),
    ("bert", "config.json", {"num_attention_heads": -3}, "num_attention_heads = -3; expected 1 or more"),
    ("bert", "tokenizer.json", None, "has no tokenizer: none of the files that hold a vocabulary (tokenizer.json"),
    # A panic of the tokenizer, and a token past the vocabulary in the settings of generation.
    ("gpt2", "tokenizer.json", {"pre_tokenizer": PATTERN}, "cannot read this"),
    ("gpt2", "generation_config.json", {"forced_eos_token_id": 10**6}, "do not fit its vocabulary"),
])  # fmt: skip
def test_a_folder_that_is_put_wrong_is_refused(family, file, change, words, folders, tmp_path):
    folder = damaged(folders[family], tmp_path / "model", file, change)
    with pytest.raises(PretrainedError) as refused:
        model = load_folder(folder, "damaged")
        generate(model, given("gpt2"), SearchSettings(longest=2))
        read(model, f"{'a' * 5000}!")
    assert words in str(refused.value)


def too_many(config):
    return [(name, count) for name, count, usual in counts(config) if count > max(usual, MAX_PARTS)]


def test_no_default_config_has_too_many_parts():
    assert not {name for name, kind in CONFIG_MAPPING.items() if too_many(default(kind))}
    for field, past in (("num_experts", 1), ("num_hidden_layers", 1), ("pad_token_id", 0)):
        doge = CONFIG_MAPPING["doge"](**{field: 10**6})
        for config in (doge, CONFIG_MAPPING["llava"](text_config=doge)):
            assert too_many(config) == [(field, 10**6)] * past


ELSEWHERE = [
    {"model_type": "dpt", "backbone": "someone/else", "is_hybrid": False},
    {"model_type": "llava", "text_config": {"model_type": "dpt", "backbone": "someone/else", "is_hybrid": False}},
    {"model_type": "llama", "attn_implementation": "someone/else"},
    {"model_type": "llama", "_attn_implementation": "someone/else", "num_hidden_layers": 1},
    {"model_type": "llama", "_name_or_path": "someone/else", "num_hidden_layers": 1},
]  # fmt: skip


@each("config", ELSEWHERE)
@each("door", [hub.parse_config, lambda data, name: parse_card(data.decode(), name)])
def test_no_config_makes_library_ask_hub_for_another_model(door, config, served):
    try:
        door(json.dumps(config).encode(), "m")
    except PretrainedError as error:
        assert "names another model as its backbone" in str(error)
    assert not served.requests


def test_a_number_that_no_model_has_is_refused():
    for text, why in (
        ('{"model_type": "llama", "num_hidden_layers": 1000000000}', "num_hidden_layers = 1,000,000,000"),
        ('{"model_type": "llama", "num_labels": 1000000000}', "num_labels = 1,000,000,000, more than"),
        ('{"model_type": "llava", "text_config": {"n_layer": 1000000}}', "n_layer = 1,000,000, more than"),
        ('{"model_type": "diffllama", "head_dim": 1000000000}', "head_dim = 1,000,000,000, more than"),
    ):  # fmt: skip
        for door in (hub.parse_config, lambda data, name: parse_card(data.decode(), name)):
            pytest.raises(PretrainedError, door, text.encode(), "m").match(why)
    usual = b'{"model_type": "llama", "rope_theta": 100000000000, "model_max_length": 1000000000000000019884624838656}'
    assert hub.parse_config(usual, "m")
    for depth in range(100, 1000, 50):
        with suppress(PretrainedError):  # no RecursionError
            hub.parse_config(
                b'{"model_type": "llama", "a": %s}' % (b"[" * depth + b"]" * depth), "m"
            )


@pytest.fixture
def parts(folders, tmp_path):
    """A folder whose weights are one shard and its index."""
    folder = shutil.copytree(folders["bert"], tmp_path / "parts")
    shard = "model-00001-of-00001.safetensors"
    (folder / "model.safetensors").rename(folder / shard)
    keys = list(load_file(folder / shard))

    def index(file):
        names = {"metadata": {}, "weight_map": {**dict.fromkeys(keys, shard), keys[0]: file}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(names), encoding="utf-8")
        return folder

    return index


DOORS = {
    "load_folder": lambda folder: load_folder(str(folder), "parts"),
    "page": lambda folder: check_folder(str(folder), 10**9),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_index_leads_to_the_shards_beside_it_alone(door, parts, tmp_path):
    DOORS[door](parts("model-00001-of-00001.safetensors"))
    torch.save({}, tmp_path / "parts" / "pytorch_model.bin")
    for file in ("pytorch_model.bin", "../model-00001-of-00001.safetensors", "/etc/passwd", 3):
        pytest.raises(PretrainedError, DOORS[door], parts(file)).match("an index that names")
    (tmp_path / "parts" / "model.safetensors.index.json").write_text("[]", encoding="utf-8")
    pytest.raises(PretrainedError, DOORS[door], tmp_path / "parts").match(
        "no model.safetensors.index.json that can be read"
    )


NUMBERED = (
    "model-1-of-2",
    "model-00001-of-000002",
    "pytorch_model-00001-of-00002",
    "weights/a-1",
    "model.fp16-1",
    "z",
)


@each("single", (False, True))
@each("first", NUMBERED)
def test_weights_have_whatever_names_their_index_says(
    first, single, folders, served, tmp_path_factory
):
    folder = shutil.copytree(folders["bert"], tmp_path_factory.mktemp("named") / "model")
    shutil.rmtree(hub.storage_folder(), ignore_errors=True)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "weights").mkdir()
    half = [*tensors][::2]
    files = {
        f"{first}.safetensors": half,
        "second.safetensors": [one for one in tensors if one not in half],
    }
    for file, keys in files.items():
        save_file({key: tensors[key] for key in keys}, folder / file, {"format": "pt"})
    index = (
        "pytorch_model.safetensors.index.json" if single else "model.safetensors.index.fp16.json"
    )
    names = {key: file for file, keys in files.items() for key in keys}
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": names}), encoding="utf-8")
    served.repos["lab/named"] = Repo(
        {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
    )
    for opened in (load_folder(check_folder(str(folder), 10**9), "m"), hub.open_model("lab/named")):
        loaded = opened.model.state_dict()
        assert all(torch.equal(loaded[key], tensors[key]) for key in tensors)
        assert opened.notes == ()
    (folder / "second.safetensors").unlink()
    pytest.raises(PretrainedError, load_folder, folder, "m").match(
        "an index that names second.safe"
    )


def test_one_file_or_complete_parts_need_no_index(folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "single")
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    (folder / "pytorch_model.bin").touch()
    assert load_folder(folder, "m").notes == ()
    for file, words in (
        ("model-1-of-2", "weights in parts"),
        ("other", "several files of weights"),
    ):
        shutil.copy(folder / "model.fp16.safetensors", folder / f"{file}.safetensors")
        if words == "weights in parts":
            (folder / "model.fp16.safetensors").rename(folder / "kept")
        pytest.raises(PretrainedError, load_folder, folder, "m").match(words)
        (folder / f"{file}.safetensors").unlink()
        if words == "weights in parts":
            (folder / "kept").rename(folder / "model.fp16.safetensors")


def test_every_declared_file_is_fetched(served):
    homes = Path(transformers.__file__).parent.rglob("tokenization_*.py")
    text = "".join(path.read_text("utf-8") for path in homes)
    maps = re.findall(r"(?i)vocab_files_names[^=\n]*= *\{([^}]*)\}", text)
    declared = {file for one in maps for file in re.findall(r": \"([^\"]+)\"", one)}
    declared |= {
        "special_tokens_map.json", "added_tokens.json", "tokenizer_config.json", "chat_template.json",
        "chat_template.jinja", "additional_chat_templates/tools.jinja", "processor_config.json",
        "preprocessor_config.json", "video_preprocessor_config.json", "audio_tokenizer_config.json",
        "tokenizer.4.0.0.json", "generation_config.json", "qformer_tokenizer/vocab.txt", "qwen.tiktoken",
        "tokenizer.model.v3", "tekken.json",
    }  # fmt: skip
    assert len(declared) > 35 and {"emoji.json", "vocab-src.json", "spm_char.model"} <= declared
    big = {"trainer_state.json", "optimizer.pt", "a.gguf", "onnx/model.onnx", "eval.txt", "flax_model.msgpack",
           "checkpoint-9/config.json", "checkpoint-9/model.safetensors", "consolidated.safetensors"}  # fmt: skip
    served.repos["lab/all"] = Repo(dict.fromkeys(declared | big, b"") | bert_files())
    assert {file.name for file in hub.plan("lab/all").files} == declared | bert_files().keys()


# Every tensor of the files, and every weight of the model: used, unused, made up, no number.


def first_matrix(tensors):
    return min(
        key
        for key, one in tensors.items()
        if one.ndim == 2 and re.search(r"\d", key) and "weight" in key
    )


def scaled(tensors, key, kind, scale):
    tensors[key] = (tensors[key] * 9).to(kind)
    tensors |= {key.removesuffix("weight") + scale: torch.ones(1)} if scale else {}
    return tensors


def filled(tensors, key, value):
    tensors[key][0, 0] = value
    return tensors


def more_layers(tensors, key):
    path = re.search(r"\w+\.\d+\.", key)[0]
    later = re.sub(r"\d", "7", path)
    return tensors | {
        one.replace(path, later): tensors[one].clone() for one in tensors if path in one
    }


FAULTS = {
    "extra": (lambda tensors, key: tensors | {"something.weight": torch.ones(3)}, "Not used of its files: something"),
    "extra in a part": (lambda tensors, key: tensors | {f"{key}_more": torch.ones(3)}, "not be the model that was trained: "),
    "missing": (lambda tensors, key: {one: tensors[one] for one in tensors if one != key}, "lacks [0-9]+ of the weights"),
    "NaN": (lambda tensors, key: filled(tensors, key, torch.nan), "NaN or infinity in 1 of its weights"),
    "inf": (lambda tensors, key: filled(tensors, key, -torch.inf), "NaN or infinity in 1 of its weights"),
    "fp8": (lambda tensors, key: scaled(tensors, key, torch.float8_e4m3fn, "weight_scale"), "quantized weights"),
    "fp8 inverse": (lambda tensors, key: scaled(tensors, key, torch.float8_e4m3fn, "weight_scale_inv"), "quantized"),
    "fp8 own scale": (lambda tensors, key: scaled(tensors, key, torch.float8_e4m3fn, "w_scale"), "quantized weights"),
    "int8": (lambda tensors, key: scaled(tensors, key, torch.int8, "SCB"), "quantized weights"),
    "fp8 other name": (lambda tensors, key: scaled(tensors, key, torch.float8_e4m3fn, "amax"), "quantized weights"),
    "truth values": (lambda tensors, key: tensors | {key: tensors[key] > 0}, "quantized weights"),
    "complex": (lambda tensors, key: tensors | {key: tensors[key] * 1j}, "quantized weights"),
    "int8 alone": (lambda tensors, key: scaled(tensors, key, torch.int8, ""), "quantized weights"),
    "sizes": (lambda tensors, key: tensors | {key: torch.ones(5, 7)}, "5 × 7 numbers, and its config.json asks for"),
    "layers": (more_layers, "weights of more parts than its config.json asks for"),
    "renamed": (lambda tensors, key: {f"net.{one}": tensors[one] for one in tensors}, "Its files have net\\."),
}  # fmt: skip


@each("family", (*READABLE[::4], "gpt2", "llama", "t5", "vit", "whisper"))
def test_every_tensor_is_accounted_for(family, tmp_path_factory):
    folder = save(family, tmp_path_factory.mktemp(family) / "model")
    assert load_folder(folder, "m").notes == ()
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for fault, (change, words) in FAULTS.items():
        file.write_bytes(whole)
        tensors = load_file(file)
        save_file(change(tensors, first_matrix(tensors)), file, {"format": "pt"})
        try:
            said = " ".join(load_folder(folder, "m").notes)
        except PretrainedError as error:
            said = str(error)
        assert re.search(words, said), (fault, said)


@each("names", (None, [], "BertModel", [5], ["NoSuch"]))
@each("family", ("bert_encoder", "gpt2", "llama", "t5", "vit"))
def test_a_config_without_a_class_opens_the_base_model(family, names, tmp_path_factory):
    folder = save(family, tmp_path_factory.mktemp(family) / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = config | {"architectures": names, "return_dict": False}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = load_folder(folder, "m")
    kind = transformers.MODEL_MAPPING[type(model.model.config)]
    assert type(model.model) is kind and model.head == "none"
    if model.reads == "text":
        assert read(model, "A cat").trace.maps


@each("file", ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"))
def test_a_pointer_of_git_lfs_is_named(file, tmp_path_factory):
    folder = save("gpt2", tmp_path_factory.mktemp("pointer") / "model")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (folder / file).write_text(pointer, encoding="utf-8")
    pytest.raises(PretrainedError, load_folder, folder, "m").match(
        f"a Git LFS pointer in place of {file}; run git lfs pull"
    )


def test_a_tensor_in_two_files_is_one(tmp_path):
    folder = save("gpt2", tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "b.safetensors")
    index = {"weight_map": {"one": "a.safetensors", "two": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    key = "transformer.wpe.weight"
    save_file({key: tensors[key]}, folder / "a.safetensors")
    load_folder(folder, "m")
    save_file({key: tensors[key] + 1}, folder / "a.safetensors")
    pytest.raises(PretrainedError, load_folder, folder, "m").match(f"{key}.* in two of its files")


@each("family", ("bert", "gpt2", "gpt_neo", "distilbert"))
def test_maps_that_are_no_numbers_are_refused(family, tmp_path):
    folder = save(family, tmp_path / family)
    tensors = load_file(folder / "model.safetensors")
    large = {key: one * 0 + 3e38 if one.ndim == 2 else one for key, one in tensors.items()}
    save_file(large, folder / "model.safetensors", {"format": "pt"})
    model = load_folder(folder, "m")
    pytest.raises(PretrainedError, read, model, ModelInputs("A cat", target="it")).match(
        "weights that are no numbers in L0"
    )


def test_what_a_class_ignores_in_silence_is_told(tmp_path, monkeypatch):
    folder = save("bert_encoder", tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    save_file(
        tensors | {"second.predictor": torch.ones(3)},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    kind = transformers.BertModel
    monkeypatch.setattr(kind, "_keys_to_ignore_on_load_unexpected", ["second", "word_embeddings"])
    assert load_folder(folder, "m").notes == ("Not used of its files: second.predictor.",)


def test_a_classifier_without_its_pooler_is_refused(tmp_path):
    for family, words in (
        ("bert_classifier", "lacks 2 .*pooler"),
        ("bert_encoder", "Not in its files, .*pooler"),
    ):
        folder = save(family, tmp_path / family)
        tensors = {
            k: v for k, v in load_file(folder / "model.safetensors").items() if "pooler" not in k
        }
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        try:
            models = [load_folder(folder, "m") for _ in range(2)]
            said = models[0].notes[0]
            first, again = (one.model.state_dict() for one in models)
            assert all(torch.equal(first[key], again[key]) for key in first)
        except PretrainedError as error:
            said = str(error)
        assert re.search(words, said)


def adapter(folder, layers, **settings):
    """A LoRA of rank 2 on those layers of a model, as peft saves it: the changes of their weights."""
    torch.manual_seed(4)
    usual = {"peft_type": "LORA", "r": 2, "lora_alpha": 6}
    (folder / "adapter_config.json").write_text(json.dumps(usual | settings), encoding="utf-8")
    pairs = {
        name: (torch.randn(2, rows), torch.randn(columns, 2))
        for name, (rows, columns) in layers.items()
    }
    save_file({f"base_model.model.{name}.lora_{'AB'[i]}.weight": one.contiguous()
               for name, pair in pairs.items() for i, one in enumerate(pair)},
              folder / "adapter_model.safetensors", {"format": "pt"})  # fmt: skip
    return {name: b @ a for name, (a, b) in pairs.items()}


ADAPTED = {"llama": {"model.layers.1.self_attn.o_proj": (48, 18)},
           "gpt2": {"transformer.h.1.attn.c_proj": (24, 24), "transformer.h.0.attn.c_attn": (24, 72)},
           "bert_encoder": {"encoder.layer.0.attention.output.dense": (24, 24)}}  # fmt: skip


@each("family", ADAPTED)
def test_a_lora_beside_a_model_is_merged_in_folders(family, served, tmp_path_factory):
    folder = save(family, tmp_path_factory.mktemp(family) / "model")
    before = load_folder(folder, "m").model
    for settings, scale in (
        ({}, 3.0),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"o_proj": 2}}, None),
    ):
        changes = adapter(folder, ADAPTED[family], **settings)
        served.repos["lab/lora"] = Repo({path.name: path.read_bytes() for path in folder.iterdir()})
        shutil.rmtree(hub.storage_folder(), ignore_errors=True)
        for opened in (load_folder(folder, "m"), hub.open_model("lab/lora")):
            assert "LoRA" in opened.notes[0]
            for name, change in changes.items():
                old, new = (model.get_submodule(name).weight for model in (before, opened.model))
                own = (1.0 if name.endswith("o_proj") else 3.0) if scale is None else scale
                assert torch.allclose(
                    new - old, own * (change.T if family == "gpt2" else change), atol=1e-5
                )


def test_an_adapter_that_cannot_be_merged_is_said(tmp_path):
    folder = save("llama", tmp_path / "model")
    for settings, layers, words in (
        ({"peft_type": "IA3"}, {}, "of the kind IA3"),
        *(({key: True}, {}, f"of the kind {key}") for key in load.OTHER_LORA),
        *(
            ({"init_lora_weights": way}, {}, f"of the kind {way}")
            for way in ("pissa", "pissa_niter_4", "olora", "corda", "loftq")
        ),
        ({}, {"model.layers.9.mlp.up_proj": (18, 20)}, "2 tensors that it has no place for"),
        ({}, {"model.layers.1.self_attn.o_proj": (18, 48)}, "cannot be read"),
    ):
        adapter(folder, layers, **cast(Any, settings))
        pytest.raises(PretrainedError, load_folder, folder, "m").match(words)
    file, layer = folder / "adapter_model.safetensors", "model.layers.1.self_attn.o_proj"
    adapter(folder, {layer: (48, 18)})
    pair = load_file(file)
    for name, change in (
        ("A.default.weight", lambda key: re.sub("_([AB])", r"_\1.default", key)),
        ("magnitude_vector", None),
        ("B.bias", None),
        ("C.weight", None),
    ):
        tensors = (
            {change(key): one for key, one in pair.items()}
            if change
            else pair | {f"base_model.model.{layer}.lora_{name}": torch.ones(18)}
        )
        save_file(tensors, file, {"format": "pt"})
        pytest.raises(PretrainedError, load_folder, folder, "m").match("it has no place for")
    file.unlink()
    (folder / "adapter_model.bin").touch()
    pytest.raises(PretrainedError, load_folder, folder, "m").match("no adapter_model.safetensors")


def device(path):
    path.symlink_to("/dev/zero")


def large(path):
    path.touch()
    os.truncate(path, 300_000_000)  # a sparse file


@pytest.mark.skipif(os.name != "posix", reason="needs a device file")
@each(
    ("put", "words", "names"),
    [
        (
            device,
            "{}.* (not|other than) a regular file|no config.json",
            "config.json tokenizer.json model.safetensors chat_template.jinja emoji.json vocab.bpe "
            "additional_chat_templates/a.jinja whatever",
        ),
        (
            large,
            "300,000,000 bytes; at most 256,000,000 are read",
            "tokenizer.json chat_template.jinja dict.txt additional_chat_templates/a.jinja",
        ),
    ],
)
@each("door", DOORS)
def test_only_regular_files_of_bounded_size_are_opened(
    put, words, names, door, folders, tmp_path_factory
):
    for name in names.split():
        folder = shutil.copytree(folders["gpt2"], tmp_path_factory.mktemp("put") / "model")
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        put(folder / name)
        pytest.raises(PretrainedError, DOORS[door], folder).match(words.format(name))


# The lab's own models, as they are kept: small, made by a run that is told, readable, good at what they learned.


NAMES = ("writer", "numbers", "induction", "only-attention", "names", "digits")
REPEATING = ("induction", "only-attention")


@pytest.fixture(scope="module", params=REPEATING)
def induction(request):
    return load_lab_model(request.param), task_of(request.param)


def run_metadata(name):
    return json.loads((LAB_MODELS / name / "run.json").read_text("utf-8"))


def task_of(name):
    return make_task(TaskConfig.from_json(run_metadata(name)["config"]["task"]))


def test_all_of_them_stay_small():
    files = [path for path in LAB_MODELS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(NAMES)
    assert sum(path.stat().st_size for path in files) < 16_000_000
    assert not [path for path in files if path.suffix not in (".json", ".safetensors", ".md")]


def test_the_translator_gets_unseen_numbers_right():
    pretrained, held = load_lab_model("numbers"), task_of("numbers").held_out(150)
    texts = [" ".join(example.source) for example in held]
    batch = pretrained.tokenizer(texts, padding=True, return_tensors="pt")
    read_by_it = {name: batch[name] for name in ("input_ids", "attention_mask")}
    made = pretrained.model.generate(**read_by_it, max_new_tokens=30, do_sample=False)
    texts = pretrained.tokenizer.batch_decode(made, skip_special_tokens=True)
    right = sum(a == " ".join(e.target) for a, e in zip(texts, held, strict=True))
    assert right >= 0.95 * len(held)
    reading = read(pretrained, "two hundred and forty-five")
    assert reading.source.tokens == ("two", "hundred", "and", "forty", "five")
    assert reading.produced.tokens[:-1] == ("zwei", "hundert", "fünf", "und", "vier", "zig")
    weights = reading.trace.of("cross").maps[1].weights  # of the last layer (H, T, S)
    for word, own in {"zwei": 0, "hundert": 1, "fünf": 4, "vier": 3}.items():
        mass = weights[:, reading.produced.tokens.index(word), own].max()
        assert mass > 2 / len(reading.source.tokens), (word, mass)


def test_the_language_model_says_a_passage_again(induction):
    pretrained, task = induction
    held = task.held_out(100)
    batch, expected = task.collate(held), [task.places(example) for example in held]
    with torch.no_grad():
        guessed = pretrained.model(input_ids=batch.source).logits.argmax(-1) == batch.target_out
    known = torch.tensor([[bool(place) for place in row] for row in expected])
    assert known.sum() > 1000 and guessed[known].float().mean() >= 0.95
    assert guessed[~known].float().mean() < 0.1, "nothing tells a word that is drawn at random"


def test_the_digits_are_told_apart():
    pretrained, task = load_lab_model("digits"), task_of("digits")
    held, right = task.held_out(120), 0
    pixels = hf_inputs(task.collate(held), task, None)["pixel_values"][:, 0].numpy()
    for picture, example in zip(pixels, held, strict=True):
        logits = answer(pretrained, ModelInputs(picture=Array.of(picture))).logits
        right += pretrained.model.config.id2label[int(logits.argmax())] == example.target[0]
    assert right >= 0.95 * len(held)


# A model trained here and its twin in Hugging Face's library: the same logits, the same attention, readable tokens.


NUMBERS = TaskConfig.of("numbers", numbers=2, train_pairs=1000)
REPEATS = TaskConfig.of("repeats", length=48, passage=8, gap=4)
LLAMA: dict[str, Any] = dict(
    norm="pre", normalization="rms", activation="swiglu", output_bias=False, position="rope"
)
GPT2: dict[str, Any] = dict(norm="pre", activation="gelu", output_bias=False, position="learned")
of = ModelConfig.transformer
EXPORTS = {
    "marian": (
        NUMBERS,
        of(30, 3, 2, 44, position="sinusoidal", activation="gelu"),
        "MarianMTModel",
    ),
    "marian-tied-relu": (
        NUMBERS,
        of(20, 5, 1, 28, position="sinusoidal", tied=True),
        "MarianMTModel",
    ),
    "marian-no-bias": (
        NUMBERS,
        of(20, 2, 1, 28, position="sinusoidal", output_bias=False),
        "MarianMTModel",
    ),
    "marian-letters": (
        TaskConfig.of("dates", train_pairs=1000),
        of(30, 3, position="sinusoidal"),
        "MarianMTModel",
    ),
    "llama": (REPEATS, of(30, 3, 2, 44, kind="decoder", **LLAMA), "LlamaForCausalLM"),
    "llama-shared": (
        REPEATS,
        of(
            36, 6, 2, 44, kind="decoder", **LLAMA, projection=Choice.of("grouped_query", kv_heads=3)
        ),
        "LlamaForCausalLM",
    ),
    "llama-wide-heads": (
        REPEATS,
        of(
            36,
            6,
            1,
            44,
            kind="decoder",
            **LLAMA,
            projection=Choice.of("grouped_query", kv_heads=2, head_dim=10),
        ),
        "LlamaForCausalLM",
    ),
    "llama-one-head": (
        REPEATS,
        of(
            36,
            6,
            1,
            44,
            kind="decoder",
            projection="multi_query",
            **{**LLAMA, "position": Choice.of("rope", base=500.0)},
        ),
        "LlamaForCausalLM",
    ),
    "llama-attention-only": (REPEATS, of(30, 3, 2, 0, kind="decoder", **LLAMA), "LlamaForCausalLM"),
    "llama-marked": (
        TaskConfig.of("depo"),
        of(30, 3, 2, 44, kind="decoder", **LLAMA),
        "LlamaForCausalLM",
    ),
    "llama-in-one-line": (
        TaskConfig.of("copy", length=7),
        of(30, 3, 2, 44, kind="decoder", **LLAMA),
        "LlamaForCausalLM",
    ),
    "gpt2": (REPEATS, of(30, 3, 2, 44, kind="decoder", **GPT2), "GPT2LMHeadModel"),
    "gpt2-unscaled": (
        REPEATS,
        of(30, 3, 2, 44, kind="decoder", tied=True, scaled_embedding=False, **GPT2),
        "GPT2LMHeadModel",
    ),
    "marian-unscaled": (
        TaskConfig.of("copy", length=7),
        of(30, 3, 1, 44, scaled_embedding=False, position="sinusoidal"),
        "MarianMTModel",
    ),
    "gpt2-tied-relu": (
        REPEATS,
        of(30, 5, 1, 22, kind="decoder", tied=True, **{**GPT2, "activation": "relu"}),
        "GPT2LMHeadModel",
    ),
    "vit": (
        TaskConfig.of("digits"),
        of(30, 3, 2, 44, kind="classifier", norm="pre", activation="gelu", position="learned"),
        "ViTForImageClassification",
    ),
    "vit-pixels": (
        TaskConfig.of("digits", patch="1"),
        of(20, 5, kind="classifier", norm="pre", position="learned"),
        "ViTForImageClassification",
    ),
}


def made(name):
    """The task, a model whose every number was drawn (biases and norms too), its vocabulary and its twin."""
    task = make_task(EXPORTS[name][0])
    torch.manual_seed(3)
    model, vocabulary = (
        build_model(EXPORTS[name][1], task.shape).eval(),
        Vocabulary(vocabulary_words(task)),
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return task, model, vocabulary, convert_to_hf(model, task, vocabulary)


@each("name", EXPORTS)
def test_kept_twin_says_same_and_attends_same_in_every_head(name, tmp_path):
    task, model, vocabulary, twin = made(name)
    assert type(twin).__name__ == EXPORTS[name][2]
    assert check_logits(model, twin, task, vocabulary) < 2e-5
    assert not any(
        rate
        for key, rate in twin.config.to_dict().items()
        if "drop" in key and "summary" not in key
    )
    state = torch.get_rng_state()
    convert_to_hf(model, task, vocabulary)
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn"
    twin.save_pretrained(tmp_path)
    hf_model = type(twin).from_pretrained(tmp_path, attn_implementation="eager").eval()
    batch = task.collate(task.held_out(5))
    two = hf_model.config.is_encoder_decoder
    with torch.no_grad():
        own = model(batch.source, batch.source_mask, batch.target_in, record=True).maps
        their = hf_model(**hf_inputs(batch, task, vocabulary, two), output_attentions=True)
    attentions = {"causal" if "causal" in own else "self": getattr(their, "attentions", None)}
    if "cross" in own:
        names = {"self": "encoder", "causal": "decoder", "cross": "cross"}
        attentions = {kind: getattr(their, f"{of}_attentions") for kind, of in names.items()}
    assert set(attentions) == set(own)
    for kind, layers in attentions.items():
        assert len(layers) == len(own[kind]) == model.config.layers
        for mine, theirs in zip(own[kind], layers, strict=True):
            for i in range(5):
                rows = read = int(batch.source_mask[i].sum())
                if kind != "self" and batch.target_in is not None:
                    rows = int((batch.target_out[i] != 0).sum()) + read * (not two)
                rows += task.form == "label"  # the class token
                assert torch.allclose(mine.weights[i, :, :rows], theirs[i, :, :rows], atol=1e-5), (
                    kind,
                    i,
                )
    with torch.no_grad():
        [*hf_model.parameters()][-1].add_(0.01)
    pytest.raises(RuntimeError, check_logits, model, hf_model, task, vocabulary).match(
        "differs from the model: logits by"
    )


@each(
    ("task", "config", "words"),
    [
        (NUMBERS, ModelConfig.recurrent(8), "A recurrent that reads tokens has no equivalent"),
        (
            NUMBERS,
            of(8, 2, position="sinusoidal", norm="pre"),
            "MarianMTModel, has norm = post, not pre",
        ),
        (
            NUMBERS,
            of(8, 2, position="rope", norm="pre"),
            "norm = post, not pre; position = sinusoidal, not rope",
        ),
        (
            NUMBERS,
            of(8, 2, position=Choice.of("sinusoidal", base=500.0)),
            "sinusoidal, not sinusoidal with base = 500",
        ),
        (
            NUMBERS,
            of(8, 2, position="sinusoidal", score="cosine"),
            "score = scaled_dot, not cosine",
        ),
        (
            NUMBERS,
            of(8, 2, position="sinusoidal", mask=Choice.of("causal_local", lookback=2)),
            "not causal_local",
        ),
        (NUMBERS, of(8, 2, kind="decoder", **LLAMA), "a decoder of one vocabulary"),
        (
            NUMBERS,
            of(8, 2, d_ff=0, position="sinusoidal"),
            "MarianMTModel, has d_ff above 0, not 0",
        ),
        (
            REPEATS,
            of(8, 2, kind="decoder", **{**LLAMA, "output_bias": True}),
            "output_bias = False, not True",
        ),
        (
            REPEATS,
            of(8, 2, kind="decoder", **{**GPT2, "position": "alibi"}),
            "GPT2LMHeadModel, has position = learned",
        ),
        (
            REPEATS,
            of(8, 2, kind="decoder", **GPT2, projection=Choice.of("multi_head", head_dim=6)),
            "with head_dim = 6",
        ),
        (
            TaskConfig.of("language", train_pairs=1000),
            of(8, 2, kind="classifier"),
            "classifier that reads tokens",
        ),
    ],
)
def test_what_has_no_twin_is_told_with_what_would_have_one(task, config, words):
    made = make_task(task)
    pytest.raises(
        PretrainedError,
        convert_to_hf,
        build_model(config, made.shape),
        made,
        Vocabulary(vocabulary_words(made)),
    ).match(words)


@each(
    ("task", "typed", "tokens"),
    [
        (
            NUMBERS,
            " Two hundred and Forty-five;7 ",
            ["two", "hundred", "and", "forty", "five", ";", "<unk>"],
        ),
        (REPEATS, "The cat sat. The", ["<bos>", "the", "cat", "sat", ".", "the"]),
        (TaskConfig.of("dates", train_pairs=1000), "1 May\n", ["1", " ", "M", "a", "y"]),
        (TaskConfig.of("depo"), "n1 n2 +2  n1 =", ["n1", "n2", "+2", "n1", "="]),
        (TaskConfig.of("modular_arithmetic"), "( 3 - 4 ) =", ["(", "3", "-", "4", ")", "="]),
    ],
)
def test_what_is_typed_is_read_as_the_task_reads_it(task, typed, tokens):
    task = make_task(task)
    tokenizer = hf_tokenizer(task, Vocabulary(vocabulary_words(task)), 40)
    assert tokenizer.convert_ids_to_tokens(tokenizer(typed)["input_ids"]) == tokens


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = RunConfig(
        NUMBERS,
        of(16, 2, position="sinusoidal"),
        steps=2,
        batch_size=4,
        record_every=1,
        held_out=4,
        num_examples=1,
    )
    run = create_run(config, path=tmp_path_factory.mktemp("run") / "two")
    assert work(run.path) == "finished"
    return run


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "new" / "two"
    assert command_line.run(app, ["export", str(run.path), str(folder), "--license", "mit"]) == 0
    return folder


def test_a_run_becomes_a_folder_that_the_pages_open(run, folder):
    pretrained = load_folder(folder, "two")
    assert (pretrained.head, pretrained.reads, pretrained.recordable) == ("seq2seq", "pair", True)
    reading = read(pretrained, "twenty-one; four")
    assert reading.source.tokens == ("twenty", "one", ";", "four")
    assert reading.trace.kinds == ("self", "causal", "cross")
    metadata = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert RunConfig.from_json(metadata["config"]) == run.config()
    assert metadata["reached"]["step"] == 2
    assert pretrained.model.generation_config.max_new_tokens == make_task(NUMBERS).max_target + 1
    # It never says a word of the other language.
    english = pretrained.tokenizer.convert_tokens_to_ids("twenty")
    ids = dict(input_ids=torch.tensor([[english]]), decoder_input_ids=torch.tensor([[1]]))
    with torch.no_grad():
        shares = pretrained.model(**ids).logits.softmax(-1)
    assert shares[0, 0, english] == 0 and shares.sum() == pytest.approx(1)


def test_a_card_states_the_runs_own_records(run, folder):
    card, record = ModelCard.load(folder / "README.md"), run.records()[-1]
    metrics = {(result.metric_name, result.metric_value) for result in card.data.eval_results}
    assert {("Validation loss", record.loss), ("Token accuracy", record.token_accuracy)} <= metrics
    assert (card.data.library_name, card.data.license) == ("transformers", "mit")
    assert {"attention-lab", "numbers"} <= set(card.data.tags)
    for row in (
        f"| Validation loss | {record.loss:.4g} |",
        "| steps | 2 of 2 |",
        "| seed | 0 |",
        "| batch size | 4 |",
        f"| seconds of training | {record.train_seconds:.1f} |",
        f"| trained on | {line(run.metadata()['machines'])} |",
        f"On {record.held_out:,} held-out items",
        run.name,
    ):
        assert row in card.text, row
    stated = int(card.text.partition("| parameters | ")[2].partition(" ")[0].replace(",", ""))
    parameters = sum(weight.numel() for weight in run.model()[0].parameters())
    assert 0 < stated <= 2 * parameters  # the other class has one vocabulary for both languages


def test_a_cards_code_prints_what_the_run_predicts(run, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    printed = run_code(card_code((folder / "README.md").read_text("utf-8")), capsys)
    model, task = run.model()
    batch = task.collate(task.held_out(1))
    tokens = greedy(model, batch.source, batch.source_mask, task.max_target + 1)
    assert printed == " ".join(task.target_vocab.decode(tokens[0]))


def test_a_run_of_pictures_says_how_they_are_prepared(tmp_path):
    config = RunConfig(*EXPORTS["vit"][:2], steps=1, batch_size=4, held_out=4, num_examples=1)
    run, name = create_run(config, path=tmp_path / "run"), "preprocessor_config.json"
    work(run.path)
    ours, own = (
        json.loads((folder / name).read_text("utf-8"))
        for folder in (export(run, tmp_path), LAB_MODELS / "digits")
    )
    assert ours == own


def test_zip_holds_folder_and_run_that_is_not_there_is_told(run, capsys):
    with zipfile.ZipFile(io.BytesIO(export_zip(run))) as file:
        paths = [Path(name) for name in file.namelist()]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "run.json"} <= {
        path.name for path in paths
    } and {path.parent.name for path in paths} == {run.id}
    assert command_line.run(app, ["export", "no-such-run", "out"]) == 1
    assert "There is no run no-such-run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["marian-letters", "llama-in-one-line", "llama-marked", "gpt2", "vit-pixels"]
)
def test_code_of_card_loads_folder_and_prints_what_it_says(name, tmp_path, capsys, monkeypatch):
    task, _, vocabulary, twin = made(name)
    tokenizer = None if "vit" in name else hf_tokenizer(task, vocabulary, 99)
    for part in filter(None, (twin, tokenizer)):
        part.save_pretrained(tmp_path)
    code = code_of(task, twin, tokenizer)
    monkeypatch.chdir(tmp_path)
    assert run_code(code, capsys) == code.rpartition("  # ")[2].strip()
    assert ("'01bfd200 07e4c700 " in code) is (tokenizer is None)  # the ink of a picture


@pytest.mark.parametrize("name", NAMES)
def test_the_cards_of_the_labs_own_models_run(name, tmp_path, capsys, monkeypatch):
    folder, metadata = LAB_MODELS / name, run_metadata(name)
    RunConfig.from_json(metadata["config"])
    makefile = (Path(__file__).parents[2] / "Makefile").read_text("utf-8")
    assert re.search(rf"^LAB_MODELS := .*\b{name}\b", makefile, re.M)
    # Of a repeating line's words half stand there for the first time; of a sentence's most are drawn at random.
    target, reached = (
        {"names": 0.45, "writer": 0.65}.get(name, 0.5 if name in REPEATING else 0.95),
        metadata["reached"],
    )
    assert reached["token_accuracy"] >= target
    text = (folder / "README.md").read_text("utf-8")
    code = card_code(text)
    monkeypatch.chdir(folder)
    assert run_code(code, capsys) == code.rpartition("  # ")[2].strip()
    card = ModelCard.load(folder / "README.md")
    values = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert (values["loss"], values["accuracy"]) == (reached["loss"], reached["token_accuracy"])
    assert card.data.license == "mit" and "seconds" not in card.text
    again = tmp_path / name
    shutil.copytree(folder, again, ignore=shutil.ignore_patterns("README.md"))
    command_line.run(app, ["model-card", str(again), "--license", "mit"])
    assert figures((again / "README.md").read_text("utf-8")) == figures(text)


def figures(card: str) -> list[str]:
    """A card without what its code prints, which the rounding of a processor may change, and without versions."""
    before, code, rest = re.split("```(?:python\n)?", card)
    rows = [row for row in (before + rest).splitlines() if "written with" not in row]
    return rows + re.findall(r"\w+", re.sub(r"  # .*", "", code))


def card_code(text: str) -> str:
    return text.partition("```python\n")[2].partition("```")[0]


def run_code(code: str, capsys: pytest.CaptureFixture) -> str:
    capsys.readouterr()
    exec(compile(code, "README.md", "exec"), {})
    return capsys.readouterr().out.strip()
