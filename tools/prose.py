"""Checks what people read: turns of phrase that we avoid, and long sentences.

python tools/prose.py                 # every file: fails where a file has more hits than tools/words/baseline.csv
python tools/prose.py docs README.md  # these files: prints each hit, each sentence above 30 words, and the lengths
python tools/prose.py --lower         # write smaller numbers to the baseline; it never writes larger ones

`tools/words/phrases.csv` lists the phrases with what to write instead, `exceptions.csv` where one is right and why.
Code, whether in blocks or between backticks, is not prose.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = ROOT / "tools" / "words"
READ = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "tests/README.md",
    "tools/lessons/**/*.py",
    "dtfm_lab/**/*.py",
    "dtfm_lab/**/texts/**/*.yaml",
    "dtfm_lab/**/views/**/*.js",
    "tools/js/shared/*.js",
)
GENERATED = ("docs/ledger.md", "docs/system-tables.md", "docs/python-api.md", "docs/commands-and-files.md")
"""Pages made of docstrings and help texts, which are checked where they are written. CHANGELOG.md is a record."""
LONG = 30
"""Words in a sentence above which we warn."""
FEWEST_WORDS = 4
"""Fewer words than this in code are a name or a key, not prose."""
JS_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|`((?:[^`\\]|\\.)*)`')
JS_COMMENT = re.compile(r"^\s*(?://|\*|/\*).*$", re.MULTILINE)
CODE = re.compile(r"``[^`]+``|`[^`\n]+`|\$[^$\n]+\$")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`])")


@dataclass(frozen=True)
class Hit:
    """A phrase at a line of a file."""

    file: str
    line: int
    phrase: str
    instead: str


def rows(name: str) -> list[dict[str, str]]:
    path = WORDS / name
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []


PHRASES = [(row["pattern"], row["instead"]) for row in rows("phrases.csv")]
EXCEPTIONS = rows("exceptions.csv")
ANY = re.compile(rf"\b(?:{'|'.join(pattern for pattern, _ in PHRASES)})\b")


def files(named: list[str]) -> list[Path]:
    """The files that are checked, or those of them that are named or lie in a named folder."""
    found = sorted({path for pattern in READ for path in ROOT.glob(pattern) if "static" not in path.parts})
    found = [path for path in found if str(path.relative_to(ROOT)) not in GENERATED]
    wanted = [(ROOT / name).resolve() for name in named]
    return [path for path in found if not wanted or any(path == each or each in path.parents for each in wanted)]


@cache
def passages(path: Path) -> list[tuple[int, str]]:
    """Line and text of each passage of prose in a file, code left out."""
    return list(found_in(path))


def found_in(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, re.sub(r"^```.*?^```", blank, text, flags=re.MULTILINE | re.DOTALL)
    elif path.suffix == ".yaml":
        yield 1, text
    elif path.suffix == ".js":
        for found in JS_STRING.finditer(JS_COMMENT.sub(blank, text)):
            yield line_of(text, found.start()), re.sub(r"\$\{[^}]*\}", "N", found[1] or found[2] or found[3] or "")
    elif "lessons" in path.parts:
        for cell in re.finditer(r"^# %% \[markdown\].*\n((?:#.*\n?)*)", text, re.MULTILINE):
            yield line_of(text, cell.start(1)), re.sub(r"^# ?", "", cell[1], flags=re.MULTILINE)
    else:
        yield from strings(ast.parse(text))


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module: docstrings, help, errors, labels. A value put into a string reads as N."""
    inner: set[int] = set()  # a walk meets a string before its parts
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(id(part) for part in node.values)
            parts = (str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def blank(found: re.Match[str]) -> str:
    """As many lines, without text."""
    return "\n" * found[0].count("\n")


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def hits(path: Path) -> Iterator[Hit]:
    name = str(path.relative_to(ROOT))
    for line, text in passages(path):
        if len(text.split()) < FEWEST_WORDS:
            continue
        prose = CODE.sub(lambda found: "x" + blank(found), re.sub(r"\]\([^)]*\)", "]", text))
        for found in ANY.finditer(prose.lower()):
            pattern, instead = next(row for row in PHRASES if re.match(rf"(?:{row[0]})\b", found[0]))
            if not any(fnmatch(name, each["file"]) and each["pattern"] == pattern for each in EXCEPTIONS):
                yield Hit(name, line + prose.count("\n", 0, found.start()), found[0], instead)


def sentences(path: Path) -> Iterator[str]:
    """Sentences of running text: headings, tables and drawings left out."""
    for _, text in passages(path):
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. ))", text):
            if re.match(r"\s*(?:#|\||<|!\[|---)", block) or len(block.split()) < FEWEST_WORDS:
                continue
            words = re.sub(r"\]\([^)]*\)", "]", CODE.sub("X", block))
            for sentence in SENTENCE_END.split(" ".join(words.split())):
                if len(sentence.split()) > 1:
                    yield sentence


def lengths(paths: list[Path]) -> str:
    """Words of the sentences of these files, in one line."""
    counts = sorted(len(each.split()) for path in paths for each in sentences(path))
    if not counts:
        return "no sentences"
    middle, high = counts[len(counts) // 2], counts[int(0.95 * (len(counts) - 1))]
    return f"{len(counts):,} sentences: median {middle} words, 95 % at most {high}, longest {counts[-1]}"


def main(arguments: list[str]) -> int:
    named = [each for each in arguments if not each.startswith("--")]
    paths = files(named)
    found = [hit for path in paths for hit in hits(path)]
    counts: dict[str, int] = {}
    for hit in found:
        counts[hit.file] = counts.get(hit.file, 0) + 1
    recorded = {row["file"]: int(row["hits"]) for row in rows("baseline.csv")}
    if "--lower" in arguments:
        first = not recorded
        kept = {name: n if first else min(n, recorded.get(name, 0)) for name, n in counts.items()}
        write(kept if not named else {**{k: v for k, v in recorded.items() if ROOT / k not in paths}, **kept})
        recorded = kept
    grown = [name for name, n in counts.items() if n > recorded.get(name, 0)]
    for hit in found:
        if named or hit.file in grown:
            print(f'{hit.file}:{hit.line}: "{" ".join(hit.phrase.split())}"; write: {hit.instead}')
    for path in paths if named else ():
        for sentence in sentences(path):
            if len(sentence.split()) > LONG:
                print(f"warning: {path.relative_to(ROOT)}: {len(sentence.split())} words: {sentence[:90]}...")
    print(f"{len(found)} phrases to lose in {len(counts)} of {len(paths)} files; {lengths(paths)}")
    for name in grown:
        print(f"{name} has {counts[name]} phrases to lose; the baseline allows {recorded.get(name, 0)}")
    return bool(grown)


def write(counts: dict[str, int]) -> None:
    lines = [f"{name},{n}\n" for name, n in sorted(counts.items()) if n]
    (WORDS / "baseline.csv").write_text("file,hits\n" + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
