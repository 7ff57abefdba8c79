"""How the documentation is built: `make docs`, into build/docs."""

import gpumemtrace

project = "gpumemtrace"
version = release = gpumemtrace.__version__
html_title = f"gpumemtrace {version}"
html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3  # commands.md#growth
myst_links_external_new_tab = False

# Docstrings name things in `backticks`: link those that are on these pages.
default_role = "py:obj"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "exclude-members": "__init__"}
