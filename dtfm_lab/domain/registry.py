"""Named choices (planners, schedules, topology formats). The error for an unknown name lists the known ones.

Other packages add to a registry through its group of entry points, in their pyproject.toml::

    [project.entry-points."dtfm_lab.planners"]
    greedy = "my_package:greedy"
"""

import difflib
import inspect
import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from dtfm_lab.domain.errors import UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
NAME_SHOWN = 80
"""Maximum letters of an unknown name that an error shows, and that are compared with the known names."""
MOST_SHOWN = 12
"""Maximum number of known names that an error lists."""
LEAST_PREFIX = 4
"""If an unknown name has at least this many letters, the known names that begin with it are suggested."""
log = logging.getLogger(__name__)


def unknown(noun: str, name: object, known: Iterable[str]) -> UnknownName:
    """Return the error for an unknown name. It suggests the nearest known name."""
    names, name = sorted(known), str(name)
    near = nearest(name, names)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = name if len(name) <= NAME_SHOWN else name[: NAME_SHOWN - 3] + "..."
    return UnknownName(f"no {noun} named {shown!r}; {hint}known: {in_a_row(names, MOST_SHOWN) or 'none'}")


FORMER_NAMES = {
    ("queueing", "cards"): "nics",
    ("links of a trace", "drawn"): "specified",
    ("topology", "shared-cards"): "shared-nics",
}
"""(noun, old name) -> new name of a value. Old names are accepted until the next release."""


def current_name(noun: str, name: Any) -> Any:
    """Return a value's current name: ``nics`` for the queueing ``cards``. Warn once about each old name."""
    new = FORMER_NAMES.get((noun, name)) if isinstance(name, str) else None
    if new is None:
        return name
    say_new_name(noun, name, new)
    return new


@cache
def say_new_name(noun: str, name: str, new: str) -> None:
    """Warn that a value has a new name, once per old name."""
    said = f"{noun} {name!r} is {new!r} now; the old name leaves with the next release"
    warnings.warn(said, FutureWarning, stacklevel=4)


def in_a_row(names: Sequence[str], most: int) -> str:
    """Join names: ``ada, barbara and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Join names: ``ada, barbara and grace``, or ``ada, barbara and 3 more`` if there are more than ``most``."""
    if most is not None and len(names) > most:
        return in_a_row(names, most)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def nearest(name: str, known: Collection[str], n: int = 1) -> list[str]:
    """Return up to ``n`` known names similar to this one, best first.

    Upper and lower case are ignored only if there is no similar name otherwise. If there is still none, names that
    begin with this one are returned, in alphabetical order (see ``LEAST_PREFIX``).
    """
    name, spellings = name[:NAME_SHOWN], {each.casefold(): each for each in known}
    plain = name.casefold()
    near = difflib.get_close_matches(name, known, n=n) or difflib.get_close_matches(plain, spellings, n=n)
    if not near and len(plain) >= LEAST_PREFIX:
        near = sorted(each for each in spellings if each.startswith(plain))[:n]
    return [spellings.get(each, each) for each in near]


def package_of(point: "EntryPoint") -> str:
    """Return the name of the package that declares an entry point."""
    return point.dist.name if point.dist is not None else point.value


def loaded(point: "EntryPoint", noun: str, fits: Callable[[Any], bool], wanted: str) -> Any:
    """Return what an entry point names. If it cannot be loaded or does not fit, log a warning and return None."""
    try:
        entry = point.load()
        if not fits(entry):
            raise TypeError(f"{point.value} is not {wanted}")
    except Exception as error:  # the code of another package may raise anything
        log.warning("package %s: %s %r cannot be loaded: %r", package_of(point), noun, point.name, error)
        return None
    return entry


class Registry(Mapping[str, T]):
    """Entries by name, in alphabetical order. ``[name]`` raises UnknownName with the nearest known name.

    The entry points of ``group`` are loaded once, when an unknown name is looked up or all names are listed. One that
    cannot be loaded, or that ``fits`` rejects, is left out with a warning that names its package.
    """

    def __init__(
        self,
        noun: str,
        group: str = "",
        entries: Mapping[str, T] | None = None,
        fits: Callable[[Any], bool] = callable,
    ) -> None:
        self._noun, self._group, self._fits = noun, group, fits
        self._entries: dict[str, T] = dict(entries or {})
        self._plug_ins_loaded = not group

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate an entry to add it under ``name``. Raises ValueError if the name is taken."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self._noun} {name!r} is already registered")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown(self._noun, name, self)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def get(self, name: str, default: Any = None) -> Any:
        return self._entries[name] if name in self else default

    def __repr__(self) -> str:
        """List every entry on one line: its name and the first line of its docstring."""
        lines = {name: (inspect.getdoc(entry) or "").partition("\n")[0] for name, entry in self.items()}
        return "\n".join(f"{name:<{max(map(len, lines))}}  {line}".rstrip() for name, line in lines.items())

    def _all(self) -> dict[str, T]:
        if not self._plug_ins_loaded:
            self._plug_ins_loaded = True
            from importlib.metadata import entry_points  # loads an e-mail parser, which takes a while

            for point in entry_points(group=self._group):
                self._load(point)
        return self._entries

    def _load(self, point: "EntryPoint") -> None:
        # The first one stays: a plug-in must not replace what the lab or another one offers.
        if point.name in self._entries:
            log.warning("package %s: there is a %s named %r already", package_of(point), self._noun, point.name)
            return
        entry = loaded(point, self._noun, self._fits, f"a {self._noun}")
        if entry is not None:
            self._entries.setdefault(point.name, entry)
