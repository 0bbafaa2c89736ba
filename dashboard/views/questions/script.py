"""What the page computes as Python: the function behind the answer."""

from __future__ import annotations

import inspect
import re

import numpy as np

from dashboard.draw.scripts import Cell, Script
from dashboard.views.questions import numbers
from dashboard.views.questions.text import Answer

IMPORTS = {
    "torch": "import torch",
    "attend": "from core.attention import attend",
    "build_model": "from core.models import ModelConfig, build_model",
    "Shape": "from core.models.base import Shape",
    "seeded_rng": "from core.seeding import seeded_rng",
}
VALUES = "[[value for value in row.values() if not isinstance(value, str)] for row in rows]"
DRAW = """
import pandas as pd

pd.DataFrame(rows)
"""


def script(answer: Answer) -> Script:
    """The numbers of the answer's table, by the function that computed them here."""
    assert answer.evidence is not None
    compute = getattr(numbers, answer.evidence.__name__)
    source = inspect.getsource(compute)
    body = (f"{inspect.getsource(numbers.normal)}\n\n" if "normal(" in source else "") + source
    lines = [line for name, line in IMPORTS.items() if re.search(rf"\b{name}\b", body)]
    imports = "\n".join(lines).replace("import torch\n", "import torch\n\n", 1)
    code = f"""
{imports}


{body}

rows = {compute.__name__}()
for row in rows:
    print(row)
"""
    rows = [[value for value in row.values() if not isinstance(value, str)] for row in compute()]
    return Script(
        (Cell(answer.question, code, DRAW, f"table:{answer.question}"),), {VALUES: np.array(rows)}
    )
