"""The site is built without a warning, loads nothing from a network, and every link in it leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import dtfm_lab as lab
from dtfm_lab.lab.schemas import formats
from tools.website.assemble import ROOT
from tools.website.docstrings import as_markdown
from tools.website.links import relinked
from tools.website.notebooks import fenced

missions = pytest.importorskip("dtfm_lab.extensions.course.api").missions


class Page(HTMLParser):
    """Ids of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") != "canonical" and "href" in values:
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all pages, built now from what is in the checkout, as ``make docs`` does but for pictures."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "tools.website", "--plain", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "WARNING" not in done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    written = [*(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    assert len(pages) > len(lab.__all__) + len(formats()) + len(written)
    assert [
        f"{path.relative_to(site)} -> {link}" for path, page in pages.items() for link in lost(path, page, pages)
    ] == []


def lost(path: Path, page: Page, pages: dict[Path, Page]) -> list[str]:
    """Links of a page to files or places that are not there."""
    found = []
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        there = target.exists() and (
            not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].ids
        )
        if not there:
            found.append(link)
    return found


@pytest.mark.slow
def test_nothing_is_loaded_from_a_network(site: Path, pages: dict[Path, Page]) -> None:
    assert [
        (path.name, src) for path, page in pages.items() for src in page.loaded if re.match(r"(https?:)?//", src)
    ] == []
    for path, page in pages.items():
        missing = [src for src in page.loaded if not (path.parent / urlsplit(src).path).exists() and src[:5] != "data:"]
        assert missing == [], path
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


@pytest.mark.slow
def test_there_is_a_page_for_each_name_format_and_mission(site: Path, pages: dict[Path, Page]) -> None:
    assert [name for name in lab.__all__ if site / "reference" / f"{name}.html" not in pages] == []
    assert [name for name in formats() if site / "formats" / f"{name}.html" not in pages] == []
    shown = (site / "missions.html").read_text(encoding="utf-8")
    assert [name for name in missions if f">{name}<" not in shown] == []
    assert (site / "searchindex.js").stat().st_size > 10_000


def test_links_between_pages_are_those_that_github_follows(tmp_path: Path) -> None:
    pages = {"docs/lab.md", "notebooks/00_tour.md", "networks.md"}
    text = "[a](../notebooks/00_tour.ipynb#x) [b](../README.md) [c](../topologies/) [d](https://x.org/y.ipynb)"
    wanted = "[a](../notebooks/00_tour.md#x) [b](../index.md) [c](../networks.md) [d](https://x.org/y.ipynb)"
    assert relinked(text, "docs/lab.md", pages, ROOT, tmp_path) == wanted
    moved = relinked("[a](docs/figures.md#matching)", "CHANGELOG.md", {"docs/python-api.md"}, ROOT, tmp_path)
    assert moved == "[a](docs/python-api.md#figures-one-by-one)"
    code = "```python\nrows[0](../README.md)\n```"
    assert relinked(code, "docs/lab.md", pages, ROOT, tmp_path) == code


def test_a_fence_is_longer_than_those_in_it() -> None:
    assert fenced("```\na\n```", "text").splitlines()[0] == "````text"


def test_sections_of_a_docstring_become_lists() -> None:
    shown = as_markdown("What it does.\n\nParameters\n----------\nwidth\n    Inches\n    of it.\n`b`\n    More.\n")
    assert shown == "What it does.\n\n**Parameters**\n\n- `width`: Inches of it.\n- `b`: More."
