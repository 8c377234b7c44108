"""Parse a shell script into nested statements, without running it: quotes, comments, here-documents, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dtfm_lab.domain.errors import LabError

HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
PATTERN = "\0pattern"
"""Statement that stands for a pattern of a case. It begins with a NUL, so that no statement of a script equals it."""
CASE_ENDS = "\0;;"
"""Statement that stands for ``;;``, the end of a branch of a case."""
CASE = re.compile(r"((?:(?:do|then|else)\s+)?case\s.+?\sin)\s+(\S.*)", re.DOTALL)
"""Matches a case whose first pattern is on the same line."""
FUNCTION = re.compile(r"(?:function\s+([\w-]+)\s*(?:\(\s*\))?|([\w-]+)\s*\(\s*\))\s*(\{.*)?", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A simple statement: an assignment, a command, or several of them joined by ``&&`` or ``||``."""

    text: str
    document: str = ""
    """Text of the here-document that it reads; empty without one."""


@dataclass(frozen=True)
class If:
    """An ``if``: each condition with the statements that it guards, and the statements to run if no condition holds."""

    branches: list[tuple[str, list[Statement]]]
    otherwise: list[Statement]


@dataclass(frozen=True)
class Loop:
    """A ``for``, ``while`` or ``until`` loop. ``kind`` is that word, and ``header`` the text between it and the
    body."""

    kind: str
    header: str
    body: list[Statement]


@dataclass(frozen=True)
class CaseStatement:
    """A ``case``: the word that is compared, and each set of patterns with its statements."""

    word: str
    branches: list[tuple[list[str], list[Statement]]]


@dataclass(frozen=True)
class Function:
    name: str
    body: list[Statement]


Statement = Command | If | Loop | CaseStatement | Function


def statements_of(script: str) -> list[Statement]:
    """Return the statements of a script. Raises LabError if a quote is not closed. A block that is not closed ends with
    the script."""
    found, _ = _Parts(list(_parts(script))).block(set())
    return found


def words_of(text: str, separators: str = "") -> list[str]:
    """Return the words of a statement as they are written, with their quotes.

    With ``separators``, such as "&& ||", the text is split at these instead of at spaces. Every second element is then
    a separator.
    """
    found, stack, at = [""], list[str](), 0
    splits = separators.split()
    while at < len(text):
        step = _step(text, at, stack)
        if not stack and step == 1:
            if splits and (hit := next((one for one in splits if text.startswith(one, at)), None)):
                found += [hit, ""]
                at += len(hit)
                continue
            if not splits and text[at].isspace():
                found.append("")
                at += 1
                continue
        found[-1] += text[at : at + step]
        at += step
    return [one.strip() for one in found] if splits else [one for one in found if one]


def _step(text: str, at: int, stack: list[str]) -> int:
    """Return how many letters to move forward from here. An opening quote or bracket is pushed on the stack, and popped
    when it is closed."""
    letter, top = text[at], stack[-1] if stack else ""
    # Inside single quotes nothing has a meaning but the end.
    if top == "'":
        if letter == "'":
            stack.pop()
        return 1
    # An escaped letter never opens or closes anything.
    if letter == "\\":
        return 2
    if letter == "$" and text.startswith("${", at):
        stack.append("{")
        return 2
    if letter == "}" and top == "{":
        stack.pop()
    elif letter == '"':
        if top == '"':
            stack.pop()
        else:
            stack.append('"')
    elif letter == "`":
        if top == "`":
            stack.pop()
        else:
            stack.append("`")
    elif letter == "$" and text.startswith("$(", at):
        stack.append("(")
        return 2
    elif top != '"':
        if letter == "'":
            stack.append("'")
        elif letter == "(":
            stack.append("(")
        elif letter == ")" and top == "(":
            stack.pop()
    return 1


def _parts(script: str) -> Iterator[tuple[str, str]]:
    """Yield each statement with its here-document. The patterns and ends of case branches are yielded too. Raises
    LabError if a quotation is not closed."""
    at, text, stack = 0, "", list[str]()
    waiting: list[str] = []  # end words of here-documents that start on the next line
    document = ""
    while at < len(script):
        letter, top = script[at], stack[-1] if stack else ""
        if letter == "\\" and top != "'" and script.startswith("\\\n", at):
            text, at = text + " ", at + 2
            continue
        begins = not text or text[-1] in " \t\n(;"
        if letter == "#" and top in ("", "(") and begins:  # a comment
            at = script.find("\n", at) if "\n" in script[at:] else len(script)
            continue
        if not stack:
            if (document_begins := HEREDOC.match(script, at)) and not script.startswith("<<<", at):
                waiting.append(document_begins[2])
                text, at = text + " << ", document_begins.end()
                continue
            if letter == "\n":
                # A here-document begins on the line after the command.
                for end in waiting:
                    lines = re.compile(rf"(.*?)^\s*{end}\s*$\n?", re.DOTALL | re.MULTILINE).match(script, at + 1)
                    document = lines[1] if lines else script[at + 1 :]
                    at = lines.end() - 1 if lines else len(script)
                waiting = []
            if letter in "\n;":
                if text.strip():
                    yield text.strip(), document
                text, document = "", ""
                if script.startswith(";;", at):
                    yield CASE_ENDS, ""
                    at += 1
                at += 1
                continue
            if letter == ")" and text.strip():
                if opened := CASE.fullmatch(text.strip()):
                    yield opened[1], ""
                yield PATTERN, (opened[2] if opened else text.strip()).lstrip("(")
                text, at = "", at + 1
                continue
        step = _step(script, at, stack)
        text, at = text + script[at : at + step], at + step
    if stack and stack[-1] in "'\"":
        raise LabError("flags: no closing quotation; wanted quotes in pairs")
    if text.strip():
        yield text.strip(), document


@dataclass
class _Parts:
    """The parts of a script that are not read yet."""

    rest: list[tuple[str, str]]
    at: int = field(default=0)

    def block(self, ends: set[str]) -> tuple[list[Statement], str]:
        """Return the statements up to a word in ``ends``, and that word. The text after the word is what is read
        next."""
        found: list[Statement] = []
        while self.at < len(self.rest):
            text, document = self.rest[self.at]
            self.at += 1
            if text in (CASE_ENDS, PATTERN):
                if text in ends:
                    return found, text
                continue
            first, _, behind = text.partition(" ")
            first, newline, more = first.partition("\n")
            behind = f"{more} {behind}" if newline else behind
            if first in ends or (first == "}" and "}" in ends):
                self._read_next(behind, document)
                return found, first
            if first in ("then", "do", "else") or (first == "{" and behind):
                self._read_next(behind, document)
            elif first == "if":
                found.append(self._if(behind))
            elif first in ("for", "while", "until", "select"):
                body_of = self._headed(behind, "do")
                found.append(Loop(first, body_of, self.block({"done"})[0]))
            elif first == "case":
                found.append(self._case(behind))
            elif named := FUNCTION.fullmatch(text):
                self._read_next((named[3] or "").lstrip("{ "), document)
                if named[3] is None and self.at < len(self.rest) and self.rest[self.at][0].startswith("{"):
                    self._read_next(self.rest[self.at][0].lstrip("{ "), self.rest[self.at][1], instead=True)
                found.append(Function(named[1] or named[2], self.block({"}"})[0]))
            elif text.startswith("(") and text.endswith(")") and not text.startswith("(("):
                found += statements_of(text[1:-1])
            elif text not in ("{", "}"):
                found.append(Command(text, document))
        return found, ""

    def _read_next(self, text: str, document: str, *, instead: bool = False) -> None:
        if instead:
            self.rest[self.at] = (text.strip(), document)
            if not text.strip():
                self.at += 1
        elif text.strip():
            self.at -= 1
            self.rest[self.at] = (text.strip(), document)

    def _headed(self, text: str, until: str) -> str:
        """Return a condition or a loop's header: the text up to the word that opens its body."""
        found = [text]
        while self.at < len(self.rest):
            part, document = self.rest[self.at]
            self.at += 1
            if part.split(maxsplit=1)[0] == until:
                self._read_next(part[len(until) :], document)
                break
            found.append(part)
        # All of them have to hold, as in a condition of several lines.
        return " && ".join(one for one in found if one)

    def _if(self, behind: str) -> If:
        branches, otherwise = [], list[Statement]()
        condition = self._headed(behind, "then")
        while True:
            body, end = self.block({"elif", "else", "fi"})
            branches.append((condition, body))
            if end == "elif":
                condition = self._headed("", "then")
                continue
            if end == "else":
                otherwise, _ = self.block({"fi"})
            return If(branches, otherwise)

    def _case(self, behind: str) -> CaseStatement:
        word = re.sub(r"\s+in\s*$", "", behind.strip())
        branches = []
        while self.at < len(self.rest):
            text, patterns = self.rest[self.at]
            self.at += 1
            if text == "esac":
                break
            if text != PATTERN:
                continue
            body, end = self.block({CASE_ENDS, "esac"})
            branches.append(([one.strip() for one in patterns.split("|")], body))
            if end == "esac":
                break
        return CaseStatement(word.strip(), branches)
