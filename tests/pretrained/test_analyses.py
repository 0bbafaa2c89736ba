"""Every architecture: drawn as it is, each analysis a number that keeps its rule, or a true sentence."""

import gc
from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from itertools import count

import numpy as np
import pytest
import torch

from core.hooks import hooked
from core.interpret.circuits import Composer, copying_scores, read_heads, read_vocabularies
from core.interpret.evidence import (
    Question,
    ablate_heads,
    ask,
    break_down_weight,
    hide_token,
    layer_attentions,
    make_heads_uniform,
    measure_contributions,
    output_matrix,
    token_scores,
)
from core.interpret.lens import attribute_logit, follow_tokens, layers_of, read_lens
from core.interpret.patching import estimate_heads, pair_of, patch_source
from core.interpret.trace import graph, rollout
from core.pretrained import Array, PretrainedError, encode, forward, read
from core.pretrained.attention_recorder import repeat_kv
from core.pretrained.base import first_line
from tests.cases import each
from tests.pretrained.test_attention_recorder import (
    BUILT,
    EXPECTED,
    GIVEN,
    outcome as drawn_as,
)

SENTENCE = "The animal did cross the street."
GROUPS = 12


def close(one, other):
    """Equal to 1e-4 of the largest value."""
    one, other = (torch.as_tensor(np.asarray(values)).double() for values in (one, other))
    assert one.shape == other.shape and one.isfinite().all()
    assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max()) + 1e-5


class Case:
    """A tiny model with uneven weights, its inputs, and what several analyses share."""

    def __init__(self, pretrained):
        self.pretrained = pretrained
        numbers = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for weight in self.pretrained.model.parameters():
                if weight.is_floating_point() and weight.numel():
                    noise = torch.randn(weight.shape, generator=numbers)
                    weight.copy_(
                        noise * weight.shape[-1] ** -0.5
                        if weight.ndim > 1
                        else weight + 0.1 * noise
                    )
        text = (
            SENTENCE.replace("animal", "[MASK]") if self.pretrained.head == "masked" else SENTENCE
        )
        self.inputs = replace(GIVEN, text=text, target="Nine green boats.")
        self.trace = read(self.pretrained, self.inputs).trace

    @cached_property
    def baseline(self):
        against = (
            "Nine boats."
            if self.pretrained.head == "none" and self.pretrained.reads == "text"
            else ""
        )
        return ask(self.pretrained, Question(self.inputs, against=against))

    @cached_property
    def calls(self):
        return forward(self.pretrained, encode(self.pretrained, self.inputs)[0], with_qkv=True)[
            1
        ].calls

    @cached_property
    def contributions(self):
        return measure_contributions(self.baseline)

    @cached_property
    def vocabularies(self):
        return read_vocabularies(self.pretrained)

    def first(self):
        return frozenset({(self.trace.maps[0].kind, 0, 0)})


def breakdown(case):
    """Scores by q·k, the model's scale, bias, cap and mask give the weights that were recorded."""
    for layer, item in zip(layer_attentions(case.pretrained, case.inputs), case.calls, strict=True):
        if "lambda_init" not in vars(item.module) and item.q.shape[-2:] == layer.q.shape[-2:]:
            head, query = item.weights.shape[1] - 1, item.weights.shape[2] - 1
            close(break_down_weight(layer, head, query, 0).weights, item.weights[0, head, query])


def written(case):
    """The heads' parts sum to what W_O gives, which is the output of the module that it is in."""
    given = defaultdict(list)

    def note(module, inputs, output):
        given[module].append((output[0] if isinstance(output, tuple) else output).detach().clone())

    modules = {call.module for call in case.calls} | {
        call.output for call in case.calls if call.output is not None
    }
    batch = encode(case.pretrained, case.inputs)[0]
    forward(
        case.pretrained,
        batch,
        hooks=hooked(module.register_forward_hook(note) for module in modules),
    )
    measured = case.contributions
    for call in case.calls:
        inside = given[call.module].pop(0)
        if (matrix := output_matrix(call)) is None:
            assert (call.kind, call.layer) not in measured.norms
            continue
        out = given[call.output].pop(0)
        bias = 0 if getattr(call.output, "bias", None) is None else call.output.bias.detach()
        whole = torch.einsum("bthe,hec->btc", call.gated, matrix) + bias
        close(whole.reshape(out.shape), out)
        alone = type(call.module).__name__ != "AlbertAttention"  # which adds the residual
        if alone and call.output in set(call.module.modules()):
            close(out.reshape(inside.shape), inside)
        if (norms := measured.norms.get((call.kind, call.layer))) is not None:
            head, row = len(matrix) - 1, call.weights.shape[2] - 1
            ratio = torch.where(call.out == 0, 0.0, call.gated / call.out)[0, row, head]
            values = repeat_kv(call.v, len(matrix))[0, head] * ratio
            vectors = (call.weights[0, head, row, :, None] * values) @ matrix[head]
            close(vectors.sum(0), call.gated[0, row, head] @ matrix[head])
            at = np.broadcast_to(norms[head], (row + 1, norms.shape[-1]))[row]
            close(at * call.weights[0, head, row].abs().numpy(), vectors.norm(dim=-1))


def tokens(case):
    """Each measure is a finite number a token; rollout's rows are shares of the attention layers."""
    scores = token_scores(case.baseline, case.trace, case.contributions)
    assert {"weights", "rollout"} <= set(scores)
    assert all(
        one.shape == (len(case.baseline.source),) and np.isfinite(one).all()
        for one in scores.values()
    )
    last = case.trace.maps[-1]
    shares = rollout(graph(case.trace, last.kind, last.layer)).sum(-1)
    assert (shares <= 1 + 1e-6).all() and (last.kind == "cross" or np.abs(shares - 1).max() < 1e-5)


def off(case):
    """A head off is the model without its part of what goes into W_O."""
    call = case.calls[0] if case.pretrained.recordable else None
    effect = ablate_heads(case.baseline, case.first())
    if call is None or call.output is None:
        assert np.isfinite(effect.value)
        return
    runs = count()

    def without(module, inputs):
        heads = inputs[0].clone().reshape(-1, *call.gated.shape[1:])
        heads[:, :, 0] *= next(runs) > 0  # of the layers that share the module the first
        return heads.reshape(inputs[0].shape), *inputs[1:]

    output, _ = forward(
        case.pretrained,
        case.baseline.batch,
        hooks=hooked([call.output.register_forward_pre_hook(without)]),
    )
    close(
        effect.value,
        float(case.baseline.target_value(case.baseline.answer_in(case.baseline.batch, output))),
    )


def even(case):
    assert np.isfinite(make_heads_uniform(case.baseline, case.first()).value)
    assert np.isfinite(hide_token(case.baseline, 1).value)


def patch(case):
    """A head's own output changes nothing, and another's, or none, is what a head off gives."""
    baseline, effect = case.baseline, ablate_heads(case.baseline, case.first())
    call = next(one for one in case.calls if (one.kind, one.layer) == (case.trace.maps[0].kind, 0))
    out = call.replaceable[0]
    for values, value in ((out, baseline.value), (torch.zeros_like(out), effect.value)):
        output, _ = forward(
            case.pretrained, baseline.batch, patches=[(0, call.kind, call.layer, 0, values)]
        )
        close(float(baseline.target_value(baseline.answer_in(baseline.batch, output))), value)


def pairs(case):
    """The parts of one text put into another: all of a layer's heads together are its attention, numbers are finite."""
    swapped = case.inputs.text.replace("cross the street", "street the cross")  # as many tokens
    other = replace(
        case.inputs,
        text=swapped,
        picture=Array.of(case.inputs.picture.numpy()[::-1]),
        sound=Array.of(case.inputs.sound.numpy()[::-1]),
    )
    answers = () if case.baseline.answer.logits is None else (0, 1)
    source = patch_source(pair_of(case.pretrained, case.inputs, other, *answers))
    effect = source.effect(next(iter(source.calls)))
    assert np.isfinite(
        [
            *effect.heads,
            effect.attention,
            *effect.residual,
            *(() if effect.feed_forward is None else (effect.feed_forward,)),
        ]
    ).all()
    assert all(np.isfinite(one).all() for one in estimate_heads(source).values())


def lens(case):
    """The lens of the last layer is the model's own answer, and its layers are those with the recorded attention."""
    if case.pretrained.recordable and case.pretrained.head in ("masked", "next", "seq2seq"):
        attended = [call.name for call in case.calls if call.kind != "cross"]
        assert any(attended[-1].startswith(f"{name}.") for name in layers_of(case.pretrained))
    baseline, read_ = case.baseline, read_lens(case.baseline)
    last = follow_tokens(baseline, read_, baseline.answer.position, [baseline.id])
    close(float(last.probabilities[-1, 0]), float(baseline.answer.probabilities[baseline.id]))
    assert int(last.ranks[-1, 0]) == 1


def attribution(case):
    """The parts sum to the logit, to 1e-4 of the largest of them, and some part is a head's or a mixer's."""
    parts = attribute_logit(case.baseline, case.baseline.id or 0)
    assert abs(parts.total - parts.logit) <= 1e-4 * max(
        abs(parts.logit), *(abs(one.value) for one in parts.parts)
    )
    assert {"head", "mixer"} & {one.role for one in parts.parts}


def circuits(case):
    """Scores and outputs of one token are its state, with the scale of its norm, through the matrices."""
    heads, tables = read_heads(case.pretrained), case.vocabularies
    composer = Composer(heads)
    for result in (composer.into(later) for later in range(len(heads))):
        assert all(bool(one.isfinite().all()) for one in result.scores.values())
    for one, call in zip(heads, case.calls, strict=True):
        assert (one.kind, one.layer) == (call.kind, call.layer)
        scale = call.options.get("scaling")
        assert one.scale is None or one.scale == pytest.approx(scale)
        scores = copying_scores(one, tables)
        assert scores is None or (
            bool(scores.isfinite().all()) and float(scores.abs().max()) <= 1 + 1e-4
        )
        if tables.serves(one):
            assert tables.written(one, 0, 3).isfinite().all()
            if one.w_q is not None and (attended := tables.attended(one, 0, 3)) is not None:
                x, y = tables.embeddings[one.writes][3], tables.embeddings[one.reads][4]
                factor = call.q.shape[-1] ** -0.5 if scale is None else scale
                close(attended[4], (x @ one.w_q[0]) @ (y @ one.w_k[0]) * factor)


def embeddings(case):
    """Between two tokens the input of the first layer differs as their embeddings do, unless a norm comes first."""
    batch = encode(case.pretrained, case.inputs)[0]
    if (
        not case.pretrained.reads_text
        or "input_ids" not in batch
        or case.pretrained.model.config.is_encoder_decoder
        or len((tables := case.vocabularies).embeddings) < 2
    ):
        return
    states, (one, other) = [], (5, 6)
    for token in (one, other):
        ids = batch["input_ids"].clone()
        ids[0, 1] = token
        output, _ = forward(case.pretrained, batch | {"input_ids": ids}, output_hidden_states=True)
        if getattr(output, "hidden_states", None) is None:
            return
        states.append(output.hidden_states[0])
    moved, table = (states[0] - states[1])[0], tables.embeddings["causal"]
    raw = case.pretrained.model.get_input_embeddings().weight.detach()
    row = raw[one] - raw[other]
    if (
        moved.ndim == 2
        and moved.shape[-1] == len(row)
        and float(torch.cosine_similarity(moved[1], row, 0)) > 1 - 1e-5
    ):
        close(table[one] - table[other], moved[1])


ANALYSES = (
    breakdown,
    written,
    tokens,
    off,
    even,
    patch,
    pairs,
    lens,
    attribution,
    circuits,
    embeddings,
)
# The model was read before, so a sentence that it does not take its inputs would not be true.
FALSE = ("does not take", "cannot read this", "it fails with", "object has no attribute")


def wrong(pretrained):
    """What is wrong in each analysis of one model: it is right, or refused in a sentence that names the cause."""
    case, found = Case(pretrained), {}
    for analysis in ANALYSES:
        try:
            analysis(case)
        except PretrainedError as error:
            if len(str(error)) <= 20 or any(part in str(error) for part in FALSE):
                found[analysis.__name__] = str(error)
        except Exception as error:
            found[analysis.__name__] = f"{type(error).__name__}: {first_line(error)}"
    return found


@pytest.mark.parametrize("part", range(GROUPS))
def test_every_architecture_is_drawn_and_analysed_or_refused_in_words(part):
    @each("model_type", BUILT[part::GROUPS])
    def check(model_type):
        found: dict[str, str] = {}
        how = drawn_as(model_type, lambda pretrained: found.update(wrong(pretrained)))
        assert (how, found) == (EXPECTED[model_type], {})

    check()
    gc.collect()
