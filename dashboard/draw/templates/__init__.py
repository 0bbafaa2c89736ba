"""HTML of more than a few lines: Jinja2 macros in a file for each page or topic, in which every value is escaped."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dashboard.draw.formats import number, share_text

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent, "utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "share": share_text}
    return made


def html(file: str, macro: str, *values: Any) -> Markup:
    """What the macro of this file makes of the values; a value that is HTML already is Markup."""
    module: Any = environment().get_template(f"{file}.html").module
    return Markup(getattr(module, macro)(*values))
