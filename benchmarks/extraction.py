"""What it costs to keep every weight: `read` beside a plain eager forward pass of the same model on the same text.

Both take a text to the end: tokens, forward pass. `read` also gives maps with masks and readable tokens. The plain one
returns no attention at all. Time is that of the processor, on one thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import torch

from benchmarks.timing import Row, median_ratio, rounds
from core.pretrained import Pretrained, load_minilm, read
from core.pretrained.load import minilm_folder, prepare_model

WORDS = "the small dog saw a green boat and waited for nine tired animals near late streets".split()
CASES = {
    "all-MiniLM-L6-v2, 6 × 12 heads": (16, 64, 128, 512),
    "GPT-2's size, 12 × 12 heads": (64, 512),
}


def rows() -> Iterator[Row]:
    """One row a model and a length."""
    torch.set_num_threads(1)
    for (name, lengths), make in zip(CASES.items(), (_minilm, _gpt2), strict=True):
        ours, plain = make()
        for length in lengths:
            text = " ".join(WORDS[place % len(WORDS)] for place in range(length - 2))
            yield _row(f"{name}, {length} tokens", ours, plain, text, length)


def _row(what: str, ours: Pretrained, plain: Any, text: str, length: int) -> Row:
    def forward() -> None:
        with torch.no_grad():
            plain(**ours.tokenizer(text, return_tensors="pt"))

    def reading() -> None:
        assert len(read(ours, text).source) == length

    both: dict[str, Callable[[], object]] = {"read": reading, "forward": forward}
    taken = rounds(both, 15, max(1, 256 // length), process_time)
    saved, bare = (f"{1000 * statistics.median(taken[name]):.1f} ms" for name in both)
    return Row(
        what,
        "a plain eager forward",
        saved,
        bare,
        median_ratio(taken["read"], taken["forward"]),
        "≤ 1.10",
    )


def _minilm() -> tuple[Pretrained, Any]:
    from transformers import AutoModel

    return load_minilm(), AutoModel.from_pretrained(
        minilm_folder(), attn_implementation="eager"
    ).eval()


def _gpt2() -> tuple[Pretrained, Any]:
    """Random weights of the published size; time does not ask what the weights are."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = load_minilm().tokenizer
    config = GPT2Config(vocab_size=tokenizer.vocab_size)
    plain = GPT2LMHeadModel(config).eval().requires_grad_(False)
    plain.set_attn_implementation("eager")
    ours = GPT2LMHeadModel(config)
    ours.load_state_dict(plain.state_dict())
    return prepare_model(ours, tokenizer, "GPT-2"), plain
