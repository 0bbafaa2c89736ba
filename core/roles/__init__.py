"""What each head of a model does, measured over sentences: nine roles, each beside the chance of it."""

from core.roles.examples import Example, clearest
from core.roles.inputs import Inputs, inputs_for, read_all
from core.roles.measure import Measured, measure
from core.roles.roles import ROLES, Role
from core.roles.sentences import SENTENCES
from core.roles.targets import Text

__all__ = ["ROLES", "SENTENCES", "Example", "Inputs", "Measured", "Role", "Text", "clearest", "inputs_for", "measure",
           "read_all"]
