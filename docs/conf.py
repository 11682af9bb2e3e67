"""Sphinx configuration: `make docs` builds with warnings as errors."""

from __future__ import annotations

from typing import Any

import samebits

project = "samebits"
copyright = "the samebits authors"  # Sphinx's name for it
release = version = samebits.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "samebits"
html_static_path = ["_static"]
html_show_sourcelink = False
default_role = "code"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"


def setup(app: Any) -> None:
    """Napoleon takes what stands before a colon in an attribute's docstring for its type: undo that."""
    said: dict[str, list[str]] = {}

    def keep(_app: Any, what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
        if what in ("attribute", "property"):
            said[name] = list(lines)

    def restore(_app: Any, _what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
        lines[:] = said.pop(name, lines)

    app.connect("autodoc-process-docstring", keep, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
