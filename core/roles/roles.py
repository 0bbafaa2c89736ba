"""The nine roles, in the order of their colours: what each looks at, in words and as a rule over tokens."""

from __future__ import annotations

from dataclasses import dataclass

from core.roles import targets
from core.roles.targets import Rule


@dataclass(frozen=True)
class Role:
    """What a head may do: the keys it would look at (None: no keys, it spreads), a mark of two letters, and a source.

    `acts` is whether it picks something out; to rest on the first token and to lie broad are what heads do meanwhile.
    """

    key: str
    name: str
    mark: str
    targets: Rule | None
    meaning: str
    paper: str
    url: str

    @property
    def acts(self) -> bool:
        return self.key not in ("first", "broad")


CLARK = "Clark et al. 2019", "https://arxiv.org/abs/1906.04341"
VOITA = "Voita et al. 2019", "https://arxiv.org/abs/1905.09418"
XIAO = "Xiao et al. 2024", "https://arxiv.org/abs/2309.17453"
OLSSON = "Olsson et al. 2022", "https://arxiv.org/abs/2209.11895"

ROLES: tuple[Role, ...] = (
    Role("previous", "Previous token", "pr", targets.previous, "weight on the token before", *VOITA),
    Role("next", "Next token", "ne", targets.following, "weight on the token after", *VOITA),
    Role("first", "First token", "1st", targets.first, "weight on the first token, a place to rest", *XIAO),
    Role("self", "Itself", "se", targets.own, "weight on the token itself", *CLARK),
    Role("delimiter", "Delimiter", "de", targets.delimiter, "weight on punctuation and end marks", *CLARK),
    Role("same", "Same word", "sa", targets.same_word, "weight on the same word elsewhere", *CLARK),
    Role("rare", "Rare word", "ra", targets.rare_word, "weight on the sentence's rarest word", *VOITA),
    Role("induction", "Induction", "in", targets.induction,
         "weight on what followed this token before, where the text repeats", *OLSSON),
    Role("broad", "Broad", "br", None, "share of its keys on which a row effectively lies, e^entropy / keys", *CLARK),
)
