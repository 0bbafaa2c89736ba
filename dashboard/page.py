"""What pages are written with, as one namespace: `import dashboard.page as lab`, then `lab.fact(…)`, `lab.cached(…)`.

A module is loaded when a page first asks for one of its names: Start loads no torch. The names are those that a module
defines, not what it imports; `dir(lab)` lists them, and loads all modules.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

FLAT = (  # whose names are in the namespace: the light ones first
    "draw.attention_view",
    "draw.components",
    "draw.curves",
    "draw.figures",
    "draw.formats",
    "draw.page_views",
    "draw.pictures",
    "draw.templates",
    "navigation",
    "server.cache",
    "server.calls",
    "server.session",
    "fields.base",
    "fields.link",
    "fields.reset",
    "ui.panels",
    "ui.guide",
    "ui.progress",
    "export.recorded",
    "draw.grids",
    "draw.tables",
    "ui.decoding",
    "fields.axis",
    "fields.cell",
    "fields.data",
    "fields.mechanism",
    "fields.model",
    "fields.run",
    "ui.fine_tune",
    "ui.models",
    "ui.run_setup",
    "ui.runs",
)
WHOLE = {  # that are in it as modules: lab.queue
    "export": "ui.export",
    "glossary": "draw.glossary",
    "handed_in": "ui.handed_in",
    "lessons": "ui.lessons",
    "limits": "server.limits",
    "page_bars": "ui.bars",
    "picture_files": "draw.picture_files",
    "queue": "server.queue",
    "step_view": "draw.step_view",
    "visitors": "server.visitors",
}

if TYPE_CHECKING:  # the same for type checkers and editors
    from dashboard.draw import glossary, picture_files, step_view
    from dashboard.draw.attention_view import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.components import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.curves import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.figures import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.formats import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.grids import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.page_views import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.pictures import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.tables import *  # type: ignore[assignment, no-redef]
    from dashboard.draw.templates import *  # type: ignore[assignment, no-redef]
    from dashboard.export.recorded import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.axis import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.base import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.cell import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.data import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.link import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.mechanism import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.model import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.reset import *  # type: ignore[assignment, no-redef]
    from dashboard.fields.run import *  # type: ignore[assignment, no-redef]
    from dashboard.navigation import *  # type: ignore[assignment, no-redef]
    from dashboard.server import limits, queue, visitors
    from dashboard.server.cache import *  # type: ignore[assignment, no-redef]
    from dashboard.server.calls import *  # type: ignore[assignment, no-redef]
    from dashboard.server.session import *  # type: ignore[assignment, no-redef]
    from dashboard.ui import bars as page_bars, export, handed_in, lessons
    from dashboard.ui.decoding import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.fine_tune import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.guide import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.models import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.panels import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.progress import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.run_setup import *  # type: ignore[assignment, no-redef]
    from dashboard.ui.runs import *  # type: ignore[assignment, no-redef]
else:

    def __getattr__(name: str) -> Any:
        if name in WHOLE:
            return import_module(f"dashboard.{WHOLE[name]}")
        for module in FLAT:
            loaded = import_module(f"dashboard.{module}")
            if _defines(loaded, name):
                return globals().setdefault(name, vars(loaded)[name])
        raise AttributeError(f"no module of pages has {name!r}")

    def __dir__() -> list[str]:
        modules = [import_module(f"dashboard.{module}") for module in FLAT]
        return sorted(
            {*WHOLE, *(name for one in modules for name in vars(one) if _defines(one, name))}
        )

    def _defines(module: ModuleType, name: str) -> bool:
        """Whether a module defines a name, and does not import it: a class or function tells where it is from."""
        value = vars(module).get(name)
        if name not in vars(module) or name.startswith("_") or isinstance(value, ModuleType):
            return False
        return getattr(value, "__name__", "") != name or value.__module__ == module.__name__
