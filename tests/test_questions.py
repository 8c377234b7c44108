"""The answers of docs/compare-systems.md are what their own lines print."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path

import pytest

import dtfm_lab as lab

PAGE = Path(__file__).parents[1] / "docs" / "compare-systems.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
HOW_TO, QUESTIONS = PAGE.read_text().split("\n## Questions\n")
SHORTER = [
    (r'"worldwide", "gpt3-xl", seconds=2', '"lecture-hall", systems=["megatron", "dtfm-lab"], steps=1'),
    (r'"worldwide", "gpt3-xl", systems', '"lecture-hall", "tiny", steps=1, systems'),
    (r"\(0.01, 10.0, 4\)", "(0.1, 10.0, 2)"),
]
"""What makes the searches of the first half shorter than a reader's."""


@pytest.mark.slow
def test_every_line_of_the_instructions_runs() -> None:
    names: dict[str, object] = {}
    for code, _ in BLOCK.findall(HOW_TO):
        for pattern, shorter in SHORTER:
            code = re.sub(pattern, shorter, code)
        exec(compile(code, str(PAGE), "exec"), names)
    assert "takes" in names["why"].text  # type: ignore[attr-defined]


def test_every_answer_is_what_its_lines_print(caplog) -> None:
    """One after the other, as a reader would run them; warnings of memory are part of the story, not of the answer."""
    caplog.set_level(logging.ERROR)
    names: dict[str, object] = {"lab": lab}
    blocks = BLOCK.findall(QUESTIONS)
    assert len(blocks) > 8
    for code, wanted in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert printed.getvalue() == wanted, code


def test_every_question_has_an_answer_that_is_computed() -> None:
    _, *sections = QUESTIONS.split("\n### ")
    assert [section.splitlines()[0] for section in sections if "```text" not in section] == []
