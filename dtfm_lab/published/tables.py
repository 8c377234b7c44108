"""The published numbers that come with the lab, as they were published, each file with its source and licence."""

import csv
from pathlib import Path
from typing import Any

from dtfm_lab.files.reading import read_mapping

DATA = Path(__file__).parent / "data"


def numbers(name: str) -> list[dict[str, str]]:
    """The lines of a CSV file of ``published/data`` by its headings; lines from # on are its source and licence."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if line and not line.startswith("#")))


def document(name: str) -> dict[str, Any]:
    """A JSON or YAML file of ``published/data``."""
    return read_mapping(DATA / name)
