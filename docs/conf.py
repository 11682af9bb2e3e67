"""Sphinx configuration: `make docs` builds with warnings as errors."""

from __future__ import annotations

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
