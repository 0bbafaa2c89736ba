"""setuptools for `pip install -e .` alone: pages, theme, settings and examples are read from the checkout."""

from setuptools.build_meta import (  # noqa: F401
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
)


def build_wheel(*_: object, **__: object) -> str:
    raise SystemExit(
        "Attention Lab runs from its folder; install it there with: pip install -r requirements.txt -e ."
    )
