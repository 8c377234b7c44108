"""Gathers all pages in one folder that is laid out as the repository is, so that their relative links stay true."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from dtfm_lab.extensions.course.api import LESSONS
from tools.website import course, formats, notebooks, plug_in, reference, tables
from tools.website.examples import Examples, run_examples
from tools.website.labs import write_labs
from tools.website.links import relinked
from tools.website.moved import write_moved

ROOT = Path(__file__).parents[2]
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Tutorials": ("start", "lab", "own-machines"),
    "How to": (
        "describe-a-network",
        "describe-a-job",
        "compare-systems",
        "run-for-real",
        "devices-that-come-and-go",
        "teach",
        "extend",
    ),
    "How it works": ("how-a-plan-is-found", "how-an-iteration-is-predicted", "how-far-to-trust-it"),
}
"""Pages of docs/ by the chapter in which the site lists them; pages that are not named here follow the how-tos."""
ELSEWHERE = ("glossary", "python-api", "commands-and-files", "ledger", "system-tables", "benchmarks", "papers-table")
"""Pages of docs/ that stand in a chapter with generated ones."""


def assemble(folder: Path, *, plain: bool = False) -> None:
    """Write the sources of the whole site to ``folder``, whose old content is lost.

    ``plain`` ones have lessons without what their cells show, no pictures of figures, and of the lab one network.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "extra").mkdir(parents=True)  # Sphinx wants it, with pictures or without
    made = run_examples(ROOT / "docs", folder / "extra" / "pictures", plain=plain)
    pages = _written_by_people(made) | _generated(made)
    for lesson in sorted((ROOT / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{lesson.stem}.md"] = notebooks.as_markdown(lesson, folder / "notebooks", outputs=not plain)
    write_moved(folder / "extra" / "docs")
    front = write_labs(folder / "extra" / "lab", plain=plain)
    pages["index.md"] = _with_lab(pages.pop("README.md"), front) + "\n" + _contents(set(pages))
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(relinked(text, name, set(pages), ROOT, folder), encoding="utf-8")


def _with_lab(readme: str, front: str) -> str:
    """The front page: the lab below the title and what it is in a sentence."""
    title = re.compile(r"^# .*\n\s*(?:.+\n)+", re.MULTILINE)
    return title.sub(lambda found: f"{found[0]}\n{front}", readme, count=1)


def _written_by_people(made: Examples) -> dict[str, str]:
    paths = [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
        *(ROOT / "docs").glob("*.md"),
    ]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    badges = re.compile(r"^\[!\[[^\n]*\n|^<picture>.*?^</picture>\n", re.MULTILINE | re.DOTALL)
    return texts | {
        "README.md": badges.sub("", texts["README.md"]),
        "docs/python-api.md": made.with_pictures(texts["docs/python-api.md"], "../pictures"),
    }


def _generated(made: Examples) -> dict[str, str]:
    return {
        "course.md": course.lessons_page(),
        "missions.md": course.missions_page(),
        "gpus.md": tables.gpus_page(),
        "networks.md": tables.networks_page(),
        "reference/plug-in.md": plug_in.page(ROOT / "examples" / "plugin"),
        **reference.pages(made),
        **formats.pages(),
    }


def _contents(pages: set[str]) -> str:
    """The tables of contents, which the site shows at the side and not in the page."""
    lessons = [f"notebooks/{name}.md" for name in LESSONS]
    others = sorted(name for name in pages if name.startswith("notebooks/") and name not in lessons)
    said = {page for group in GROUPS.values() for page in group} | set(ELSEWHERE)
    new = sorted(Path(name).stem for name in pages if name.startswith("docs/") and Path(name).stem not in said)
    chapters = {
        "The course": ["course.md", *lessons, *others, "missions.md", "docs/glossary.md"],
        **{chapter: [f"docs/{name}.md" for name in names] for chapter, names in GROUPS.items()},
        "Reference": [
            "docs/python-api.md",
            "reference/index.md",
            "docs/commands-and-files.md",
            "formats/index.md",
            "networks.md",
            "gpus.md",
            "docs/ledger.md",
            "docs/system-tables.md",
            "docs/benchmarks.md",
            "docs/papers-table.md",
        ],
    }
    titles = {f"notebooks/{name}.md": f"{name[:2]} {lesson.title}" for name, lesson in LESSONS.items()}
    chapters["How to"] += [f"docs/{name}.md" for name in new]
    chapters["Changing it"] = ["CONTRIBUTING.md", "tests/README.md", "reference/plug-in.md", "CHANGELOG.md"]
    trees = []
    for chapter, names in chapters.items():
        there = "\n".join(_entry(name, titles.get(name, "")) for name in names if name in pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {chapter}\n:maxdepth: 1\n\n{there}\n```\n")
    return "\n".join(trees)


def _entry(name: str, title: str) -> str:
    """A line of a table of contents: the page under a title of its own, or under the page's."""
    path = name.removesuffix(".md")
    return f"{title} <{path}>" if title else path
