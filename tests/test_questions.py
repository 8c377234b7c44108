"""The answers of docs/questions.md are what its own lines print."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "questions.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def test_every_answer_is_what_its_lines_print(caplog) -> None:
    """One after the other, as a reader would run them; warnings of memory are part of the story, not of the answer."""
    caplog.set_level(logging.ERROR)
    names: dict[str, object] = {}
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 8
    for code, wanted in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert printed.getvalue() == wanted, code
    assert "takes" in names["why"].text  # type: ignore[attr-defined]


def test_every_question_has_an_answer_that_is_computed() -> None:
    _, *sections = PAGE.read_text().split("\n## ")
    assert [section.splitlines()[0] for section in sections if "```text" not in section] == []
