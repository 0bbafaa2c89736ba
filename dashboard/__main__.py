"""Start the dashboard from any folder: `attention-lab` or `python -m dashboard`, with `streamlit run`'s options."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run `streamlit run streamlit_app.py` with the options of the command line."""
    from streamlit.web.cli import main as streamlit

    os.chdir(ROOT)  # Streamlit reads .streamlit/config.toml, the theme and settings, from the working directory
    sys.argv = ["streamlit", "run", str(ROOT / "streamlit_app.py"), *sys.argv[1:]]
    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
