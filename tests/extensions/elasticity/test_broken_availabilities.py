"""Whatever a file of an availability holds, reading it ends in a value or in one line that names the file."""

import json

import pytest
from hypothesis import given
from test_fuzzed_files import SOME_EXAMPLES, edited, edits, reads_or_refuses_in_one_line
from test_reading import refuses_broken_csv

from dtfm_lab.extensions.elasticity.availability_files import load_availability

EVENTS = """# end_seconds: 60
# devices: ["a", "b"]
seconds,event,node
0,add,a
7.5,remove,a
"""
VALID = {"csv": EVENTS, "json": json.dumps({"metadata": {"gap_seconds": 30}, "data": [2, 0, 1]})}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("ending", VALID)
@given(changes=edits)
@SOME_EXAMPLES
def test_edited_bytes_are_read_or_refused_in_one_line(ending, folder, changes):
    path = folder / f"fuzzed.{ending}"
    path.write_bytes(edited(VALID[ending].encode(), changes))
    reads_or_refuses_in_one_line(load_availability, path)


def test_broken_csv_is_refused_in_one_line(tmp_path):
    refuses_broken_csv(load_availability, tmp_path / "hours.csv", "seconds,event,node")
