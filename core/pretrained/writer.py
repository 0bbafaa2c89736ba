"""How well a model writes the stories of core.tasks.grammar: `python -m core.pretrained.writer FOLDER`.

The grammar knows what is true in a story, so each figure is counted: what its parser accepts of continuations, and
whether the model's likeliest next piece is right where only one word is.
"""

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from core import command_line
from core.pretrained.load import load_folder
from core.pretrained.reading import tokenizer_of
from core.tasks.grammar import PRONOUNS, SLOT, Judged, Story, judge, story

SEED = 2**33  # of stories that no model was trained on
NEW_TOKENS, BATCH = 120, 50


@dataclass(frozen=True)
class Writing:
    """Shares, 0 to 1, and losses in nats a piece; `entropy` is the grammar's own."""

    stories: int
    accepted: float  # of continuations whose every sentence the parser accepts, the last unfinished one left out
    sentences: float  # of the sentences in them
    referents: float
    indirect_objects: float
    loss: float
    entropy: float


def held_out(count: int) -> list[Story]:
    draw = random.Random(SEED)
    return [story(draw) for _ in range(count)]


def forms_of(text: str) -> Iterator[tuple[int, Judged]]:
    """Where each form begins, and the form; until the first that the parser does not accept."""
    start = 0
    for judged in judge(text):
        yield start, judged
        start = judged.end + 1


def questions(text: str) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Where only one word is right: what is right, where the word begins, and the words to choose from.

    A pronoun has one referent; "When Mary and John went …, John gave … to" leaves Mary alone.
    """
    for start, judged in forms_of(text):
        match = judged.form.pattern.match(text, start)
        assert match is not None
        for number, slot in enumerate(SLOT.finditer(judged.form.text)):
            at = match.start(f"s{number}")
            if slot[2] in PRONOUNS:
                he, she = PRONOUNS[slot[2]]
                large = text[at].isupper()
                yield "referents", at, (he.title(), she.title()) if large else (he, she)
        if judged.form.text.startswith("When"):
            at = match.start(f"s{number}")  # the last slot
            yield "indirect_objects", at, (judged.chosen["A"], judged.chosen["B"])


def continuation_is_right(text: str, after: int) -> tuple[int, int]:
    """How many sentences of a text that end beyond `after` the parser accepts, and of how many."""
    right = total = 0
    try:
        for _, judged in forms_of(text):
            if judged.end > after:
                total += 1
                right += not judged.wrong
    except ValueError:
        total += 1
    return right, total


@torch.no_grad()
def measure(folder: Path, count: int = 200) -> Writing:
    """The figures over that many held-out stories; continuations are drawn at temperature 1 from their first sentence."""
    pretrained = load_folder(folder, folder.name)
    model, tokenizer = pretrained.model, tokenizer_of(pretrained)
    right: dict[str, list[bool]] = {"referents": [], "indirect_objects": []}
    loss = pieces = nats = 0.0
    written = held_out(count)
    for one in written:
        encoded = tokenizer(one.text, return_tensors="pt", return_offsets_mapping=True)
        ids, starts = (
            encoded["input_ids"],
            [start for start, _ in encoded["offset_mapping"][0].tolist()],
        )
        scores = model(input_ids=ids).logits[0].log_softmax(-1)
        loss -= float(scores[:-1].gather(1, ids[0, 1:, None]).sum())
        pieces, nats = pieces + ids.shape[1] - 1, nats + one.nats
        for name, at, words in questions(one.text):
            place = max(i for i, start in enumerate(starts) if start <= at)  # its first piece
            first = {word: tokenizer(f" {word}")["input_ids"][0] for word in words}
            best = max(words, key=lambda word: float(scores[place - 1, first[word]]))
            right[name].append(one.text.startswith(best, at))
    results = []
    torch.manual_seed(0)
    for one in written:
        (_, opening), *_ = forms_of(one.text)
        inputs = tokenizer(one.text[: opening.end], return_tensors="pt")
        tokens = model.generate(
            **inputs, do_sample=True, top_k=0, max_new_tokens=NEW_TOKENS, pad_token_id=0
        )[0]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        if int(tokens[-1]) != model.config.eos_token_id:  # cut: up to the last whole sentence
            text = text[: max(text.rfind(mark) for mark in ".?!") + 1]
        results.append(continuation_is_right(text, opening.end))
    return Writing(
        stories=count,
        accepted=sum(right == total > 0 for right, total in results) / count,
        sentences=sum(right for right, _ in results) / max(1, sum(total for _, total in results)),
        loss=loss / pieces,
        entropy=nats / pieces,
        **{name: sum(marks) / len(marks) for name, marks in right.items()},
    )


app = command_line.new_app(__doc__)


@app.command()
def figures(folder: Path, stories: int = 200) -> None:
    """Print the figures of an exported folder as JSON."""
    print(json.dumps(asdict(measure(folder, stories)), indent=1))


if __name__ == "__main__":
    sys.exit(command_line.run(app))
