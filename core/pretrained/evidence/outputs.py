"""Convert the names of classes and tokens to logit numbers, and back."""

from __future__ import annotations

import re

from core.pretrained.answers import Answer, display_names
from core.pretrained.base import Pretrained, PretrainedError
from core.pretrained.lines import CONTINUES, STARTS_WORD, display_tokens, marks_words
from core.pretrained.reading import tokenized, tokenizer_of

NUMBER = re.compile(r"(?:.*\s)?#(\d{1,9})", re.DOTALL)
QUOTED, LISTED = 40, 8  # characters of what was typed, and classes, that an error repeats


def output_name(pretrained: Pretrained, answer: Answer, output: int) -> str:
    """The name of a class or token, with its number where the name is ambiguous."""
    name = display_names(pretrained, answer, [output])[0]
    try:
        if output_id(pretrained, answer, name) == output:
            return name
    except PretrainedError:
        pass
    return f"{name} #{output}"


def output_id(pretrained: Pretrained, answer: Answer, text: str) -> int:
    """The class or token of a name as `output_name` writes it, or of #number.

    PretrainedError for an unknown name, for a text of several tokens, and for an embedding.
    """
    text = text.strip()
    if answer.logits is None:
        raise PretrainedError(
            f"The output of {pretrained.name} is an embedding: it has no classes and no tokens."
        )
    if not text:
        raise PretrainedError(
            "Type a class." if answer.kind == "class" else "Type a token of the vocabulary."
        )
    by_name = _class(pretrained, text) if answer.kind == "class" else _token(pretrained, text)
    if by_name is not None and by_name < len(answer.logits):
        return by_name
    if number := NUMBER.fullmatch(text):
        return check_output(pretrained, answer, int(number[1]))
    if answer.kind != "class":
        raise PretrainedError(_no_token(pretrained, text))
    names = display_names(pretrained, answer, range(min(LISTED, len(answer.logits))))
    more = ", …" if len(answer.logits) > LISTED else ""
    raise PretrainedError(
        f"{pretrained.name} has no class “{text[:QUOTED]}”. Its {len(answer.logits):,} are "
        f"{', '.join(names)}{more}; a number such as #0 also names one."
    )


def check_output(pretrained: Pretrained, answer: Answer, output: int) -> int:
    """The number itself; PretrainedError unless the answer has such a logit."""
    assert answer.logits is not None
    if not 0 <= output < len(answer.logits):
        what = "class" if answer.kind == "class" else "token"
        raise PretrainedError(
            f"{pretrained.name} has no {what} #{output}; the numbers are 0 to "
            f"{len(answer.logits) - 1:,}."
        )
    return output


def _class(pretrained: Pretrained, text: str) -> int | None:
    names = {int(one): str(name) for one, name in pretrained.model.config.id2label.items()}
    for match in (text, text.casefold()):
        matches = [one for one, name in names.items() if match in (name, name.casefold())]
        if len(matches) == 1:
            return matches[0]
    return None


def _token(pretrained: Pretrained, text: str) -> int | None:
    """The token of that name in the vocabulary, else the one that the tokenizer makes of the text."""
    tokenizer, piece = tokenizer_of(pretrained), text.removeprefix(CONTINUES)
    spelled = [text]
    if marks_words(tokenizer):
        begins = [f"{start}{text}" for start in STARTS_WORD]
        spelled = (
            [text, piece]
            if piece != text
            else [*begins, text]
            if text.isalnum()
            else [text, *begins]
        )
    for one in spelled:
        number = tokenizer.convert_tokens_to_ids(one)
        if number is not None and tokenizer.convert_ids_to_tokens(number) == one:
            return int(number)
    ids = _encoded(pretrained, text)
    return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None


def _encoded(pretrained: Pretrained, text: str) -> list[int]:
    """The tokens of a text after another word."""
    written = f" {text}" if text.isalnum() else text.removeprefix(CONTINUES)
    return list(tokenized(pretrained, written, add_special_tokens=False)["input_ids"])


def _no_token(pretrained: Pretrained, text: str) -> str:
    ids = _encoded(pretrained, text)
    if ids in ([], [tokenizer_of(pretrained).unk_token_id]):
        return (
            f"“{text[:QUOTED]}” is not in the vocabulary of {pretrained.name}. Type another token, or its number, "
            "such as #17."
        )
    pieces = ", ".join(display_tokens(tokenizer_of(pretrained), ids[:LISTED])) + (
        ", …" if len(ids) > LISTED else ""
    )
    return (
        f"“{text[:QUOTED]}” is no token of {pretrained.name}: its tokenizer cuts it into {len(ids)} ({pieces}). "
        "Type one token, or its number, such as #17."
    )
