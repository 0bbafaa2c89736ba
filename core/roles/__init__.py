"""The roles of a model's heads, measured over sentences: nine roles, each with its chance level."""

from core.roles.examples import Example, clearest_example
from core.roles.inputs import RoleInputs, read_all, role_inputs
from core.roles.roles import ROLES, Role
from core.roles.scores import RoleScores, score_roles
from core.roles.sentences import SENTENCES
from core.roles.targets import Text

__all__ = [
    "ROLES",
    "SENTENCES",
    "Example",
    "RoleInputs",
    "RoleScores",
    "Role",
    "Text",
    "clearest_example",
    "read_all",
    "role_inputs",
    "score_roles",
]
