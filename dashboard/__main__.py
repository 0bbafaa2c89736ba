"""Every command of the lab: `attention-lab`, or `python -m dashboard`, from any folder. `run` opens the dashboard."""

import sys
from importlib.util import find_spec
from pathlib import Path
from runpy import run_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """`run`, which is the default, takes the options of `streamlit run`."""
    if missing := [name for name in ("torch", "streamlit", "typer") if find_spec(name) is None]:
        print(
            f"{', '.join(missing)} not installed: pip install -r requirements.txt, in the folder of the lab, "
            f"or pip install {' '.join(missing)}, in any.",
            file=sys.stderr,
        )
        return 1
    words = sys.argv[1:]
    if not words or words[0].startswith("--server."):
        words = ["run", *words]
    if words[0] == "run":
        return dashboard(words[1:])
    from core import command_line
    from core.scoreboard import __main__ as scoreboard
    from core.training.__main__ import LISTS

    return command_line.run(app(), words, (*LISTS, *scoreboard.LISTS))


def dashboard(options: list[str]) -> int:
    """The server, before anything of core is imported; Streamlit finds its settings and the theme beside the script."""
    sys.argv = ["streamlit", "run", str(ROOT / "streamlit_app.py"), *options]
    run_module("streamlit", run_name="__main__")  # which ends with SystemExit
    return 0


def app() -> "Typer":
    """Every command, those that `python -m` of a module of core has, too."""
    from core import command_line
    from core.claims import __main__ as claims
    from core.interpret import corpus, pairs
    from core.pretrained import export, finetune_run as finetune, foreign
    from core.scoreboard import __main__ as scoreboard
    from core.training import __main__ as training

    whole = command_line.new_app(f"{__doc__}\n")
    whole.command("run", help="Open the dashboard, with the options of streamlit run.")(
        lambda: None
    )
    whole.add_typer(
        claims.app, name="claims", help="List claims, measure one, or print its verdict."
    )
    for part in (training, finetune, corpus, pairs, export, foreign, scoreboard):
        whole.registered_commands += part.app.registered_commands
    return whole


if __name__ == "__main__":
    sys.exit(main())
