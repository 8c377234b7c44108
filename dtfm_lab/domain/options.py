"""Options that are described once, by a field of a dataclass: its annotation holds unit, bounds and choices.

The text below the field begins with its help::

    microbatch: Annotated[int, Option(least=1)] = 1
    '''Sequences per pipeline step.'''

Checks, file schemas, command line options, widgets and signatures are derived from ``options_of`` the dataclass.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, wraps
from numbers import Integral
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_type_hints

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.network import as_number, is_plain, shortened
from dtfm_lab.domain.registry import current_name, unknown

MOST_COUNT = 10**9
"""Maximum value of any count."""
F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D")


@dataclass(frozen=True, kw_only=True)
class Option:
    """The description of one field, written in its annotation and completed by ``options_of``."""

    help: str = ""
    """One or two sentences, shown by the command line and the widgets. By default the first paragraph below the field.
    """
    unit: str = ""
    least: float | None = None
    """Smallest value allowed."""
    above: float | None = None
    """A limit that the value must exceed."""
    most: float | None = None
    """Largest value allowed; None means 10^9 for a count."""
    choices: Collection[str] | None = None
    """Allowed names. A registry is read at every check, so names registered later are allowed too."""
    varies: bool = True
    """True if sweeps and what-ifs may vary it on a given plan."""
    flag: str = ""
    """Name on the command line, without dashes; empty for the option's name."""
    name: str = ""
    """Keyword and file key of the option; empty for the name of its field."""
    field: str = ""
    """Name of the dataclass field. ``options_of`` fills in this and everything below."""
    type: Any = str
    """Type of the field without None: int, float, bool, str or another."""
    default: Any = None
    """Default of the field; None if ``required``."""
    required: bool = False
    may_be_none: bool = False

    def checked(self, value: Any, *, thing: str = "", error: type[LabError] = LabError) -> Any:
        """Return ``value`` as a plain Python value.

        Numbers become an int or a float, and former names of choices the current ones. Everything else is returned
        unchanged.

        Raises
        ------
        LabError
            The value has the wrong type or is out of bounds. The error has class ``error`` and begins with ``thing``.
        UnknownName
            The value is not among the choices.
        """
        if value is None and self.may_be_none:
            return None
        if self.choices is not None:
            value = current_name(self.name, value)
            if not isinstance(value, str) or value not in self.choices:
                raise unknown(self.name, value, self.choices)
            return value
        plain, wanted = value, ""
        if self.type is str and not isinstance(value, str):
            wanted = "text"
        elif self.type is bool and not isinstance(value, bool):
            wanted = "true or false"
        elif self.type is int:
            least, most = int(self.least or 0), int(self.most or MOST_COUNT)
            # True and False are whole numbers to Python, but no counts.
            if isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most:
                plain = int(value)
            else:
                wanted = f"a whole number from {least} to {most}"
        elif self.type is float:
            plain = as_number(value)
            if plain is None or not math.isfinite(plain) or not self._allows(plain):
                wanted = self.bounds
        if wanted:
            raise error(f"{f'{thing}: ' if thing else ''}{self.name} is {shortened(value)}; wanted {wanted}")
        return plain

    def _allows(self, number: float) -> bool:
        enough = (self.least is None or number >= self.least) and (self.above is None or number > self.above)
        return enough and (self.most is None or number <= self.most)

    @property
    def bounds(self) -> str:
        parts = [f"more than {self.above:g} {self.unit}".rstrip()] if self.above is not None else []
        parts += [f"{self.least:g} or more {self.unit}".rstrip()] if self.least is not None else []
        parts += [f"at most {self.most:g}"] if self.most is not None else []
        return " and ".join(parts) or "a number"


def options_of(kind: Any) -> tuple[Option, ...]:
    """Return the options of a dataclass in the order of its fields. Fields without an Option are left out."""
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> tuple[Option, ...]:
    hints = get_type_hints(kind, include_extras=True)
    options = []
    for field in fields(kind):
        hint, *extras = get_args(hints[field.name]) or (None,)
        option = next((extra for extra in extras if isinstance(extra, Option)), None)
        if option is None:
            continue
        kinds = [each for each in get_args(hint) if each is not NoneType]
        may_be_none = NoneType in get_args(hint)
        options.append(
            replace(
                option,
                help=option.help or _help_below(kind, field.name),
                name=option.name or field.name,
                field=field.name,
                type=kinds[0] if may_be_none and len(kinds) == 1 else hint,
                default=None if field.default is MISSING else field.default,
                required=field.default is MISSING,
                may_be_none=may_be_none,
            )
        )
    return tuple(options)


def _help_below(kind: type, field: str) -> str:
    """Return the first paragraph of the text below a field, on one line; empty if missing."""
    return " ".join(field_docstrings(kind).get(field, "").partition("\n\n")[0].split())


def part_of(kind: type[D], given: object) -> D:
    """Copy the fields of a dataclass from another object that has them too, such as an instance of a subclass."""
    return kind(**{field.name: getattr(given, field.name) for field in fields(cast(Any, kind))})


def check_options(given: object, *, thing: str = "", error: type[LabError] = LabError) -> None:
    """Check every option of a frozen dataclass and store its plain value. Call it in ``__post_init__``."""
    for option in options_of(type(given)):
        value = option.checked(getattr(given, option.field), thing=thing, error=error)
        object.__setattr__(given, option.field, value)


def refuse_unknown(given: Iterable[str], known: Collection[str], noun: str = "option") -> None:
    """Raise UnknownName for the first unknown name. The error suggests the nearest known one."""
    for name in given:
        if name not in known:
            raise unknown(noun, name, known)


def takes_options(kind: Any, *, noun: str = "option", left_as_is: bool = False) -> Callable[[F], F]:
    """Decorate a function whose ``**options`` are the options of a dataclass.

    Its signature and docstring then list them, so Tab completes them and ``help`` explains them. Any other name raises
    UnknownName. With ``left_as_is``, an omitted option keeps its current value, so the signature shows no default.
    """
    return lists_options(options_of(kind), noun=noun, left_as_is=left_as_is)


def lists_options(options: Iterable[Option], *, noun: str = "option", left_as_is: bool = False) -> Callable[[F], F]:
    """Like ``takes_options``, for options that are not the fields of a single dataclass."""
    offered = {option.name: option for option in options}

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        named = {p.name: p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD}
        named_only = [p.name for p in named.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
        known = [*offered, *(name for name in named_only if name not in offered)]

        @wraps(function)
        def checking(*args: Any, **keywords: Any) -> Any:
            refuse_unknown([name for name in keywords if name not in named], known, noun)
            return function(*args, **keywords)

        listed = [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=... if option.required or left_as_is else option.default,
                annotation=option.type | None if option.may_be_none else option.type,
            )
            for option in offered.values()
            if option.name not in named
        ]
        checking.__signature__ = own.replace(parameters=[*named.values(), *listed])  # type: ignore[attr-defined]
        explained = "\n".join(f"{option.name}\n    {option.help}" for option in offered.values())
        if explained:
            checking.__doc__ = f"{inspect.getdoc(function)}\n\nOptions\n-------\n{explained}"
        return cast(F, checking)

    return decorate


def whole(thing: str, what: str, value: object, *, least: int = 1, most: int = MOST_COUNT) -> int:
    """Return ``value`` as an int. Raises JobError, naming ``thing`` and ``what``, if it is not a count or is out of
    range."""
    if type(value) is int and least <= value <= most:  # thousands of times when the presets are made
        return value
    option = Option(help=what, name=what, type=int, least=least, most=most)
    return int(option.checked(value, thing=thing, error=JobError))


def plain(noun: str, name: object) -> str:
    """Return ``name``. Raises JobError if it is not text or has control characters, which would break a one-line
    error."""
    if not isinstance(name, str) or not is_plain(name):
        raise JobError(f"{noun} is named {shortened(name)}; wanted text without control characters")
    return name


@cache
def field_docstrings(kind: type) -> dict[str, str]:
    """Return the string below each field of a class and its bases. Fields without one are left out."""
    found: dict[str, str] = {}
    # From the bases up, so that a class's own text replaces theirs.
    for each in reversed(kind.__mro__):
        if (definition := _definitions(each.__module__).get(each.__qualname__)) is not None:
            found |= _below_fields(definition)
    return found


@cache
def _definitions(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by their qualified names. ``inspect`` would parse all of it again for each one."""
    found: dict[str, ast.ClassDef] = {}
    try:
        unread: list[tuple[str, ast.AST]] = [("", ast.parse(inspect.getsource(sys.modules[module])))]
    except (KeyError, OSError, TypeError):  # made at run time, or built in
        return found
    while unread:
        within, node = unread.pop()
        if isinstance(node, ast.ClassDef):
            found[within + node.name] = node
            within += f"{node.name}."
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            within += f"{node.name}.<locals>."
        unread += [(within, each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
    return found


def _below_fields(definition: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            assert isinstance(field.target, ast.Name), "fields are plain names"
            found[field.target.id] = inspect.cleandoc(text.value)
    return found
