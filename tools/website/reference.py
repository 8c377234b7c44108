"""A page for each public name: how it is called, its docstring, an example and what that shows."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import dtfm_lab as lab
from dtfm_lab.domain.options import field_docstrings, options_of
from dtfm_lab.domain.registry import Registry
from tools.website.docstrings import as_markdown, first_sentence
from tools.website.examples import Examples
from tools.website.notebooks import fenced

LONGEST_CALL = 84
"""Most characters of a call in one line."""
CHAPTERS = Path(__file__).parents[2] / "docs" / "python-api.md"


def pages(made: Examples) -> dict[str, str]:
    """Path -> Markdown of the pages, and of their list."""
    return {"reference/index.md": _list()} | {f"reference/{name}.md": page(name, made) for name in lab.__all__}


def page(name: str, made: Examples) -> str:
    """The page of one public name."""
    thing = getattr(lab, name)
    parts = [f"# lab.{name}", *_of(name, thing)]
    if name in made.code:
        parts += ["## Example", fenced(made.code[name], "python"), made.below(made.code[name])]
        parts += ["Names that it uses are made by the [examples above it](../docs/python-api.md)."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, ModuleType):
        yield from _module(name, thing)
    elif isinstance(thing, Registry):
        yield f"A registry: `lab.{name}[...]` by name, `list(lab.{name})` for all names."
        yield _table(("name", "what it is"), [(f"`{key}`", first_sentence(thing[key])) for key in thing])
    elif inspect.isclass(thing):
        yield from _class(f"lab.{name}", thing)
    elif callable(thing):
        yield fenced(call(f"lab.{name}", thing), "python")
        yield as_markdown(inspect.getdoc(thing) or "")
    else:
        yield "A dictionary: GPU's name -> peak, memory and price, each with its source. [The whole table](../gpus.md)."


def _module(name: str, module: ModuleType) -> Iterator[str]:
    yield as_markdown(inspect.getdoc(module) or "")
    if name == "figures":
        yield "[All of them as pictures](../docs/python-api.md#figures-one-by-one)."
    for each in module.__all__:
        thing = getattr(module, each)
        yield f"## {name}.{each}"
        if callable(thing) and not isinstance(thing, Registry):
            with contextlib.suppress(ValueError):  # a class without a signature of its own
                yield fenced(call(f"lab.{name}.{each}", thing), "python")
        yield as_markdown(inspect.getdoc(thing) or "") if callable(thing) else ""


def _class(path: str, kind: type) -> Iterator[str]:
    try:
        yield fenced(call(path, kind), "python")
    except ValueError:
        yield ""
    yield as_markdown(inspect.getdoc(kind) or "")
    if is_dataclass(kind) and (rows := list(_fields(kind))):
        yield "## Fields"
        yield _table(("field", "what it is", "default"), rows)
    methods = list(_methods(kind))
    if properties := [(n, m) for n, m in methods if isinstance(m, property) or not callable(m)]:
        yield "## Properties"
        yield _table(("property", "what it is"), [(f"`{n}`", first_sentence(m)) for n, m in properties])
    if functions := [(n, m) for n, m in methods if callable(m)]:
        yield "## Methods"
        for n, method in functions:
            yield f"### {n}"
            yield fenced(call(n, method), "python")
            yield as_markdown(inspect.getdoc(method) or "")


def _fields(kind: Any) -> Iterator[tuple[str, str, str]]:
    texts = field_docstrings(kind) | {option.field: option.help for option in options_of(kind)}
    for field in fields(kind):
        if not field.name.startswith("_"):
            default = "" if field.default is MISSING else f"`{_shown(field.default)}`"
            yield f"`{field.name}`", " ".join(texts.get(field.name, "").split()), default


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    seen = set()
    for base in kind.__mro__:
        if base.__module__.startswith("dtfm_lab"):
            for name, value in vars(base).items():
                own = getattr(value, "__func__", value)
                is_one = isinstance(own, property) or inspect.isfunction(own) or type(own).__name__ == "cached_property"
                if is_one and not name.startswith("_") and name not in seen:
                    seen.add(name)
                    yield name, own
    return


def call(path: str, function: Any) -> str:
    """How it is called, without types: in one line where that is short, else with a line for each parameter."""
    said = []
    before = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls") or parameter.name.startswith("_"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            said.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        said.append(f"{stars}{parameter.name}{default}")
        before = parameter.kind
    line = f"{path}({', '.join(said)})"
    if len(line) <= LONGEST_CALL:
        return line
    return "\n".join([f"{path}(", *(f"    {each}," for each in said), ")"])


def _shown(default: Any) -> str:
    if default is Ellipsis or repr(default) == "<factory>":
        return "..."
    if inspect.isclass(default):
        return default.__name__
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(default))
    text = "..." if text.startswith("<") else text
    return text if len(text) <= 60 else "..."


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown; bars inside cells are escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def _list() -> str:
    """The list of all public names, in the chapters of their examples."""
    parts = ["# Every public name", "What `import dtfm_lab as lab` brings. Each has a page with an example."]
    listed = []
    for line in CHAPTERS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            parts.append(line + "\n\n| name | what it is |\n| --- | --- |")
        elif line.startswith("### ") and "." not in line:
            name = line.removeprefix("### ")
            listed.append(name)
            said = first_sentence(getattr(lab, name)).replace("|", "\\|")
            parts[-1] += f"\n| [lab.{name}]({name}.md) | {said} |"
    assert sorted(listed) == sorted(lab.__all__), "docs/python-api.md has an example of every public name"
    parts = [part for part in parts if not part.startswith("## ") or part.count("\n") > 3]  # others list figures
    names = "\n".join(listed)
    return "\n\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{names}\n```"]) + "\n"
