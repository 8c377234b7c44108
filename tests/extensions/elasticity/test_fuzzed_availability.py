"""Damaged hours are read, or refused in one line, as every other file of the lab is (``tests/files``)."""

import json

import pytest
from hypothesis import given
from test_fuzzed_files import SOME_EXAMPLES, edited, edits, reads_or_refuses_in_one_line

from dtfm_lab.domain.errors import FileError
from dtfm_lab.extensions.elasticity.availability_files import load_availability

EVENTS = """# end_seconds: 60
# devices: ["a", "b"]
seconds,event,node
0,add,a
7.5,remove,a
"""
VALID = {
    "csv": EVENTS.encode(),
    "json": json.dumps({"metadata": {"gap_seconds": 30}, "data": [2, 0, 1]}).encode(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("ending", VALID)
@given(changes=edits)
@SOME_EXAMPLES
def test_edited_bytes_are_read_or_refused_in_one_line(ending, folder, changes):
    path = folder / f"fuzzed.{ending}"
    path.write_bytes(edited(VALID[ending], changes))
    reads_or_refuses_in_one_line(load_availability, path)


@pytest.mark.parametrize(
    "cell", ["a\rb", "x" * 200_000, '"a"b', '"never closed'], ids=["return", "long", "quoted", "open"]
)
def test_a_broken_cell_is_refused_in_one_line(tmp_path, cell):
    path = tmp_path / "hours.csv"
    path.write_bytes(f"seconds,event,node\n{cell},1,1\n".encode())
    with pytest.raises(FileError) as refused:
        load_availability(path)
    assert str(refused.value).startswith("hours.csv")
    assert len(str(refused.value).splitlines()) == 1
