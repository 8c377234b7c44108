"""Files made to keep a reader busy are refused in one line before a tree is built of them.

Before, one value of 15 MB took PyYAML 13 CPU seconds and was read; so did long lists of broken sections, each of which
got an error of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dtfm_lab.domain.errors import FileError
from dtfm_lab.files import load_topology
from dtfm_lab.files.reading import LONGEST_SCALAR, MOST_COPIES, MOST_LEVELS, MOST_YAML_BYTES, read_mapping

M = 1 << 20
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "x" * (15 * M), f"a value of {15 * M} characters; wanted at most {LONGEST_SCALAR}"),
        ('a: "' + "\\n" * (7 * M) + '"', f"a value of {7 * M} characters; wanted at most {LONGEST_SCALAR}"),
        ("a: |\n" + "  x\n" * (3 * M), f"a value of {6 * M} characters; wanted at most {LONGEST_SCALAR}"),
        ("a: 1:" + "59:" * M + "1", f"wanted at most {LONGEST_SCALAR}"),
        ("[" * (MOST_YAML_BYTES - 10), "is nested too deeply"),
        ("{" * (MOST_YAML_BYTES - 10), "is nested too deeply"),
        ("- " * (M // 2), "is nested too deeply"),
        ("a: " + "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), "is nested too deeply"),
        ("- 1\n" * M, "holds a list; wanted a mapping"),
        (LAUGHS, f"aliases repeat more than {MOST_COPIES} values"),
        ("a: &a [*a]\n", f"aliases repeat more than {MOST_COPIES} values"),
        ("a: *b\n", "found undefined alias"),
        ("---\na: 1\n" * 1000, "but found another document"),
        ("a: 1\n" * 1000, "key 'a' stands twice"),
        ("#\n" * (7 * M), "holds nothing; wanted a mapping"),
        ("x" * (MOST_YAML_BYTES + 1), f"wanted at most {MOST_YAML_BYTES} as YAML"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "hostile.yaml"
    file.write_text(text)
    with pytest.raises(FileError) as refused:
        read_mapping(file)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_aliases_within_the_limit_are_read(tmp_path: Path) -> None:
    file = tmp_path / "fine.yaml"
    file.write_text("a: &a {x: [1, 2]}\nb: [*a, *a]\nc: &c text\nd: *c\n")
    assert read_mapping(file) == {"a": {"x": [1, 2]}, "b": [{"x": [1, 2]}] * 2, "c": "text", "d": "text"}


def test_of_many_broken_sections_the_first_is_told(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(json.dumps({"dtfm_topology": 1, "devices": [{"colour": 1}] * 200_000}))
    with pytest.raises(FileError, match=r"devices\[0\]"):
        load_topology(file)


def test_more_rows_than_any_network_are_not_read_to_the_end(tmp_path: Path) -> None:
    matrix = tmp_path / "many.csv"
    matrix.write_text("1,2\n" * 10_000)
    with pytest.raises(FileError, match="more than 8192 rows of 2 cells"):
        load_topology(matrix)
