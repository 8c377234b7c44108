"""Ways to damage a file, drawn from a generator: bytes, lines, numbers, encodings, and values of JSON and YAML."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

MOST_BYTES = 2 * 10**6
"""Longest mutant."""
HOSTILE: tuple[bytes, ...] = (
    *(b"0", b"-1", b"1e300", b"1e999", b"NaN", b"nan", b"inf", b"null", b"true", b"[]", b"{}", b"''", b'""', b"a"),
    *(b"9" * 400, b"9" * 6000, b"1" + b"0" * 18, b"2147483648", b"1e-320", b"-0.0", b"1:1:1", b"0x10", b"1_000"),
    *(b"2026-13-45", b"*a", b"&a ", b"<<: *a", b"!!python/object/apply:os.system ", b"---\n", b"? ", b"- ", b"%YAML 9"),
    *(
        b"&lol;",
        b"<a>",
        b"</a>",
        b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
        b"\\ud800",
        b"\xff",
        b"\x00",
        b"\t",
        b"\r",
        b"\x1b",
    ),
    *(b"\x85", "é\u2028\u202e".encode(), b"[" * 3000, b'{"a":' * 3000, b"- " * 3000, b"(" * 3000, b"1" * 140_000),
    *(b" " * 200_000, b"a," * 100_000, b"1 " * 100_000),
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def mutant(seed: bytes, rng: random.Random) -> bytes:
    """A valid file with one to three things changed, most often one, as a reader stops at the first that it finds."""
    data = seed
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(min(rng.randint(1, 8), len(data))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _cut(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.randint(1, 60) :]


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines.insert(at, lines[at])
        case 1:
            lines[at], lines[other] = lines[other], lines[at]
        case 2:
            del lines[at]
        case 3:
            repeats = min(rng.choice((10, 1000, 20_000)), 1 + MOST_BYTES // len(lines[at]))
            lines[at:at] = [lines[at]] * repeats
    return b"".join(lines)[:MOST_BYTES]


def _number(data: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(data[:500_000]))
    if not found:
        return data
    for match in sorted(rng.sample(found, min(rng.randint(1, 3), len(found))), key=lambda m: -m.start()):
        data = data[: match.start()] + rng.choice(HOSTILE) + data[match.end() :]
    return data


def _put(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(HOSTILE) + data[at + rng.randint(0, 3) :]


def _encode(data: bytes, rng: random.Random) -> bytes:
    match rng.randrange(7):
        case 0:
            return b"\xef\xbb\xbf" + data
        case 1:
            return data.decode("utf-8", "replace").encode("utf-16")
        case 2:
            return data.decode("utf-8", "replace").encode("latin-1", "replace")
        case 3:
            return data.replace(b"\n", b"\r\n")
        case 4:
            return data.replace(b"\n", b"\r")
        case 5:
            return data.replace(b" ", b"\xc2\xa0")
        case _:
            return data.decode("utf-8", "replace").encode("utf-32")


def _restructure(data: bytes, rng: random.Random) -> bytes:
    """Another value somewhere in JSON or YAML."""
    try:
        value = json.loads(data)
        write: Callable[[Any], str] = json.dumps
    except ValueError:
        try:
            value, write = yaml.safe_load(data[:100_000]), yaml.safe_dump
        except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError):
            return _flip(data, rng)
    except RecursionError:
        return _flip(data, rng)
    places = list(_places(value))[:20_000]
    if not places:
        return _put(data, rng)
    holder, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]] * rng.choice((1, 2, 1000))
        case 2:
            other, place = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[place] if place in _keys(other) else None, default=str))
        case _:
            holder[key] = rng.choice(STRANGE)
    try:
        return write(value).encode("utf-8", "surrogatepass")[: 4 * 10**6]
    except (ValueError, RecursionError, yaml.YAMLError):
        return _flip(data, rng)


STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2.5, 10**9, 10**15, 10**400, 1e300, 1e308, 1e-320, float("nan"), float("inf")),
    *("", "a", "a\nb", "\ud800", "\0", "nan", "1e999", "x" * 5000, "9" * 5000, [], [[]], [None], [0] * 5000, {}),
    *({"a": 1}, {"": None}, {"name": "a"}, -(10**9), 10**6, 65536, ["a", "a"], [1, 2]),
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Holder and key of every value within."""
    for key in _keys(value):
        yield value, key
        yield from _places(value[key])


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


MUTATIONS = (_flip, _truncate, _cut, _lines, _number, _number, _put, _encode, _restructure, _restructure)
