"""Read and write YAML and JSON so that every mistake is one line: the file, the place, found, wanted."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from dtfm_lab.domain.errors import FileError

T = TypeVar("T")


class Section(BaseModel):
    """A mapping of a file that knows all its keys and names the nearest for a stray one."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for key in data:
                if key not in known and key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), sorted(known), n=1)
                    hint = f"did you mean {near[0]!r}? " if near else ""
                    raise ValueError(f"unknown key {key!r}; {hint}known: {', '.join(sorted(known))}")
        return data


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is no single value", key.start_mark)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {name!r} stands twice", key.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a .yaml, .yml or .json file holds."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_UniqueKeys)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: line {error.lineno}, column {error.colno}: broken JSON: {error.msg}") from None
    except yaml.YAMLError as error:
        raise FileError(
            f"{path}: {_yaml_place(error)}broken YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"
        ) from None
    if not isinstance(data, dict):
        raise FileError(f"{path}: holds {_kind_of(data)}; wanted a mapping of keys to values")
    return data


def require_version(data: dict[str, Any], key: str, where: str, wanted: int = 1) -> None:
    """Refuse a file that is of another kind or of a version that this release does not read."""
    if key not in data:
        found = next((k for k in data if str(k).startswith("dtfm_")), None)
        hint = f"it holds a {str(found).removeprefix('dtfm_')}" if found else f"first line '{key}: {wanted}'"
        raise FileError(f"{where}: no key {key!r}; wanted a {key.removeprefix('dtfm_')} file ({hint})")
    if type(data[key]) is not int or data[key] != wanted:
        raise FileError(f"{where}: {key} is version {data[key]!r}; this release reads version {wanted}")


def parse(kind: type[T], data: Any, where: str) -> T:
    """``data`` as a value of ``kind`` (a Section or a dataclass), or a FileError of one line."""
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
        message = first["msg"].removeprefix("Value error, ")
        found = "" if first["type"] in ("value_error", "missing") else f"; found {_short(first['input'])}"
        raise FileError(f"{where}: {place + ': ' if place else ''}{message[0].lower()}{message[1:]}{found}") from None


def dump(value: Any) -> Any:
    """A dataclass as plain JSON types; the inverse of ``parse``."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """All or nothing: a reader never sees half a file, and a failure leaves the old one."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except (OSError, UnicodeError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise FileError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return path


def _yaml_place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _kind_of(data: Any) -> str:
    return "nothing" if data is None else {"list": "a list", "str": "text"}.get(type(data).__name__, "a single value")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
