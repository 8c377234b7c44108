"""The published numbers that come with the lab, as they were published, each file with its source and licence."""

import csv
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any


def numbers(name: str) -> list[dict[str, str]]:
    """The lines of a CSV file of ``published/data`` by its headings; lines from # on are its source and licence."""
    return list(csv.DictReader(_without_comments(_text(name))))


def document(name: str) -> Any:
    """A JSON file of ``published/data``."""
    return json.loads(_text(name))


def _text(name: str) -> str:
    return (files("dtfm_lab.published") / "data" / name).read_text(encoding="utf-8")


def _without_comments(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line and not line.startswith("#"))
