"""A model trained here and its twin in Hugging Face's library: the same logits, the same attention, readable tokens."""

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from core.attention import Choice
from core.models import ModelConfig, build_model
from core.models.decoding import greedy
from core.pretrained import PretrainedError, load_folder, read
from core.pretrained.export import (
    check_logits,
    code_of,
    export,
    export_zip,
    hf_inputs,
    main,
    vocabulary_words,
    word_tokenizer,
)
from core.pretrained.hf_conversion import convert_to_hf
from core.pretrained.load import LAB_MODELS
from core.runs.executor import line
from core.runs.runs import create_run
from core.runs.worker import work
from core.tasks import TaskConfig, Vocabulary, make_task
from core.training import RunConfig
from tests.cases import each

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
    "llama-in-one-line": (
        TaskConfig.of("copy", length=7),
        of(30, 3, 2, 44, kind="decoder", **LLAMA),
        "LlamaForCausalLM",
    ),
    "gpt2": (REPEATS, of(30, 3, 2, 44, kind="decoder", **GPT2), "GPT2LMHeadModel"),
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
def test_a_kept_twin_says_the_same_and_attends_the_same_in_every_head(name, tmp_path):
    task, model, vocabulary, twin = made(name)
    assert type(twin).__name__ == EXPORTS[name][2]
    assert check_logits(model, twin, task, vocabulary) < 2e-5
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
    with pytest.raises(RuntimeError, match="differs from the model: logits by"):
        check_logits(model, hf_model, task, vocabulary)


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
    with pytest.raises(PretrainedError, match=words):
        convert_to_hf(build_model(config, made.shape), made, Vocabulary(vocabulary_words(made)))


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
    ],
)
def test_what_is_typed_is_read_as_the_task_reads_it(task, typed, tokens):
    task = make_task(task)
    tokenizer = word_tokenizer(task, Vocabulary(vocabulary_words(task)), 40)
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
    assert main(["export", str(run.path), str(folder), "--license", "mit"]) == 0
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
        for folder in (export(run, tmp_path / "out"), LAB_MODELS / "digits")
    )
    assert ours == own


def test_a_zip_holds_the_folder_and_a_run_that_is_not_there_is_told(run, capsys):
    with zipfile.ZipFile(io.BytesIO(export_zip(run))) as file:
        paths = [Path(name) for name in file.namelist()]
    files = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "run.json"}
    assert files <= {path.name for path in paths} and {path.parent.name for path in paths} == {
        run.id
    }
    assert main(["export", "no-such-run", "out"]) == 1
    assert "There is no run no-such-run" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["marian-letters", "llama-in-one-line", "gpt2"])
def test_the_code_of_a_card_loads_the_folder_and_prints_what_it_says(
    name, tmp_path, capsys, monkeypatch
):
    task, _, vocabulary, twin = made(name)
    tokenizer = word_tokenizer(task, vocabulary, 99)
    for part in (twin, tokenizer):
        part.save_pretrained(tmp_path)
    code = code_of(task, twin, tokenizer)
    monkeypatch.chdir(tmp_path)
    assert run_code(code, capsys) == code.rpartition("  # ")[2].strip()


@pytest.mark.parametrize("name", [ref.name for ref in sorted(LAB_MODELS.iterdir()) if ref.is_dir()])
def test_the_cards_of_the_labs_own_models_run_and_state_what_was_measured(
    name, tmp_path, capsys, monkeypatch
):
    folder = LAB_MODELS / name
    text = (folder / "README.md").read_text("utf-8")
    reached = json.loads((folder / "run.json").read_text("utf-8"))["reached"]
    code = card_code(text)
    monkeypatch.chdir(folder)
    assert run_code(code, capsys) == code.rpartition("  # ")[2].strip()
    card = ModelCard.load(folder / "README.md")
    values = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert (values["loss"], values["accuracy"]) == (reached["loss"], reached["token_accuracy"])
    assert card.data.license == "mit" and "seconds" not in card.text
    again = tmp_path / name
    shutil.copytree(folder, again, ignore=shutil.ignore_patterns("README.md"))
    main(["model-card", str(again), "--license", "mit"])
    assert figures((again / "README.md").read_text("utf-8")) == figures(text)


def figures(card: str) -> list[str]:
    """A card without its code, whose words the rounding of a processor may change, and without versions."""
    before, _, rest = card.partition("```python\n")
    return [
        row for row in (before + rest.partition("```")[2]).splitlines() if "written with" not in row
    ]


def card_code(text: str) -> str:
    return text.partition("```python\n")[2].partition("```")[0]


def run_code(code: str, capsys: pytest.CaptureFixture) -> str:
    capsys.readouterr()
    exec(compile(code, "README.md", "exec"), {})
    return capsys.readouterr().out.strip()
