"""``python -m tools.website``: gather the pages in build/site-source and build the site in build/site. A warning fails.

``--plain FOLDER`` builds all pages there, for a look at their links: lessons without what their cells show, and no
pictures of figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.website.assemble import ROOT, assemble

SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"


def main() -> int:
    """Exit status of the build."""
    plain = sys.argv[1:2] == ["--plain"]
    source, site = (Path(sys.argv[2]) / "source", Path(sys.argv[2]) / "site") if plain else (SOURCE, SITE)
    assemble(source, plain=plain)
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-D", f"html_extra_path={source / 'extra'}"]
    status = build_main([*options, "-c", str(Path(__file__).parent), str(source), str(site)])
    if status == 0:
        sys.stdout.write(f"the site is at {site / 'index.html'}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
