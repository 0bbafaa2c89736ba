"""Looking up, judging, fetching and keeping models of a hub, against one of our own on this computer."""

import json
import os
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from core.models.decoding import SearchSettings
from core.pretrained import (
    Array,
    ModelInputs,
    PretrainedError,
    answer,
    hub,
    load_folder,
    load_lab_model,
    read,
)
from core.pretrained.base import first_line
from core.pretrained.export import hf_inputs
from core.pretrained.generate import generate
from core.pretrained.hub import check_folder
from core.pretrained.load import LAB_MODELS, MAX_PARTS, counts
from core.tasks import TaskConfig, make_task
from core.training import RunConfig
from tests.cases import each
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, online, serving
from tests.tiny_architectures import CONFIG_MAPPING, default
from tests.tiny_models import given, save

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
        "lab/mamba": with_config(model_type="mamba"), "lab/bird": with_config(model_type="big_bird"),
        "lab/alien": with_config(model_type="alien", architectures=["AlienModel"]),
        "lab/code": with_config(model_type="bert", architectures=["OurBert"], auto_map={"AutoModel": "ours.OurBert"}),
        "lab/typeless": with_config(architectures=["BertModel"]),
    }  # fmt: skip
    with serving(repos) as hub_there:
        online(hub_there.address, tmp_path / "home", monkeypatch)
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
    ("lab/mamba", "no attention to draw"), ("lab/bird", "original_full"), ("lab/alien", "AlienModel (alien)"),
    ("lab/code", "code of its own"), ("lab/typeless", "no model_type"), ("lab/gated", "HF_TOKEN"),
])  # fmt: skip
def test_what_cannot_be_opened_is_said_before_any_weights(served, name, message):
    with pytest.raises(PretrainedError, match=message.replace("(", r"\(").replace(")", r"\)")):
        hub.plan(name)
    assert not [path for path in served.requests if path.endswith((".safetensors", ".bin"))]


def test_weights_take_four_bytes_each_in_memory(served):
    stored = len(bert_files()["model.safetensors"])
    assert hub.plan("lab/bert").memory == stored
    half = json.loads(bert_files()["config.json"]) | {"dtype": "bfloat16"}
    served.repos["lab/half"] = Repo(bert_files() | {"config.json": json.dumps(half).encode()})
    assert hub.plan("lab/half").memory == 2 * stored
    served.repos["lab/bert"].parameters = {"BF16": 1000, "F32": 11}
    assert hub.plan("lab/bert").memory == 4 * 1011


def test_the_owners_bound_a_full_disk_and_full_memory_are_said(served, monkeypatch):
    plan = hub.plan("lab/bert")
    free = SimpleNamespace(free=plan.size + 299_999_999)
    monkeypatch.setattr("shutil.disk_usage", lambda path: free)
    with pytest.raises(PretrainedError, match="no room"):
        hub.download(plan)
    free.free += 1
    assert hub.download(plan).is_dir()
    monkeypatch.setattr("core.pretrained.hub.free_bytes", lambda: 10)
    with pytest.raises(PretrainedError, match="of memory"):
        hub.plan("lab/bert")
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"model_mb={(plan.size - 1) / 1e6}")
    with pytest.raises(PretrainedError, match="this page downloads at most"):
        hub.plan("lab/bert")


def test_the_token_is_handed_on_to_the_hub_alone(served):
    plan = hub.plan("lab/gated", token="hf_right")
    with serving({"lab/gated": Repo(bert_files())}) as storage:
        served.repos["lab/gated"].elsewhere = storage.address.replace("127.0.0.1", "localhost")
        assert hub.download(plan, token="hf_right").is_dir()
        assert len(storage.tokens) == len(plan.files) and set(storage.tokens) == {None}
    assert set(served.tokens) == {"Bearer hf_right"}
    with pytest.raises(PretrainedError, match="has no permission"):
        hub.plan("lab/gated", token="hf_wrong")


@each(
    "text", ["", "  ", "two words", "a/b/c", "../up", "a/..", "/root", "a//b", "é/é", "Oé", "a\0b"]
)
def test_names_that_can_be_no_models(text):
    with pytest.raises(PretrainedError, match="write owner/name"):
        hub.parse(text)


def test_names_in_their_forms(served):
    for text, named in (
        (" gpt2 ", ("gpt2", "main")),
        ("gpt2@", ("gpt2", "main")),
        ("google/vit@refs/pr/1", ("google/vit", "refs/pr/1")),
        ("https://huggingface.co/google/vit/tree/refs%2Fpr%2F1", ("google/vit", "refs/pr/1")),
        ("huggingface.co/google/vit/", ("google/vit", "main")),
    ):
        assert hub.parse(text) == named
    with pytest.raises(PretrainedError, match="revision"):
        hub.parse("gpt2@../main")
    assert hub.plan("lab/bert", "refs/pr/1").commit == COMMIT
    with pytest.raises(PretrainedError, match="no revision v9"):
        hub.plan("lab/bert", "v9")


def test_no_network_offline_and_a_hub_that_never_answers(served, monkeypatch):
    monkeypatch.setattr("core.pretrained.hub.SECONDS", 0.2)
    with monkeypatch.context() as patch, pytest.raises(PretrainedError, match="no answer within"):
        patch.setattr(served, "process_request", lambda *args: time.sleep(0.5))
        hub.plan("lab/bert")
    with serving({}) as there:
        monkeypatch.setenv("HF_ENDPOINT", there.address)
    with pytest.raises(PretrainedError, match="cannot be reached"):
        hub.plan("lab/bert")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PretrainedError, match="HF_HUB_OFFLINE"):
        hub.plan("lab/bert")


def test_a_connection_that_breaks_is_taken_up_again_and_a_stopped_download_leaves_nothing(served):
    plan, stop = hub.plan("lab/bert"), threading.Event()
    served.repos["lab/bert"].seconds_a_step = 0.02
    with pytest.raises(hub.DownloadStopped):
        hub.download(
            plan, progress=lambda done: stop.set() if done > 4096 else None, stopped=stop.is_set
        )
    assert not plan.is_downloaded
    assert not [path for path in hub.storage_folder().rglob("*") if path.is_file()]
    served.repos["lab/bert"].seconds_a_step, served.repos["lab/bert"].breaks_at = 0.0, 8192
    weights = (hub.download(plan) / "model.safetensors").read_bytes()
    assert weights == bert_files()["model.safetensors"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data + b"x", "for model.safetensors"),
        (lambda data: data[:-1], "incomplete or changed"),
        (lambda data: data[:-1] + b"\xff", "incomplete or changed"),
    ],
)
def test_bytes_that_are_not_those_stated_are_not_kept(served, change, message):
    weights = change(bert_files()["model.safetensors"])
    served.repos["lab/bert"].swapped["model.safetensors"] = weights
    plan = hub.plan("lab/bert")
    with pytest.raises(PretrainedError, match=message):
        hub.download(plan)
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
    with pytest.raises(PretrainedError, match="no longer on this computer"):
        hub.load("lab/b", COMMIT)
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"models_mb={str(0.5 * size / 1e6)}")
    with pytest.raises(PretrainedError, match="models_mb in ATTENTION_LAB_LIMITS"):
        hub.download(second)


def test_a_folder_is_judged_in_the_same_words(tmp_path):
    good = save("bert_encoder", tmp_path / "good")
    assert hub.check_folder(f" {good} ", 10**6) == good

    other = damaged(good, tmp_path / "other", "config.json", {"model_type": "rwkv"})
    pickled = damaged(good, tmp_path / "pickled", "model.safetensors", None)
    (pickled / "pytorch_model.bin").touch()
    for text, most, words in (
        *(
            (text, 10**6, "no folder")
            for text in (tmp_path / "none", "", good / "config.json", "a\0b")
        ),
        (tmp_path, 10**6, "no config.json, so it holds no model. Write the path"),
        (good, 10_000, "at most 10 kB"),
        (pickled, 10**6, "pickle"),
        (other, 10**6, "no attention to draw"),
    ):
        with pytest.raises(PretrainedError, match=words):
            hub.check_folder(str(text), most)


def test_weights_that_are_missing_or_damaged_are_said_and_never_random(tmp_path):
    save("bert_encoder", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    pooled = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(pooled, tmp_path / "model.safetensors", {"format": "pt"})
    assert len(pooled) < len(weights) and load_folder(tmp_path, "own").model is not None
    fewer = {key: value for key, value in weights.items() if "layer.1.attention" not in key}
    save_file(fewer, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(PretrainedError, match=r"own lacks 10 of the weights .*layer\.1\.attention"):
        load_folder(tmp_path, "own")
    for damaged in (b"", b"damaged", bert_files()["model.safetensors"][:-1]):
        (tmp_path / "model.safetensors").write_bytes(damaged)
        with pytest.raises(PretrainedError, match="own cannot be loaded"):
            load_folder(tmp_path, "own")


def test_sizes_and_errors_in_words():
    sizes = (999, 91_000_000, 5_000_000_000, 600_000_000, 1_234_567)
    assert [*map(hub.format_bytes, sizes)] == ["1 kB", "91 MB", "5.0 GB", "600 MB", "1.2 MB"]
    for error, words in (
        (ValueError("one\ntwo"), "one"),
        (ValueError("x" * 160), "x" * 160),
        (ValueError("x" * 161), "x" * 159 + "…"),
        (ValueError(), "ValueError()"),
        (ValueError("Expected one of:\n(1) a,\n(2) b."), "Expected one of: (1) a, (2) b."),
    ):
        assert first_line(error) == words


# Model folders whose settings are put wrong by hand; tests/fuzz does it at random.


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
    ("bert", "config.json", {"vocab_size": 10**8}, "asks for"),
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


def test_no_config_with_the_defaults_of_its_class_has_too_many_parts():
    assert not {name for name, kind in CONFIG_MAPPING.items() if too_many(default(kind))}
    for field, past in (("num_experts", 1), ("num_hidden_layers", 1), ("pad_token_id", 0)):
        doge = CONFIG_MAPPING["doge"](**{field: 10**6})
        for config in (doge, CONFIG_MAPPING["llava"](text_config=doge)):
            assert too_many(config) == [(field, 10**6)] * past


@pytest.fixture
def parts(folders, tmp_path):
    """A folder whose weights are one shard and its index."""
    folder, shard = (
        shutil.copytree(folders["bert"], tmp_path / "parts"),
        "model-00001-of-00001.safetensors",
    )
    (folder / "model.safetensors").rename(folder / shard)
    with safe_open(folder / shard, framework="pt") as weights:
        keys = list(weights.keys())

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
        with pytest.raises(PretrainedError, match="an index that names"):
            DOORS[door](parts(file))
    (tmp_path / "parts" / "model.safetensors.index.json").write_text("[]", encoding="utf-8")
    with pytest.raises(PretrainedError, match="no model.safetensors.index.json that can be read"):
        DOORS[door](tmp_path / "parts")


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
        with pytest.raises(PretrainedError, match=words.format(name)):
            DOORS[door](folder)


# The lab's own models, as they are kept: small, made by a run that is told, readable, good at what they learned.


NAMES = ("numbers", "induction", "only-attention", "names", "digits")
REPEATING = ("induction", "only-attention")


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


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
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert not [path for path in files if path.suffix not in (".json", ".safetensors", ".md")]


def test_each_tells_the_run_that_made_it_and_make_models_runs_it_again(name):
    RunConfig.from_json(run_metadata(name)["config"])
    assert {path.name for path in (LAB_MODELS / name).iterdir()} >= {
        "config.json",
        "model.safetensors",
        "run.json",
    }
    # Of a repeating line's words half stand there for the first time; of a sentence's most are drawn at random.
    target = {"names": 0.45}.get(name, 0.5 if name in REPEATING else 0.95)
    assert run_metadata(name)["reached"]["token_accuracy"] >= target
    makefile = (Path(__file__).parents[2] / "Makefile").read_text("utf-8")
    assert re.search(rf"^LAB_MODELS := .*\b{name}\b", makefile, re.M)


def test_the_translator_gets_numbers_right_that_it_never_saw_and_its_alignment_can_be_seen():
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
    assert known.sum() > 1000
    assert guessed[known].float().mean() >= 0.95
    assert guessed[~known].float().mean() < 0.1, "nothing tells a word that is drawn at random"


def test_a_person_can_type_a_sentence(induction):
    pretrained, _ = induction
    result = answer(pretrained, ModelInputs("The cat sat on the mat. The cat"))
    assert pretrained.tokenizer.convert_ids_to_tokens(int(result.probabilities.argmax())) == "sat"
    assert result.probabilities.max() > 0.5
    before = answer(pretrained, ModelInputs("The cat"))
    assert before.probabilities.max() < 0.2


def test_the_digits_are_told_apart():
    pretrained, task = load_lab_model("digits"), task_of("digits")
    held, right = task.held_out(120), 0
    pixels = hf_inputs(task.collate(held), task, None)["pixel_values"][:, 0].numpy()
    for picture, example in zip(pixels, held, strict=True):
        logits = answer(pretrained, ModelInputs(picture=Array.of(picture))).logits
        right += pretrained.model.config.id2label[int(logits.argmax())] == example.target[0]
    assert right >= 0.95 * len(held)
