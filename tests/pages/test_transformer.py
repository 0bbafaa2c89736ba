"""The Transformer page without a browser: first sight, every kind of model, trained weights, depth, a broken link."""

import re
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

from core.interpret.trace import head_name
from core.models import ModelConfig
from core.models.model_summary import Part
from core.pretrained.hf_conversion import load_lab_decoder
from core.pretrained.load import WRITER
from core.pretrained.model_inputs import text_of
from core.studies.transformer import (
    BATCH,
    Depth,
    Subject,
    by_depth,
    drop_residual,
    measurements,
    seeded,
    tree_of,
    without_heads,
    writer_controls,
)
from core.tasks import PAD, SPECIALS, Example, TaskConfig, make_task
from dashboard.draw.formats import number
from dashboard.draw.page_views import cells, is_attention, kind_and_layer, stacks_of
from dashboard.draw.transformer import ABOUT, blocks, main_steps, of_model
from dashboard.ui.guide import STICKY_STYLE
from pages.transformer import MOVES
from tests.pages.app import Case, app_at, captions, html_text, page_cases, query_value, set_state


@pytest.fixture
def app() -> AppTest:
    return app_at("transformer")


def open_page(app: AppTest, **chosen: object) -> AppTest:
    for name, value in ({"depth": 3, "start": "random", "numbers": True} | chosen).items():
        app.session_state[f"transformer:{name}"] = value
    return app.run()


def test_numbers_of_parts_and_norms_are_one_click_away(app):
    app.session_state["transformer:weights"] = "example"
    app.session_state["transformer:norms"] = True
    set_state(app, "transformer:numbers")
    assert "loss 0.0" in captions(app), "the example is trained"
    assert not app.get("popover"), "a trained model has the blocks that it has"
    first, second, bare = map(float, re.findall(r">([\d.]+) ×</b>", html_text(app)))
    assert first < 0.1 and second > 0.9, "at 12 layers the norm after starves the first layer"
    assert bare < 1e-6, "without the residual sum the first layer does not learn at all"


RANDOM = {"transformer:start": "random"}
LAYER = 8544 + 12832  # an encoder layer and a decoder layer of 32 numbers
OUTER = 67_038 - 3 * LAYER  # embeddings and the output layer
# attention, SwiGLU's three maps, two RMSNorms
BEFORE = 4 * (32 * 32 + 32) + 3 * 32 * 64 + 2 * 64 + 32 + 2 * 32
MODERN = {"norm": "pre", "normalization": "rms", "activation": "swiglu", "position": "rope"}
KINDS = {
    "topics": "decoder",
    "iris": "one_token",
    "digits": "classifier",
    "series": "forecaster",
    "pictures": "transformer",
    "numbers": "decoder",
}


def session(**values: object) -> list[tuple[str, str, object]]:
    return [("session_state", f"transformer:{name}", value) for name, value in values.items()]


test_what_is_told_of_a_model_with_random_weights = page_cases(
    "transformer",
    {
        f"{layers} layers": Case(
            RANDOM, [f"{OUTER + layers * LAYER:,} parameters"], do=session(layers=layers)
        )
        for layers in (1, 4)
    }
    | {
        "the blocks of a layer": Case(
            RANDOM,
            [
                f"{6 * BEFORE + 3 * (4 * (32 * 32 + 32) + 32) + 2 * 32 + 2 * 30 * 32 + 32 * 30 + 30:,} parameters"
            ],
            do=session(**MODERN),
        )
    }
    | {
        f"{kind} for {task}": Case(
            RANDOM,
            ["parameters and takes"],
            do=session(task=task, layers=2, kind=kind),
            controls={"transformer:kind": kind},
        )
        for task, kind in KINDS.items()
    }
    | {
        "the task's own first model for a kind that it has not": Case(
            RANDOM,
            ["parameters and takes"],
            do=session(kind="decoder", task="iris"),
            controls={"transformer:kind": "classifier"},
        )
    },
)


GAVE = "When Mary and John went to the shop, Mary gave a book to"
test_a_link_opens_on_its_weights = page_cases(
    "transformer",
    {
        "a text of one's own": Case(
            {"transformer:start": "writer", "transformer:text": GAVE},
            [
                "John</b> (0.9999). <b",
                "Layer 3, head 0: ",
                "36 heads, this one adds most to John",
                ": a large weight is not yet a need.",
            ],
            controls={"transformer:weights": "writer"},
        ),
        "words that no story has": Case(
            {"transformer:start": "writer", "transformer:text": "Mary found a quantum"},
            ["It never saw “quantum”"],
        ),
        "a text that is too long": Case(
            {"transformer:start": "writer", "transformer:text": "Mary and " * 150},
            ["301 tokens; the writer reads 1 to 192"],
        ),
        "made when the page opened on the example run": Case(
            {"transformer:start": "trained", "transformer:depth": "3"},
            controls={"transformer:weights": "example"},
        ),
        "made before the page opened on trained ones": Case(
            {"transformer:depth": "3"},
            ["67,038 parameters"],
            controls={"transformer:weights": "seeded"},
            query={"transformer:start": "random"},
        ),
        "of a run": Case(
            {"run": "example", "transformer:start": "random", "transformer:depth": "3"},
            controls={"transformer:weights": "example"},
            query={"run": "example"},
        ),
        "of a run that is gone": Case(
            {"run": "20200101-000000-abcdef"}, ["not on this machine", "parameters"]
        ),
    },
)


def test_writers_last_token_goes_through_residual_stream():
    result = measurements(writer_controls(GAVE))
    stream = result.stream
    heads = (stream.layer, stream.head), stream.needed[:2]
    for (layer, head), instead in zip(heads, (stream.without, stream.without_needed), strict=True):
        loaded, task = load_lab_decoder(WRITER)
        model: Any = loaded
        model.layers[layer].causal.projection.output.weight[:, 32 * head : 32 * head + 32] = 0
        tokens = torch.tensor([task.source_vocab.encode(task.tokens(GAVE))])
        ablated = model(tokens, tokens >= 0, None).logits[0, -1].softmax(-1).max().item()
        assert instead[0] == pytest.approx(ablated, rel=1e-4)
    assert stream.without[0] > 0.999 > stream.without_needed[0], (
        "the head that adds most is not needed"
    )
    assert stream.leader(0)[0] == "to" and len(stream.shares) == 13, "a token says itself at first"
    assert stream.leader(-1) == pytest.approx(result.predicted[-1], abs=1e-5)
    assert [name for name, _ in map(stream.leader, range(7, 10))] == ["to", "John", "John"]
    drawn = blocks(result.tree, result, pre_norm=True)
    assert drawn["layers.3.around_feed_forward+"].title == "Layer 3: “John” takes the lead"
    bars = drawn["layers.3.around_feed_forward+"].bars[0]
    assert (
        bars.before[:-1] == tuple(stream.shares[6].tolist())
        and bars.rows[0][1] == stream.shares[8, 0]
        and drawn["layers.3"].bars[0].rows[0] == ("3: John", stream.shares[8, 0])
    )
    assert result.trace.of("causal").map(3).weights[drawn["layers.3.causal"].cell] > 0.9
    temperatures = dict(drawn["output"].bars[0].at_temperature)
    assert temperatures[3.0][0] < temperatures[1.0][0] == pytest.approx(stream.shares[-1, 0])
    assert "places" not in [
        node["path"] for stack in stacks_of(result.tree) for node in stack["nodes"]
    ], "rotary positions add nothing to a vector"


def test_without_the_residual_sum_nothing_is_left():
    result = measurements(writer_controls(GAVE))
    stream = result.stream
    bare, wrong, its = stream.without_add
    add = blocks(result.tree, result, pre_norm=True)["layers.3.around_causal+"]
    assert "residual stream" in add.about and f"“{wrong}” leads with" in add.about
    assert stream.shares[-1, 0] > 0.9 and bare < 0.01 < its and wrong != "John"
    task = make_task(TaskConfig.of("reverse"))
    model = drop_residual(seeded(ModelConfig.transformer(layers=2, norm="pre"), task, 0))
    tree, _ = tree_of(model, task, task.held_out(BATCH)[:BATCH])
    x = torch.randn(1, 3, 32)
    layer: Any = model.get_submodule("layers.0")
    around = layer.around_feed_forward
    torch.testing.assert_close(
        around.wrap(x, layer.feed_forward), layer.feed_forward(around.norm(x))
    )
    assert all(part.gradient is not None for part in tree.layers())


def test_shares_add_up_or_say_what_is_left(app):
    result = measurements(writer_controls(GAVE))
    for block in blocks(result.tree, result, pre_norm=True).values():
        for bars in block.bars:
            if bars.heading == "After layer, it would say":
                continue  # each row is of another layer
            assert sum(share for _, share in bars.rows) == pytest.approx(1, abs=1e-5), bars
            assert not bars.before or sum(bars.before) == pytest.approx(1, abs=1e-5), bars
            assert all(sum(one) == pytest.approx(1, abs=1e-5) for _, one in bars.at_temperature)
    for layers, size in ((1, 16), (3, 32), (2, 64)):
        result, _ = measured(ModelConfig.transformer(layers=layers, d_model=size, num_heads=2))
        attention, its, feed, of_feed, rest, of_rest = map(
            int, re.findall(r"(\d+)\u00a0%", of_model(result.tree))
        )
        assert attention + feed + rest == its + of_feed + of_rest == 100


def test_random_weights_are_told_where_a_move_brings_them(app):
    app.run()
    for index, move in enumerate(MOVES[1:3], 1):
        app.button(key=f"transformer:try:{index}").click().run()
        seeded = app.session_state["transformer:weights"] == "seeded"
        assert seeded == ("The weights are random (seed 0)." in html_text(app)), move.label


@pytest.mark.parametrize("text", [text_of(WRITER), GAVE])
def test_a_step_has_few_words(text):
    result = measurements(writer_controls(text))
    made = blocks(result.tree, result, pre_norm=True)
    texts = [made[step[0]].about for step in main_steps(result.tree, True, result.stream.layer)]
    assert max(len(one.split()) for one in [*texts, *ABOUT.values()]) <= 35


def test_a_decoder_alone_has_more_gradient_without_the_sum():
    task = TaskConfig.of("reverse")
    alone, both = (
        by_depth(ModelConfig.transformer(kind=kind, layers=2), task, 6, "pre", False).ratio
        for kind in ("decoder", "transformer")
    )
    assert alone > 0.05 > both


def test_a_decoder_alone_says_what_an_encoder_would_add():
    result = measurements(writer_controls(GAVE))
    (stack,) = stacks_of(result.tree)
    assert not any("Decoder" in node["title"] for node in stack["nodes"])
    first = blocks(result.tree, result, pre_norm=True)["target"]
    assert "A decoder only: an encoder would read another text first" in first.about


def test_map_opens_on_the_head_that_adds_most_to_the_answer(app):
    text = text_of(WRITER)
    result = measurements(writer_controls(text))
    stream, tokens = result.stream, result.tokens["causal"]
    assert tokens[stream.key] == stream.tokens[0] == "Mary" and stream.weight > 0.9
    loaded, task = load_lab_decoder(WRITER)
    model: Any = loaded
    tokens_in = tuple(task.tokens(text))
    _, written = without_heads(loaded, task, Example(tokens_in, (*tokens_in[1:], SPECIALS[PAD])))
    (answer,) = task.target_vocab.encode(tokens_in[stream.key : stream.key + 1])
    norm, read = model.norm.weight.detach(), model.output.weight[answer]
    added = dict[tuple[int, int], float]()
    for layer, each in enumerate(written):
        bias = model.layers[layer].causal.projection.output.bias.detach()
        whole = torch.from_numpy(result.outputs[f"layers.{layer}.causal"][-1])
        torch.testing.assert_close(each.sum(0) + bias, whole, rtol=1e-4, atol=1e-5)
        added |= {(layer, head): (read @ (norm * one)).item() for head, one in enumerate(each)}
    assert max(added, key=added.__getitem__) == (stream.layer, stream.head)
    app.run()
    assert app.session_state["transformer:causal:link"]["pick"] == (stream.layer, stream.head)
    said = html_text(app).replace(" style='font-weight:600'", "")
    head = head_name(stream.layer, stream.head)
    assert (
        f"<b>{head}</b> adds most to it: it takes <b>{number(stream.weight)}</b> from “Mary”"
        in said
    )


def drawn_order(tree: Part, pre_norm: bool, opened: int) -> list[str]:
    """The boxes as the diagram draws them, from below, one layer of each stack open."""
    order = []
    for stack in stacks_of(tree):
        layers = [node["path"] for node in stack["nodes"] if "sublayers" in node]
        for node in stack["nodes"]:
            if not layers or node["path"] != layers[min(opened, len(layers) - 1)]:
                order.append(node["path"])
                continue
            for part in node["sublayers"]:
                path, around = part["path"], part["around"]
                order += [around, path, f"{around}+"] if pre_norm else [path, around]
    return order


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", ["transformer", "decoder"])
def test_steps_light_every_box_once_in_order(kind, norm):
    numbers = TaskConfig.of("numbers")
    result = measurements(Subject(ModelConfig.transformer(kind=kind, layers=1, norm=norm), numbers))
    lit = [path for step in main_steps(result.tree, norm == "pre") for path in step]
    assert sorted(lit) == sorted(drawn_order(result.tree, norm == "pre", 0)), "vectors beside it"
    for layers, opened in ((1, 0), (3, 0), (3, 1), (3, 2)):
        result, _ = measured(
            ModelConfig.transformer(
                kind=kind, layers=layers, norm=norm, d_model=16, num_heads=2, position="rope"
            )
        )
        order = drawn_order(result.tree, norm == "pre", opened)
        steps = [
            sorted(map(order.index, step))
            for step in main_steps(result.tree, norm == "pre", opened)
        ]
        assert [at for step in steps for at in step] == list(range(len(order)))
        assert set(order) <= set(blocks(result.tree, result, norm == "pre"))
    writer = measurements(writer_controls(GAVE))
    assert max(len(main_steps(writer.tree, True, opened)) for opened in range(6)) == 6


def test_notice_stands_between_picture_and_question(app):
    app.run()
    app.button(key="transformer:try:3").click().run()
    said = [one.value for one in app.main.markdown]
    notice = next(at for at, text in enumerate(said) if "**Notice:**" in text)
    assert notice < next(at for at, text in enumerate(said) if "**Predict first.**" in text)
    assert not any(STICKY_STYLE in one.proto.body for one in app.get("html"))


def test_numbers_as_they_are_written():
    part = Part(
        "layers.0.cross", "Cross-attention", (8, 11, 32), 4224, 1_234_567, 999, -0.034, 1.5, 0.00002
    )
    texts = "8 × 11 × 32|4,224|1.23\u00a0M|999\u00a0bytes|−0.034 ± 1.50|0.00002"
    assert cells(part) == texts.split("|")
    assert kind_and_layer(part.path) == ("cross", 0) and is_attention(part.path)
    for wrong in ("layers.0", "attention", "encoder.layers.0.feed_forward"):
        pytest.raises(ValueError, kind_and_layer, wrong).match("no attention")
    assert Depth((1.0, 4.0), (0.0, 0.0), (1.0, 1.0)).ratio == 0.25


def test_the_picked_attention_and_head_are_in_the_link(app):
    app.query_params["transformer:pick"] = "layers.1.causal"
    app.query_params["transformer:head"] = "2.1"
    shown = open_page(app).session_state["transformer:causal:link"]
    assert shown["pick"] == (2, 1) and query_value(app, "transformer:head") == "2.1"
    assert (
        query_value(set_state(app, "transformer:pick", "layers.2.causal"), "transformer:pick")
        == "layers.2.causal"
    )
    assert shown["pick"] == (2, 0) and "transformer:head" not in app.query_params


def measured(config):
    task = make_task(TaskConfig.of("reverse"))
    result = measurements(Subject(config, task.config))
    return result, task.display_tokens(task.held_out(BATCH)[0])


def test_the_diagram_has_a_block_for_every_part():
    result, (source, _) = measured(ModelConfig.transformer(layers=2, norm="pre"))
    encoder, decoder = stacks_of(result.tree)
    drawn = blocks(result.tree, result, pre_norm=True)
    paths = [
        path
        for stack in (encoder, decoder)
        for node in stack["nodes"]
        for path in (
            [part["path"] for part in node["sublayers"]]
            + [part["around"] for part in node["sublayers"]]
            if "sublayers" in node
            else [node["path"]]
        )
    ]
    assert set(paths) <= set(drawn) and {"layers.1.cross", "encoder.norm", "output"} <= set(paths)
    assert drawn["layers.1.cross"].maps.shape == (2, 11, 10)
    assert drawn["encoder.layers.0.attention"].vectors.shape == (10, 32)
    assert drawn["encoder.layers.0.attention"].tokens == source
    assert len(result.predicted) == 11 and all(1 / 30 < share <= 1 for _, share in result.predicted)


def test_a_decoder_embeds_input_and_output_as_one_sequence():
    result, (source, target) = measured(ModelConfig.transformer(kind="decoder", layers=1))
    block = blocks(result.tree, result, pre_norm=False)["target"]
    tokens = (*source, "<bos>", *target)
    assert block.title == "Word embedding" and block.tokens == tokens
    assert block.vectors.shape == (len(tokens), 32) == (21, 32)
    assert dict(block.numbers)["output, examples × tokens × numbers"].startswith("8 × 21 × ")


def test_published_pattern_gives_layers_unlike_attentions(app):
    open_page(app, kind="decoder", layers=6, pattern="gemma3")
    parts = next(e.proto.json for e in app.get("bidi_component") if '"tree"' in e.proto.json)
    titles = re.findall(r'"title": ?"(Decoder layer[^"]*)"', parts)
    assert [title.partition(": ")[2] for title in titles] == ["causal local"] * 5 + ["causal"]
