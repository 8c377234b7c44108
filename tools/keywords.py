"""Fill in the keyword types of ``keywords.py`` files from the options that the functions check at run time.

    python tools/keywords.py            # writes every keywords.py of the package
    python tools/keywords.py --check    # fails if a file is not what the options declare now

``lab.plan(topology, job, **options: Unpack[PlanKeywords])`` lets an editor complete keywords and lets a type checker
check them. Each class in a ``keywords.py`` names its options in its docstring: a dataclass, or a mapping of options by
name. This program writes the rest of the class: one key per option, with its type, help, bounds and default. To add a
class, write its first two lines and run the program.
"""

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import fill
from types import NoneType
from typing import Any, get_args

from dtfm_lab.domain.options import Option, options_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = re.compile(r"`([\w.]+)`\.$")
"""The end of a class's docstring: where its options are."""
PLAIN = (bool, int, float, str, NoneType)
HEAD = '''\
"""{docstring}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Required, TypedDict

if TYPE_CHECKING:
{imports}

'''


def paths() -> list[Path]:
    """Return all files that this program fills in."""
    return sorted((ROOT / "dtfm_lab").rglob("keywords.py"))


def text(path: Path) -> str:
    """Return what the file says now."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: dict[str, str] = {}
    keys: dict[str, dict[str, str]] = {}
    classes = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            said, bases = ast.get_docstring(node) or "", [ast.unparse(base) for base in node.bases]
            source = SOURCE.search(said)
            assert source is not None, f"{path.name}: the docstring of {node.name} ends with `where.its.OPTIONS.are`."
            options = _loaded(source[1])
            keys[node.name] = dict(_swept(options) if isinstance(options, Mapping) else _keywords(options, imports))
            inherited = {name for base in bases for name in keys.get(base, {})}
            own = [lines for name, lines in keys[node.name].items() if name not in inherited]
            head = f'class {node.name}({", ".join(bases)}, total=False):\n    """{said}"""\n\n'
            classes.append(head + "".join(own))
    body = "\n\n".join(classes)
    lines = {*imports.values(), "from collections.abc import Iterable"}
    head = HEAD.format(docstring=ast.get_docstring(tree), imports="\n".join(f"    {line}" for line in sorted(lines)))
    return _formatted(head + body)


def _loaded(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(module), name)


def _keywords(kind: type, imports: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Yield the name of each option of a dataclass with its lines; add the imports that its type needs."""
    for option in options_of(kind):
        owner = next(each for each in kind.__mro__ if option.field in vars(each).get("__annotations__", {}))
        written = _type(owner, option.field, imports)
        yield option.name, _lines(option, f"Required[{written}]" if option.required else written)


def _swept(options: Mapping[str, Option]) -> Iterable[tuple[str, str]]:
    """Yield the name of each setting with its lines: one value, or several."""
    for name, option in options.items():
        one = option.type.__name__ if option.type in PLAIN else "Any"
        several = f"{one} | Iterable[{one} | None] | None" if option.may_be_none else f"{one} | Iterable[{one}]"
        yield name, _lines(option, "Any" if one == "Any" else several)


def _lines(option: Option, written: str) -> str:
    said = [option.help]
    if option.choices is not None and isinstance(option.choices, tuple) and len(option.choices) > 1:
        said.append(f"One of {', '.join(option.choices)}.")
    if option.type in (int, float) and (bounds := option.bounds) != "a number":
        said.append(f"{bounds[0].upper()}{bounds[1:]}.")
    if option.default is not None:
        said.append(f"Default: {option.default if isinstance(option.default, str | bool) else f'{option.default:g}'}.")
    text = fill(" ".join(said), 114, initial_indent='    """', subsequent_indent="    ")
    return f'    {option.name}: {written}\n{text}"""\n'


def _type(owner: type, field: str, imports: dict[str, str]) -> str:
    """Return the type of a field as its class writes it. Aliases of plain types are replaced by what they mean.

    So a field that a planner may choose is ``int | None`` here, though inside the package its type is lenient.
    """
    module = sys.modules[owner.__module__]
    annotation = next(
        node.annotation
        for node in _definition(owner).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == field
    )
    assert isinstance(annotation, ast.Subscript), f"{owner.__name__}.{field} is Annotated"
    written = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
    found = ast.unparse(written)
    for name in {node.id for node in ast.walk(written) if isinstance(node, ast.Name)} - {"Any", *vars(builtins)}:
        meant = get_args(getattr(module, name, None))
        if meant and all(one in PLAIN for one in meant):
            plain = " | ".join("None" if one is NoneType else one.__name__ for one in meant)
            found = re.sub(rf"\b{name}\b", plain, found)
        else:
            imports.setdefault(name, _import(module.__name__, name))
    return found


@cache
def _definition(owner: type) -> ast.ClassDef:
    [definition] = ast.parse(inspect.getsource(owner)).body
    assert isinstance(definition, ast.ClassDef)
    return definition


def _import(module: str, name: str) -> str:
    """Return the line that imports a name which a module uses: from where the module has it, or from the module."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
        if any((each.asname or each.name) == name for each in names):
            one = next(each for each in names if (each.asname or each.name) == name)
            known_as = f" as {one.asname}" if one.asname else ""
            return f"{f'from {node.module} ' if isinstance(node, ast.ImportFrom) else ''}import {one.name}{known_as}"
    return f"from {module} import {name}"


def _formatted(source: str) -> str:
    """Return the source as ``make lint`` wants it."""
    for command in (["check", "--select", "I,F401", "--fix-only", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", "keywords.py", "-"]
        source = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return source


def main() -> None:
    for path in paths():
        if "--check" not in sys.argv:
            path.write_text(text(path), encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text(path):
            sys.exit(f"{path.relative_to(ROOT)} is not what the options declare: run python tools/keywords.py")


if __name__ == "__main__":
    main()
