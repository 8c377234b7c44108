"""What Sphinx is told: Markdown as GitHub reads it, a theme for phones and projectors, nothing from the network."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.website import mathml

project = "dtfm_lab"
author = "the authors of dtfm_lab"
release = metadata.version("dtfm_lab")
html_title = "dtfm_lab"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # a page may begin with a heading of the second level below its first
language = "en"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
smartquotes = False  # --steps is no dash
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_math_renderer = "mathml"
pygments_style = "default"
pygments_dark_style = "github-dark"
highlight_language = "text"


def setup(app):  # type: ignore[no-untyped-def]
    """Formulas are drawn by the browser."""
    app.add_html_math_renderer("mathml", (mathml.inline, None), (mathml.block, None))
