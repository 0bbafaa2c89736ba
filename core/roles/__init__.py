"""What each head of a model does, measured over sentences: nine roles, each beside the chance of it."""

from core.roles.measure import Measured, measure
from core.roles.readable import read_all, sentences_for
from core.roles.roles import ROLES, Role
from core.roles.sentences import SENTENCES
from core.roles.targets import Text

__all__ = ["ROLES", "SENTENCES", "Measured", "Role", "Text", "measure", "read_all", "sentences_for"]
