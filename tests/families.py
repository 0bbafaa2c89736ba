"""What each family of the installed transformers gives on the pages of pretrained models, as a table.

    python -m tests.families [model types …] > families.json

Each cell is "right", a refusal in words, or "WRONG" with what happened; the totals go to stderr.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

import transformers

from core.pretrained import PretrainedError
from core.pretrained.base import first_line
from tests.pretrained.test_attention_recorder import (
    ANALYSES,
    BUILT,
    EXPECTED,
    FALSE,
    Case,
    built,
    check_generation,
)


def opened(case: Case) -> None:
    assert case.trace.maps


def generation(case: Case) -> None:
    check_generation(built(case.pretrained.name), case.pretrained.name)


def table_of(model_type: str) -> dict[str, str]:
    """Each analysis of one type: right, refused in words, or what is wrong."""
    row, cases = {}, []

    def attempt(name: str, do: Callable[[], object]) -> None:
        try:
            do()
            row[name] = "right"
        except PretrainedError as error:
            false = any(part in str(error) for part in FALSE)
            row[name] = f"{'WRONG: ' * false}{error}"
        except Exception as error:
            row[name] = f"WRONG {type(error).__name__}: {first_line(error)}"

    attempt("opened", lambda: cases.append(Case(built(model_type))))
    for analysis in (*ANALYSES, generation) if cases else ():
        attempt(analysis.__name__, partial(analysis, *cases))
    return row


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    types = sys.argv[1:] or [name for name in BUILT if EXPECTED[name] == "drawn"]
    table = {}
    for name in types:
        table[name] = table_of(name)
        print(json.dumps({name: table[name]}), flush=True)
    cells = [cell for row in table.values() for cell in row.values()]
    words = Counter(
        "right" if one == "right" else "wrong" if one.startswith("WRONG") else "refused"
        for one in cells
    )
    print(len(types), "types:", dict(words), file=sys.stderr)
