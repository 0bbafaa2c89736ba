"""The nine roles, in the order of their colours: the targets of each, in words and as a rule over tokens."""

from __future__ import annotations

from dataclasses import dataclass

from core.roles import targets
from core.roles.targets import Rule


@dataclass(frozen=True)
class Role:
    """A role of a head: its target keys as a rule (None for Broad) and in words, and its source.

    `acts` is False for First token and Broad, the roles of heads at rest.
    """

    key: str
    name: str
    mark: str
    targets: Rule | None
    attends_to: str
    paper: str
    url: str

    @property
    def meaning(self) -> str:
        """What the score measures."""
        return (
            f"weight on {self.attends_to}"
            if self.targets
            else "share of its keys that a row attends to, e^entropy / keys"
        )

    @property
    def acts(self) -> bool:
        return self.key not in ("first", "broad")


CLARK = "Clark et al. 2019", "https://arxiv.org/abs/1906.04341"
VOITA = "Voita et al. 2019", "https://arxiv.org/abs/1905.09418"
XIAO = "Xiao et al. 2024", "https://arxiv.org/abs/2309.17453"
OLSSON = "Olsson et al. 2022", "https://arxiv.org/abs/2209.11895"

ROLES: tuple[Role, ...] = (
    Role("previous", "Previous token", "prev", targets.previous, "the token before", *VOITA),
    Role("next", "Next token", "next", targets.following, "the token after", *VOITA),
    Role("first", "First token", "1st", targets.first, "the first token", *XIAO),
    Role("self", "Itself", "self", targets.own, "the token itself", *CLARK),
    Role("delimiter", "Delimiter", "del", targets.delimiter, "punctuation and end marks", *CLARK),
    Role("same", "Same word", "same", targets.same_word, "the same word elsewhere", *CLARK),
    Role("rare", "Rare word", "rare", targets.rare_word, "the sentence's rarest word", *VOITA),
    Role(
        "induction",
        "Induction",
        "ind",
        targets.induction,
        "the token that followed the same token before, where the text repeats",
        *OLSSON,
    ),
    Role("broad", "Broad", "broad", None, "all keys that it may attend to, evenly", *CLARK),
)
