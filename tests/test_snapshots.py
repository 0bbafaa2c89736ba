"""What each claim trains, and what each task recommends, is what was saved in snapshots.json.

`make snapshots` writes it again: its diff shows which experiment changed.
"""

import json
import os
from pathlib import Path
from typing import Any

from core.claims import experiment
from core.claims.catalogue import CLAIMS
from core.claims.run import ClaimConfig
from core.tasks import TASKS, TaskConfig, make_task
from core.training import recommended
from core.training.evaluate import never_stop

SAVED = Path(__file__).with_suffix(".json")
UNTRAINED = ("cost", "scaling", "path", "causal", "concatenation", "explanation", "roles")


class Trains(Exception):
    """Raised in place of training, with the config."""


def experiments(monkeypatch) -> dict[str, Any]:
    """The first config that each condition of each claim trains, by both names."""

    def instead(config):
        raise Trains(config.to_json())

    monkeypatch.setattr(experiment, "prepare", instead)
    found = {}
    for claim in CLAIMS:
        settings = ClaimConfig(claim.key, {}).settings
        found[claim.key] = dict(settings)
        for condition in claim.conditions(settings) if claim.key not in UNTRAINED else ():
            try:
                list(claim.measure(condition, 0, settings, never_stop))
            except Trains as config:
                found[f"{claim.key}, {condition}"] = config.args[0]
    return found


def recipes() -> dict[str, Any]:
    """The run that each task recommends for each kind of model, by both names."""
    tasks = [
        make_task(TaskConfig.of(entry.key)) for entry in TASKS if not entry.key.startswith("own")
    ]
    return {
        f"{task.key}, {kind}": recommended(task, kind).to_json()
        for task in tasks
        for kind in task.recommended
    }


def test_claims_and_tasks_train_what_was_saved(monkeypatch):
    found = json.loads(json.dumps({"claims": experiments(monkeypatch), "tasks": recipes()}))
    if os.environ.get("UPDATE_SNAPSHOTS"):
        text = json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True)
        SAVED.write_text(text + "\n", encoding="utf-8")
    saved = json.loads(SAVED.read_text("utf-8"))
    assert found["claims"] == saved["claims"] and found["tasks"] == saved["tasks"]
