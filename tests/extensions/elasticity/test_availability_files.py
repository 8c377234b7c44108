"""Availabilities from files and by name: every format, what comes with the lab, and every mistake with its line."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import availability_names, save_availability
from dtfm_lab.files import load_topology, topology_names

HOUR = 3600.0
HEADER = "seconds,event,node\n"

names = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=8)
plain_names = names.filter(lambda name: name == name.strip())
seconds = st.floats(0, 90) | st.integers(0, 90).map(float)


@st.composite
def availabilities(draw: st.DrawFn) -> Availability:
    present = {}
    for name in draw(st.lists(plain_names, max_size=5, unique=True)):
        marks = sorted(draw(st.sets(seconds, max_size=6)))
        present[name] = list(zip(marks[::2], marks[1::2], strict=False))
    return Availability.from_intervals(present, draw(st.floats(91, 1e6)), name=draw(plain_names))


def written(folder: Path, text: str, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def rows(availability: Availability) -> list[tuple[float, str, str]]:
    return list(availability.to_frame().itertuples(index=False, name=None))


@given(availabilities(), st.integers(0, 9))
@settings(max_examples=25)
def test_what_is_saved_comes_back_whole(tmp_path_factory, trace: Availability, left_out: int) -> None:
    source = "a log, of 2026\n(with a licence: MIT)"
    given_so = Availability(**{**vars(trace), "source": source, "left_out": left_out})
    back = lab.load_availability(lab.save(given_so, tmp_path_factory.mktemp("saved") / "x.csv"))
    assert (back.devices, back.end_s, back.name, back.left_out) == (trace.devices, trace.end_s, trace.name, left_out)
    assert back.source == "a log, of 2026 (with a licence: MIT)"
    assert rows(back) == rows(trace)


def test_on_a_network_it_is_saved_with_the_devices_that_never_come(tmp_path: Path) -> None:
    trace = lab.load_availability("oobleck-every-6h").on(load_topology("worldwide"))
    back = lab.load_availability(lab.save(trace, tmp_path / "x.csv"))
    assert back.devices == trace.devices
    assert rows(back) == rows(trace)


def test_a_table_of_pandas_is_read(tmp_path: Path) -> None:
    trace = lab.load_availability("bamboo-g4dn")
    trace.to_frame().to_csv(tmp_path / "x.csv")
    assert rows(lab.load_availability(tmp_path / "x.csv")) == rows(trace)


def test_events_without_a_header_are_in_milliseconds(tmp_path: Path) -> None:
    read = lab.load_availability(written(tmp_path, "0,add,n1\n1500,add,n2\n61000,remove,n1\n"))
    assert rows(read) == [(0, "add", "n1"), (1.5, "add", "n2"), (61, "remove", "n1")]
    assert (read.end_s, read.name) == (61, "mine")


def test_of_counts_the_oldest_leaves_first(tmp_path: Path) -> None:
    read = lab.load_availability(written(tmp_path, "seconds,count\n0,2\n10,1\n20,1\n30,2\n40,0\n50,0\n"))
    assert rows(read) == [
        (0, "add", "node1"),
        (0, "add", "node2"),
        (10, "remove", "node1"),
        (30, "add", "node3"),
        (40, "remove", "node2"),
        (40, "remove", "node3"),
    ]
    assert read.end_s == 50
    assert "names are ours, and the oldest leaves first" in read.source


@given(st.lists(st.integers(0, 9), min_size=2, max_size=30))
@settings(max_examples=25)
def test_counts_come_back_as_counts(tmp_path_factory, counts: list[int]) -> None:
    table = "".join(f"{60 * tick},{n}\n" for tick, n in enumerate(counts))
    read = lab.load_availability(written(tmp_path_factory.mktemp("counts"), "seconds,count\n" + table))
    assert [len(read.present_at(60.0 * tick)) for tick in range(len(counts))] == counts


def test_a_log_of_counts_may_jump_back_and_of_one_instant_the_last_counts(tmp_path: Path) -> None:
    read = lab.load_availability(written(tmp_path, "seconds,count\n0,2\n20,4\n10,3\n20,1\n"))
    assert [(change.time_s, n) for change, n in zip(read.changes, read.counts(), strict=True)] == [
        (0, 2),
        (10, 3),
        (20, 1),
    ]


def test_the_log_of_a_cloud_comes_back_from_its_counts(tmp_path: Path) -> None:
    """GCP's logs are of counts: their events were made by the same rule."""
    trace = lab.load_availability("gcp-a100")
    table = "".join(f"{change.time_s},{n}\n" for change, n in zip(trace.changes, trace.counts(), strict=True))
    read = lab.load_availability(written(tmp_path, f"# end_seconds: {trace.end_s}\nseconds,count\n{table}"))
    assert rows(read) == rows(trace)


def test_skypilots_ticks_are_counts_and_a_zone_of_one_is_one_device(tmp_path: Path) -> None:
    one = {"metadata": {"gap_seconds": 30}, "data": [0, 1, 1, 0, 1]}
    read = lab.load_availability(written(tmp_path, json.dumps(one), "us-east1-b_c3-88.json"))
    device = "us-east1-b_c3-88"
    assert rows(read) == [(30, "add", device), (90, "remove", device), (120, "add", device)]
    assert read.end_s == 150
    several = {"metadata": {"gap_seconds": 300, "region": "x"}, "data": [2, 2, 1, 16], "prices": [1, 1, 1, 1]}
    read = lab.load_availability(written(tmp_path, json.dumps(several), "zone.json"))
    assert read.counts().tolist() == [2, 1, 16]
    assert rows(read)[2] == (600, "remove", "zone-1")


def test_a_folder_of_zones_is_known_until_the_first_ends(tmp_path: Path) -> None:
    for zone, gap_s, data in (("a", 10, [1, 0, 1, 1]), ("b", 20, [1, 1, 0]), ("c", 10, [3, 2, 2, 2, 9])):
        written(tmp_path, json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data}), f"{zone}.json")
    read = lab.load_availability(tmp_path)
    assert read.end_s == 40
    assert read.devices == ("a", "b", "c-1", "c-2", "c-3")
    assert read.present_s().tolist() == [30, 40, 10, 40, 40]


STATISTICS = {
    "bamboo-p3": (11.367, 32, 10, 24.03, 344, 177, 167, 79),
    "bamboo-g4dn": (10.633, 24, 1, 12.76, 153, 79, 74, 48),
    "gcp-v100": (24.17, 80, 30, 76.33, 1238, 659, 579, 68),
    "gcp-a100": (27.018, 64, 17, 57.3, 372, 218, 154, 36),
    "oobleck-every-10m": (2.505, 30, 15, 23.0, 45, 30, 15, 15),
    "oobleck-every-30m": (7.5, 30, 15, 23.0, 45, 30, 15, 15),
    "oobleck-every-1h": (15.0, 30, 15, 23.0, 45, 30, 15, 15),
    "oobleck-every-3h": (45.0, 30, 15, 23.0, 45, 30, 15, 15),
    "oobleck-every-6h": (90.0, 30, 15, 23.0, 45, 30, 15, 15),
    "oobleck-scaled-p3": (11.367, 30, 15, 24.13, 299, 157, 142, 85),
    "oobleck-scaled-gcp": (10.633, 30, 15, 22.24, 161, 89, 72, 63),
}
"""Counted apart from this code, from the first event on: hours, most, fewest and mean there, events, comings, losses
and the instants of losses. (bamboo-g4dn begins with one node; 2 are the fewest once it has begun.)"""


@pytest.mark.parametrize("name", STATISTICS)
def test_those_that_come_with_the_lab_are_the_published_ones(name: str) -> None:
    trace = lab.load_availability(name)
    counts, known_s = trace.counts(), trace.end_s - trace.time_s[0]
    found = (
        round(known_s / HOUR, 3),
        counts.max(),
        counts.min(),
        round(trace.present_s().sum() / known_s, 2),
        len(trace.time_s),
        trace.comes.sum(),
        (~trace.comes).sum(),
        round(trace.end_s / trace.mean_between_losses_s),
    )
    assert found == pytest.approx(STATISTICS[name], abs=0.0051)
    assert trace.name == name
    assert "MIT licence, Copyright (c)" in trace.source


def test_the_table_of_the_page_is_what_the_lab_counts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "devices-that-come-and-go.md").read_text()
    table = {row[1].strip(" `"): row[2:7] for row in (line.split("|") for line in page.splitlines()) if len(row) == 9}
    assert set(availability_names()) == set(table) - {"name", "---"}
    for name in availability_names():
        trace = lab.load_availability(name)
        mean = trace.present_s().sum() / trace.end_s
        minutes = trace.mean_between_losses_s / 60
        counted = [f"{trace.end_s / HOUR:.1f}", f"{trace.counts().max()}", f"{mean:.1f}", f"{(~trace.comes).sum()}"]
        assert [cell.strip() for cell in table[name]] == [*counted, f"{minutes:.0f}"]


def test_the_volunteers_are_invented_and_drawn_as_their_file_says() -> None:
    trace = lab.load_availability("volunteers-at-home")
    network = load_topology("volunteers")
    rates = {"mean_life_s": 10 * HOUR, "mean_absence_s": 8 * HOUR, "daily": 0.8, "weekends": True}
    drawn = Availability.sampled(network, 7 * 24 * HOUR, **rates, seed=1)
    assert trace.source.startswith(f"invented: {drawn.source}")
    assert sorted(trace.to_frame()["time_s"]) == pytest.approx(np.round(drawn.time_s))
    assert set(trace.on(network).devices) == set(network.names)
    assert trace.on(network).left_out == 0


def test_no_availability_is_taken_for_a_network() -> None:
    assert set(availability_names()) == {*STATISTICS, "volunteers-at-home"}
    assert not set(availability_names()) & set(topology_names())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mine.csv: holds no rows; wanted seconds,event,node or seconds,count"),
        ("# source: x\n", "mine.csv: holds no rows"),
        ("seconds;event;node\n", "mine.csv: line 1: no column 'seconds' in 'seconds;event;node'; wanted"),
        ("seconds,event\n", "mine.csv: line 1: no column 'node' in 'seconds,event'; wanted seconds,event,node"),
        (HEADER + "5,add\n", "mine.csv: line 2 has 2 cells; wanted 3"),
        (HEADER + "\n\n5,join,n1\n", "mine.csv: line 4: event is 'join'; wanted add or remove"),
        (HEADER + "soon,add,n1\n", "mine.csv: line 2: seconds is 'soon'; wanted a number, 0 or more"),
        (HEADER + "-1,add,n1\n", "mine.csv: line 2: seconds is '-1'; wanted a number, 0 or more"),
        (HEADER + "nan,add,n1\n", "mine.csv: line 2: seconds is 'nan'; wanted a number, 0 or more"),
        (HEADER + "1_0,add,n1\n", "mine.csv: line 2: seconds is '1_0'; wanted a number, 0 or more"),
        (HEADER + "5,add,\n", "mine.csv: line 2: node is ''; wanted plain text of 1 to 200 characters"),
        (HEADER + '5,add,"n1\n', "mine.csv: line 2: broken CSV: unexpected end of data"),
        ("# a\n# b\n" + HEADER + "5,add,n1\n9,add,n1\n", "mine.csv: line 5: n1 comes at 9 s while it is there; wanted"),
        (HEADER + "9,remove,n1\n5,remove,n1\n2,add,n1\n", "mine.csv: line 2: n1 leaves at 9 s while it is not there"),
        (HEADER + "0,add,n1\n", "mine.csv: nothing after second 0; wanted a later row, or a line '# end"),
        (HEADER, "mine.csv: nothing after second 0"),
        ("# end_seconds: 7\n" + HEADER + "5,add,n1\n8,remove,n1\n", "mine.csv: line 4 is at 8 s; wanted at most"),
        ("# end_seconds: never\n" + HEADER, "mine.csv: line 1: end_seconds is 'never'; wanted a number above 0"),
        ("# left_out: some\n" + HEADER, "mine.csv: line 1: left_out is 'some'; wanted a count of events"),
        ("# name:\n" + HEADER, "mine.csv: line 1: name is ''; wanted plain text of 1 to 200 characters"),
        ("#\n# devices: a, b\n" + HEADER, "mine.csv: line 2: devices is 'a, b'; wanted names as a JSON list"),
        ('# devices: ["a"]\n' + HEADER + "5,add,b\n", "mine.csv: line 3: b is not one of the 1 devices named above"),
        ('# devices: ["a","a"]\n' + HEADER + "5,add,a\n", "mine.csv: line 1: devices is '[\"a\",\"a\"]'; wanted names"),
        ("0,add,n1\n10,n1,add\n", "mine.csv: line 2: event is 'n1'; wanted add or remove"),
        ("0,add,n1\nsoon,add,n2\n", "mine.csv: line 2: milliseconds is 'soon'; wanted a number, 0 or more"),
        ("seconds,count,zone\n", "mine.csv: line 1 is 'seconds,count,zone'; wanted seconds,count"),
        ("seconds,count\n0,1.5\n", "mine.csv: line 2: count is '1.5'; wanted a whole number, 0 to 4096"),
        ("seconds,count\n0,5000\n", "mine.csv: line 2: count is '5000'; wanted a whole number, 0 to 4096"),
        ("# end_seconds: 5\nseconds,count\n0,1\n9,1\n", "mine.csv: line 3 is at 9 s; wanted at most end_seconds, 5"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="^" + re.escape(says)):
        lab.load_availability(written(tmp_path, text))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "metadata.gap_seconds is None; wanted seconds above 0"),
        ({"metadata": {"gap_seconds": 0}, "data": [1]}, "metadata.gap_seconds is 0; wanted seconds above 0"),
        ({"metadata": {"gap_seconds": True}, "data": [1]}, "metadata.gap_seconds is True; wanted seconds above 0"),
        ({"metadata": {"gap_seconds": 5}}, "data is None; wanted a list of counts"),
        ({"metadata": {"gap_seconds": 5}, "data": []}, "data is []; wanted a list of counts"),
        ({"metadata": {"gap_seconds": 5}, "data": [1, 0.5]}, "data[1] is 0.5; wanted a whole number, 0 to 4096"),
        ({"metadata": {"gap_seconds": 5}, "data": [1, None]}, "data[1] is None; wanted a whole number, 0 to 4096"),
    ],
)
def test_a_mistake_in_json_is_told_with_its_key(content: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(FileError) as refused:
        lab.load_availability(written(tmp_path, json.dumps(content), "mine.json"))
    assert str(refused.value) == f"mine.json: {says}"


def test_what_is_no_file_and_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no availability named 'bamboo-p4'; did you mean 'bamboo-p3'"):
        lab.load_availability("bamboo-p4")
    with pytest.raises(UnknownName, match=r"\(worldwide is a network\)"):
        lab.load_availability("worldwide")
    with pytest.raises(FileError, match=r"mine\.txt: ends in \.txt; wanted \.csv, \.json, or a folder of \.json"):
        lab.load_availability(written(tmp_path, "x", "mine.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"empty: a folder without \.json files; wanted SkyPilot's, a zone each"):
        lab.load_availability(tmp_path / "empty")
    with pytest.raises(FileError, match=r"none\.csv: no such file"):
        lab.load_availability(tmp_path / "none.csv")
    with pytest.raises(FileError, match="availability is 5; wanted a name or a path"):
        lab.load_availability(5)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blank = Availability.from_intervals({" a": [(0, 1)]}, 9)
    with pytest.raises(FileError, match="cannot hold the name ' a'; wanted plain text without blanks around it"):
        lab.save(blank, tmp_path / "x.csv")
    with pytest.raises(FileError, match=r"x\.json: ends in \.json; wanted an availability as \.csv"):
        lab.save(blank, tmp_path / "x.json")
    with pytest.raises(FileError, match=r"x\.txt ends in \.txt; wanted one of \.csv"):
        save_availability(blank, tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            HEADER + "0,add,n1\n1e300,remove,n1\n",
            "mine.csv: line 3: seconds is '1e300'; wanted a number, 0 or more, at",
        ),
        (HEADER + "0,add,n1\n4e8,remove,n1\n", "mine.csv: line 3: seconds is '4e8'; .* at most 3.16e[+]08 .ten years."),
        (HEADER + f"{'9' * 400},add,n1\n", "mine.csv: line 2: seconds is '999"),
        ("# end_seconds: 1e12\n" + HEADER, "mine.csv: line 1: end_seconds is '1e12'; wanted a number above 0, at most"),
        ("0,add,n1\n4e11,remove,n1\n", "mine.csv: line 2: milliseconds is '4e11'; wanted a number, 0 or more, at most"),
        ("seconds,count\n0,1\n1e300,0\n", "mine.csv: line 3: seconds is '1e300'; wanted a number"),
        ("seconds,count\nnan,1\n", "mine.csv: line 2: seconds is 'nan'; wanted a number"),
        ("seconds,count\n0,-1\n", "mine.csv: line 2: count is '-1'; wanted a whole number"),
    ],
)
def test_times_beyond_ten_years_and_numbers_that_are_none_are_refused(tmp_path, text, says):
    (path := tmp_path / "mine.csv").write_text(text)
    with pytest.raises(FileError, match=says):
        lab.load_availability(path)


def test_counts_that_make_millions_of_events_are_refused_before_one_is_made(tmp_path):
    """20,000 lines would make 82 million."""
    rows = "".join(f"{second},{4096 * (second % 2)}\n" for second in range(20_000))
    (path := tmp_path / "mine.csv").write_text("seconds,count\n" + rows)
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"mine.csv: 1,003,520 machines come or leave by line 247; wanted at most"):
            lab.load_availability(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("gap_s", "data", "says"),
    [
        (1e300, [1, 0], r"mine.json: its ticks last 2e[+]300 s; wanted at most 3.16e[+]08"),
        (1e308, [1] * 100, r"mine.json: its ticks last inf s"),
        (1, [0, 4096] * 10_000, r"mine.json: 1,003,520 machines come or leave by line 245"),
    ],
)
def test_ticks_beyond_ten_years_or_a_million_events_are_refused(tmp_path, gap_s, data, says):
    (path := tmp_path / "mine.json").write_text(json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data}))
    with pytest.raises(FileError, match=says):
        lab.load_availability(path)
