"""``python -m website``: gather the pages in build/site-source, and build the site in build/site. A warning fails."""

from __future__ import annotations

import sys

from sphinx.cmd.build import build_main

from website.assemble import ROOT, assemble

SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"


def main() -> int:
    """Exit status of the build."""
    assemble(SOURCE)
    here = ROOT / "website"
    status = build_main(["--fail-on-warning", "--keep-going", "--quiet", "-c", str(here), str(SOURCE), str(SITE)])
    if status == 0:
        sys.stdout.write(f"the site is at {SITE / 'index.html'}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
