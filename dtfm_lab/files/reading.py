"""Read and write YAML and JSON. Every error is one line: the file, the place, the value found and the value wanted."""

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import LONGEST_NAME, is_plain, shortened
from dtfm_lab.domain.registry import nearest
from dtfm_lab.domain.units import counted

T = TypeVar("T")

MOST_BYTES = 2**30
"""Maximum size of a file in bytes, unless it is YAML. A plan of 4,096 devices takes about 700 MB as JSON."""
MOST_YAML_BYTES = 2**24
"""Maximum size of a YAML file in bytes. All links of 256 devices take 7 MB, and PyYAML reads about 0.4 MB per
second."""
MOST_YAML_NODES = 1_000_000
"""Maximum number of keys, values and collections in a YAML file. All links of 256 devices need about 500,000. Each
takes about 1 kB of memory."""
LONGEST_NUMBER = 10_000
"""Maximum number of bits in an integer of a YAML file: about 3,000 digits, which Python can still turn into text."""
MOST_COPIES = 100_000
"""Maximum number of nodes that YAML aliases may repeat. Ten lines of nested aliases can expand to a billion."""
MOST_SHOWN = 10_000
"""Reading stops after this many values of a YAML file whose top level is a list. No list that the lab reads is as
long."""
MOST_LEVELS = 100
"""Maximum nesting of collections in a YAML file."""
LONGEST_SCALAR = 100_000
"""Maximum number of characters in one value of a YAML file."""
VERSION = 1
"""Current version of every file format that has keys, as in ``dtfm_job: 1``."""
UNREADABLE = "cannot be read"
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's loader on libyaml, which PyYAML's wheels include. It is ten times as fast."""


class Section(BaseModel):
    """A mapping in a file. It refuses unknown keys and suggests the nearest known one. It also refuses a boolean as a
    value of another type."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, coerce_numbers_to_str=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            takes_boolean = _keys_with_booleans(cls)
            for key, value in data.items():
                if key not in takes_boolean:
                    known = {field.alias or name for name, field in cls.model_fields.items()}
                    near = nearest(str(key), sorted(known))
                    hint = f"did you mean {near[0]!r}? " if near else ""
                    raise ValueError(f"unknown key {shortened(key)}; {hint}known: {', '.join(sorted(known))}")
                if (value is True or value is False) and not takes_boolean[key]:
                    raise ValueError(f"{key} is {value}; wanted no truth value (in YAML, yes as text needs quotes)")
        return data


@cache  # a network may have tens of thousands of sections
def _keys_with_booleans(kind: type[Section]) -> dict[str, bool]:
    """Return every key of a section, by name and alias, and whether its value may be a boolean."""
    named = [(name, field) for name, field in kind.model_fields.items()]
    named += [(field.alias, field) for field in kind.model_fields.values() if field.alias]
    return {name: bool in (field.annotation, *get_args(field.annotation)) for name, field in named}


class _NoMapping(Exception):
    """Raised if a file does not hold a mapping. Its argument says what it holds, such as ``a list``."""


def _refuse_hostile(text: str) -> None:
    """Scan YAML event by event, without building a tree, and refuse what would take too long to parse.

    Raises RecursionError if it is nested too deeply, _NoMapping for a long list, and YAMLError otherwise: if it is
    broken or too large, or holds a second document.
    """
    nodes, copies, is_list = 0, 0, False
    sizes: dict[str | None, int] = {}
    within: list[tuple[str | None, int]] = []
    """For each open collection, its anchor and the number of nodes before it."""
    for event in yaml.parse(text, Loader=FAST):
        problem = ""
        is_list = is_list or (isinstance(event, yaml.SequenceStartEvent) and not nodes)
        if is_list and nodes > MOST_SHOWN:
            raise _NoMapping("a list")
        if isinstance(event, yaml.DocumentStartEvent) and nodes:
            problem = "but found another document"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = within.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.AliasEvent):
            inside = any(anchor == event.anchor for anchor, _ in within)
            size = MOST_COPIES + 1 if inside else sizes.get(event.anchor, 1)  # an unknown one is refused by the loader
            nodes, copies = nodes + size, copies + size
            if copies > MOST_COPIES:
                problem = f"aliases repeat more than {MOST_COPIES} values; wanted them written out"
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor is not None:
                    sizes[event.anchor] = 1
                if len(event.value) > LONGEST_SCALAR:
                    problem = f"a value of {counted(len(event.value), 'character')}; wanted at most {LONGEST_SCALAR:,}"
            else:
                within.append((event.anchor, nodes))
            nodes += 1
            if len(within) > MOST_LEVELS:
                raise RecursionError
        if nodes > MOST_YAML_NODES and not problem:
            problem = f"more than {MOST_YAML_NODES} values; wanted fewer, or JSON"
        if problem:
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)  # type: ignore[arg-type]  # C's mark


class _Loader(FAST):  # type: ignore[misc]  # which of two it is depends on how PyYAML was built
    """A stricter SafeLoader. PyYAML's keeps the last of two equal keys and lets some errors escape."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:  # too long for str() if in base 60
                raise ValueError
            return value
        except (ValueError, LookupError, TypeError, AttributeError):  # such as a 13th month, or digits by the thousand
            problem = f"{shortened(node.value)} is not a valid {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "wanted a mapping", node.start_mark)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not a single value", key.start_mark)
            # YAML would silently take the last of them.
            if key.value in seen:
                problem = f"key {shortened(key.value)} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _load_yaml(text: str) -> Any:
    _refuse_hostile(text)
    return yaml.load(text, Loader=_Loader)  # a SafeLoader


def read_bytes(path: Path, most: int | None = None, advice: str = "") -> bytes:
    """Return all bytes of a file. Raises FileError if it is missing, unreadable or too large."""
    with explained(str(path), UNREADABLE):
        if path.exists() and not path.is_file():
            raise FileError(f"{path}: cannot be read: it is not an ordinary file")
        with path.open("rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > (most := most or MOST_BYTES):
                raise FileError(f"{path}: has {size} bytes; wanted at most {most}{advice}")
            return file.read()


def read_text(path: Path, most: int | None = None, advice: str = "") -> str:
    """Return the text of a UTF-8 file, without the byte order mark that spreadsheets write."""
    try:
        return read_bytes(path, most, advice).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}: cannot be read as UTF-8 text: byte {error.start} is {error.object[error.start]:#x}"
        ) from None


def cells_of(text: str, path: Path, n_before: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the stripped cells of each non-empty CSV row. ``n_before`` lines come before the text
    in the file.

    Raises FileError, with the line number, for broken CSV.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in rows:
            if any(stripped := [cell.strip() for cell in cells]):
                yield rows.line_num + n_before, stripped
    except csv.Error as error:
        raise FileError(f"{path.name}: line {rows.line_num + n_before}: broken CSV: {error}") from None


def shipped(name: str) -> Path:
    """Return a folder that comes with the lab: inside an installed package, or next to the package in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def title_of(path: Path) -> str:
    """Return a file's name without its suffix: the default name of its topology or schedule. It is shortened to
    ``LONGEST_NAME``, and unprintable characters become ``?``."""
    return "".join(c if is_plain(c) else "?" for c in path.stem[:LONGEST_NAME])


def read_mapping(path: Path, *, list_as: str = "") -> dict[str, Any]:
    """Read the mapping in a .yaml, .yml or .json file. With ``list_as``, a bare list becomes the value of that key."""
    is_json = path.suffix.lower() == ".json"
    text = read_text(path) if is_json else read_text(path, MOST_YAML_BYTES, " as YAML; JSON may be larger")
    return mapping_of(text, path, is_json=is_json, list_as=list_as)


def mapping_of(text: str, path: Path, *, is_json: bool = False, list_as: str = "") -> dict[str, Any]:
    """Return the mapping in the text of a file or of one of its YAML documents, as ``read_mapping`` does."""
    try:
        data = json.loads(text) if is_json else _load_yaml(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: line {error.lineno}, column {error.colno}: broken JSON: {error.msg}") from None
    except yaml.YAMLError as error:
        raise FileError(f"{path}: {_yaml_place(error)}broken YAML: {reason_of(error)}") from None
    except _NoMapping as found:
        raise FileError(f"{path}: holds {found}; wanted a mapping of keys to values") from None
    except RecursionError:
        # Nested by the thousand, which no person writes.
        raise FileError(f"{path}: is nested too deeply; wanted a few levels") from None
    except (ValueError, OverflowError):
        raise FileError(f"{path}: holds a number or a character out of range; wanted ordinary ones") from None
    if list_as and isinstance(data, list):
        return {list_as: data}
    if not isinstance(data, dict):
        raise FileError(f"{path}: holds {_kind_of(data)}; wanted a mapping of keys to values")
    return data


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Prefix the message of every LabError raised in the block with ``where``."""
    try:
        yield
    except LabError as error:
        raise type(error)(f"{where}: {error}") from None


def require_version(data: dict[str, Any], key: str, where: str) -> None:
    """Raise FileError for a file of another kind, or of a version that this release cannot read."""
    if key not in data:
        found = next((k for k in data if str(k).startswith("dtfm_")), None)
        hint = f"it holds a {str(found).removeprefix('dtfm_')}" if found else f"first line '{key}: {VERSION}'"
        raise FileError(f"{where}: no key {key!r}; wanted a {key.removeprefix('dtfm_')} file ({hint})")
    if type(data[key]) is not int or data[key] != VERSION:
        raise FileError(f"{where}: {key} is version {shortened(data[key])}; this release reads version {VERSION}")


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    # Making one takes 10 ms, and every move of a dragged link parses the network.
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def parse(kind: type[T], data: Any, where: str, *, version: str = "") -> T:
    """Return ``data`` as a value of ``kind``, a Section or a dataclass. ``version`` names its version key, if any.

    Raises FileError in one line.
    """
    if version:
        require_version(data, version, where)
    try:
        checked: T = _adapter(kind).validate_python(data)
        return checked
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
        message = "input should be a mapping" if first["type"] == "model_type" else first["msg"]
        message = message.removeprefix("Value error, ")
        found = "" if first["type"] in ("value_error", "missing") else f"; found {shortened(first['input'])}"
        place = place if len(place) <= 100 else place[:97] + "..."  # keys of a file may be long
        place = "".join(c if is_plain(c) else "?" for c in place)
        raise FileError(f"{where}: {place + ': ' if place else ''}{message[0].lower()}{message[1:]}{found}") from None
    except LabError as error:  # raised by a dataclass inside, which checks its own fields
        raise FileError(f"{where}: {error}") from None


def dump(value: Any) -> Any:
    """Return a dataclass in plain JSON types. The inverse of ``parse``."""
    return _adapter(type(value)).dump_python(value, mode="json")


def ending_of(path: str | os.PathLike[str], endings: Sequence[str]) -> str:
    """Return the suffix of a file's name in lower case. Raises FileError unless it is one of ``endings``."""
    file = Path(path)
    if (ending := file.suffix.lower()) not in endings:
        raise FileError(f"{file.name} ends in {ending or 'nothing'}; wanted one of {', '.join(endings)}")
    return ending


@contextlib.contextmanager
def explained(what: str, cannot: str = "cannot be written") -> Iterator[None]:
    """Raise FileError, in one line, if the system or another library refuses what the block does."""
    try:
        yield
    except FileError:
        raise
    except (OSError, ValueError) as error:
        if cannot == UNREADABLE and isinstance(error, FileNotFoundError):
            raise FileError(f"{what}: no such file") from None
        raise FileError(f"{what}: {cannot}: {reason_of(error)}") from None


def write_yaml(path: str | os.PathLike[str], data: Any) -> Path:
    """Write a mapping as YAML, with its keys in order. Raises FileError if the file would be too large to read back."""
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if len(text) > MOST_YAML_BYTES:
        raise FileError(f"{path}: would have {len(text)} bytes; wanted at most {MOST_YAML_BYTES} as YAML, or JSON")
    return write_text(path, text)


def write_text(path: str | os.PathLike[str], text: str, *, private: bool = False) -> Path:
    """Write text in UTF-8 with ``write_bytes``."""
    with explained(str(path)):
        return write_bytes(path, text.encode("utf-8"), private=private)


def write_bytes(path: str | os.PathLike[str], data: bytes, *, private: bool = False) -> Path:
    """Write a file, all or nothing: a reader never sees half a file, and a failure leaves the old one.

    With ``private``, only its owner can read it, from the moment it is created. Symbolic links are followed. Devices
    and pipes such as /dev/stdout are written to directly; they are not replaced.
    """
    path = Path(path)
    if not path.name:
        raise FileError(f"{str(path)!r}: cannot be written: wanted the name of a file")
    with explained(str(path)):
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data, private=private)
    return path


def _replace(path: Path, data: bytes, *, private: bool) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # an old partial file may have another mode, or be a link
        with open(partial, "xb", opener=_owners_alone if private else None) as file:
            file.write(data)
        partial.replace(path)
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            partial.unlink()
        raise


def _owners_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def reason_of(error: BaseException, most: int = 120) -> str:
    """Return the system's or another library's error message in one line of up to ``most`` characters."""
    text = str(getattr(error, "strerror", None) or getattr(error, "problem", None) or error)
    if isinstance(error, KeyError):
        text = f"knows no {text}"
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def _yaml_place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _kind_of(data: Any) -> str:
    return "nothing" if data is None else {"list": "a list", "str": "text"}.get(type(data).__name__, "a single value")
