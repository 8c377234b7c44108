"""Schedules as text and as torch's CSV: what is written comes back, what is broken is refused in one line."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.files.schedules import load_schedule, save_schedule
from dtfm_lab.simulation.schedules import schedules

TORCH = Path(__file__).parents[1] / "simulation" / "torch_orders.py"
ENDINGS = ["txt", "csv"]
names = st.sampled_from(sorted(schedules))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("schedules")


@given(names, st.integers(1, 4), st.integers(1, 3), st.sampled_from(ENDINGS))
@settings(max_examples=40)
def test_a_schedule_comes_back_as_it_was(folder, name, n_devices, rounds, ending):
    schedule = schedules[name](n_devices, rounds * n_devices)
    path = save_schedule(schedule, folder / f"{name}.{ending}")
    assert load_schedule(path) == schedule


def test_text_is_a_header_and_a_line_a_device(folder):
    path = save_schedule(schedules["1f1b"](2, 2), folder / "a.txt")
    assert path.read_text() == "dtfm_schedule 1 1f1b\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"


def test_csv_is_a_row_a_rank_and_a_cell_a_pass(folder):
    path = save_schedule(schedules["zb-h1"](2, 1), folder / "b.csv")
    assert path.read_text() == "0F0,0I0,0W0\n1F0,1I0,1W0\n"


def test_a_csv_s_bubbles_blanks_and_line_ends_do_not_matter(folder):
    path = folder / "bubbles.csv"
    path.write_bytes(b'0F0,,0F1,0B0,"",0B1\r\n, 1F0 ,1B0,1F1,1B1\r\n')
    loaded = load_schedule(path)
    assert loaded.name == "bubbles"
    assert loaded.orders == schedules["1f1b"](2, 2).orders


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("a.yaml", "", r"a.yaml ends in .yaml; wanted one of .csv, .txt"),
        ("a", "", r"a ends in nothing; wanted"),
        ("a.txt", "", r"a.txt: line 1 is ''; wanted dtfm_schedule 1 and a name"),
        ("a.txt", "0F0 0B0\n", r"a.txt: line 1 is '0F0 0B0'; wanted dtfm_schedule 1 and a name"),
        ("a.txt", "dtfm_schedule 2 x\n", r"a.txt: dtfm_schedule is version '2'; this release reads version 1"),
        ("a.txt", "dtfm_schedule 1\n0F0 0B0", r"a.txt: line 1: the schedule is named ''; wanted plain text"),
        ("a.txt", "dtfm_schedule 1 x\n", r"a.txt: schedule x has no program; wanted one a device"),
        (
            "a.txt",
            "dtfm_schedule 1 x\n0F0 oops 0B0\n",
            r"a.txt: line 2, word 2: 'oops' is not an action; wanted one such as 0F3",
        ),
        ("a.txt", "dtfm_schedule 1 x\n0F0 0B0 0F0\n", r"a.txt: schedule x, device 0: 0F0 is there twice; wanted"),
        ("a.csv", "", r"a.csv: schedule a has no program"),
        ("a.csv", "0F0,0B0\n1F0,,1X0\n", r"a.csv: row 2, cell 3: '1X0' is not an action; wanted"),
        ("a.csv", "0F0,0SEND_F0\n", r"a.csv: row 1, cell 2: 0SEND_F0 is not a pass; wanted computations only"),
        ("a.csv", "0F0,0B0,0REDUCE_GRAD\n", r"a.csv: row 1, cell 3: '0REDUCE_GRAD' is not an action"),
        ("a.csv", "0F0,0B\n", r"a.csv: row 1, cell 2: 0B is not a pass"),
        ("a.csv", "0F0,0B0\n1F0\n", r"a.csv: schedule a, device 1: 1B0 is missing; wanted each F and B once"),
        ("a.csv", "0F0,0B0\n2F0,2B0\n", r"a.csv: schedule a, device 1: 2F0 is out of place; it holds stage 1"),
        ("a.csv", '0F0,"0B0\n', r"a.csv: line 1: broken CSV"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_that_names_the_place(tmp_path, file, text, says):
    (tmp_path / file).write_text(text)
    with pytest.raises(FileError, match=says):
        load_schedule(tmp_path / file)


def test_what_no_file_can_hold_is_not_written(tmp_path):
    blank = Schedule.from_orders(" a", ["0F0 0B0"])
    with pytest.raises(FileError, match="the schedule is named ' a'; wanted plain text"):
        save_schedule(blank, tmp_path / "a.txt")
    with pytest.raises(FileError, match=r"ends in \.json; wanted one of \.csv, \.txt"):
        save_schedule(schedules["gpipe"](1, 1), tmp_path / "a.json")
    with pytest.raises(FileError, match="no such file"):
        load_schedule(tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_torch_reads_our_csv_and_we_read_torch_s(tmp_path):
    """Passes of every kind, whole and split backwards side by side."""
    pytest.importorskip("torch.distributed.pipelining")
    mixed = Schedule.from_orders(
        "again", ["0F0 0F1 2F0 2F1 2B0 2I1 0B0 0I1 2W1 0W1", "1F0 1F1 3F0 3B0 3F1 3I1 1B0 1I1 3W1 1W1"]
    )
    ours = save_schedule(mixed, tmp_path / "ours.csv")
    told = subprocess.run(
        [sys.executable, TORCH, "--csv", ours, tmp_path, "2", "2", "2"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert load_schedule(tmp_path / "again.csv") == mixed
    assert ",," in (tmp_path / "interleaved-1f1b.csv").read_text()
    assert load_schedule(tmp_path / "interleaved-1f1b.csv") == schedules["interleaved-1f1b"](2, 2)
