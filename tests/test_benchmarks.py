"""The runner of benchmarks lists them all, and what they import is there; what they measure is not tested here."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
FILES = sorted(FOLDER.rglob("*.py"))
HELPERS = {path.stem for path in (ROOT / "tests").rglob("*.py")}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``python benchmarks`` answers."""
    return subprocess.run(
        [sys.executable, FOLDER, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def listed() -> dict[str, str]:
    """Name -> what it measures, as the runner lists them."""
    return dict(re.findall(r"^  (\w+) +(\S.*)$", run().stdout, re.MULTILINE))


def test_every_benchmark_is_listed_with_what_it_measures(listed: dict[str, str]) -> None:
    scripts = {path.stem for folder in ("planning", "models", "runs") for path in (FOLDER / folder).glob("[a-z]*.py")}
    assert {"gpu", "interface", "mutants", "predictions"} <= set(listed)
    assert {name for name in scripts if "__main__" in next(FOLDER.rglob(f"{name}.py")).read_text()} <= set(listed)
    assert min(map(len, listed.values())) > 20


def test_an_unknown_benchmark_is_refused_in_one_line() -> None:
    ended = run("sped")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (1, "", 1)
    assert "'sped'; known are" in ended.stderr


def test_benchmarks_that_pages_and_the_makefile_name_are_there(listed: dict[str, str]) -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *(ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"python\)? benchmarks (\w+)", page.read_text())}
    made = re.findall(r"BENCHMARKS := (.*?)\n\n", (ROOT / "Makefile").read_text(), re.DOTALL)[0]
    assert named - {"NAME"} | set(made.replace("\\", " ").split()) <= set(listed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_what_a_benchmark_imports_is_there(path: Path) -> None:
    """Names of the package, of its neighbours and of the tests' helpers: a renamed or moved one breaks it unseen."""
    folders = (*helper_folders(path), FOLDER, path.parent)
    neighbours = {each.stem: each for folder in folders for each in folder.glob("*.py")}
    missing = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = {alias.name for alias in node.names}
            if node.module.startswith("dtfm_lab"):
                missing += [f"{node.module}.{name}" for name in names if not offers(node.module, name)]
            elif node.module in neighbours:
                missing += sorted(f"{node.module}.{name}" for name in names - defined(neighbours[node.module]))
            elif node.module in HELPERS:
                missing.append(f"{node.module} (in none of the folders on sys.path)")
    assert missing == []


def helper_folders(path: Path) -> list[Path]:
    """Folders of tests that a benchmark, or the runner of its folder, adds to ``sys.path``."""
    runner = path.with_name("__main__.py")
    text = path.read_text() + (runner.read_text() if runner.exists() else "")
    found = re.findall(r'"tests"((?: / "\w+")+)', text)
    return [ROOT.joinpath("tests", *re.findall(r"\w+", parts)) for parts in found]


def offers(module: str, name: str) -> bool:
    """Whether a module of the package has this name, or a module of this name."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


def defined(path: Path) -> set[str]:
    """Names that a file defines or imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
