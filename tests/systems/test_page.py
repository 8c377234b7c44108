"""The page of the systems names each that has a model, and each that has none, once."""

from __future__ import annotations

import re
from pathlib import Path

from dtfm_lab.systems import NOT_MODELLED, strategies

PAGE = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()


def between(begin: str, end: str) -> str:
    return PAGE.split(f"<!-- {begin} -->")[1].split(f"<!-- {end} -->")[0]


def test_every_system_has_a_row_with_its_source() -> None:
    found = re.findall(r"^\| `([\w-]+)`(.*)$", between("systems", "end of the systems"), re.MULTILINE)
    rows = dict(found)
    assert len(rows) == len(found)
    assert sorted(rows) == list(strategies)
    for name, kind in strategies.items():
        assert kind.title in rows[name]
        assert kind.cite in rows[name]
        assert (kind.mathematics == "") == ("†" not in rows[name])


def test_everything_that_is_not_modelled_has_its_reason() -> None:
    listed = re.findall(r"^- \*\*(.+?)\*\*", between("not modelled", "end of not modelled"), re.MULTILINE)
    assert listed == list(NOT_MODELLED)
