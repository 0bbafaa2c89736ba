"""Attention Lab from Python: `from attention_lab import attend, Attention, AttentionConfig, read`.

A name loads its module when it is first taken, so that the import alone loads no PyTorch. The import also puts the lab's
folder last on the path, so that `from core.… import …` finds it: a wheel has `core` and `dashboard` in this folder, a
checkout beside it. docs/library.md says what each name is.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER if (FOLDER / "core").is_dir() else FOLDER.parent
MODULES = {
    "core.attention": "attend Attention AttentionConfig Choice ConfigError Cache Steps PRESETS preset "
    "register Entry Param check first_difference",
    "core.claims.catalogue": "register_claim",
    "core.interpret.activations": "read_activations activations_file",
    "core.interpret.trace": "AttentionMap AttentionTrace",
    "core.models": "ModelConfig",
    "core.pretrained": "read ModelInputs load_folder load_lab_model load_minilm PretrainedError",
    "core.pretrained.module_reader": "read_module",
    "core.tasks": "TaskConfig register_task",
    "core.training": "RunConfig train",
    "core.training.watch": "watch WatchCallback LightningWatch",
    "dashboard.show": "show show_maps",
}
MODULE_OF = {name: module for module, names in MODULES.items() for name in names.split()}
__all__ = list(MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from core.provenance import lab_version

        return lab_version()
    if name not in MODULE_OF:
        raise AttributeError(f"attention_lab has no {name}; it has {', '.join(__all__)}.")
    require_own(MODULE_OF[name].partition(".")[0])
    return getattr(import_module(MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def require_own(package: str) -> None:
    """ImportError where another package of this name is before the lab's on the path."""
    spec = find_spec(package)
    assert spec is not None  # the lab's, if no other
    place = Path(spec.origin or next(iter(spec.submodule_search_locations or ())))
    if not place.resolve().is_relative_to(ROOT / package):
        raise ImportError(
            f"attention_lab needs its own package {package}, in {ROOT}, but `import {package}` takes {place}, "
            "which is before it on the path. Start Python in another folder, or rename that one."
        )


def main() -> int:
    """The command `attention-lab`."""
    from dashboard.__main__ import main as command

    return command()


if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
require_own("core")
