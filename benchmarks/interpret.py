"""What it costs to look at every head: patching all parts of MiniLM, and measuring all heads over 300 texts.

Patching stands beside a loop of plain hooks, one pass a part, as a notebook would do it; the corpus beside plain eager
passes that keep the weights and measure nothing. Time is that of the processor, on one thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.extraction import WORDS
from benchmarks.timing import Row, median_ratio, rounds
from core.interpret.corpus import measure_texts, own_texts
from core.interpret.patching import TextPair, pair_of, patch
from core.pretrained import ModelInputs, load_minilm
from core.pretrained.load import minilm_folder

TOKENS, TEXTS, HEADS = 32, 300, 12
PATCH_SECONDS, CORPUS_SECONDS = 3, 30  # the budgets, on two cores
CLOSE = 1e-3  # by which the two ways may differ in what a head brings back


def rows() -> Iterator[Row]:
    """One row for patching, and one for a corpus."""
    torch.set_num_threads(1)
    yield _patching()
    yield _corpus()


def _plain_minilm() -> nn.Module:
    from transformers import AutoModel

    model: nn.Module = AutoModel.from_pretrained(
        minilm_folder(), attn_implementation="eager"
    ).eval()
    return model


def _patching() -> Row:
    """All heads, attentions, feed-forward networks and states at tokens of a pair of texts."""
    words = (WORDS * 3)[: TOKENS - 2]
    texts = (ModelInputs(" ".join(words)), ModelInputs(" ".join(["the", "large", *words[2:]])))
    pair, model = pair_of(load_minilm(), *texts), _plain_minilm()
    effects, (_, by_hand) = patch(pair), _loop(model, pair)
    assert (
        max(
            abs(effects["self", layer].heads[head] - pair.recovered(by_hand[layer * HEADS + head]))
            for layer in range(6)
            for head in range(HEADS)
        )
        < CLOSE
    )
    both = {"patch": lambda: patch(pair), "loop": lambda: _loop(model, pair)}
    count = sum(len(one.heads) + 2 + len(one.residual) for one in effects.values())
    return _row(
        f"MiniLM, {TOKENS} tokens: {count} parts patched",
        "a loop of plain hooks",
        both,
        5,
        f"≤ 1.00, ≤ {PATCH_SECONDS} s",
    )


def _loop(model: Any, pair: TextPair) -> tuple[int, list[float]]:
    """Each part of the clean run put into the corrupted one by a hook; the number of passes, and the cosines."""
    clean, values = dict[str, Tensor](), list[float]()
    names = [name for layer in range(6) for name in _modules(layer)]
    handles = [
        model.get_submodule(name).register_forward_hook(partial(_keep, clean, name))
        for name in names
    ]
    reference = _embedding(model, pair.clean.batch)
    for handle in handles:
        handle.remove()
    for part in _parts():
        name, which, before = part
        place = model.get_submodule(name)
        handle = (
            place.register_forward_pre_hook(partial(_replace_input, clean[name + ".in"], which))
            if before
            else place.register_forward_hook(partial(_replace_output, clean[name], which))
        )
        values.append(float(_embedding(model, pair.corrupted.batch) @ reference))
        handle.remove()
    return len(values), values


def _modules(layer: int) -> tuple[str, str, str]:
    """The output projection of a layer's attention, that of its feed-forward network, and the layer."""
    name = f"encoder.layer.{layer}"
    return f"{name}.attention.output.dense", f"{name}.output.dense", name


def _parts() -> Iterator[tuple[str, Any, bool]]:
    """Module, which of its values, and whether they are its input: heads first, then whole outputs and tokens."""
    layers = [_modules(layer) for layer in range(6)]
    yield from (
        (attention, (slice(None), slice(32 * head, 32 * head + 32)), True)
        for attention, *_ in layers
        for head in range(HEADS)
    )
    for attention, inner, layer in layers:
        yield attention, slice(None), True
        yield inner, slice(None), False
        yield from ((layer, token, False) for token in range(TOKENS))


def _keep(clean: dict[str, Tensor], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    clean[name + ".in"] = inputs[0].detach()
    clean[name] = (output[0] if isinstance(output, tuple) else output).detach()


def _replace_input(clean: Tensor, which: Any, module: nn.Module, inputs: Any) -> tuple[Any, ...]:
    states = inputs[0].clone()
    states[0][which] = clean[0][which]
    return (states, *inputs[1:])


def _replace_output(clean: Tensor, which: Any, module: nn.Module, inputs: Any, output: Any) -> Any:
    states = (output[0] if isinstance(output, tuple) else output).clone()
    states[0][which] = clean[0][which]
    return (states, *output[1:]) if isinstance(output, tuple) else states


@torch.no_grad()
def _embedding(model: Any, batch: Any) -> Tensor:
    """The mean of the states of all tokens, with length 1."""
    return torch.nn.functional.normalize(model(**batch).last_hidden_state[0].mean(0), dim=0)


def _corpus() -> Row:
    """Every measure of every head on the lab's own texts, without switching heads off."""
    texts, pretrained, model = own_texts()[:TEXTS], load_minilm(), _plain_minilm()

    def measuring() -> None:
        assert not any(
            one.error for one in measure_texts(pretrained, [ModelInputs(text) for text in texts])
        )

    def passing() -> None:
        with torch.no_grad():
            for text in texts:
                model(**pretrained.tokenizer(text, return_tensors="pt"), output_attentions=True)

    both = {"measure": measuring, "pass": passing}
    return _row(
        f"MiniLM, {TEXTS} texts: every measure of 72 heads",
        "plain passes that keep the weights",
        both,
        3,
        f"≤ {CORPUS_SECONDS} s",
    )


def _row(
    what: str, peer: str, both: Mapping[str, Callable[[], object]], count: int, budget: str
) -> Row:
    taken = list(rounds(both, count, clock=process_time).values())
    ours, theirs = (f"{statistics.median(one):.2f} s" for one in taken)
    return Row(what, peer, ours, theirs, median_ratio(*taken), budget)
