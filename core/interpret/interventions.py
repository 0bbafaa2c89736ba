"""One head, every kind of evidence: what the answer owes to what the head knows, by six ways to take that away.

The ways ask different questions, so their numbers differ. Signs are the same in all of them: an effect above 0 says that
the head helps the answer, in the units of what is measured.
Michel et al. 2019; Wang et al. 2022, section 2; Zhang and Nanda 2024; Heimersheim and Nanda 2024.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from core.interpret.evidence import Baseline, Question, answering_rows
from core.interpret.lens import attribute_logit, direct_logits
from core.interpret.patching import rerun_rows
from core.interpret.trace import Kind, LayerKey
from core.pretrained import (
    AttentionCall,
    ModelInputs,
    Pretrained,
    encode,
    forward,
    reject_if,
    tokenizer_of,
)
from core.ranks import spearman

HeadKey = tuple[str, int, int]  # kind, layer and head, as a HeadSet has them
Outputs = Mapping[LayerKey, Float[Tensor, "T H E"]]


@dataclass(frozen=True)
class Way:
    """A way to take a head's information away: its name, what its effect asks, and what it is computed from."""

    key: str
    name: str
    asks: str
    needs: Literal["nothing", "a mean", "a second text"]


WAYS: tuple[Way, ...] = (
    Way(
        "zero",
        "zero",
        "What does the answer lose when the head writes nothing? Its mean output, which is much the same on every text, "
        "is then lost as well.",
        "nothing",
    ),
    Way(
        "uniform",
        "uniform",
        "What does it lose when the head gives every key that it may attend to the same weight? The head still writes, "
        "but no longer chooses.",
        "nothing",
    ),
    Way(
        "mean",
        "mean",
        "What does it lose when the head writes, at every token, its mean output over a corpus? Only what the head "
        "knows about this text is then lost.",
        "a mean",
    ),
    Way(
        "resampled",
        "resampled",
        "What does it lose when the head writes what it writes on the second text? Only what the head knows about the "
        "difference between both texts is then lost.",
        "a second text",
    ),
    Way(
        "patched",
        "patched in",
        "What does the answer to the second text gain when this head alone writes what it writes on the first one? It "
        "asks whether the head is enough; the others, whether it is needed.",
        "a second text",
    ),
    Way(
        "direct",
        "direct",
        "What does it lose without what the head itself writes towards the logits, with the norms held? What later "
        "layers make of its output is left out.",
        "nothing",
    ),
)
BY_KEY = {way.key: way for way in WAYS}


def head_effects(
    baseline: Baseline,
    way: str,
    heads: Sequence[HeadKey] | None = None,
    *,
    means: Mapping[LayerKey, Float[Tensor, "H E"]] | None = None,
    other: Baseline | None = None,
) -> dict[HeadKey, float]:
    """The target value of the full model less that without each head's own information; all heads without `heads`.

    `way` is the key of one of WAYS. "mean" needs `means` (see `mean_outputs`), "resampled" and "patched" need `other`,
    the second text's baseline (see `second_question`); its tokens are those of the same position or, in a text of
    another length, of the same distance from the answer. "patched" is the gain of the second text's answer; "direct" is
    by `direct_terms`, 0 for a head that writes nothing to where the answer is read. PretrainedError where a way cannot
    be measured.
    """
    model = baseline.pretrained
    reject_if(way not in BY_KEY, f"There is no way {way!r}; take one of {', '.join(BY_KEY)}.")
    needs = {"a mean": ("means", means), "a second text": ("other", other)}.get(BY_KEY[way].needs)
    reject_if(
        needs and needs[1] is None,
        f"The way {way} needs {BY_KEY[way].needs}: {(needs or '?')[0]}=….",
    )
    reject_if(
        not model.recordable,
        f"{model.name} {model.not_recorded}. So its heads cannot be changed here. Take a model "
        "such as BERT, GPT-2 or Llama.",
    )
    calls = outputs_of(baseline.pretrained, baseline.batch)
    own = {key: call.replaceable[0] for key, call in calls.items()}
    every = [(*key, head) for key, out in own.items() for head in range(out.shape[1])]
    heads = every if heads is None else list(heads)
    unknown = [head for head in heads if head not in every]
    reject_if(
        unknown,
        f"{model.name} has no head {unknown[:1]}; a head is (kind, layer, head), as {every[0]}.",
    )
    if way == "direct":
        direct = direct_terms(baseline)
        return {head: direct.get(head, 0.0) for head in heads}
    windows = any(len(call.replaceable) != 1 for call in calls.values())
    if way == "uniform" or (way == "zero" and windows):
        without = {head: frozenset({head}) for head in heads}
        return {
            head: baseline.value
            - float(
                baseline.target_value(
                    baseline.rerun(uniform=one) if way == "uniform" else baseline.rerun(off=one)
                )
            )
            for head, one in without.items()
        }
    reject_if(
        windows,
        f"{model.name} attends within windows, a row of the batch each, so the outputs of its heads on two inputs have "
        "no common order. Take zero or uniform.",
    )
    base, before = baseline, baseline.value
    if way == "zero":
        values: Outputs = {key: torch.zeros_like(out) for key, out in own.items()}
    elif means is not None and way == "mean":
        missing = [key for key in own if key not in means]
        reject_if(missing, f"The means hold no layer {missing[:1]}; compute them with this model.")
        values = {key: mean[None] for key, mean in means.items()}
    else:
        assert other is not None
        theirs = {key: call.replaceable[0] for key, call in outputs_of(model, other.batch).items()}
        if way == "resampled":
            values = {key: aligned(theirs[key], other, baseline, key[0]) for key in own}
        else:
            base, before = other, float(baseline.target_value(other.answer))
            values = {key: aligned(own[key], baseline, other, key[0]) for key in own}
    after = rerun_rows(
        base, [(0, *head, values[cast(LayerKey, head[:2])]) for head in heads], baseline
    )
    sign = -1 if way == "patched" else 1
    return {head: sign * (before - value) for head, value in zip(heads, after, strict=True)}


def second_question(baseline: Baseline, inputs: ModelInputs) -> Question:
    """The same question to another text, answered at the same distance from its end; a decoder reads the same target."""
    first, position = baseline.question, baseline.question.position
    if baseline.pretrained.head == "seq2seq" and baseline.target is not None:
        ids = list(baseline.target.ids[1:])
        written = tokenizer_of(baseline.pretrained).decode(ids, skip_special_tokens=True)
        inputs = replace(inputs, target=inputs.target or written)
    elif position is not None and position >= 0:
        position -= len(baseline.source)
    return Question(inputs, position, first.against)


def outputs_of(
    pretrained: Pretrained, batch: Mapping[str, Tensor]
) -> dict[LayerKey, AttentionCall]:
    """The calls of a pass with what the heads of each layer write, by (kind, layer)."""
    _, recorder = forward(pretrained, dict(batch), with_qkv=True)
    return {(call.kind, call.layer): call for call in recorder.calls}


def aligned(
    values: Float[Tensor, "S H E"], source: Baseline, into: Baseline, kind: Kind
) -> Float[Tensor, "T H E"]:
    """What heads write on one text, at the tokens of another: at the same position where both are equally long.

    Else at the same distance from where the answer is read (of an encoder's source, from its end); beyond the ends of
    the text, what they write at its end.
    """
    encoder = source.target is not None and kind == "self"
    lengths = [
        len(one.source if encoder or one.target is None else one.target) for one in (source, into)
    ]
    first, second = (
        length - 1 if encoder else int(answering_rows(one, kind).argmax())
        for one, length in zip((source, into), lengths, strict=True)
    )
    if lengths[0] == lengths[1]:
        return values
    return values[(torch.arange(lengths[1]) - second + first).clamp(0, lengths[0] - 1)]


def direct_terms(baseline: Baseline) -> dict[HeadKey, float]:
    """The target value less that of the answer without what each head itself writes towards the logits.

    Of a logit, or of a difference of two, the head's term in `attribute_logit`. PretrainedError as there.
    """
    if baseline.quantity in ("logit", "difference"):
        parts = attribute_logit(baseline, baseline.id, baseline.contrast).parts
        return {
            (*part.key, part.head): part.value
            for part in parts
            if part.key is not None and part.head is not None
        }
    answer = baseline.answer
    without = {
        head: baseline.target_value(replace(answer, logits=answer.logits - towards))
        for head, towards in direct_logits(baseline)
    }
    return {head: baseline.value - float(value) for head, value in without.items()}


# The mean output of heads over a corpus.


Sums = Mapping[LayerKey, tuple[Float[Tensor, "H E"], int]]


def output_sums(pretrained: Pretrained, inputs: ModelInputs) -> Sums:
    """The sum of the outputs of the heads of each layer over the tokens of a text, and the number of tokens."""
    calls = outputs_of(pretrained, encode(pretrained, inputs)[0])
    return {
        key: (call.replaceable.sum((0, 1)), call.replaceable.shape[:2].numel())
        for key, call in calls.items()
    }


def mean_of(sums: Iterable[Sums]) -> dict[LayerKey, Float[Tensor, "H E"]]:
    """The mean output of the heads of each layer from the sums of many texts: each token counts once."""
    parts = list(sums)
    return {
        key: torch.stack([part[key][0] for part in parts]).sum(0)
        / sum(part[key][1] for part in parts)
        for key in (parts[0] if parts else ())
    }


def mean_outputs(
    pretrained: Pretrained, texts: Iterable[ModelInputs]
) -> dict[LayerKey, Float[Tensor, "H E"]]:
    """The mean output of the heads of each layer over all tokens of texts. PretrainedError as in `encode`."""
    return mean_of(output_sums(pretrained, one) for one in texts)


def agreement(first: Mapping[HeadKey, float], second: Mapping[HeadKey, float]) -> float | None:
    """Spearman's ρ of the effects of the heads by two ways; None for fewer than 3 heads."""
    shared = [head for head in first if head in second]
    return spearman(*(np.array([of[head] for head in shared]) for of in (first, second)))
