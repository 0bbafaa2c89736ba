"""The page Decode, driven without a browser: the kept example, every strategy and kind of run, links and refusals."""

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from core.models import ModelConfig
from core.models.decoding import Prompt, beam
from core.runs.runs import create_run
from core.tasks import Task, TaskConfig, make_task
from core.training import RunConfig, prepare, recommended
from dashboard.draw.formats import number
from pages.decode import HALF_TRAINED
from tests.pages.app import app_at, html_text, open_at, tree

open_page = partial(open_at, "decode")


def made(task: TaskConfig, kind: str, **changes):
    """A run that was never trained, but has kept its weights: all that this page needs."""
    config = recommended(make_task(task), kind, steps=2, held_out=2, **changes)
    run = create_run(config)
    run.save_checkpoint(prepare(config), config)
    run.set_status("finished")
    return run


def test_at_first_sight_a_beam_is_right_where_greedy_is_wrong():
    at = open_page()
    assert not at.error and not at.warning
    checkpoint: tuple[Any, Task] = HALF_TRAINED.model()
    model, task = checkpoint
    typed = at.text_input(key="decode:source").value
    batch = task.collate([task.example(typed)])
    one, four = (
        beam(
            model,
            Prompt(batch.source, batch.source_mask),
            width=width,
            max_length=task.max_target + 1,
        ).hypotheses[0]
        for width in (1, 4)
    )
    target = next(e.target for e in task.held_out(40) if e.source == tuple(typed.split()))
    assert (
        tuple(task.target_vocab.decode(four.tokens))
        == target
        != tuple(task.target_vocab.decode(one.tokens))
    )
    body = html_text(at)
    assert f"{' '.join(target)}</b>, which is correct" in body and "which is wrong" in body
    assert number(four.logp) in body and f"probability {number(math.exp(four.logp))}" in body
    assert any(number(four.logp) in e.value for e in at.latex)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [("Greedy", "The most probable token at each step gives"), ("Sampling", "of 20 samples")],
)
def test_each_strategy_says_what_it_found(strategy, words):
    at = open_page()
    before = tree(at)
    at.segmented_control(key="decode:strategy").set_value(strategy).run()
    assert words in html_text(at) and tree(at) != before


def test_every_setting_changes_the_tree_and_a_link_brings_it():
    at = open_page(**{"decode:strategy": "Sampling"})
    for kind, name, value in (
        ("select_slider", "temperature", 2.0),
        ("number_input", "top_k", 3),
        ("slider", "top_p", 0.5),
        ("slider", "samples", 7),
        ("number_input", "seed", 3),
    ):
        before = tree(at)
        getattr(at, kind)(key=f"decode:{name}").set_value(value)
        at.run()
        assert tree(at) != before, name
    at = open_page(**{"decode:width": "2", "decode:penalty": "1.0"})
    assert at.slider(key="decode:width").value == 2
    assert html_text(at).count('<th scope="row"') == 2


def test_another_source_and_one_that_is_typed():
    at = open_page()
    first = at.text_input(key="decode:source").value
    at.button(key="decode:another").click().run()
    second = at.text_input(key="decode:source").value
    assert second != first
    at.text_input(key="decode:source").set_value("seven ; banana").run()
    assert "Not in the vocabulary, read as <unk\\>: banana" in at.caption[0].value.replace(
        "\\<", "<"
    ).replace("\\:", ":")
    assert "which is" not in html_text(at), "nobody knows what is right for it"


@pytest.mark.parametrize(
    ("typed", "words"), [("", "type at least one token"), ("one " * 30, "at most 20")]
)
def test_what_cannot_be_read_is_said_where_one_looks(typed, words):
    at = open_page()
    at.text_input(key="decode:source").set_value(typed).run()
    assert words in at.error[0].value


def test_measuring_compares_with_greedy_over_the_same_sources(monkeypatch):
    at = open_page()
    at.button(key="decode:measure").click().run()
    body = html_text(at)
    assert "Greedy" in body and "Beam of 4, α 0" in body
    match = re.search(r"log-probability −([\d.]+) and −([\d.]+)", body)
    assert match and float(match[1]) < float(match[2])


@pytest.mark.parametrize(
    ("key", "kind", "changes"),
    [
        ("reverse", "decoder", {}),
        ("reverse", "hybrid", {}),
        ("topics", "decoder", {}),
        ("pictures", "transformer", {}),
        ("dates", "recurrent", {"model": ModelConfig.recurrent(16, None)}),
        (
            "dates",
            "recurrent",
            {"model": ModelConfig.recurrent(16, "additive", feeding="bahdanau")},
        ),
    ],
)
def test_any_run_with_a_decoder_can_be_decoded(key, kind, changes):
    run = made(TaskConfig.of(key), kind, **changes)
    at = open_page(run=run.id)
    assert not at.error and not at.warning
    assert at.selectbox(key="decode:run").value == run.id
    for strategy in ("Sampling", "Greedy"):
        at.segmented_control(key="decode:strategy").set_value(strategy).run()
        assert not at.error and "data-place" in tree(at)
    if changes and changes["model"].attention is None:
        assert any("no attention" in c.value for c in at.caption)
    if key == "pictures":
        assert html_text(at).count("<figure") > 0


def test_a_run_that_says_no_tokens_is_not_offered():
    run = made(TaskConfig.of("iris"), "classifier")
    at = open_page(run=run.id)
    assert "has no decoder" in at.warning[0].value.replace("\\", "")
    assert run.id not in at.selectbox(key="decode:run").options
    assert "data-place" in tree(at)


def test_the_run_trained_last_is_the_one_that_is_shown():
    run = made(TaskConfig.of("copy", length=6), "transformer")
    at = app_at("decode")
    at.session_state["train:last"] = run.id
    at.run()
    assert at.selectbox(key="decode:run").value == run.id
    assert len(at.text_input(key="decode:source").value) == 6


def test_a_kept_step_can_be_chosen():
    config = RunConfig(
        TaskConfig.of("reverse", length=6, vocab=12), ModelConfig.transformer(8, 2), steps=10
    )
    run, session = create_run(config), prepare(config)
    for step in (0, 10):
        session.progress = replace(session.progress, step=step)
        run.save_checkpoint(session, config)
        with torch.no_grad():
            dict(session.model.named_parameters())["output.bias"][5] += 3.0
    run.set_status("finished")
    at = open_page(run=run.id)
    assert "step 10" in at.caption[0].value
    before = tree(at)
    at.selectbox(key=f"decode:step:{run.id}").set_value(0).run()
    assert "step 0" in at.caption[0].value and tree(at) != before
