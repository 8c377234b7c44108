"""Check a launch's settings against the known ones, and look up what to say about the others."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import MOST_COUNT
from dtfm_lab.files.reading import read_mapping

Count = Annotated[int, Field(ge=1, le=MOST_COUNT)]
KINDS: dict[str, Any] = {
    "boolean": bool,
    "count": Count,
    "count or -1": Annotated[Count | None, BeforeValidator(lambda given: None if given == -1 else given)],
    "count or nothing": Count | None,
    "lists of texts or nothing": list[list[str]] | None,
    "share": Annotated[float, Field(ge=0, lt=1)],
    "switch": Annotated[bool, BeforeValidator(lambda given: True if given is None else given)],
    "text": str,
    "text or number": str | int,
    "text or texts": str | list[str],
    "texts": list[str],
}
"""Types of a setting's value, by their names in ``known.yaml``. A count of -1 means that it follows from other
settings. A switch is on if it has no value."""


@cache
def known_settings() -> Mapping[str, Any]:
    """Return the contents of ``known.yaml`` about the settings of launches, by framework."""
    return read_mapping(Path(__file__).with_name("known.yaml"))


def kinds_of(framework: str) -> Mapping[str, Any]:
    """Return the kind of value, a key of ``KINDS`` or a list of values, of each setting that affects the plan."""
    known = known_settings()[framework]
    return {**known.get("model", {}), **known["read"]}


@cache
def _types(framework: str) -> type[BaseModel]:
    """Return a pydantic model of the settings that affect the plan. A setting with a dot in its name is in a
    section."""
    # Flags are text, from which numbers are read.
    keys_of = partial(create_model, "Keys", __config__=ConfigDict(extra="forbid", strict=framework != "megatron"))
    fields: dict[str, Any] = {}
    for name, kind in kinds_of(framework).items():
        section, _, key = name.replace("-", "_").rpartition(".")
        within = fields.setdefault(section, {}) if section else fields
        within[key] = Literal[tuple(kind)] if isinstance(kind, list) else KINDS[kind], None
    for section, within in fields.items():
        if isinstance(within, dict):
            fields[section] = keys_of(**within), None
    return keys_of(**fields)


def is_ignored(framework: str, name: str) -> bool:
    """True if a setting of this name changes no plan. The names in ``known.yaml`` may have stars for any letters."""
    return name in _ignored(framework)[0] or bool(_ignored(framework)[1].fullmatch(name))


@cache
def _ignored(framework: str) -> tuple[frozenset[str], re.Pattern[str]]:
    listed = str(known_settings()[framework]["ignored"]).split()
    stars = [fnmatch.translate(one) for one in listed if "*" in one]
    return frozenset(listed), re.compile("|".join(stars) or r"(?!)")


def refusal_of(framework: str, name: str) -> str | None:
    """Return why a plan with this setting is not possible; None if ``known.yaml`` does not refuse it."""
    listed: Mapping[str, str] = known_settings()[framework]["refused"]
    return next((why for one, why in listed.items() if fnmatch.fnmatchcase(name, one)), None)


def note_of(framework: str, name: str) -> str | None:
    """Return what a plan assumes instead of this setting, which has no model; None if ``known.yaml`` has no note on
    it."""
    listed: Mapping[str, str] = known_settings()[framework].get("noted", {})
    return next((why for one, why in listed.items() if fnmatch.fnmatchcase(name, one)), None)


def read(framework: str, data: Any, what: str, named: Any = str) -> dict[str, Any]:
    """Return the given values of settings that decide the plan, checked.

    Raises LabError that names all unknown settings, or else the first invalid value.
    """
    try:
        return _types(framework).model_validate(data).model_dump(exclude_unset=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
    names = [named(".".join(map(str, one["loc"]))) for one in found]
    # Unknown names first: they are most often a typing error, and the others may follow from it.
    if unknown := [name for name, one in zip(names, found, strict=True) if one["type"] == "extra_forbidden"]:
        unknown = " ".join(unknown).split()  # a script's names may span several lines
        raise LabError(f"{what} that are not known here: {', '.join(unknown)}; wanted the text without them")
    wanted = re.sub(r"^(Input|Value error,) (should be )?", "", found[0]["msg"]).replace("'", "")
    wanted = wanted.replace(" or instance of Keys", "")
    raise LabError(f"{names[0]} is {shortened(found[0]['input'])}; wanted {wanted[0].lower()}{wanted[1:]}")
