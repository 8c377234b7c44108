"""Find the command of a shell script that launches training, with the script's own variables filled in.

The script is never run, because its side effects are unwanted. It is read as if no variable were set outside it and no
argument were given. Assignments, arrays, defaults, whole-number arithmetic, functions, here-documents and conditions
are understood. If the script alone does not decide a condition, both branches are followed. A variable that they set to
different values then has no value.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.systems.launches.shell_text import (
    CaseStatement,
    Command,
    Function,
    If,
    Loop,
    Statement,
    statements_of,
    words_of,
)
from dtfm_lab.extensions.systems.launches.shell_values import VARIABLE, Values, arithmetic, holds, unwrapped

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
DECLARES = ("export", "local", "readonly", "declare", "typeset")
FLAG = re.compile(r"(?:^|[\s\"'(])--(\w[\w-]*)")
SET = re.compile(r"(?:^|[\s;&(])([A-Za-z_]\w*)\+?=")
TRAINS = re.compile(r"\b(?:pretrain|train|finetune)\w*\.py\b")
MOST_CALLS = 50
"""Maximum depth of function calls that are read, so that recursion ends."""
MOST_STATEMENTS = 20_000
"""Maximum number of statements that are read. A script with more is refused."""
SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
"""Options of Slurm in the script's comments, and the variables that Slurm sets from them."""
SBATCH = re.compile(r"(?m)^#SBATCH\s+(.*)$")
OPTION = re.compile(r"(?:^|\s)(?:--(nodes|ntasks-per-node|gpus-per-node)[= ]|-(N)\s*)(?:\w+:)*(\d+)\b")
STARTED = re.compile(r"torchrun|torch\.distributed|deepspeed|accelerate|mpirun|mpiexec")
"""Matches a launcher that starts all processes of a node itself."""

Dropped = Callable[[str], bool]
"""Returns True if a flag of this name has no effect on a plan."""


def is_script(text: str) -> bool:
    """True if a text is a script, not only flags: it starts with ``#!``, or it sets a variable and has flags."""
    return text.startswith("#!") or bool(FLAG.search(text) and re.search(r"(?m)^\s*(export\s+)?[A-Za-z_]\w*=", text))


@dataclass(frozen=True)
class Script:
    """What a script launches: its command, and what is known about the variables and files that the command uses."""

    command: str
    """The command's words, with known variables filled in; empty if no command has flags."""
    files: dict[str, str]
    """Files that the script writes from here-documents, by name."""
    why_open: dict[str, str]
    """Variables whose value is not known, and the reason for each."""
    absent: tuple[str, ...] = ()
    """Variables that a condition reads but that nothing sets."""
    tasks: int | None = None
    """Number of processes that Slurm starts with the command; None if its options do not tell."""
    reads: tuple[str, ...] = ()
    """Other scripts that it reads or runs."""


def read_script(text: str, without_effect: Dropped = lambda name: False) -> Script:
    """Return the command that trains. If none is known to train, return the command with the most flags. Unknown
    variables stay as they are.

    Raises LabError if the command uses a variable whose flags are set in a loop, or under a condition that cannot be
    decided. It is then unknown which flags were meant. Flags ``without_effect`` on the plan may be set there.
    """
    shell = _Shell(without_effect)
    slurm = {name or "nodes": count for line in SBATCH.findall(text) for name, _, count in OPTION.findall(line)}
    for name, count in slurm.items():
        for variable in SLURM[name]:
            shell.values.known.setdefault(variable, count)
    shell.run(statements_of(text))
    # A function may be called in a way that is not read here, and its flags count all the same.
    for name in [one for one in shell.functions if one not in shell.called]:
        shell.call(name, [])
    command = max(shell.commands, key=_launches, default="")
    set_somewhere = set(SET.findall(text))
    command = VARIABLE.sub(lambda left: shell.values.absent_in(left, set_somewhere), command)
    for left in VARIABLE.finditer(command):
        name = left[1] or left[2] or ""
        if name in shell.values.open and name in shell.flagged:
            raise LabError(
                f"{left[0]} of the script is set under a condition or in a loop; wanted its flags themselves, as its "
                f"outcome is not known here: {shell.values.open[name].partition(': ')[2]}"
            )
    tasks = int(slurm.get("nodes", 1)) * int(slurm.get("ntasks-per-node", 0))
    return Script(
        command,
        shell.files,
        shell.values.open,
        tuple(sorted(shell.values.absent)),
        tasks if tasks and "srun" in text and not STARTED.search(command) else None,
        (*shell.values.runs, *shell.values.sourced),
    )


def _launches(command: str) -> tuple[bool, int]:
    return bool(TRAINS.search(command)) and not command.startswith("echo"), len(FLAG.findall(command))


@dataclass
class _Shell:
    without_effect: Dropped
    values: Values = field(default_factory=Values)
    commands: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[str, list[Statement]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    flagged: set[str] = field(default_factory=set)
    """Names of open variables that hold flags with an effect on the plan, in at least one of the branches."""
    steps: int = 0
    depth: int = 0

    def run(self, statements: list[Statement]) -> None:
        for one in statements:
            # A loop of functions would otherwise never end.
            self.steps += 1
            if self.steps > MOST_STATEMENTS:
                raise LabError(f"the script has over {MOST_STATEMENTS:,} statements; wanted the command itself")
            match one:
                case Command(text, document):
                    self._command(text, document)
                case If(branches, otherwise):
                    self._if(branches, otherwise)
                case Loop(kind, header, body):
                    self._loop(kind, header, body)
                case CaseStatement(word, branches):
                    self._case(word, branches)
                case Function(name, body):
                    self.functions[name] = body

    def call(self, name: str, arguments: list[str]) -> None:
        """Read a function's statements with these arguments."""
        self.called.add(name)
        # A recursive function ends here instead of at Python's limit.
        if self.depth >= MOST_CALLS:
            return
        before = self.values.arguments
        self.values.arguments = arguments
        self.depth += 1
        self.run(self.functions[name])
        self.depth -= 1
        self.values.arguments = before

    def _if(self, branches: list[tuple[str, list[Statement]]], otherwise: list[Statement]) -> None:
        for at, (condition, body) in enumerate(branches):
            outcome = holds(condition, self.values)
            if outcome:
                return self.run(body)
            if outcome is None:
                rest: list[Statement] = [If(branches[at + 1 :], otherwise)] if branches[at + 1 :] else otherwise
                return self._either([body, rest], f"set under a condition: {_short(condition)}")
        return self.run(otherwise)

    def _case(self, word: str, branches: list[tuple[list[str], list[Statement]]]) -> None:
        value = self.values.put_in(word)
        if self.values.is_open(value):
            ways = [body for _, body in branches]
            return self._either([*ways, []], f"set under a condition: case {_short(word)}")
        for patterns, body in branches:
            if any(fnmatch.fnmatchcase(unwrapped(value), unwrapped(self.values.put_in(one))) for one in patterns):
                return self.run(body)
        return None

    def _loop(self, kind: str, header: str, body: list[Statement]) -> None:
        if kind in ("while", "until"):
            if "$#" in header or "getopts" in header:  # loops over arguments, and no argument exists
                return None
            outcome = holds(header, self.values)
            if outcome is (kind == "while"):
                return self.run(body)
            return (
                None
                if outcome is not None
                else self._either([body, []], f"set in a loop: {_short(f'{kind} {header}')}")
            )
        named = re.match(r"(\w+)\s+in\s+(.*)", header, re.DOTALL)
        items = words_of(self.values.put_in(named[2])) if named else []
        if named and len(items) == 1 and not self.values.is_open(items[0]):
            self.values.give(named[1], unwrapped(items[0]))
            return self.run(body)
        if name := named[1] if named else "":
            self.values.leave_open(name, f"set in a loop: {_short(f'for {header}')}")
        return self._either([body, []], f"set in a loop: {_short(f'{kind} {header}')}")

    def _either(self, ways: list[list[Statement]], why: str) -> None:
        """Follow every branch, each from the present state. Afterwards a variable is open if its values differ."""
        before, ends = self.values, list[Values]()
        for way in ways:
            self.values = before.copy()
            self.run(way)
            ends.append(self.values)
        self.values = ends[0].copy()
        for name in {name for one in ends for name in (*one.known, *one.open)}:
            texts = [one.known.get(name, "") for one in ends]
            if any(name in one.open for one in ends):
                self.values.leave_open(name, next(one.open[name] for one in ends if name in one.open))
            elif len(set(texts)) > 1:
                # Branches that differ only in what does not matter here count as equal.
                effective = {" ".join(self._effective(one)) for one in texts}
                if len(effective) == 1 and any(FLAG.search(one) for one in texts):
                    self.values.give(name, min(texts, key=len))
                    continue
                self.values.leave_open(name, why)
            else:
                continue
            if any(FLAG.search(one) for one in texts):
                self.flagged.add(name)

    def _effective(self, text: str) -> list[str]:
        """Return the words of a text, without the flags that have no effect on the plan and without the values of these
        flags."""
        kept, drops = list[str](), False
        for word in text.replace('"', " ").replace("'", " ").split():
            if word.startswith("--"):
                drops = self.without_effect(word[2:].partition("=")[0].replace("_", "-"))
            if not drops:
                kept.append(word)
        return kept

    def _command(self, text: str, document: str) -> None:
        """Read an assignment or a command. Commands joined by && and || are read if the outcomes before them lead
        there."""
        parts = words_of(text, "&& ||")
        outcome: bool | None = True
        joined = ""
        # Without knowing the outcome, both ways are followed.
        for part in [*parts]:
            if part in ("&&", "||"):
                joined = part
                continue
            if joined == "||" and outcome is not False:
                if outcome is None and part.split(maxsplit=1)[:1] not in (["exit"], ["return"], ["echo"]):
                    self._either([[Command(part, document)], []], f"set under a condition: {_short(text)}")
                continue
            if joined == "&&" and outcome is False:
                continue
            if joined == "&&" and outcome is None:
                self._either([[Command(part, document)], []], f"set under a condition: {_short(text)}")
                continue
            tests = re.match(r"!?\s*(\[|test\s|\(\()", part)
            outcome = holds(part, self.values) if tests and len(parts) > 1 else True
            if not tests or len(parts) == 1:
                self._simple(part, document)

    def _simple(self, text: str, document: str) -> None:
        if text.startswith("((") or text.startswith("let "):
            return self._calculate(text.removeprefix("let ").strip("()\"' "))
        words = words_of(text)
        declares = words[0] in DECLARES
        while words and (words[0] in DECLARES or (declares and words[0].startswith("-"))):
            words.pop(0)
        assigned = [ASSIGNMENT.fullmatch(word) for word in words]
        n = next((at for at, one in enumerate(assigned) if one is None), len(words))
        if declares or n == len(words):
            for one in assigned:
                if one is not None:
                    self._assign(*one.groups())
            return None
        words = words[n:]
        first = words[0]
        if first == "unset":
            for name in words[1:]:
                self.values.known.pop(name, None)
        elif first in ("exec", "bash", "sh", "sbatch") and (
            run := [word for word in words if word.strip("'\"").endswith(".sh")]
        ):
            self.values.runs.append(unwrapped(self.values.put_in(run[0])))
            self._keep(self.values.put_in(" ".join(words)))
        elif first in ("source", "."):
            self.values.sourced.append(unwrapped(self.values.put_in(" ".join(words[1:2]))))
        elif first in self.functions:
            self.call(first, [unwrapped(self.values.put_in(word)) for word in words[1:]])
        elif document and (to := re.search(r">>?\s*([^\s>]+)", text)):
            self.files[unwrapped(self.values.put_in(to[1]))] = self.values.put_in(document)
        elif document and first in ("sbatch", "bash", "sh"):
            # A script on standard input runs like any other.
            self.run(statements_of(document))
        else:
            self._keep(self.values.put_in(" ".join(words)))
        return None

    def _keep(self, command: str) -> None:
        if not FLAG.search(command) and not TRAINS.search(command):
            return
        if command.startswith("eval "):
            command = unwrapped(command[5:].strip())
        self.commands.append(command)

    def _assign(self, name: str, adds: str, value: str) -> None:
        before = self.values.known.get(name, "")
        value = unwrapped(self.values.put_in(value))
        if adds and name in self.values.open:
            if FLAG.search(value) and self._effective(value):
                self.flagged.add(name)
            return
        self.values.give(name, f"{before} {value}".strip() if adds else value)

    def _calculate(self, text: str) -> None:
        if step := re.fullmatch(r"(\w+)\s*(\+\+|--)", text):
            text = f"{step[1]}={step[1]}{step[2][0]}1"
        if set_to := re.fullmatch(r"(\w+)\s*([-+*/])?=\s*(.+)", text):
            name, sign, right = set_to.groups()
            result = arithmetic(f"{name}{sign}({right})" if sign else right, self.values)
            if result is None:
                self.values.leave_open(name, "computed from what is not known")
            else:
                self.values.give(name, str(result))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
