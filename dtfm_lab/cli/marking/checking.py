"""Checks answers in processes of their own. An answer that is code gets one for itself, so that it can spoil no other.

``python -m dtfm_lab.cli.marking.checking`` reads a line of JSON for each answer and writes one for each verdict.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from dtfm_lab.course import missions
from dtfm_lab.course.handing_in import has_code, unpack
from dtfm_lab.course.progress import digest_of
from dtfm_lab.domain.errors import LabError

Answer = tuple[str, dict[str, Any]]
"""A mission and the packed answer to it."""


def verdicts_of(answers: list[Answer], reader: str, seconds: float) -> dict[str, dict[str, Any]]:
    """By mission whether the answer wins, the reason, and the answer's digest. ``seconds`` limits each process."""
    data = [(name, packed) for name, packed in answers if not has_code(packed)]
    found = _checked(data, reader, seconds) if data else {}
    for name, packed in answers:
        if has_code(packed):
            found |= _checked([(name, packed)], reader, seconds)
    return found


def _checked(answers: list[Answer], reader: str, seconds: float) -> dict[str, dict[str, Any]]:
    lines = "".join(json.dumps([name, reader, packed]) + "\n" for name, packed in answers)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dtfm_lab.cli.marking.checking"],
            input=lines,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        said, why = done.stdout, "its check ended without a verdict"
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        why = f"its check took longer than {seconds:.0f} s"
    found: dict[str, dict[str, Any]] = {name: {"passed": False, "reason": why, "digest": ""} for name, _ in answers}
    for line in said.splitlines():
        try:
            verdict = json.loads(line)
            found[verdict["mission"]] = {key: verdict[key] for key in ("passed", "reason", "digest")}
        except (ValueError, KeyError, TypeError):
            continue  # what an answer's own code has printed
    return {name: found[name] for name, _ in answers}


def main() -> None:
    """Check what stands on standard input."""
    for line in sys.stdin:
        name, reader, packed = json.loads(line)
        try:
            answer = unpack(packed)
            verdict = missions[name].verdict(answer, reader)
            said = {"passed": verdict.passed, "reason": verdict.reason, "digest": digest_of(answer)}
        except LabError as error:
            said = {"passed": False, "reason": str(error), "digest": ""}
        except Exception as error:  # an answer's own code may raise anything
            said = {"passed": False, "reason": f"its check raised {type(error).__name__}: {error}", "digest": ""}
        print(json.dumps({"mission": name, **said}), flush=True)  # noqa: T201  to the marker


if __name__ == "__main__":
    main()
