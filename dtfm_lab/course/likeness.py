"""Which answers of two students tell that one is the other's, and which anybody may come to alone.

A closed form, a choice among a few, a round number and the plan that a planner finds from seed 0 are what many come
to, so equal ones tell nothing. Long code that is equal but for its names does, a measured trace, and an answer that is
wrong for oneself and right for somebody else, whose numbers differ.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace

LEAST_FIGURES = 3
"""Figures of a number from which on it is no round one."""
LEAST_NODES = 120
"""Parts of a syntax tree from which on code is too long to be written twice."""
THE_WORKED_ANSWER = "the-worked-answer"


def digest_of(answer: object) -> str:
    """Short digest of an answer by what it says; empty where equal answers tell nothing, as of choices and code."""
    said = [each for each in map(_said, _parts(answer)) if each]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12] if said else ""


def is_ones_own(answer: object) -> bool:
    """Whether no two people get this answer by themselves: a trace that was measured, or a network that was drawn."""
    return any(
        isinstance(each, Topology) or (isinstance(each, Trace) and each.context.source == "measured")
        for each in _parts(answer)
    )


def _parts(answer: object) -> Sequence[object]:
    return answer if isinstance(answer, list | tuple) else [answer]


def _said(part: object) -> str:
    """What tells of one part; empty where it is nothing."""
    if isinstance(part, bool):
        return ""
    if isinstance(part, int | float):
        figures = f"{part:.12g}".split("e")[0].replace(".", "").strip("-0")
        return f"{part:.12g}" if len(figures) >= LEAST_FIGURES else ""
    if isinstance(part, Topology):
        return part.fingerprint
    if isinstance(part, Plan):
        return f"{part.topology.fingerprint} {part.placement.devices.tolist()}"
    if isinstance(part, Trace):
        return part.to_frame().to_csv(index=False)
    return ""


def code_digest(source: str) -> str:
    """Digest of code without its comments and its own choice of names; empty where it is short, or no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    tree.body = [each for each in tree.body if not _is_frame(each)]
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    numbers: dict[str, str] = {}
    said = []
    for node in ast.walk(tree):
        said.append(type(node).__name__)
        for name in ("id", "arg", "name", "attr", "value"):
            value = getattr(node, name, None)
            if isinstance(value, str | int | float):
                said.append(numbers.setdefault(value, str(len(numbers))) if value in own else repr(value))
    return hashlib.sha256(" ".join(said).encode()).hexdigest()[:12] if len(said) >= LEAST_NODES else ""


def _is_frame(statement: ast.stmt) -> bool:
    """Whether a statement is what any answer may begin with: an import, or ``given = lab.missions.given(...)``."""
    return isinstance(statement, ast.Import | ast.ImportFrom) or "lab.missions.given" in ast.unparse(statement)


@dataclass(frozen=True)
class Handed:
    """One student's answer to one mission, as far as likeness asks."""

    student: str
    mission: str
    passed: bool
    digest: str
    ones_own: bool
    code: str


def same_as(handed: Sequence[Handed], worked: Mapping[str, str]) -> list[str]:
    """Of each answer who else handed in the same, names with spaces between; ``worked``: digests of worked answers."""
    alike: dict[tuple[str, str, str], list[Handed]] = defaultdict(list)
    for each in handed:
        for kind, digest in (("answer", each.digest), ("code", each.code)):
            if digest:
                alike[each.mission, kind, digest].append(each)
    found = []
    for each in handed:
        of_answer = alike[each.mission, "answer", each.digest] if each.digest else []
        copied = [other for other in of_answer if each.ones_own or (other.passed and not each.passed)]
        copied += alike[each.mission, "code", each.code] if each.code else []
        names = [other.student for other in copied if other.student != each.student]
        names += [THE_WORKED_ANSWER] if each.code and each.code == worked.get(each.mission) else []
        found.append(" ".join(dict.fromkeys(names)))
    return found
