"""Looking up, judging, fetching and keeping models of a hub, against one of our own on this computer."""

import json
import threading
import time

import pytest
from safetensors.torch import load_file, save_file

from core.pretrained import PretrainedError, hub, load_folder, read
from tests.cases import each
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, online, serving

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
    names = {file.name for file in plan.files}
    assert plan.commit == COMMIT and plan.family == "bert" and not plan.is_downloaded
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names <= bert_files().keys()
    assert plan.size == sum(len(bert_files()[name]) for name in names)
    assert not [path for path in served.requests if path.endswith(".safetensors")], (
        "planning fetches no weights"
    )

    progress: list[int] = []
    folder = hub.download(plan, progress=progress.append)
    assert progress == sorted(progress) and progress[-1] == plan.size and plan.is_downloaded
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        n: bert_files()[n] for n in names
    }
    trace = read(hub.load("lab/bert", COMMIT), "the cats sat").trace
    assert trace.shape == (2, 3) and trace.map(0).keys == (
        "[CLS]",
        "the",
        "cat",
        "##s",
        "sat",
        "[SEP]",
    )

    requests = len(served.requests)
    assert hub.download(plan) == folder and len(served.requests) == requests, (
        "what is kept is not fetched again"
    )


def test_a_model_is_opened_by_name_and_downloaded_once(served):
    assert hub.open_model("lab/bert").name == "lab/bert" and served.requests
    served.requests.clear()
    assert hub.open_model("lab/bert", COMMIT).name == "lab/bert" and not served.requests


def test_weights_take_four_bytes_each_in_memory(served):
    stored = len(bert_files()["model.safetensors"])
    assert hub.plan("lab/bert").memory == stored
    half = json.loads(bert_files()["config.json"]) | {"dtype": "bfloat16"}
    served.repos["lab/half"] = Repo(bert_files() | {"config.json": json.dumps(half).encode()})
    assert hub.plan("lab/half").memory == 2 * stored
    served.repos["lab/bert"].parameters = {"BF16": 1000, "F32": 11}
    assert hub.plan("lab/bert").memory == 4 * 1011


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


def test_the_bound_is_the_owners_to_set(served, monkeypatch):
    size = hub.plan("lab/bert").size
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"model_mb={str((size - 1) / 1e6)}")
    with pytest.raises(PretrainedError, match="this page downloads at most"):
        hub.plan("lab/bert")


def test_a_revision_that_is_not_there(served):
    assert hub.plan("lab/bert", "refs/pr/1").commit == COMMIT
    with pytest.raises(PretrainedError, match="no revision v9"):
        hub.plan("lab/bert", "v9")


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


def test_names_in_their_forms():
    assert hub.parse(" gpt2 ") == hub.parse("gpt2@") == ("gpt2", "main")
    assert hub.parse("google/vit@refs/pr/1") == ("google/vit", "refs/pr/1")
    assert hub.parse("https://huggingface.co/google/vit/tree/refs%2Fpr%2F1") == (
        "google/vit",
        "refs/pr/1",
    )
    assert hub.parse("huggingface.co/google/vit/") == ("google/vit", "main")
    with pytest.raises(PretrainedError, match="revision"):
        hub.parse("gpt2@../main")


def test_no_network_and_offline(tmp_path, monkeypatch):
    with serving({}) as there:
        dead = there.address
    online(dead, tmp_path, monkeypatch)
    with pytest.raises(PretrainedError, match="cannot be reached"):
        hub.plan("lab/bert")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PretrainedError, match="HF_HUB_OFFLINE"):
        hub.plan("lab/bert")


def test_a_hub_that_never_answers(served, monkeypatch):
    monkeypatch.setattr("core.pretrained.hub.SECONDS", 0.2)
    monkeypatch.setattr(served, "process_request", lambda *args: time.sleep(0.5))
    with pytest.raises(PretrainedError, match="no answer within"):
        hub.plan("lab/bert")


def test_a_download_that_is_stopped_leaves_nothing(served):
    served.repos["lab/bert"].seconds_a_step = 0.02
    plan, stop = hub.plan("lab/bert"), threading.Event()
    with pytest.raises(hub.DownloadStopped):
        hub.download(
            plan, progress=lambda done: stop.set() if done > 4096 else None, stopped=stop.is_set
        )
    assert not plan.is_downloaded and not [
        path for path in hub.storage_folder().rglob("*") if path.is_file()
    ]


def test_a_connection_that_breaks_is_taken_up_again(served):
    plan = hub.plan("lab/bert")
    served.repos["lab/bert"].breaks_at = 8192
    folder = hub.download(plan)
    assert (folder / "model.safetensors").read_bytes() == bert_files()["model.safetensors"]


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
    hub.download(third)
    assert (first.is_downloaded, second.is_downloaded, third.is_downloaded) == (True, False, True)
    assert hub.downloaded_commits("lab/bert") == (COMMIT,) and hub.downloaded_commits("lab/b") == ()
    with pytest.raises(PretrainedError, match="no longer on this computer"):
        hub.load("lab/b", COMMIT)
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", f"models_mb={str(0.5 * size / 1e6)}")
    with pytest.raises(PretrainedError, match="models_mb in ATTENTION_LAB_LIMITS"):
        hub.download(second)


def test_a_full_disk_and_full_memory_are_said(served, monkeypatch):
    plan = hub.plan("lab/bert")
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: type("Usage", (), {"free": 300_000_001})()
    )
    with pytest.raises(PretrainedError, match="no room"):
        hub.download(plan)
    monkeypatch.setattr("core.pretrained.hub.free_bytes", lambda: 10)
    with pytest.raises(PretrainedError, match="of memory"):
        hub.plan("lab/bert")


def test_a_folder_is_judged_in_the_same_words(tmp_path):
    good = tmp_path / "good"
    good.mkdir()
    for name, data in bert_files().items():
        (good / name).write_bytes(data)
    assert hub.check_folder(f" {good} ", 10**6) == good
    for text in (tmp_path / "none", "", good / "config.json", "a\0b"):
        with pytest.raises(PretrainedError, match="no folder"):
            hub.check_folder(str(text), 10**6)
    with pytest.raises(
        PretrainedError, match="no config.json, so it holds no model. Write the path"
    ):
        hub.check_folder(str(tmp_path), 10**6)
    with pytest.raises(PretrainedError, match="at most 10 kB"):
        hub.check_folder(str(good), 10_000)
    (good / "model.safetensors").rename(good / "pytorch_model.bin")
    with pytest.raises(PretrainedError, match="pickle"):
        hub.check_folder(str(good), 10**6)
    (good / "pytorch_model.bin").rename(good / "model.safetensors")
    (good / "config.json").write_text('{"model_type": "rwkv"}', encoding="utf-8")
    with pytest.raises(PretrainedError, match="no attention to draw"):
        hub.check_folder(str(good), 10**6)


def test_weights_that_are_missing_or_damaged_are_said_and_never_random(tmp_path):
    for name, data in bert_files().items():
        (tmp_path / name).write_bytes(data)
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


def test_sizes_in_words():
    assert [
        hub.format_bytes(size) for size in (999, 91_000_000, 5_000_000_000, 600_000_000, 1_234_567)
    ] == ["1 kB", "91 MB", "5.0 GB", "600 MB", "1.2 MB"]
