"""The command of a shell script that launches a training run, with the script's own variables put in.

A script is not run: who reads another's launch does not want its side effects. Of a shell it knows assignments, arrays,
defaults and whole-number arithmetic, as launch scripts use them; what is set under a
condition or in a loop has no value.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import counted

ASSIGNMENT = re.compile(r"(?:(?:export|local|readonly|declare)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
VARIABLE = re.compile(r'"\$\{(\w+)\[[@*]\]\}"|\$\{(\w+)(?:\[[@*]\])?(?::?[-=]"?(\w*)"?)?\}|\$([A-Za-z_]\w*)')
"""An array with its quotes, a name in braces with its default or not, a name."""
ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
COMMENT = re.compile(r"(?m)(^|\s)#.*$")
FLAG = re.compile(r"(?:^|\s)[\"']?--(\w[\w-]*)")
MOST_LETTERS = 10**5
BEFORE = re.compile(r"^(?:(?:then|else|do)(?:\s+|$))+")
"""Words of a shell that a statement may follow."""
OPENS, CLOSES = ("if", "for", "while", "until", "case"), ("fi", "done", "esac")
OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # as a shell divides whole numbers
}


def is_script(text: str) -> bool:
    """Whether a text is a script, not flags alone: it says so, or sets a variable and has flags."""
    return text.startswith("#!") or bool(FLAG.search(text) and re.search(r"(?m)^\s*(export\s+)?[A-Za-z_]\w*=", text))


def command_of(script: str, without_effect: Container[str] = ()) -> str:
    """The command with the most flags. Variables that have no value are left as they are.

    Raises LabError for one of it whose flags are set under a condition or in a loop: nobody knows which were meant.
    Flags that are added there, all of them ``without_effect``, are left out instead.
    """
    variables: dict[str, str] = {}
    undecided: dict[str, bool] = {}  # whether there are flags in it that have an effect
    found, depth = "", 0
    without_value: list[str] = []  # of the command found
    for statement in _statements(script):
        first = statement.split(maxsplit=1)[0]
        depth += (first in OPENS) - (first in CLOSES)
        if assigned := ASSIGNMENT.fullmatch(statement):
            name, adds, value = assigned.groups()
            value = _put_in(_unwrapped(value), variables)
            before = variables.pop(name, "")
            if depth or (adds and name in undecided):
                flags = FLAG.findall(value)
                if adds and flags and all(flag.replace("_", "-") in without_effect for flag in flags):
                    variables[name] = before
                    continue
                undecided[name] = undecided.get(name, False) or bool(FLAG.search(f"{before} {value}"))
            else:
                undecided.pop(name, None)
                variables[name] = f"{before} {value}" if adds else value
            continue
        command = _put_in(statement, variables)
        if len(FLAG.findall(command)) > len(FLAG.findall(found)):
            found = command
            without_value = [left[0] for left in VARIABLE.finditer(command) if undecided.get(_name(left))]
    if without_value:
        raise LabError(
            f"{without_value[0]} of the script is set under a condition or in a loop; wanted its flags themselves"
        )
    return found


def _statements(script: str) -> Iterator[str]:
    """Its statements, each with all its lines."""
    text = COMMENT.sub(r"\1", script.replace("\\\n", " "))
    begin, depth, quote = 0, 0, ""
    for at, letter in enumerate(text + "\n"):
        if letter in "\"'" and (not quote or quote == letter):
            quote = "" if quote else letter
        elif not quote and letter in "()":
            depth = max(0, depth + (1 if letter == "(" else -1))
        elif not quote and not depth and letter in "\n;":
            if statement := BEFORE.sub("", text[begin:at].strip()):
                yield statement
            begin = at + 1


def _unwrapped(value: str) -> str:
    """A value without the quotes or the parentheses around it."""
    value = value.strip()
    wrapped = len(value) > 1 and (value[0], value[-1]) in (('"', '"'), ("'", "'"), ("(", ")"))
    return " ".join(value[1:-1].split()) if wrapped else value


def _name(variable: re.Match[str]) -> str:
    return variable[1] or variable[2] or variable[4]


def _put_in(text: str, variables: Mapping[str, str]) -> str:
    """A text with the values of its variables that have one, and of what is computed from them."""

    def value_of(variable: re.Match[str]) -> str:
        return variables.get(_name(variable), variable[0] if variable[3] is None else variable[3])

    def number_of(computed: re.Match[str]) -> str:
        named = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", r"${\1}", computed[1])  # in it names need no dollar
        result = _arithmetic(VARIABLE.sub(value_of, named))
        return computed[0] if result is None else str(result)

    long = VARIABLE.sub(value_of, ARITHMETIC.sub(number_of, text))
    if len(long) > MOST_LETTERS:  # variables that double each other
        raise LabError(f"a line of the script has {counted(len(long), 'letter')}; wanted {MOST_LETTERS:,} at most")
    return long


def _arithmetic(text: str) -> int | None:
    """The value of whole numbers with + - * / and parentheses; None for anything else."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
                return OPERATIONS[type(op)](value(left), value(right))
            case _:
                raise ValueError(node)

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None
