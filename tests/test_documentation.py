"""The documentation speaks of what is there: links, names, commands, examples; and docstrings are sentences."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest

import dtfm_lab as lab
from dtfm_lab.cli import cli
from tools.website.moved import MOVED

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MODULES = sorted((ROOT / "dtfm_lab").rglob("*.py"))
MOST_LINES, MOST_PARAMETERS = 80, 10
"""Of a function: lines of code, docstring left out, and parameters besides ``self``."""


@pytest.mark.parametrize("page", [*PAGES, ROOT / "tests" / "README.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", prose(page)) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


LESSONS = sorted((ROOT / "tools" / "lessons").glob("*.py"))
NOTEBOOKS = ROOT / "notebooks"
"""Where lessons are read, so that their links begin there."""


@pytest.mark.parametrize("page", [*PAGES, *LESSONS], ids=lambda page: page.name)
def test_every_heading_that_is_linked_is_there(page: Path) -> None:
    """By the names that GitHub gives to headings; of lessons, the links to pages."""
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    folder = NOTEBOOKS if page in LESSONS else page.parent
    pages = [(page if not path else folder / path, heading) for path, heading in links if "://" not in path]
    assert [
        f"{path}#{heading}" for path, heading in pages if path.suffix == ".md" and heading not in headings(path)
    ] == []


DRAWINGS = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.stem)
def test_a_drawing_can_be_read_in_both_themes(drawing: Path) -> None:
    """It has its own paper, for a page may be dark where the browser is light. It loads nothing."""
    text = drawing.read_text()
    assert text.count("prefers-color-scheme:dark") + text.count("prefers-color-scheme: dark") >= 1
    assert '<rect class="paper"' in text
    assert "<title>" in text or 'aria-label="' in text
    assert min(map(int, re.findall(r"font(?:-size)?: ?(\d+)px", text))) >= 12
    assert re.findall(r"href|url\((?!#)|<script|https?://(?!www\.w3\.org/2000/svg)", text) == []


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Names of a page's headings as GitHub makes them: small letters, hyphens for blanks, other marks left out."""
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", each)
        for each in re.findall(r"^#+ +(.+)$", prose(page), re.MULTILINE)
    ]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_every_link_of_a_lesson_leads_somewhere(lesson: Path) -> None:
    links = [
        link for link in re.findall(r"\]\(([^)#\s]+)", lesson.read_text()) if re.search(r"\.(md|ipynb|png)$", link)
    ]
    assert [link for link in links if "://" not in link and not (NOTEBOOKS / link).exists()] == []


def test_an_old_address_of_the_site_leads_to_a_section_that_is_there() -> None:
    for old, new in MOVED.items():
        name, _, section = new.partition("#")
        page = ROOT / "docs" / f"{name}.md"
        assert not (ROOT / "docs" / f"{old}.md").exists(), old
        assert page.exists(), new
        assert not section or section in headings(page), new


def test_every_page_is_reached_from_the_first() -> None:
    """By links, from the README over the pages that it leads to."""
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        links = ((page.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()))
        ahead += [link for link in links if link in PAGES and link not in reached]
    assert [page.name for page in PAGES if page not in reached] == []
    assert len((ROOT / "README.md").read_text().splitlines()) < 100, "the README is one page"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_function_that_is_named_is_there(page: Path) -> None:
    named = set(re.findall(r"(?<![/\w])lab\.(?!md\b)(\w+)", page.read_text()))
    assert sorted(name for name in named if not hasattr(lab, name)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_named_is_there(page: Path) -> None:
    named = set(re.findall(r"dtfm-lab ([a-z]+)", page.read_text()))
    assert sorted(named - set(cli.list_commands(click.Context(cli)))) == []


def test_the_examples_of_a_network_and_of_a_job_are_read(tmp_path: Path) -> None:
    pages = [(ROOT / "docs" / f"describe-a-{name}.md").read_text() for name in ("network", "job")]
    network, job = (re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0] for page in pages)
    (tmp_path / "two-sites.yaml").write_text(network)
    (tmp_path / "mine.yaml").write_text(job)
    assert lab.load_topology(tmp_path / "two-sites.yaml").names[-2:] == ("fjord", "fjell")
    assert lab.load_job(tmp_path / "mine.yaml").n_stages == 8


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "dtfm_lab")))
def test_docstrings_are_sentences(module: Path) -> None:
    """They begin with a capital, a figure or a name, and end with a full stop; fields' and constants' too."""
    unfinished = [text for text in facts_of(module).docstrings if not is_sentence(text)]
    assert unfinished == []


SAY_NOTHING = frozenset(
    [
        "Aim",
        "Asked",
        "Beginnings",
        "Fit",
        "Fitting",
        "Freedom",
        "Here",
        "Judge",
        "Keeps",
        "Kept",
        "Lost",
        "Newest",
        "Seen",
        "Soon",
        "Told",
        "Way",
    ]
)
"""Names from which nobody can tell what a class is."""


def test_a_name_of_a_class_means_one_class() -> None:
    """A reader who searches for a class finds one, and its name is the field's."""
    defined = Counter(name for module in MODULES for name in facts_of(module).classes)
    assert [name for name, times in defined.items() if times > 1] == []
    assert sorted(SAY_NOTHING & defined.keys()) == []


LONGER_LISTS = {
    "domain/job/model/experts.py": {"moe"},  # keys of a model's configuration
    "domain/job/model/families.py": {"llama"},
    "extensions/elasticity/replaying.py": {"replay"},  # written out, so that an editor shows a user what may be given
}
"""Functions of more parameters, by module. A command's are its options, and compiled loops cannot take objects."""


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "dtfm_lab")))
def test_a_function_can_be_held_in_the_head(module: Path) -> None:
    name = str(module.relative_to(ROOT / "dtfm_lab"))
    if "kernel" in name:
        return
    assert facts_of(module).long == []
    assert facts_of(module).many_parameters == LONGER_LISTS.get(name, set())


@dataclass(frozen=True)
class Facts:
    """What the tests here ask of a module's source."""

    docstrings: list[str]
    classes: list[str]
    long: list[str]
    """Functions of more than MOST_LINES lines."""
    many_parameters: set[str]
    """Functions of more than MOST_PARAMETERS parameters, commands left out."""


@cache
def facts_of(module: Path) -> Facts:
    """Parse a module once for all tests, and keep what they ask: its tree would take many megabytes."""
    text = module.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    nodes = list(ast.walk(tree))
    functions = [each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Facts(
        docstrings=list(docstrings(nodes)),
        classes=[each.name for each in nodes if isinstance(each, ast.ClassDef)],
        long=[each.name for each in functions if n_lines(each, lines) > MOST_LINES],
        many_parameters={
            each.name for each in functions if n_parameters(each) > MOST_PARAMETERS and not is_command(each)
        },
    )


def n_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    body = function.body[ast.get_docstring(function) is not None :]
    code = lines[body[0].lineno - 1 : function.end_lineno] if body else []
    return sum(1 for line in code if line.strip() and not line.strip().startswith("#"))


def n_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    of = function.args
    named = [*of.posonlyargs, *of.args, *of.kwonlyargs, *filter(None, [of.vararg, of.kwarg])]
    return len(named) - bool(named and named[0].arg in ("self", "cls"))


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("command(" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_sentence(text: str) -> bool:
    first = text.strip().split("\n\n")[0]
    return bool(first) and not first[0].islower() and first[-1] in '.:?!`")'


def docstrings(nodes: list[ast.AST]) -> Iterator[str]:
    """Docstrings of modules, classes and functions, and the strings below fields and constants."""
    for node in nodes:
        body = getattr(node, "body", None)
        for before, statement in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
            holder = node if before is None else before
            if is_text and isinstance(holder, DOCUMENTED if before is None else ast.Assign | ast.AnnAssign):
                yield value.value
