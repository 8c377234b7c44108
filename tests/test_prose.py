"""The check of prose finds phrases to lose in what people read, and not in code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import prose


@pytest.mark.parametrize("name", ["docs/glossary.md", "dtfm_lab/cli/__init__.py"])
def test_what_people_read_is_checked(name: str) -> None:
    assert prose.ROOT / name in prose.files([name.split("/")[0]])


def test_each_phrase_is_found_with_what_to_write_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nIt takes so many\nseconds, and [`so many`](x.md).\n\n```sh\nrun so many\n```\n")
    assert [(hit.line, hit.phrase) for hit in prose.hits(page)] == [(3, "so many")]
    assert len(prose.PHRASES) >= 60
    assert all(instead for _, instead in prose.PHRASES)


def test_strings_of_code_are_read_once_and_values_as_n() -> None:
    tree = ast.parse('def f(x):\n    """Return x."""\n    raise ValueError(f"{x} goes on for {x!r} s")\n')
    assert sorted(text for _, text in prose.strings(tree)) == ["N goes on for N s", "Return x."]


def test_the_baseline_may_only_shrink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "WORDS", tmp_path)
    page.write_text("Once anew.\n\nThen it is begun anew, and anew.\n")
    assert prose.main(["--lower"]) == 0  # there is no baseline yet
    prose.passages.cache_clear()
    page.write_text("Now it is begun anew.\n")
    assert prose.main(["--lower"]) == 0
    prose.passages.cache_clear()
    page.write_text("Now it is begun anew, and anew.\n")
    assert prose.main(["--lower"]) == 1
    assert "docs/page.md,1" in (tmp_path / "baseline.csv").read_text()
