"""The page Cost and speed, driven without a browser: a real race, Stop, the kept one, slopes, and implied weights."""

import time
from functools import partial
from unittest.mock import Mock

import msgspec
import pytest
import torch
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df

from core.attention import AttentionConfig, Choice
from core.attention.cost import Measurement, attention_cost, output_error
from core.studies import efficient as study
from core.studies.efficient import ENTRIES, Conditions, Result, start_race
from pages import efficient
from tests.pages.app import captions, open_at, set_control

QUICK = ("fused", "linear")
open_page = partial(open_at, "efficient", "efficient:")
put = partial(set_control, "efficient:")


def until_measured(at):
    end = time.monotonic() + 40
    while "efficient:race" in at.session_state:
        assert time.monotonic() < end
        time.sleep(0.1)
        at.run()
    return at


def test_the_kept_measurement_is_whole():
    """Every kernel there is, each at least to 2,048 tokens, with the closed forms' memory."""
    saved = study.load_result()
    assert set(saved.conditions.keys) == set(ENTRIES), "run make measured"
    for kernel in ENTRIES:
        points = saved.of(kernel)
        assert points[-1].length >= 2048
        if kernel != "fused":
            closed = attention_cost(
                saved.conditions.config(kernel), points[-1].length, points[-1].length
            ).bytes
            assert points[-1].bytes == pytest.approx(closed, rel=0.2)


def test_a_race_is_measured_here_and_shown():
    at = open_page()
    at.multiselect(key="efficient:kernels").set_value(list(QUICK))
    put(at, "selectbox", "longest", 512)
    at.button(key="efficient:measure").click()
    until_measured(at.run())
    result = at.session_state["efficient:result"]
    assert {p.name for p in result.points} == set(QUICK) and {p.length for p in result.points} == {
        128,
        256,
        512,
    }
    assert all(p.seconds > 0 and p.bytes > 0 for p in result.points)
    rows = convert_arrow_bytes_to_pandas_df(at.get("vega_lite_chart")[0].proto.data.data)
    names = list(rows[rows.kind.isin(("label", "early"))].name)
    assert at.caption[0].value.startswith("Measured here")
    assert names == [ENTRIES[kernel].name for kernel in QUICK]
    assert "were measured before" in captions(put(at, "selectbox", "backward", True))


def test_a_parameter_goes_into_the_race():
    at = open_page()
    assert "were measured before" not in captions(at)
    at.multiselect(key="efficient:kernels").set_value(["chunked"])
    at = put(at, "selectbox", "longest", 512)
    at.number_input(key="efficient:params:chunked:block").set_value(32).run()
    assert any("were measured before" in caption.value for caption in at.caption)
    at.button(key="efficient:measure").click()
    until_measured(at.run())
    result = at.session_state["efficient:result"].conditions
    assert (
        result.kernels == (Choice.of("chunked", block=32),)
        and result.config("chunked").kernel["block"] == 32
    )


def test_a_kernel_that_cannot_and_none_at_all_are_said():
    at = put(open_page(), "multiselect", "kernels", ["fused", "linformer"])
    at = put(at, "selectbox", "causal", True)
    assert (
        len(at.info) == 1
        and "linformer" in at.info[0].value
        and "take" in at.info[0].value.replace("\\", "")
    )
    assert not at.button(key="efficient:measure").disabled
    at = put(at, "multiselect", "kernels", [])
    assert "Pick a kernel" in at.info[0].value and at.button(key="efficient:measure").disabled


def test_a_device_is_chosen_only_where_there_are_two(monkeypatch):
    assert not [box for box in open_page().selectbox if box.label == "Device"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8e9, 16e9))
    at = open_page()
    box = next(box for box in at.selectbox if box.label == "Device")
    assert box.options == ["A card", "CPU"] and box.value == "cuda"
    assert "4\u00a0GB" in at.selectbox(key="efficient:longest").help
    assert any(
        "were measured before" in caption.value for caption in at.caption
    )  # the kept curves are a CPU's
    at = put(at, "selectbox", "device", "cpu")
    assert not any("were measured before" in caption.value for caption in at.caption)


def test_implied_weights_need_a_word():
    assert "no word here" in put(open_page(), "text_input", "sentence", "").warning[0].value


@pytest.mark.parametrize("stopped", [True, False])
def test_a_race_ends_when_told_or_when_nobody_looks(monkeypatch, stopped):
    monkeypatch.setattr(study, "LEFT", 20.0 if stopped else 0.0)
    race = start_race(Conditions.of(["exact"], 8192))
    if stopped:
        race.stop()
    race.wait(20)
    assert not race.alive and not race.error and race.fraction < 1


def test_one_race_at_a_time_and_the_other_waits():
    with study.ONE_AT_A_TIME:
        race = start_race(Conditions.of(QUICK, 512))
        race.wait(0.3)
        assert race.alive and race.waiting and not race.points
    race.wait(30)
    assert not race.alive and len(race.points) == 6


def test_an_error_in_a_race_is_stored_to_be_said(monkeypatch):
    monkeypatch.setattr(
        study, "race", lambda *how, **limits: map(Mock(side_effect=RuntimeError("no memory")), [1])
    )
    race = start_race(Conditions.of(QUICK, 512))
    race.wait(10)
    assert race.error == "no memory" and not race.alive


def test_a_result_survives_json():
    points = Measurement("fused", 128, 1e-3, 5), Measurement("fused", 256, skipped="too long")
    result = Result(Conditions.of(["fused"], 512, True), points, "here")
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
    assert [p.length for p in result.of("fused")] == [128] and result.skipped()[0].length == 256


def square(kernel, seconds, held):
    return [Measurement(kernel, n, seconds(n), int(held(n))) for n in (128, 256, 512)]


def test_slopes_and_the_sentence_come_from_the_points():
    points = square("exact", lambda n: n * n * 1e-6, lambda n: n * n)
    points += square("linear", lambda n: n * 1e-6, lambda n: n)
    result = Result(Conditions.of(["exact", "linear"], 512), tuple(points), "here")
    exact, linear = (efficient.scaling(result, kernel) for kernel in ("exact", "linear"))
    assert (exact.time, exact.memory, exact.flops) == pytest.approx((2, 2, 2), abs=0.01)
    assert (linear.time, linear.memory, linear.flops) == pytest.approx((1, 1, 1), abs=0.01)
    sentence = efficient.fact_text(result, ["exact", "linear"])
    assert (
        "At 512 tokens, linear takes **512\u00a0µs**" in sentence
        and "exact takes **262\u00a0ms**" in sentence
    )
    assert "linear takes 2.00 times as long, exact 4.00 times" in sentence
    assert efficient.power(1.98) == "T¹·⁹⁸"


def test_distances_are_those_of_the_outputs():
    """Zero but for rounding where the weights are the same; not where they are others."""
    defaults = Conditions()
    assert all(
        output_error(defaults.config(kernel), study.SEED) < 1e-5
        for kernel in ("fused", "chunked", "local")
    )
    assert output_error(defaults.config("linear"), study.SEED) > 0.1


def test_implied_weights_are_those_of_the_layer():
    tokens = ("a", "b", "c", "d")
    same = study.implied(Choice.of("nystrom", landmarks=8), tokens, False)
    assert (
        same.mean_error < 1e-6 and abs(same.weights.sum(-1) - 1).max() < 1e-6
    )  # a landmark per token: the softmax
    few = study.implied(Choice.of("nystrom", landmarks=2), tokens, False)
    weights = study.weights_of(AttentionConfig(64, 4, kernel="exact"), tokens)
    assert few.mean_error == pytest.approx(
        float((torch.tensor(few.weights) - weights).abs().mean())
    )
