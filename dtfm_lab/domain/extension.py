"""Extensions: packages that add names, commands, panes and figures to the lab. Several come with it.

An extension is an ``Extension`` that an entry point names, in the ``pyproject.toml`` of its package::

    [project.entry-points."dtfm_lab.extensions"]
    neighbours = "my_package:EXTENSION"

It holds names and places such as ``my_package.nearest:nearest``, which are imported when they are first used. The
lab's own extensions are found in the same way: without them, the lab has only what is its own.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
GROUP = "dtfm_lab.extensions"
OURS = "dtfm_lab."
"""Where the entry points of the lab's own extensions lead."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Extension:
    """What an extension adds, by name. A place is ``module:attribute``, or ``module`` alone."""

    name: str
    needs: tuple[str, ...] = ()
    """Names of the extensions without which this one is left out."""
    api: Mapping[str, str] = field(default_factory=dict)
    """Places of the names that ``dtfm_lab`` offers."""
    figures: Mapping[str, str] = field(default_factory=dict)
    """Places of the functions that ``dtfm_lab.figures`` offers."""
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Place and one line of help of each command of ``dtfm-lab``, a ``click.Command``.

    A subject such as ``explain --worth`` or ``network from`` is a command that another chooses by an option or a word.
    A command whose line is empty is not listed.
    """
    panes: Mapping[str, str] = field(default_factory=dict)
    """Places of functions that take the ``Lab`` and return a ``LabStep``, by the pane's name.

    ``dtfm_lab.widgets.shell.panes`` has ``LabStep``.
    """
    views: Mapping[str, str] = field(default_factory=dict)
    """Places of the classes of widgets that ``dtfm_lab.widgets`` offers."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Places of the ``Format``s (``dtfm_lab.lab.schemas``) of files that have a JSON Schema."""
    writers: Mapping[str, str] = field(default_factory=dict)
    """Places of functions ``(thing, path)`` with which ``lab.save`` writes the extension's nouns.

    The key is the noun's class and the ending of the path: ``Neighbours.csv``.
    """
    instead: Mapping[str, str] = field(default_factory=dict)
    """Places of functions that answer in place of a function of the lab when a keyword is given.

    ``{"run.neighbours": place}`` answers ``lab.run(plan, neighbours=...)``, with the same arguments.
    """
    words: Mapping[str, str] = field(default_factory=dict)
    """Words that the lab's glossary explains, each in one sentence."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Where names are now that ``lab`` had until this release: they still work, with a warning that says so."""
    went: Mapping[str, str] = field(default_factory=dict)
    """What to use in place of names that ``lab`` no longer has."""


@cache
def extensions() -> Mapping[str, Extension]:
    """Return the installed extensions by name, the lab's own first.

    One that cannot be loaded, or that lacks an extension that it needs, is left out with a warning in the log.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: not point.value.startswith(OURS))
    found: dict[str, Extension] = {}
    for point in points:
        extension = _loaded(point)
        if extension is not None and extension.name in found:
            log.warning("package %s: there is an extension %r already", _package(point), extension.name)
        elif extension is not None:
            found[extension.name] = extension
    while lacking := {name: gone for name, one in found.items() if (gone := sorted(set(one.needs) - set(found)))}:
        for name, missing in lacking.items():
            log.warning("extension %s is left out: it needs %s", name, ", ".join(missing))
            del found[name]
    return MappingProxyType(found)


def _loaded(point: EntryPoint) -> Extension | None:
    try:
        extension = point.load()
        if not isinstance(extension, Extension):
            raise TypeError(f"{point.value} is no Extension")
    except Exception as error:  # the code of another package may raise anything
        log.warning("package %s: extension %r cannot be loaded: %r", _package(point), point.name, error)
        return None
    return extension


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def offered(kind: str) -> Mapping[str, Any]:
    """Return what all extensions offer of a kind, one of the fields of ``Extension``, by name; the first one wins."""
    assert kind in {each.name for each in fields(Extension)}, kind
    merged: dict[str, Any] = {}
    for extension in extensions().values():
        merged = {**getattr(extension, kind), **merged}
    return merged


@cache
def load(place: str) -> Any:
    """Import what is at a place, ``module:attribute`` or ``module``."""
    return resolve_name(place)


def answered_instead(function: F) -> F:
    """Decorator: where a keyword is given for which an extension answers in place of the function, it does."""

    @wraps(function)
    def answer(*args: Any, **keywords: Any) -> Any:
        instead = offered("instead") if keywords else {}
        place = next((each for word in keywords if (each := instead.get(f"{function.__name__}.{word}"))), None)
        return function(*args, **keywords) if place is None else load(place)(*args, **keywords)

    return cast(F, answer)


def attribute(kind: str, module: str, name: str) -> Any:
    """Return a name that an extension adds to a module, as the module's ``__getattr__`` does. Raises AttributeError."""
    if not name.startswith("_") and (place := offered(kind).get(name)):
        return load(place)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def providers(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the loaded object of everything that extensions offer of a kind, the lab's own first."""
    for extension in extensions().values():
        for name, place in getattr(extension, kind).items():
            yield name, load(place)
