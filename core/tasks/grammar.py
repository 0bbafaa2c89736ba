"""A grammar of short stories that knows what is true in them, so that what a model writes can be checked.

A story is a sequence of forms, such as "{A} gave the {x} to {B}.". Each slot has a domain: who or what may stand there
as the story is now (B is somebody else who is present, x is something that A has). `story` draws from the domains, and
counts the nats of its draws; `judge` reads a text by the same forms and domains, and says which words break them.
"""

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

WORDS = {
    kind: tuple(words.split())
    for kind, words in (
        line.split(": ", 1)
        for line in (Path(__file__).parent / "data" / "stories.txt").read_text("utf-8").splitlines()
    )
}
PRONOUNS = {  # of a person, by the form of a slot
    "he": ("he", "she"),
    "him": ("him", "her"),
    "his": ("his", "her"),
}
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NOUNS = frozenset(
    word
    for kind in ("thing", "food", "box", "animal", "job", "tree", "flower")
    for word in WORDS[kind]
)
IRREGULAR = {
    "knife": "knives",
    "shelf": "shelves",
    "scarf": "scarves",
    "wolf": "wolves",
    "calf": "calves",
    "mouse": "mice",
    "goose": "geese",
}


def plural(noun: str) -> str:
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if re.search("(s|x|z|ch|sh)$", noun):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"


def with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' and not word.startswith(('uni', 'use', 'eu')) else 'a'} {word}"


@dataclass
class State:
    """What is so at a point of a story; people are by name, things by noun."""

    place: str = ""
    people: list[str] = field(default_factory=list)
    focus: str = ""  # whom "he" or "she" means, if anybody
    used: set[str] = field(default_factory=set)  # nouns and names that have occurred
    owner: dict[str, str] = field(default_factory=dict)
    adjective: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)  # the box of a thing
    pet: dict[str, str] = field(default_factory=dict)  # the name of an animal
    language: dict[str, str] = field(default_factory=dict)
    ended: bool = False


Values = dict[str, str]
Domain = Callable[[State, Values], Sequence[str]]
SHE = frozenset(WORDS["she"])


def surface(value: str, form: str) -> str:
    """How a value is written in a slot: itself, with its article, as a plural or as a pronoun."""
    if form in PRONOUNS:
        return PRONOUNS[form][value in SHE]
    return {"": value, "a": with_article(value), "s": plural(value)}[form]


SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")


@dataclass(frozen=True)
class Form:
    """One or more sentences with slots, the domain of each slot, and what is so afterwards."""

    text: str
    slots: dict[str, Domain]
    then: Callable[[State, Values], None] = lambda state, chosen: None
    weight: float = 1.0

    def is_able(self, state: State) -> bool:
        """Whether each slot has a value; which others have does not depend on the values that are drawn."""
        chosen = Values()
        for name, domain in self.slots.items():
            if not isinstance(domain, Words):  # there is always another word
                options = domain(state, chosen)
                if not options:
                    return False
                chosen[name] = options[0]
        return True

    def draw(self, state: State, random: random.Random) -> tuple[Values, float]:
        """A value of each slot and the nats of these draws."""
        chosen, nats = Values(), 0.0
        for name, domain in self.slots.items():
            options = domain(state, chosen)
            chosen[name] = random.choice(options)
            nats += math.log(len(options))
        return chosen, nats

    def write(self, chosen: Values) -> str:
        text = SLOT.sub(lambda slot: surface(chosen[slot[1]], slot[2] or ""), self.text)
        return re.sub(r"(^|[.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts, at = [], 0
        for number, slot in enumerate(SLOT.finditer(self.text)):
            parts.append(re.escape(self.text[at : slot.start()]))
            article = "(?:an? )" if slot[2] == "a" else ""
            parts.append(f"(?P<s{number}>{article}[A-Za-z]+)")
            at = slot.end()
        return re.compile("".join([*parts, re.escape(self.text[at:])]), re.IGNORECASE)

    def read(self, text: str, at: int, state: State) -> tuple[Values, list[str], int] | None:
        """The slots' values where the form stands at that place of a text, the slots that are wrong, and the end."""
        match = self.pattern.match(text, at)
        if match is None:
            return None
        written: dict[str, list[tuple[str, str]]] = {}
        for number, slot in enumerate(SLOT.finditer(self.text)):
            written.setdefault(slot[1], []).append((slot[2] or "", match[f"s{number}"]))
        chosen, wrong = Values(), []
        for name, domain in self.slots.items():
            fits = [
                value
                for value in domain(state, chosen)
                if all(surface(value, form).lower() == word.lower() for form, word in written[name])
            ]
            if not fits:
                wrong.append(name)
                return chosen, wrong, match.end()
            chosen[name] = fits[0]
        return chosen, wrong, match.end()


# Domains: the words that may fill a slot of a form.


@dataclass(frozen=True)
class Words:
    """The words of these kinds; with `new`, those that have not occurred in the story."""

    kinds: tuple[str, ...]
    new: bool = False

    def __call__(self, state: State, chosen: Values) -> Sequence[str]:
        taken = {*chosen.values(), *(state.used if self.new else ())}
        return [word for kind in self.kinds for word in WORDS[kind] if word not in taken]


def word(kind: str) -> Domain:
    return Words((kind,))


def new(*kinds: str) -> Domain:
    return Words(kinds, new=True)


person = new("she", "he")


def present(state: State, chosen: Values) -> Sequence[str]:
    return [name for name in state.people if name not in chosen.values()]


def focus(state: State, chosen: Values) -> Sequence[str]:
    return [state.focus] if state.focus else []


def elsewhere(state: State, chosen: Values) -> Sequence[str]:
    return [place for place in WORDS["place"] if place != state.place]


def owned(by: str, kind: str = "thing", boxed: bool | None = False) -> Domain:
    """What the person of another slot has; `boxed`: in a box, or not."""
    return lambda state, chosen: [
        noun
        for noun, name in state.owner.items()
        if name == chosen[by] and noun in WORDS[kind] and (noun in state.inside) == boxed
    ]


def holder(kind: str = "thing") -> Domain:
    """Who has such a thing, not in a box."""
    return lambda state, chosen: [
        name for name in state.people if owned("A", kind)(state, Values(A=name))
    ]


def boxed(state: State, chosen: Values) -> Sequence[str]:
    return list(state.inside)


def box_of(thing: str) -> Domain:
    return lambda state, chosen: [state.inside[chosen[thing]]]


def described(state: State, chosen: Values) -> Sequence[str]:
    return list(state.adjective)


def adjective_of(thing: str) -> Domain:
    return lambda state, chosen: [state.adjective[chosen[thing]]]


def only_other(of: str) -> Domain:
    """The one person present of the other gender, whom "him" or "her" then means."""

    def domain(state: State, chosen: Values) -> Sequence[str]:
        others = [name for name in state.people if (name in SHE) != (chosen[of] in SHE)]
        return others if len(others) == 1 else []

    return domain


# What the sentence of a form changes in the state of its story.


def effects(
    *,
    comes: str = "",
    focus: str = "",
    place: str = "",
    gets: str = "",
    loses: str = "",
    adjective: str = "",
    puts: str = "",
    takes: str = "",
    more: Callable[[State, Values], None] | None = None,
) -> Callable[[State, Values], None]:
    """By names of slots: `gets` "A:x" or "A:xyz", `adjective` "a:x", `puts` "c:x"; a form without a focus leaves none."""

    def change(state: State, chosen: Values) -> None:
        state.used |= set(chosen.values()) & (NOUNS | SHE | set(WORDS["he"]) | set(WORDS["pet"]))
        state.people += [chosen[name] for name in comes]
        state.focus = chosen[focus] if focus else ""
        if place:
            state.place = chosen[place]
        for thing in loses:
            del state.owner[chosen[thing]]
            state.adjective.pop(chosen[thing], None)
        tables = (state.owner, gets), (state.adjective, adjective), (state.inside, puts)
        for table, names in tables:
            name, _, things = names.partition(":")
            table.update({chosen[thing]: chosen[name] for thing in things})
        for thing in takes:
            del state.inside[chosen[thing]]
        if more is not None:
            more(state, chosen)

    return change


def end(state: State, chosen: Values) -> None:
    state.ended = True


OPPOSITES = {
    "older": "younger",
    "younger": "older",
    "taller": "shorter",
    "shorter": "taller",
    "faster": "slower",
    "slower": "faster",
    "stronger": "weaker",
    "weaker": "stronger",
    "richer": "poorer",
    "poorer": "richer",
}
OPENINGS = (
    Form(
        "One {w}, {A} and {B} went to the {p}.",
        {"w": word("when"), "A": person, "B": person, "p": elsewhere},
        effects(comes="AB", place="p"),
    ),
    Form(
        "{A} was {j.a} and lived in {t}.",
        {"A": person, "j": word("job"), "t": word("town")},
        effects(comes="A", focus="A"),
    ),
    Form(
        "It was {h} in {t}. {A} met {B} at the {p}.",
        {
            "h": word("weather"),
            "t": word("town"),
            "A": person,
            "B": person,
            "p": elsewhere,
        },
        effects(comes="AB", place="p"),
    ),
    *(
        Form(
            f"When {{A}} and {{B}} went to the {{p}}, {giver} gave {{x.a}} to {receiver}.",
            {"A": person, "B": person, "p": elsewhere, "x": new("thing")},
            effects(comes="AB", place="p", gets=f"{receiver[1]}:x"),
        )
        for giver, receiver in (("{A}", "{B}"), ("{B}", "{A}"))
    ),
)
FORMS = (
    Form(
        "{A} {m} to the {p}.",
        {"A": present, "m": word("moved"), "p": elsewhere},
        effects(focus="A", place="p"),
    ),
    Form(
        "Then {A.he} {m} {h} to the {p}.",
        {"A": focus, "m": word("moved"), "h": word("how"), "p": elsewhere},
        effects(focus="A", place="p"),
        2,
    ),
    Form(
        "There {A.he} met {B}.",
        {
            "A": lambda state, chosen: focus(state, chosen) if len(state.people) < 3 else [],
            "B": person,
        },
        effects(comes="B"),
        3,
    ),
    Form(
        "{A.he} found {a.a} {x}.",
        {"A": focus, "a": word("of_thing"), "x": new("thing")},
        effects(focus="A", gets="A:x", adjective="a:x"),
        4,
    ),
    Form(
        "{A} bought {a.a} {f}.",
        {"A": present, "a": word("of_food"), "f": new("food")},
        effects(focus="A", gets="A:f", adjective="a:f"),
        2,
    ),
    Form(
        "{A} gave the {x} to {B}, and {B} thanked {A}.",
        {"A": holder(), "x": owned("A"), "B": present},
        effects(gets="B:x"),
        3,
    ),
    Form(
        "{A.he} gave {B.him} the {x}.",
        {"A": focus, "B": only_other("A"), "x": owned("A")},
        effects(gets="B:x"),
        3,
    ),
    Form(
        "When {A} and {B} went to the {p}, {B} gave {a.a} {x} to {A}.",
        {"A": present, "B": present, "p": elsewhere, "a": word("of_thing"), "x": new("thing")},
        effects(place="p", gets="A:x", adjective="a:x"),
        2,
    ),
    Form(
        "When {A} and {B} went to the {p}, {A} gave {a.a} {x} to {B}.",
        {"A": present, "B": present, "p": elsewhere, "a": word("of_thing"), "x": new("thing")},
        effects(place="p", gets="B:x", adjective="a:x"),
        2,
    ),
    Form(
        "{A} put the {x} into the {c}.",
        {"A": holder(), "x": owned("A"), "c": new("box")},
        effects(focus="A", puts="c:x"),
        3,
    ),
    Form(
        '"Where is the {x}?" asked {A}. "It is in the {c}," {s} {B}.',
        {"x": boxed, "A": present, "c": box_of("x"), "s": word("said"), "B": present},
        effects(),
        3,
    ),
    Form(
        "{A} opened the {c} and took out the {x}.",
        {"x": boxed, "A": present, "c": box_of("x")},
        effects(focus="A", gets="A:x", takes="x"),
        2,
    ),
    Form(
        "{A} was hungry, so {A.he} ate the {f}.",
        {"A": holder("food"), "f": owned("A", "food")},
        effects(focus="A", loses="f"),
        3,
    ),
    Form(
        "{A} packed {x.a}, {y.a} and {z.a}. At the {p}, {A.he} unpacked the {x}, the {y} and the {z}.",
        {
            "A": present,
            "x": new("thing"),
            "y": new("thing"),
            "z": new("thing"),
            "p": elsewhere,
        },
        effects(focus="A", place="p", gets="A:xyz"),
    ),
    Form(
        "The {x.s} near the {c} were {a}.",
        {"x": new("tree", "flower", "animal"), "c": new("box"), "a": word("of_thing")},
        effects(),
    ),
    Form(
        "The {x} near the {c.s} was {a}.",
        {"x": new("tree", "flower", "animal"), "c": new("box"), "a": word("of_thing")},
        effects(),
    ),
    Form(
        "First {A} {v} the {x}, then {A.he} {u} it.",
        {"A": holder(), "x": owned("A"), "v": word("treated"), "u": word("treated")},
        effects(focus="A"),
        2,
    ),
    Form(
        '"Is the {x} {a}?" asked {A}. "Yes, it is {a}," {s} {B}.',
        {
            "x": described,
            "a": adjective_of("x"),
            "A": present,
            "s": word("said"),
            "B": present,
        },
        effects(),
        2,
    ),
    Form(
        "{a.a} {n} followed {A}. {A.he} called it {q}.",
        {"a": word("of_animal"), "n": new("animal"), "A": present, "q": new("pet")},
        effects(focus="A", more=lambda state, chosen: state.pet.update({chosen["n"]: chosen["q"]})),
        2,
    ),
    Form(
        "{q} the {n} {v} {h}.",
        {
            "n": lambda state, chosen: list(state.pet),
            "q": lambda state, chosen: [state.pet[chosen["n"]]],
            "v": word("moved"),
            "h": word("how"),
        },
        effects(),
        2,
    ),
    Form(
        "{A} had {n} {f.s}. {A.he} ate one, so now {A.he} had {m} {f.s}.",
        {
            "A": present,
            "n": lambda state, chosen: NUMBERS[2:],
            "m": lambda state, chosen: [NUMBERS[NUMBERS.index(chosen["n"]) - 1]],
            "f": new("food"),
        },
        effects(focus="A"),
    ),
    Form(
        "{A} was {c} than {B}, so {B} was {d} than {A}.",
        {
            "A": present,
            "B": present,
            "c": lambda state, chosen: list(OPPOSITES),
            "d": lambda state, chosen: [OPPOSITES[chosen["c"]]],
        },
        effects(),
    ),
    Form(
        '"I like {f.s}," {s} {A}. "So do I," {r} {B}.',
        {
            "f": word("food"),
            "s": word("said"),
            "A": present,
            "r": word("said"),
            "B": present,
        },
        effects(),
    ),
    Form(
        "{A} spoke {l}, and {B} spoke {k}.",
        {
            "A": lambda state, chosen: present(state, chosen) if not state.language else [],
            "l": word("language"),
            "B": present,
            "k": word("language"),
        },
        effects(
            more=lambda state, chosen: state.language.update(
                {chosen["A"]: chosen["l"], chosen["B"]: chosen["k"]}
            )
        ),
    ),
    Form(
        "{A} {s} something in {l}.",
        {
            "A": lambda state, chosen: list(state.language),
            "s": word("said"),
            "l": lambda state, chosen: [state.language[chosen["A"]]],
        },
        effects(focus="A"),
        2,
    ),
    Form(
        "{A} and {B} played {g}. {A} won, so {B} was {e}.",
        {"A": present, "B": present, "g": word("game"), "e": word("state")},
        effects(),
    ),
    Form(
        "{A.he} was {e}.",
        {"A": focus, "e": word("state")},
        effects(focus="A"),
    ),
    Form(
        "Under {t.a} {A.he} saw {n} {f.s}.",
        {
            "A": focus,
            "t": word("tree"),
            "n": lambda state, chosen: NUMBERS[1:],
            "f": word("flower"),
        },
        effects(focus="A"),
    ),
    Form(
        "{A} drank {d}, and {B} drank {d} too.",
        {"A": present, "B": present, "d": word("drink")},
        effects(),
    ),
    Form(
        "{A.he} wrote a letter to {A.his} {k}.",
        {"A": focus, "k": word("kin")},
        effects(focus="A"),
    ),
)
ENDINGS = (
    Form("In the end, {A} and {B} went home.", {"A": present, "B": present}, end),
    Form("In the end, {A} went home.", {"A": lambda s, c: s.people[:1]}, end),
)
VOCABULARY = frozenset(
    word.lower()
    for text in (
        *(form.text for form in (*OPENINGS, *FORMS, *ENDINGS)),
        *(word for words in WORDS.values() for word in words),
        *map(plural, NOUNS),
        *(word for pair in PRONOUNS.values() for word in pair),
        *NUMBERS,
        *OPPOSITES,
        "an",
    )
    for word in re.findall("[A-Za-z]+", SLOT.sub("", text))
)


def unknown_words(text: str) -> tuple[str, ...]:
    """The words of a text that no story has, each once, in their order."""
    return tuple(
        dict.fromkeys(
            word for word in re.findall(r"[^\W\d_]+", text) if word.lower() not in VOCABULARY
        )
    )


MIN_FORMS, LAST = 5, 0.25  # of the middle; the chance that the story then ends, at each form


@dataclass(frozen=True)
class Story:
    """A text and the nats of the draws that made it."""

    text: str
    nats: float


def story(random: random.Random) -> Story:
    """One story."""
    state, texts, nats = State(), list[str](), 0.0
    while not state.ended:
        ends = len(texts) > MIN_FORMS and random.random() < LAST
        if len(texts) > MIN_FORMS:
            nats -= math.log(LAST if ends else 1 - LAST)
        forms = OPENINGS if not texts else ENDINGS if ends else FORMS
        able = [form for form in forms if form.is_able(state)]
        weights = [form.weight for form in able]
        (form,) = random.choices(able, weights)
        chosen, more = form.draw(state, random)
        nats += more - math.log(form.weight / sum(weights))
        texts.append(form.write(chosen))
        form.then(state, chosen)
    return Story(" ".join(texts), nats)


@dataclass(frozen=True)
class Judged:
    """A form that was read: where it ends, its slots' values, and the slots that are wrong."""

    form: Form
    end: int
    chosen: Values
    wrong: tuple[str, ...]


def judge(text: str) -> Iterator[Judged]:
    """Each form of a story's text in its order, until one that no form has; ValueError names that place."""
    state, at = State(), 0
    while at < len(text):
        forms = OPENINGS if at == 0 else (*FORMS, *ENDINGS)
        reads = [(form, match) for form in forms if (match := form.read(text, at, state))]
        if not reads:
            raise ValueError(text[at : at + 60])
        form, (chosen, wrong, stop) = min(reads, key=lambda read: (len(read[1][1]), -read[1][2]))
        yield Judged(form, stop, chosen, tuple(wrong))
        if not wrong:
            form.then(state, chosen)
        at = stop + 1
