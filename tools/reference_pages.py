"""Fill in the generated parts of the two reference pages from docstrings, help texts and schemas.

    python tools/reference_pages.py            # writes docs/python-api.md and docs/commands-and-files.md
    python tools/reference_pages.py --check    # fails if a page is not what the code says now

People write the examples and the introductions. This program writes the sentence and the call above each example, and
everything between the markers of ``commands-and-files.md``.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dtfm_lab as lab
from dtfm_lab.domain.registry import Registry
from tools.website import commands, formats, reference
from tools.website.docstrings import first_sentence
from tools.website.examples import ENTRY

DOCS = Path(__file__).resolve().parents[1] / "docs"
LONGEST_CALL = 200
"""Most characters of a call that stands on the page. A longer one is on the site and in the docstring."""


def python_api(text: str) -> str:
    """Return the page of the Python API with a sentence and a call for each name, as the docstrings have them now."""
    return ENTRY.sub(lambda match: f"### {match[1]}\n\n{_said(match[1])}\n\n```python\n", text)


def _said(name: str) -> str:
    thing = lab
    for part in name.split("."):
        thing = getattr(thing, part)
    if isinstance(thing, Registry):
        return f"`lab.{name}[...]` looks one up by name: {', '.join(f'`{each}`' for each in thing)}."
    sentence = first_sentence(thing)
    is_error = isinstance(thing, type) and issubclass(thing, Exception)
    if isinstance(thing, ModuleType | dict) or not callable(thing) or is_error:
        return sentence
    try:
        call = " ".join(reference.call(f"lab.{name}", thing).split()).replace("( ", "(").replace(", )", ")")
    except ValueError:  # a class without a signature of its own
        return sentence
    return f"`{call}`: {sentence}" if len(call) <= LONGEST_CALL else sentence


def commands_and_files(text: str) -> str:
    """Return the page of commands and file formats with its generated parts as the code has them now."""
    text = _between(text, "commands", commands.sections())
    return _between(text, "formats", formats.summary())


def _between(text: str, name: str, made: str) -> str:
    pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)"
    return re.sub(pattern, lambda match: f"{match[1]}\n{made.strip()}\n{match[2]}", text, count=1, flags=re.DOTALL)


PAGES: dict[str, Callable[[str], str]] = {"python-api.md": python_api, "commands-and-files.md": commands_and_files}
"""What fills in each page."""


def main() -> None:
    for name, filled in PAGES.items():
        path = DOCS / name
        before = path.read_text(encoding="utf-8")
        if "--check" not in sys.argv:
            path.write_text(filled(before), encoding="utf-8")
        elif filled(before) != before:
            sys.exit(f"docs/{name} is not what the code says: run python tools/reference_pages.py")


if __name__ == "__main__":
    main()
