"""A fine-tuning run: what learns and what does not, what is written, and every way it can end."""

import gc
import json
import math
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from core.entries import ConfigError
from core.files import folder_bytes
from core.pretrained import (
    ModelInputs,
    PretrainedError,
    answer,
    finetune_run as running,
    hub,
    load_folder,
    read,
)
from core.pretrained.finetune import (
    LAB,
    MINILM,
    FineTuneConfig,
    Pair,
    build,
    check_model,
    name_of,
    own_rows,
    parse,
    resolve,
    usual,
)
from core.pretrained.finetune_run import (
    FineTuneLoop,
    about,
    classes,
    config_of,
    create,
    fine_tune,
    inputs,
    last_checkpoint,
    measure,
    result,
    targets,
    trace_of,
)
from core.runs import worker
from core.runs.machine import line, machine
from core.runs.runs import Run, list_runs
from core.training.evaluate import Record
from dashboard.draw.fine_tune import conditions
from dashboard.draw.formats import plain
from dashboard.server import queue
from dashboard.ui.runs import summarize
from pages.runs import about_text as about_run
from tests.cases import each, instance, memory_is
from tests.damage import flip
from tests.pages.app import app_at, captions, html_text, page_text
from tests.tiny_models import SENTENCE, save
from tests.training.small import run_command

WORDS = "red blue green one two three four dog cat sun is the not".split()
SQUARES = "source,target\n" + "\n".join(
    f"{a} {b} {c},{c} {b} {a} {a}"
    for a in ("uno", "due", "one")
    for b in ("red", "dog", "sun")
    for c in ("two", "cat")
)


def small_model(folder, kind, ends, marks, **config) -> Path:
    """The folder, with a model of a few words and its tokenizer in it, so that a whole run takes a second."""
    vocab = {word: place for place, word in enumerate((*marks.values(), *WORDS))}
    made = Tokenizer(models.WordLevel(vocab, marks["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [(sign, place) for sign, place in vocab.items() if sign in ends]
    made.post_processor = processors.TemplateProcessing(single=ends, special_tokens=special)
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **marks).save_pretrained(folder)
    torch.manual_seed(3)
    model = getattr(transformers, kind)
    model(model.config_class(vocab_size=len(vocab), **config)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def imported():
    """Each training collects garbage at its start and end, which shall not go through all that was imported."""
    assert transformers.Trainer
    gc.freeze()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory, imported) -> Path:
    marks = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    return small_model(tmp_path_factory.mktemp("encoder"), "BertModel", "[CLS] $A [SEP]", marks, hidden_size=24,
                       num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
                       max_position_embeddings=32)  # fmt: skip


@pytest.fixture(scope="session")
def translator(tmp_path_factory, imported) -> Path:
    marks = dict(pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    return small_model(tmp_path_factory.mktemp("translator"), "BartForConditionalGeneration", "$A </s>", marks,
                       d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                       decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=24,
                       pad_token_id=0, bos_token_id=2, eos_token_id=3, dropout=0.0, decoder_start_token_id=2,
                       forced_eos_token_id=None)  # fmt: skip


# Rows whose label is the colour in them, wherever it stands.
COLOURS = "text,label\n" + "\n".join(
    f"{form.format(other, colour)},{colour}y"
    for form in ("the {} is {}", "{1} is the {0}")
    for other in WORDS[2:]
    for colour in WORDS[:2]
)


@pytest.fixture
def page(monkeypatch):
    """Opens the Fine-tune page with what the session holds, in a lab of its own without workers."""
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    monkeypatch.setattr(queue, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(queue, "_give", lambda run: None)

    def open_page(model: str = "", **state):
        app = app_at("fine_tune")
        picked = {"inside:model": model, "inside:picked": True} if model else {}
        for key, value in {**picked, **state}.items():
            app.session_state[key] = value
        return app.run()

    return open_page


def never() -> bool:
    return False


@pytest.fixture
def config(encoder) -> FineTuneConfig:
    return FineTuneConfig(
        "classify",
        COLOURS,
        str(encoder),
        logged_example="the sun is not red",
        device="cpu",
        epochs=12,
        batch_size=8,
        learning_rate=1e-2,
    )


@pytest.fixture
def pairs(translator) -> FineTuneConfig:
    return FineTuneConfig(
        "pairs", SQUARES, str(translator), epochs=12, batch_size=4, learning_rate=1e-2
    )


def test_it_learns_and_writes_what_any_run_writes(config, encoder, tmp_path):
    run = create(config, tmp_path)
    output: list[Record] = []
    state, words = fine_tune(run, never, output.append)
    records, steps = run.records(), 12 * math.ceil(33 / 8)
    first, last = records[0], records[-1]
    assert (state, last.step, last.final) == ("finished", steps, True), words
    assert [r.step for r in output] == [r.step for r in records] == run.frame_steps()
    assert (first.train_loss, first.step, first.rate, last.rate) == (None, 0, None, 0.0)
    assert last.loss < 0.5 * first.loss and last.sequence_accuracy > 0.9
    assert ([one.step for one in records[:3]], len(last.examples)) == ([0, 4, 8], 8)
    assert config_of(run) == config and [
        about(run)[one] for one in ("steps", "truncated", "max_tokens", "new_head")
    ] == [steps, 0, 32, True]
    assert 0 < records[1].train_seconds < last.train_seconds < last.elapsed
    folder = instance(result(run), Path)
    tuned = load_folder(folder, "tuned")
    assert folder_bytes(run.path) > folder.joinpath("model.safetensors").stat().st_size
    assert run.metadata()["machines"] == [machine("cpu")]
    where, rows = line(run.metadata()["machines"]), parse("classify", config.data)
    assert where in about_run(summarize(run))
    assert plain(where) in conditions(config, about(run), rows, where)
    assert (tuned.head, folder.name) == ("classify", f"{encoder.name}-tuned")
    for example in last.examples:  # it says what the last record said
        best = int(answer(tuned, ModelInputs(example.source[0])).probabilities.argmax())
        assert tuned.model.config.id2label[best] == example.predicted[0]


@pytest.mark.parametrize(("layers", "learning"), [(0, set()), (1, {1}), (6, {0, 1})])
def test_only_the_last_layers_learn(config, encoder, tmp_path, layers, learning):
    run = create(replace(config, layers=layers, epochs=2), tmp_path)
    fine_tune(run, never)
    before, after = (load_file(folder / "model.safetensors") for folder in (encoder, result(run)))
    moved = {
        name for name, value in before.items() if not torch.equal(value, after[f"bert.{name}"])
    }
    assert not any(name.startswith("embeddings") for name in moved)
    layered = {int(name.split(".")[2]) for name in moved if name.startswith("encoder.layer")}
    assert layered == learning
    first, last = (run.frame(step)["0:self"] for step in (0, run.frame_steps()[-1]))
    assert np.array_equal(first, last) == (layers == 0) and run.frame_steps() == [*range(11)]


def test_a_registered_attention_learns(config, encoder, tmp_path, monkeypatch):
    from transformers import AttentionInterface

    calls = []

    def counted(module, q, k, v, mask, **options):
        calls.append(q.requires_grad)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2), None

    monkeypatch.setattr(
        AttentionInterface, "_global_mapping", dict(AttentionInterface._global_mapping)
    )
    AttentionInterface.register("counted", counted)
    folder = tmp_path / "own"
    shutil.copytree(encoder, folder)
    change_config(folder, attn_implementation="counted")
    run = create(replace(config, model=str(folder), layers=2, epochs=1), tmp_path)
    assert fine_tune(run, never)[0] == "finished" and any(calls)
    rows = run.frame(run.frame_steps()[-1])["0:self"].sum(-1)
    np.testing.assert_allclose(rows[rows > 0], 1, 1e-3)


def test_first_loss_is_models_own_and_first_step_optimizers(config, encoder, tmp_path):
    # All rows are one batch. The rate of the first step is 0, its warm-up, so that AdamW's second one moves first.
    config = replace(config, epochs=2, batch_size=64, layers=2, learning_rate=1e-3)
    run = create(config, tmp_path)
    fine_tune(run, never)
    rows = parse("classify", COLOURS)
    plain = build(config, rows)
    plain.model.hidden_dropout_prob = 0.0
    assert run.records()[0].loss == pytest.approx(measure(plain, rows.held_out).loss, rel=1e-6)
    learns = {name for name, value in plain.model.named_parameters() if value.requires_grad}
    before, after = (
        dict(plain.model.named_parameters()),
        load_file(result(run) / "model.safetensors"),
    )
    for name, value in after.items():
        step = (value - before[name]).abs().max()
        # Adam moves by the learning rate (1.0014 of it, of two gradients), whatever their size, and decays by 0.01
        limit = 1e-3 * (1.0014 + 0.01 * float(before[name].detach().abs().max()))
        if name in learns:
            # softmax does not feel the bias of a key, whose gradient is rounding alone
            low = 0.0 if name.endswith("key.bias") else 0.5e-3
            assert low <= step <= limit + 1e-6, name
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert len(moved) > 0.9 * len(learns) and moved <= learns


def test_stop_keeps_what_was_reached(config, tmp_path):
    run = create(config, tmp_path)
    data = iter([False] * 7)
    state, words = fine_tune(run, lambda: next(data, True))
    assert (state, words) == ("stopped", "Stopped; everything up to step 8 is saved.")
    assert result(run) is not None and not (run.path / "trainer").exists()


def test_a_paused_run_goes_on_as_if_it_had_not_paused(config, tmp_path):
    config = replace(config, epochs=4)
    whole, paused = create(config, tmp_path / "whole"), create(config, tmp_path / "paused")
    fine_tune(whole, never)
    data = iter([False] * 9)

    def pause() -> bool:
        if next(data, True):
            paused.request_stop("pause")
        return bool(paused.stop_request())

    assert fine_tune(paused, pause)[0] == "paused" and result(paused) is None
    assert (paused.path / "trainer").exists() and folder_bytes(paused.path) > folder_bytes(
        whole.path
    ) / 2
    paused.requeue()
    assert fine_tune(paused, never)[0] == "finished"
    assert [(r.step, r.sequence_accuracy) for r in paused.records()] == [
        (r.step, r.sequence_accuracy) for r in whole.records()
    ]
    assert paused.records()[-1].loss == pytest.approx(whole.records()[-1].loss, rel=1e-5)
    assert not (paused.path / "trainer").exists()


@each(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "checksums.json"]
)
def test_a_paused_run_with_damage_keeps_its_records(name, config, tmp_path):
    run = create(config, tmp_path)
    run.request_stop("pause")
    assert fine_tune(run, never)[0] == "paused"
    records = run.records()
    flip(last_checkpoint(run) / name, random.Random(3))
    run.requeue()
    pytest.raises(ValueError, fine_tune, run, never).match("changed after they were saved")
    assert run.records() == records and records


def test_a_cap_of_seconds_ends_it_with_its_last_record(config, tmp_path):
    run = create(replace(config, epochs=100, max_seconds=1.0), tmp_path)
    state, words = fine_tune(run, never)
    assert state == "finished" and "The time limit of 1 s ended it before step 500" in words
    assert run.records()[-1].capped and not any(record.capped for record in run.records()[:-1])
    assert run.records()[-1].final and run.records()[-1].step < about(run)["steps"]


def test_pairs_with_new_words_are_learned(pairs, tmp_path):
    run = create(pairs, tmp_path)
    state, words = fine_tune(run, never)
    first, last = run.records()[0], run.records()[-1]
    assert state == "finished", words
    assert set(about(run)["new_words"]) == {"uno", "due"}
    assert (
        first.sequence_accuracy == 0.0
        and last.token_accuracy > first.token_accuracy
        and last.loss < first.loss
    )
    assert set(run.frame(last.step)) == {
        f"{i}:{kind}" for i in (0, 1) for kind in ("self", "causal", "cross")
    }
    tuned, example = load_folder(result(run), "tuned"), last.examples[0]
    ids = tuned.tokenizer(example.source[0], return_tensors="pt")
    output = tuned.model.generate(**ids, num_beams=1, max_new_tokens=9)[0]
    assert tuned.tokenizer.decode(output, skip_special_tokens=True).strip() == example.predicted[0]
    # Four words and an end: generate() alone does not cut either.
    assert tuned.model.generation_config.max_new_tokens == 4 + 1


def test_a_measurement_waits_for_the_longest_answer(pairs):
    learner = build(pairs, parse("pairs", SQUARES))
    rows = [Pair("two", "two"), Pair("one", " ".join(["one"] * 15))]
    with torch.no_grad():
        learner.model.final_logits_bias.zero_()[
            0, learner.tokenizer.convert_tokens_to_ids("one")
        ] = 1e4
    evaluation = measure(learner, rows)
    assert evaluation.cut == 2
    assert {len(one.predicted[0].split()) for one in evaluation.examples} == {16}


def test_old_words_keep_their_vectors(pairs, translator):
    rows = parse("pairs", SQUARES)
    learner = build(pairs, rows)
    table = load_file(translator / "model.safetensors")["model.shared.weight"]
    assert torch.equal(learner.model.get_input_embeddings().weight[: len(table)], table)
    assert all(weight.requires_grad for weight in learner.model.parameters()), "pairs train all"
    ids = learner.tokenizer(
        [pair.text for pair in rows.held_out], padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        own = learner.model.eval()(
            input_ids=ids["input_ids"],
            attention_mask=ids["attention_mask"],
            labels=(labels := targets(learner, rows.held_out)),
        )
    right = (own.logits.argmax(-1) == labels)[labels != -100]
    measured = measure(learner, rows.held_out)
    assert [measured.loss, measured.token_accuracy] == pytest.approx(
        [float(own.loss), float(right.float().mean())], rel=1e-5
    )


def test_what_cannot_be_is_said_before_a_folder_is_made(config, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", never)
    unlike = replace(config, task="pairs", logged_example="")
    for make, error, words in (
        (lambda: create(replace(config, model="/nowhere"), tmp_path), PretrainedError,
         "no model at /nowhere"),
        (lambda: replace(config, learning_rate=1.0), ConfigError,
         "learning_rate = 1.0; expected a number from 1e-06 to 0.01"),
        (lambda: FineTuneConfig.from_json({**config.to_json(), "colour": 1}), ConfigError,
         "has no colour"),
        (lambda: create(replace(pairs, logged_example="no such source"), tmp_path), ConfigError,
         "not one of the sources"),
        (lambda: create(unlike, tmp_path), PretrainedError, "cannot learn pairs"),
        (lambda: create(replace(config, device="cuda"), tmp_path), ConfigError,
         "device = cuda is not on this machine"),
        (lambda: replace(config, device="tpu"), ConfigError, "device = 'tpu'; expected one of auto, cpu"),
    ):  # fmt: skip
        pytest.raises(error, make).match(words)
    assert not list(tmp_path.iterdir())


# The worker that trains any run also fine-tunes one.


def test_a_model_that_went_away_is_said(config, tmp_path, worker_here):
    run = create(config, tmp_path)
    run.update_metadata(finetune={**config.to_json(), "model": "/gone"})
    assert worker.main([str(run.path)]) == 1
    assert run.status().message.startswith("There is no model at /gone")


def test_a_worker_learns_what_was_queued(config, monkeypatch, worker_here):
    monkeypatch.setattr(queue, "max_workers", lambda: 0)
    run = queue.fine_tune(replace(config, epochs=2), name="colours")
    assert worker.main([str(run.path)]) == 0, run.status().message
    assert run.name == "colours" and run.records()[-1].step == 10 and run.records()[-1].final
    assert result(run) is not None and run.status().message.startswith("Finished after 10 steps")


# On which device a fine-tuning run computes; no GPU is needed: what is there is feigned, and "meta" stands for one.


def test_what_model_reads_and_must_say_lies_where_it_lies(config, pairs, monkeypatch):
    monkeypatch.setattr("core.pretrained.finetune.resolve_device", lambda name: "meta")
    rows = parse("classify", config.data)
    learner, answers = build(config, rows), parse("pairs", pairs.data)
    tensors: list[Any] = [
        learner,
        classes(learner, rows.held_out),
        *inputs(learner, ["the sun " * 99]).values(),
        targets(build(pairs, answers), answers.held_out),
    ]
    assert {each.device.type for each in tensors} == {"meta"} and tensors[2].shape == (1, 32)


def test_the_trainer_is_kept_from_a_gpu_only(config, monkeypatch, tmp_path):
    rows = parse("classify", config.data)
    learner = build(config, rows)
    loop = FineTuneLoop(create(config, tmp_path), config, rows, learner, never, print)
    for kind in ("cpu", "cuda"):
        monkeypatch.setattr(type(learner), "device", torch.device(kind))
        args = running.make_trainer(loop).args
        assert args.use_cpu == (kind == "cpu") and args.disable_tqdm
    assert (args.weight_decay, args.warmup_steps) == (0.01, 60 // 10)
    assert not args.remove_unused_columns and not args.dataloader_pin_memory
    # a loss that is no number ends it
    pytest.raises(FloatingPointError, loop.learned, math.nan).match("take a smaller learning rate")


# Encoders, decoders and encoder–decoders of the usual families go on learning and come out as folders of their own.


LABELS = "text,label\n" + "\n".join(
    f"the {a} {b} {c},{a}"
    for a in ("small", "green")
    for b in ("dog", "street", "boat")
    for c in ("was late", "is tired")
)
PAIRS = "source,target\n" + "\n".join(
    f"the {a} {b},{b} {a}"
    for a in ("small", "green", "late", "tired")
    for b in ("dog", "street", "boat")
)


@pytest.mark.parametrize(
    ("task", "family"),
    [
        ("classify", name)
        for name in "distilbert roberta albert deberta_v2 longformer modernbert gpt2 qwen3".split()
    ]
    + [("pairs", name) for name in ("t5", "bart", "marian")],
)
def test_a_family_goes_on_learning(family, task, tmp_path):
    folder, classify = str(save(family, tmp_path / family)), task == "classify"
    data, text = (LABELS, SENTENCE) if classify else (PAIRS, "the small dog")
    sizes: Any = {"epochs": 1, "batch_size": 6} if classify else {"epochs": 2, "batch_size": 4}
    config = FineTuneConfig(task, data, folder, logged_example=text, **sizes)
    example = ModelInputs(text, target=None if classify else "dog small")
    run = create(config, tmp_path)
    state, words = fine_tune(run, never)
    assert state == "finished", words
    tuned, records = load_folder(result(run), "tuned"), run.records()
    if task == "classify":
        assert tuned.head == "classify" and tuned.model.config.id2label == {0: "green", 1: "small"}
    else:
        assert tuned.head == "seq2seq" and records[-1].loss < records[0].loss
    saved = trace_of(run.frame(records[-1].step), 0, about(run)["sentences"][0], "run")
    for item, real in zip(saved.maps, read(tuned, example).trace.maps, strict=True):
        assert (item.kind, item.layer, item.queries) == (real.kind, real.layer, real.queries)
        np.testing.assert_allclose(item.weights, real.weights, atol=1e-3)  # half floats


# Any model that Look inside opens goes on learning, from page and shell; one that cannot is refused in a sentence.


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def stored(encoder, monkeypatch, tmp_path) -> Path:
    """The tiny encoder as a model of the hub that was fetched before."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    folder = hub.model_folder("someone/tiny", COMMIT)
    shutil.copytree(encoder, folder)
    return folder


def test_a_shell_names_a_model_as_look_inside_does(stored, encoder, monkeypatch):
    assert resolve("all-MiniLM-L6-v2") == resolve("minilm") == MINILM
    assert resolve("numbers") == resolve("lab:numbers") == f"{LAB}numbers"
    assert resolve(str(encoder)) == str(encoder)
    assert resolve("someone/tiny") == resolve(f"someone/tiny@{COMMIT}") == str(stored)
    assert name_of(str(stored)) == "someone/tiny"
    wrong = {"/nowhere/at/all": "There is no folder", "no such name": "not the name of a model"}
    for name, words in wrong.items():
        pytest.raises(PretrainedError, resolve, name).match(words)


@pytest.mark.parametrize(("model", "task", "words"), [
    (f"{LAB}digits", "classify", "digits is of the family vit, which cannot learn labels of texts: transformers has no head "
     "of it for them. Labels need"),
    (f"{LAB}numbers", "classify", "family marian, which cannot learn labels"),
    (f"{LAB}induction", "pairs", "family llama, which cannot learn pairs of texts: transformers has no head of it for them. "
     "Pairs need an encoder–decoder"),
    (MINILM, "pairs", "family bert, which cannot learn pairs"),
    ("/nowhere", "classify", "no model at /nowhere"),
])  # fmt: skip
def test_a_model_that_cannot_learn_the_rows_is_refused(model, task, words, tmp_path):
    pytest.raises(PretrainedError, create, usual(task, model=model), tmp_path).match(words)
    assert not list(tmp_path.iterdir())


def test_adapter_is_merged_and_nan_refused_before_it_learns(encoder, tmp_path):
    folder, path = tmp_path / "model", "encoder.layer.0.attention.output.dense"
    shutil.copytree(encoder, folder)
    config = FineTuneConfig("classify", COLOURS, str(folder))
    before = build(config, config.rows).model.bert.get_submodule(path).weight.detach().clone()
    a, b = torch.ones(2, before.shape[1]), torch.ones(before.shape[0], 2)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 2}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    halves = {
        f"base_model.model.{path}.lora_{half}.weight": one for half, one in (("A", a), ("B", b))
    }
    save_file(halves, folder / "adapter_model.safetensors", {"format": "pt"})
    merged = build(config, config.rows).model.bert.get_submodule(path).weight.detach()
    torch.testing.assert_close(merged, before + b @ a)
    tensors = load_file(folder / "model.safetensors")
    tensors[next(key for key in tensors if key.endswith(f"{path}.weight"))][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    pytest.raises(PretrainedError, build, config, config.rows).match("NaN or infinity in 1 of")


def test_what_is_missing_is_said(encoder, tmp_path, monkeypatch):
    words = r"does not know \d\d% of the words in these rows. Labels need"
    pytest.raises(ConfigError, create, usual("classify", model=str(encoder)), tmp_path).match(words)
    bare = tmp_path / "bare"
    shutil.copytree(encoder, bare, ignore=shutil.ignore_patterns("token*"))
    pytest.raises(
        PretrainedError, create, FineTuneConfig("classify", COLOURS, str(bare)), tmp_path
    ).match("bare has no readable tokenizer")
    memory_is(monkeypatch, 1000)
    size = hub.format_bytes(2 * (encoder / "model.safetensors").stat().st_size)
    pytest.raises(PretrainedError, check_model, str(encoder), "classify").match(
        f"about {size} of memory, and 1 kB is free"
    )


def test_a_text_model_of_the_hub_is_chosen_on_the_page(stored, page):
    app = page("someone/tiny", **{"fine_tune:data:classify": COLOURS})
    app.switch_page("../pages/pretrained.py").run()
    app.switch_page("../pages/fine_tune.py").run()
    assert app.selectbox(key="inside:model").value == "someone/tiny" and not app.exception
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert config_of(run).model == str(stored) and not app.exception


def test_each_task_begins_with_its_usual_model(page):
    app = page("digits")
    assert "cannot learn labels of texts" in page_text(app)
    assert app.button(key="fine_tune:start").disabled
    app.button(key="fine_tune:usual").click().run()
    assert app.selectbox(key="inside:model").value == "all-MiniLM-L6-v2"
    assert not app.button(key="fine_tune:start").disabled
    app.selectbox(key="fine_tune:task").set_value("pairs").run()
    assert "which cannot learn pairs" in page_text(app), "a picked model stays"
    app.selectbox(key="inside:model").set_value("Another model…").run()
    assert app.text_input(key="inside:typed") and app.button(key="fine_tune:start").disabled
    assert "Your own arrays…" not in app.selectbox(key="inside:model").options


# Rows of a CSV: what is learned, what is held out, and words with a line number for whatever is wrong.


GOOD = "text,label\n" + "\n".join(f"sentence {i},{'ab'[i % 2]}" for i in range(12))


def test_a_quarter_of_each_label_is_held_out():
    rows = parse("classify", GOOD)
    assert Counter(pair.answer for pair in rows.held_out) == {"a": 1, "b": 1}
    assert Counter(pair.answer for pair in rows.learned) == {"a": 5, "b": 5}
    assert not {pair.text for pair in rows.learned} & {pair.text for pair in rows.held_out}
    assert parse("classify", GOOD, 1).learned != rows.learned
    own = parse("classify", own_rows("classify"))
    every = (*own.learned, *own.held_out)
    assert Counter(pair.answer for pair in every) == dict.fromkeys(own.labels, 30)
    assert (own.ties, len({pair.text for pair in every}), own.majority[1]) == (4, 120, 0.25)
    assert parse(
        "classify", "\n".join(f"{i},{'yes' if i < 9 else 'no'}" for i in range(13))
    ).majority == ("yes", 2 / 3), "that of what is learned"


def test_rows_are_read_as_they_are_meant():
    # Quotation marks hold commas, a header is not needed, a row twice is one, pairs need no label twice.
    rows = parse("classify", GOOD.removeprefix("text,label\n") + '\n"one, two, three",b')
    assert "one, two, three" in {pair.text for pair in (*rows.learned, *rows.held_out)}
    assert len(rows.learned) + len(rows.held_out) == 13
    rows = parse("classify", GOOD + "\nsentence 3,b\nsentence 3,b")
    assert rows.repeated == 2 and len(rows.learned) + len(rows.held_out) == 12
    rows = parse("pairs", "source,target\n" + "\n".join(f"{i},{i * i}" for i in range(8)))
    assert rows.labels == () and len(rows.held_out) == 2
    most = "\n".join(f"{'x' * 1000 if i == 7 else i},{i % 20}" for i in range(3_000))
    assert (len(parse("classify", most).labels), len(parse("classify", most).held_out)) == (20, 100)


@pytest.mark.parametrize(("data", "words"), [
    ("", "There is no file yet"),
    ("text,label", "0 different rows"),
    (GOOD + "\n,a", "no text in line 14"),
    (GOOD + "\nnothing,", "no label in line 14"),
    (GOOD + "\nsentence 0,b", "Lines 2 and 14 have the same text"),
    (GOOD + "\nlonely,c", "only once in the file: line 14"),
    (GOOD + "\na,b,c", "line 14 has 3"),
    (GOOD + '\n"open,a', "Line 14 opens a quotation mark"),
    (GOOD + "\n" + 1001 * "x" + ",a", "longer than 1,000 characters in line 14"),
    ("a,b,c\n" * 9, "Line 1 has 3 columns"),
    ("\n".join(f"{i},same" for i in range(9)), "Every row has the label 'same'"),
    ("\n".join(f"{i},{i % 21}" for i in range(99)), "at most 20 are allowed"),
    ("\n".join(f"{i},{i % 2}" for i in range(7)), "7 different rows; at least 8"),
    ("\n".join(f"{i},{i % 2}" for i in range(3_001)), "at most 3,000 are allowed"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(data, words):
    pytest.raises(ConfigError, parse, "classify", data).match(words)


# A classifier keeps the order of its own labels where the rows have the same ones; any other model gets a new head.


def change_config(folder, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


@pytest.fixture(scope="session")
def classifier(encoder, tmp_path_factory) -> Path:
    """A model that is right on every row, its labels not in the order of the alphabet."""
    home = tmp_path_factory.mktemp("classifier")
    run = create(
        FineTuneConfig(
            "classify", COLOURS, str(encoder), epochs=12, batch_size=8, learning_rate=1e-2
        ),
        home,
    )
    assert fine_tune(run, never)[0] == "finished"
    folder = instance(result(run), Path)
    assert run.records()[-1].sequence_accuracy == 1.0
    weights = load_file(folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    labels = {"id2label": {"0": "redy", "1": "bluey"}, "label2id": {"redy": 0, "bluey": 1}}
    change_config(folder, **labels)
    return folder


def test_the_shell_keeps_the_labels_of_a_classifier(classifier, tmp_path, worker_here, capsys):
    rows, run = tmp_path / "rows.csv", Run(tmp_path / "run")
    rows.write_text(COLOURS, encoding="utf-8")
    command = ["dashboard", "finetune", "classify", "--data", str(rows)]
    more = "--set layers=0 --set epochs=1 --set batch_size=8 --model".split()
    assert run_command(*command, str(run.path), *more, str(classifier)) == 0
    printed = capsys.readouterr().out
    assert "Finished after 5 steps" in printed and "right" in printed and "Trained on " in printed
    first, last = run.records()[0], run.records()[-1]
    assert first.sequence_accuracy == last.sequence_accuracy == last.balanced == 1.0
    assert (about(run)["labels"], about(run)["new_head"]) == (["redy", "bluey"], False)
    assert last.confusion == ((5, 0), (0, 5))
    for folder in (classifier, result(run)):
        model = load_folder(folder, "model")
        assert model.model.config.id2label == {0: "redy", 1: "bluey"}
        shares = [answer(model, ModelInputs(f"the sun is {one}")) for one in ("red", "blue")]
        assert [int(one.probabilities.argmax()) for one in shares] == [0, 1]
    rows.write_text(COLOURS + "\nthe sky is,", encoding="utf-8")
    assert run_command(*command, str(tmp_path / "other")) == 1
    assert "There is no label in line 46" in capsys.readouterr().err


def test_other_labels_get_a_new_head(classifier):
    config = FineTuneConfig("classify", COLOURS.replace("bluey", "azure"), str(classifier))
    learner = build(config, parse("classify", config.data))
    assert learner.new_head and learner.labels == ("azure", "redy")
    assert learner.model.config.id2label == {0: "azure", 1: "redy"}
    own = load_file(classifier / "model.safetensors")["classifier.weight"]
    head = learner.model.classifier.weight.detach()
    assert not torch.isclose(head, own).any() and float(head.std()) == pytest.approx(0.02, rel=0.5)
    assert not torch.equal(
        build(replace(config, seed=1), parse("classify", config.data)).model.classifier.weight, head
    ), "the seed draws it"
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(
        learner.model.get_parameter(name), load_file(classifier / "model.safetensors")[name]
    )


def test_a_head_of_another_task_is_not_taken(encoder, tmp_path):
    other = transformers.BertForTokenClassification.from_pretrained(
        encoder, num_labels=2, id2label={0: "redy", 1: "bluey"}
    )
    other.save_pretrained(tmp_path)
    for file in encoder.glob("*token*.json"):
        shutil.copy(file, tmp_path)
    learner = build(FineTuneConfig("classify", COLOURS, str(tmp_path)), parse("classify", COLOURS))
    assert not torch.isclose(learner.model.classifier.weight, other.classifier.weight).any()
    assert learner.labels == ("bluey", "redy")


def test_a_multi_label_classifier_learns_one_label_a_row(classifier, tmp_path):
    # Its own loss would want a row of 0 and 1 for each text.
    folder = shutil.copytree(classifier, tmp_path / "several")
    change_config(folder, problem_type="multi_label_classification")
    run = create(
        FineTuneConfig("classify", COLOURS, str(folder), epochs=1, batch_size=32), tmp_path
    )
    state, words = fine_tune(run, never)
    assert state == "finished" and run.records()[-1].sequence_accuracy == 1.0, words


def test_the_page_tells_and_keeps_what_the_classifier_knew(classifier, page):
    app = page(
        str(classifier), **{"fine_tune:data:classify": COLOURS, "fine_tune:classify:epochs": 1}
    )
    app.button(key="fine_tune:start").click().run()
    (run,) = list_runs()
    assert (config_of(run).model, fine_tune(run, never)[0]) == (str(classifier), "finished")
    run.set_status("finished", "Finished.")
    app.run()
    text, notes = html_text(app), captions(app)
    assert "before training it was 100\u00a0%" in text
    matrix = text.partition('aria-label="Confusion matrix"')[2]
    assert -1 < matrix.index("redy") < matrix.index("bluey"), "the model's own order"
    assert "its own head has the same labels" in notes
