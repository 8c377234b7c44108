"""Extensions: packages that add names, commands, panes and figures to the lab. Several come with it.

An extension is an ``Extension`` object that an entry point names, in the ``pyproject.toml`` of its package::

    [project.entry-points."dtfm_lab.extensions"]
    neighbours = "my_package:EXTENSION"

It holds names and places such as ``my_package.nearest:nearest``, which are imported when they are first used. The lab
finds its own extensions in the same way. Without them, only the core remains.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, TypeVar, cast

from dtfm_lab.domain.registry import loaded, package_of

F = TypeVar("F", bound=Callable[..., Any])
GROUP = "dtfm_lab.extensions"
OURS = "dtfm_lab."
"""Prefix of the entry points of the lab's own extensions."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Extension:
    """What an extension adds, by name. A place is ``module:attribute``, or ``module`` alone."""

    name: str
    needs: tuple[str, ...] = ()
    """Names of the extensions that this one needs. If one is missing, this extension is left out."""
    api: Mapping[str, str] = field(default_factory=dict)
    """Names to offer in ``dtfm_lab``, and their places."""
    figures: Mapping[str, str] = field(default_factory=dict)
    """Functions to offer in ``dtfm_lab.figures``, and their places."""
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each command of ``dtfm-lab``, the place of its ``click.Command`` and one line of help.

    A key such as ``explain --worth`` or ``network from`` is a command that ``explain`` or ``network`` runs if it is
    given this option or word. A command with an empty line of help is not listed.
    """
    panes: Mapping[str, str] = field(default_factory=dict)
    """Panes by name: places of functions that take the ``Lab`` and return a ``LabStep``.

    ``LabStep`` is in ``dtfm_lab.widgets.shell.panes``.
    """
    views: Mapping[str, str] = field(default_factory=dict)
    """Widget classes to offer in ``dtfm_lab.widgets``, and their places."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """File formats with a JSON Schema: places of their ``Format`` (``dtfm_lab.lab.schemas``)."""
    writers: Mapping[str, str] = field(default_factory=dict)
    """Places of functions ``(thing, path)`` that ``lab.save`` calls to write objects of the extension's classes.

    The key is the name of the class and the suffix of the path: ``Neighbours.csv``.
    """
    instead: Mapping[str, str] = field(default_factory=dict)
    """Places of functions that replace a function of the lab when a certain keyword is given.

    With ``{"run.neighbours": place}``, ``lab.run(plan, neighbours=...)`` calls the function at ``place`` with the same
    arguments.
    """
    words: Mapping[str, str] = field(default_factory=dict)
    """Glossary: term -> its explanation in one sentence."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Old name in ``lab`` -> its new place. The old names still work in this release, with a warning."""
    went: Mapping[str, str] = field(default_factory=dict)
    """Name that ``lab`` no longer has -> what to use instead."""


@cache
def extensions() -> Mapping[str, Extension]:
    """Return the installed extensions by name, the lab's own first.

    An extension that cannot be loaded, or that lacks one it needs, is left out with a warning in the log.
    """
    from importlib.metadata import entry_points  # takes a tenth of the lab's import time: it loads an e-mail parser

    # The lab's own first, so that no other package can take their names.
    points = sorted(entry_points(group=GROUP), key=lambda point: not point.value.startswith(OURS))
    found: dict[str, Extension] = {}
    for point in points:
        extension = loaded(point, "extension", lambda entry: isinstance(entry, Extension), "an Extension")
        if extension is not None and extension.name in found:
            log.warning("package %s: there is an extension %r already", package_of(point), extension.name)
        elif extension is not None:
            found[extension.name] = extension
    # Repeated, because an extension left out may be needed by another.
    while lacking := {name: gone for name, one in found.items() if (gone := sorted(set(one.needs) - set(found)))}:
        for name, missing in lacking.items():
            log.warning("extension %s is left out: it needs %s", name, ", ".join(missing))
            del found[name]
    return MappingProxyType(found)


def offered(kind: str) -> Mapping[str, Any]:
    """Return what all extensions offer in the field ``kind`` of ``Extension``, by name.

    If two offer the same name, the first extension wins.
    """
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
    """Decorate a function so that an extension's function is called instead if its keyword is given.

    See ``Extension.instead``.
    """

    @wraps(function)
    def answer(*args: Any, **keywords: Any) -> Any:
        # Without keywords nothing can be answered instead, and plug-ins need not be looked up.
        instead = offered("instead") if keywords else {}
        place = next((each for word in keywords if (each := instead.get(f"{function.__name__}.{word}"))), None)
        return function(*args, **keywords) if place is None else load(place)(*args, **keywords)

    return cast(F, answer)


def attribute(kind: str, module: str, name: str) -> Any:
    """Return what an extension adds to a module under ``name``, for the module's ``__getattr__``.

    Raises AttributeError if no extension adds it.
    """
    if not name.startswith("_") and (place := offered(kind).get(name)):
        return load(place)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
