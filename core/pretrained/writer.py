"""How well a model writes the stories of core.tasks.grammar: `python -m core.pretrained.writer FOLDER`.

The grammar knows what is true in a story, so each figure is counted: what its parser accepts of continuations, and
whether the model's likeliest next piece is right where only one word is.
"""

import itertools
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from core import command_line
from core.pretrained.load import load_folder
from core.pretrained.reading import tokenizer_of
from core.tasks.grammar import PRONOUNS, SLOT, Judged, Story, judge, story

SEED = 2**33  # of stories that no model was trained on
NEW_TOKENS, MAX_CHARACTERS = 80, 500
TEMPERATURES = 0.5, 1.0


def held_out(count: int) -> list[Story]:
    """So many stories that no model was trained on, short enough for a model that reads 192 pieces."""
    draw = random.Random(SEED)
    stories = (story(draw) for _ in itertools.count())
    return list(itertools.islice((one for one in stories if len(one.text) < MAX_CHARACTERS), count))


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


def accepted(text: str, after: int) -> list[bool]:
    """Of each sentence of a text that ends beyond `after`, whether the parser accepts it; up to one that is no form."""
    right = []
    try:
        for _, judged in forms_of(text):
            if judged.end > after:
                right.append(not judged.wrong)
    except ValueError:
        right.append(False)
    return right


@torch.no_grad()
def measure(folder: Path, count: int = 200) -> dict[str, Any]:
    """The figures over that many held-out stories; continuations are drawn from openings of a sentence and more.

    Shares, 0 to 1: of next sentences that the parser accepts, and of whole continuations of which it accepts every
    finished sentence, at each of the temperatures; of referents and indirect objects that are right. Losses in nats a
    piece; `entropy` is the grammar's own.
    """
    pretrained = load_folder(folder, folder.name)
    model, tokenizer = pretrained.model, tokenizer_of(pretrained)
    right: dict[str, list[bool]] = {"referents": [], "indirect_objects": []}
    loss = pieces = nats = 0.0
    written = held_out(count)
    end = torch.tensor([[model.config.eos_token_id]])  # a story follows that of another one
    for one in written:
        encoded = tokenizer(one.text, return_tensors="pt", return_offsets_mapping=True)
        ids, starts = (
            encoded["input_ids"],
            [start for start, _ in encoded["offset_mapping"][0].tolist()],
        )
        scores = model(input_ids=torch.cat((end, ids), 1)).logits[0].log_softmax(-1)
        loss -= float(scores[:-1].gather(1, ids[0, :, None]).sum())
        pieces, nats = pieces + ids.shape[1], nats + one.nats
        for name, at, words in questions(one.text):
            place = max(i for i, start in enumerate(starts) if start <= at)  # its first piece
            first = {word: tokenizer(f" {word}")["input_ids"][0] for word in words}
            best = max(words, key=lambda word: float(scores[place, first[word]]))
            right[name].append(one.text.startswith(best, at))
    drawn = [continued(model, tokenizer, written, temperature) for temperature in TEMPERATURES]
    return {
        "stories": count,
        "temperatures": TEMPERATURES,
        "next_sentences": [
            sum(marks[:1] == [True] for marks in results) / count for results in drawn
        ],
        "whole_continuations": [
            sum(bool(marks) and all(marks) for marks in results) / count for results in drawn
        ],
        **{name: sum(marks) / len(marks) for name, marks in right.items()},
        "loss": loss / pieces,
        "entropy": nats / pieces,
    }


def continued(
    model: Any, tokenizer: Any, written: Sequence[Story], temperature: float
) -> list[list[bool]]:
    """Of each story, continued from an opening at that temperature, which of the new sentences the parser accepts."""
    results, draw = [], random.Random(0)
    longest = model.config.max_position_embeddings
    torch.manual_seed(0)
    for one in written:
        *openings, _ = [judged.end for _, judged in forms_of(one.text)]
        after = draw.choice(openings)
        inputs = tokenizer(one.text[:after], return_tensors="pt")
        tokens = model.generate(
            **inputs,
            do_sample=True,
            temperature=temperature,
            top_k=0,
            max_new_tokens=max(1, min(NEW_TOKENS, longest - inputs["input_ids"].shape[1])),
            pad_token_id=0,
        )[0]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        if int(tokens[-1]) != model.config.eos_token_id:  # cut: up to the last whole sentence
            text = text[: max(text.rfind(mark) for mark in ".?!") + 1]
        results.append(accepted(text, after))
    return results


app = command_line.new_app(__doc__)


@app.command()
def figures(folder: Path, stories: int = 200, ship: bool = False) -> None:
    """Print the figures of an exported folder as JSON; with --ship, also write them into its run.json."""
    writing = measure(folder, stories)
    print(json.dumps(writing, indent=1))
    if ship:
        data = json.loads((folder / "run.json").read_text("utf-8")) | {"writing": writing}
        (folder / "run.json").write_text(
            json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )


if __name__ == "__main__":
    sys.exit(command_line.run(app))
