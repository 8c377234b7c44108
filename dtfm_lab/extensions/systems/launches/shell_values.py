"""Variables of a shell script, as far as their values are known: put them in texts, compute with them and compare
them."""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.systems.launches.shell_text import words_of

VARIABLE = re.compile(r"\$\{(\w+)[^{}]*\}|\$([A-Za-z_]\w*|\d|[@*#])")
"""Matches a variable that is still in a text because its value is not known."""
OPEN = re.compile(r"\$[\w{(@*#]|`")
MOST_LETTERS = 10**5
OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # a shell divides whole numbers
    ast.Mod: operator.mod,
}
COMPARES: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    **{ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne},
}
TESTS: dict[str, Callable[[int, int], bool]] = {
    **{"-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt},
    "-ge": operator.ge,
}
BRACED = re.compile(r"(#?)(\w+)(?:\[([@*]|\d+)\])?(?:(:?[-=+?]|,,|\^\^)(.*)|(.*))", re.DOTALL)
Pair = tuple[str, str]


@dataclass
class Values:
    """What is known about a script's variables, its arguments, and the files that it uses."""

    known: dict[str, str] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    """Variables that the script sets to an unknown value, and the reason for each."""
    arguments: list[str] | None = None
    """Arguments of the function that is being read; None outside functions."""
    sourced: list[str] = field(default_factory=list)
    """Files that the script reads with ``source``. They may set any variable."""
    runs: list[str] = field(default_factory=list)
    """Other scripts that the script runs."""
    absent: set[str] = field(default_factory=set)
    """Variables that a condition reads but that nothing sets."""

    def copy(self) -> Values:
        """Return a copy whose variables (``known`` and ``open``) are independent. All other fields are shared."""
        return replace(self, known=dict(self.known), open=dict(self.open))

    def give(self, name: str, value: str) -> None:
        """Set a variable to a known value."""
        self.open.pop(name, None)
        self.known[name] = value

    def leave_open(self, name: str, why: str) -> None:
        """Set a variable to an unknown value. ``why`` is the reason."""
        self.known.pop(name, None)
        self.open[name] = why

    def is_open(self, text: str) -> bool:
        """True if a text that ``put_in`` returned still has a variable or a computation without a known value."""
        return bool(OPEN.search(text))

    def absent_in(self, left: re.Match[str], names: set[str]) -> str:
        """Return what replaces a variable that is still in a text.

        ``names`` are the variables that the script sets anywhere. If it is one of these but has not been set so far,
        return "", as in a shell. Otherwise return the variable as it is written.
        """
        name = left[1] or left[2] or ""
        return "" if name in names and name not in self.open and name not in self.known else left[0]

    def value_of(self, name: str) -> str | None:
        """Return the value of a variable or an argument; None if it is not known. Missing arguments of a function are
        empty."""
        if name.isdigit() and self.arguments is not None and name != "0":
            return self.arguments[int(name) - 1] if int(name) <= len(self.arguments) else ""
        if name in "@*" and self.arguments is not None:
            return " ".join(self.arguments)
        return self.known.get(name)

    def put_in(self, text: str) -> str:
        """Return a text with known variables replaced by their values, and computations by their results. Raises
        LabError if the text becomes longer than ``MOST_LETTERS``."""
        made, at = "", 0
        while at < len(text):
            # Escaped, so it stays a letter for the program that is started.
            if text[at] == "\\" and text[at + 1 : at + 2] in ("$", "`"):
                made, at = made + text[at : at + 2], at + 2
                continue
            if text[at] == "`" and (end := text.find("`", at + 1)) > 0:
                made, at = made + self._output(text[at + 1 : end]), end + 1
                continue
            if text[at] != "$":
                made, at = made + text[at], at + 1
                continue
            piece, end = self._piece(text, at)
            made, at = made + piece, end
            if len(made) > MOST_LETTERS:  # variables can double each other's length
                letters = counted(len(made), "letter")
                raise LabError(f"a line of the script has {letters}; wanted {MOST_LETTERS:,} at most")
        return made

    def _piece(self, text: str, at: int) -> tuple[str, int]:
        """Return what replaces the variable or computation that starts at ``at``, and the position after it."""
        if text.startswith("$((", at) and (end := _closing(text, at + 2)) and text.startswith(")", end + 1):
            result = arithmetic(text[at + 3 : end], self)
            return ("$((...))" if result is None else str(result)), end + 2
        if text.startswith("$(", at) and (end := _closing(text, at + 1)):
            return self._output(text[at + 2 : end]), end + 1
        if text.startswith("${", at) and (end := _closing(text, at + 1, "{}")):
            return self._braced(text[at + 2 : end], text[at : end + 1]), end + 1
        if named := re.compile(r"\$([A-Za-z_]\w*|[\d@*])").match(text, at):
            value = self.value_of(named[1])
            return (named[0] if value is None else value), named.end()
        return "$", at + 1

    def _braced(self, inner: str, whole: str) -> str:
        if not (parts := BRACED.fullmatch(inner)):
            return whole
        length, name, index, sign, other, rest = parts.groups()
        value = self.value_of(name)
        if length:
            return whole if value is None else str(len(value.split()) if index else len(value))
        if index and index.isdigit() and value is not None:
            items = words_of(value)
            value = unwrapped(items[int(index)]) if int(index) < len(items) else ""
        match sign:
            case None if not rest:
                return whole if value is None else value
            case ",," | "^^" if value is not None:
                return value.lower() if sign == ",," else value.upper()
            # An open variable has a value that is not known, so its default may not apply.
            case "-" | ":-" | "=" | ":=" if name not in self.open:
                if value or (value is not None and sign[0] != ":"):
                    return value
                found = unwrapped(self.put_in(other))
                if sign[-1] == "=":
                    self.give(name, found)
                return found
            case "+" | ":+" if name not in self.open:
                return self.put_in(other) if value else ""
            case "?" | ":?" if value is not None:
                return value
            case _:
                return whole

    def _output(self, command: str) -> str:
        """Return what a command prints, if it only computes (``expr``, ``bc``). For any other return ``$(first
        word)``."""
        known = self.put_in(command)
        if printed := re.fullmatch(r"\s*echo\s+(.*?)\s*\|\s*bc(?:\s+-l)?\s*", known, re.DOTALL):
            result = arithmetic(unwrapped(printed[1]), self)
        elif computed := re.fullmatch(r"\s*expr\s+(.*)", known, re.DOTALL):
            result = arithmetic(computed[1].replace("\\", ""), self)
        else:
            result = None
        words = command.split()
        return f"$({words[0] if words else ''})" if result is None else str(result)


def unwrapped(value: str) -> str:
    """Return a value without the quotes or parentheses around it, with single spaces between its words. In a single
    word, all unescaped quotes are removed."""
    value = value.strip()
    for opening, closing in (('"', '"'), ("'", "'"), ("(", ")")):
        inner = value[1:-1]
        if len(value) > 1 and (value[0], value[-1]) == (opening, closing) and closing not in inner.replace("\\", ""):
            return " ".join(inner.split())
        if len(value) > 1 and opening == "(" and value[0] == "(" and value[-1] == ")":
            return " ".join(inner.split())
    if value and not re.search(r"\s", value):
        return re.sub(r"(?<!\\)[\"']", "", value)
    if len(value) > 1 and value[0] == value[-1] == '"':  # inner quotes are escaped, or come from substituted values
        return " ".join(value[1:-1].split())
    return " ".join(value.split())


def _closing(text: str, at: int, pair: str = "()") -> int:
    """Return the position of the bracket (of this ``pair``) that closes the one at ``at``; 0 if nothing closes it."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if depth == 0:
            return place
    return 0


def arithmetic(text: str, values: Values) -> int | None:
    """Return the value of an expression of whole numbers with + - * / %, parentheses, comparisons, && || and ?:, or
    None for anything else."""
    # Names without $ are variables in arithmetic.
    named = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?(?![-:\w])", lambda one: values.known.get(one[1], one[0]), text)
    known = values.put_in(named).strip().strip("\"'")
    chosen = re.fullmatch(r"(.+?)\?(.+?):(.+)", known, re.DOTALL)
    if chosen:
        first = arithmetic(chosen[1], values)
        return None if first is None else arithmetic(chosen[2] if first else chosen[3], values)
    known = known.replace("&&", " and ").replace("||", " or ")

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=one):
                return -value(one)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
                return OPERATIONS[type(op)](value(left), value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARES:
                return int(COMPARES[type(op)](value(left), value(right)))
            case ast.BoolOp(op=op, values=parts):
                of = all if isinstance(op, ast.And) else any
                return int(of([value(one) for one in parts]))
            case _:
                raise ValueError(node)

    try:
        return value(ast.parse(" ".join(known.split()), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, OverflowError, MemoryError):
        # Whatever cannot be computed is open, never an error: the flag may not need it.
        return None


def holds(condition: str, values: Values) -> bool | None:
    """Return True if a shell condition holds, False if it does not, and None if that is unknown."""
    parts = words_of(condition, "&& ||")
    outcome = _one_holds(parts[0], values)
    for sign, part in zip(parts[1::2], parts[2::2], strict=True):
        other = _one_holds(part, values)
        outcome = _both(outcome, other) if sign == "&&" else _any(outcome, other)
    return outcome


def _both(a: bool | None, b: bool | None) -> bool | None:
    return False if False in (a, b) else None if None in (a, b) else True


def _any(a: bool | None, b: bool | None) -> bool | None:
    return True if True in (a, b) else None if None in (a, b) else False


def _not(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def _one_holds(text: str, values: Values) -> bool | None:
    text = text.strip()
    if text.startswith("! "):
        return _not(_one_holds(text[2:], values))
    if text in ("true", ":"):
        return True
    if text == "false":
        return False
    if text.startswith("((") and text.endswith("))"):
        result = arithmetic(text[2:-2], values)
        return None if result is None else bool(result)
    for opening, closing in (("[[", "]]"), ("[", "]"), ("test ", "")):
        if text.startswith(opening) and text.endswith(closing):
            return _test(words_of(text[len(opening) : len(text) - len(closing)]), values)
    return None


def _test(words: list[str], values: Values) -> bool | None:
    for sign, combined in (("||", _any), ("-o", _any), ("&&", _both), ("-a", _both)):
        if sign in words[1:]:
            at = words.index(sign)
            return combined(_test(words[:at], values), _test(words[at + 1 :], values))
    if words[:1] == ["!"]:
        return _not(_test(words[1:], values))
    if len(words) == 2 and words[0] in ("-z", "-n", "-v"):
        value = _word(words[1] if words[0] != "-v" else f"${words[1]}", values)
        return None if value is None else (not value) is (words[0] == "-z")
    if len(words) == 1:
        value = _word(words[0], values)
        return None if value is None else bool(value)
    if len(words) != 3:
        return None
    left, right = _word(words[0], values), _word(words[2], values)
    if left is None or right is None:
        return None
    if words[1] in ("=", "==", "!="):
        quoted = words[2][:1] in "\"'"
        same = left == right if quoted else fnmatch.fnmatchcase(left, right)
        return same is (words[1] != "!=")
    if words[1] in TESTS:
        try:
            return TESTS[words[1]](int(left), int(right))
        except ValueError:
            return None
    return None


def _word(word: str, values: Values) -> str | None:
    """Return the value of a word in a condition: empty for a variable that is never set, None if it is unknown."""
    if re.search(r"\$\{?[\d@*#]", word) and values.arguments is None and ":-" not in word:
        return None
    made = values.put_in(word)

    def absent(left: re.Match[str]) -> str:
        name = left[1] or left[2] or ""
        if name in values.open or values.sourced or left[0].startswith("${#"):
            return left[0]
        values.absent.add(name)
        return ""

    made = VARIABLE.sub(absent, made)
    if values.is_open(made):
        return None
    try:
        return "".join(shlex.split(made)) if made.count('"') % 2 == 0 else made
    except ValueError:
        return made
