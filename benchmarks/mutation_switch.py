"""The switch of `make mutate`: which mutant is on, and which were reached. It is copied into the tested tree."""

import os
from pathlib import Path

reached: set[int] = set()
FOLDER = os.environ.get("MUTANTS_REACHED")  # also what other processes reach


def on(number: int) -> bool:
    """Whether this mutant is the one that is on; that it was reached is noted."""
    if number not in reached:
        reached.add(number)
        if FOLDER:
            Path(FOLDER, str(number)).touch()
    return os.environ.get("MUTANT") == str(number)
