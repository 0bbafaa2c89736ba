"""The syntactic relations whose heads are looked for: pairs of words of a parsed sentence."""

from __future__ import annotations

from dataclasses import dataclass

from core.roles.conllu import Parse

Pair = tuple[int, int]


@dataclass(frozen=True)
class Relation:
    """Pairs of words, from a `source` to a `target`.

    They are the governor and the dependent of `deprel` (`from_dependent`: the other way round), where the governor's
    part of speech is one of `governors`; without `deprel` a pronoun and its antecedent.
    """

    key: str
    source: str
    target: str
    deprel: str
    governors: tuple[str, ...] = ()
    from_dependent: bool = False

    def name(self, reverse: bool = False) -> str:
        """The relation as "Verb → subject", or reversed."""
        first, last = (self.target, self.source) if reverse else (self.source, self.target)
        return f"{first[0].upper()}{first[1:]} → {last}"

    def pairs(self, parse: Parse) -> list[Pair]:
        """(source, target) of every instance in the sentence."""
        words = parse.words
        if not self.deprel:
            return [
                (index, word.antecedent)
                for index, word in enumerate(words)
                if word.antecedent is not None
            ]
        arcs = [
            (word.head, index)
            for index, word in enumerate(words)
            if word.relation == self.deprel
            and word.head >= 0
            and words[word.head].upos in self.governors
        ]
        return [(dependent, head) for head, dependent in arcs] if self.from_dependent else arcs

    def targets(self, parse: Parse, reverse: bool = False) -> dict[int, set[int]]:
        """The words that answer the relation, for each word that asks for one: all adjectives of a noun, say."""
        answers: dict[int, set[int]] = {}
        for source, target in self.pairs(parse):
            first, last = (target, source) if reverse else (source, target)
            answers.setdefault(first, set()).add(last)
        return answers


NOUNS = ("NOUN", "PROPN")

RELATIONS: tuple[Relation, ...] = (
    Relation("subject", "verb", "subject", "nsubj", ("VERB",)),
    Relation("object", "verb", "object", "obj", ("VERB",)),
    Relation("determiner", "noun", "determiner", "det", NOUNS),
    Relation("adjective", "adjective", "noun", "amod", NOUNS, from_dependent=True),
    Relation("antecedent", "pronoun", "antecedent", ""),
    Relation("passive", "passive verb", "auxiliary", "aux:pass", ("VERB",)),
)
