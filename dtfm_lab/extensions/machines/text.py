"""Clean the output of tools: remove the prefixes of launchers, and read JSON. Also reads the tables of this folder."""

import csv
import json
import re
from pathlib import Path

from dtfm_lab.domain.errors import FileError

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""Colours and underlining, which ``nvidia-smi topo -m`` writes for a terminal."""
PREFIX = re.compile(
    r"""
    \ ?(?:
      \[[^\[\]\n]{1,200}\](?:<std(?:out|err|diag)>)?:?   # mpirun --tag-output, kubectl logs --prefix, Intel MPI's -l
    | <\d{1,9}(?:,\d{1,9})?>                              # mpirun -output with a rank alone
    | \ {0,8}\d{1,6}:(?=\ |$)                             # srun --label
    | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]{0,12}(?:Z|[+-]\d\d:?\d\d)?   # kubectl logs --timestamps
    | [\w.-]{1,100}\ {0,20}\|                             # docker compose logs
    | (?!\#)[\w.-]{1,100}:(?=\ )                          # pdsh, clush, ansible: the host's name
    )""",
    re.VERBOSE,
)
MOST_PREFIXES = 3
"""Maximum number of prefixes that launchers put before one line, such as a time, a pod and a rank."""


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of this folder, each as values by column name."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def plain_lines(text: str) -> list[str]:
    """Return the lines without terminal escapes."""
    return ESCAPES.sub("", text).lstrip("\ufeff").splitlines()


def unprefixed(text: str) -> str:
    """Return the text without the prefixes of launchers, such as ``[1,0]<stdout>:`` and ``0: ``.

    Lines without a prefix are kept. Blanks after a prefix are kept too, because they align columns.
    """
    lines = []
    for line in plain_lines(text):
        # Launchers may start one another, each with its prefix.
        for _ in range(MOST_PREFIXES):
            if (found := PREFIX.match(line)) is None:
                break
            line = line[found.end() :]
        lines.append(line)
    return "\n".join(lines)


def documents(text: str, path: Path) -> list[object]:
    """Return the JSON values of a text that holds nothing else. Raises FileError if it is broken."""
    decoder, found, at = json.JSONDecoder(), [], 0
    text = text.lstrip("\ufeff").strip()
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            found.append(value)
            at = end
            while at < len(text) and text[at] in " \t\r\n,":
                at += 1
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: line {error.lineno}, column {error.colno}: broken JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise FileError(
            f"{path}: holds JSON that is too deep or a number out of range; wanted a tool's output"
        ) from None
    return found
