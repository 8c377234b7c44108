"""dtfm-lab strategies --crossings: a table, JSON, files, and refusals in one line."""

import json

import pytest
from click.testing import CliRunner

import dtfm_lab as lab
from dtfm_lab.cli import cli

SMALL = ("strategies", "--crossings", "lecture-hall", "--job", "tiny", "--assume", "megatron.transport=overlapped")


def invoked(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_json_is_what_python_returns() -> None:
    systems = ["megatron", lab.systems.variant("megatron", transport="overlapped")]
    told = json.loads(invoked(*SMALL, "--system", "megatron", "--values", "0.1:10:3", "--json").stdout)
    found = lab.crossings("lecture-hall", "tiny", systems=systems, values=(0.1, 10.0, 3))
    assert told == json.loads(json.dumps(found.to_dict()))


def test_a_table_and_a_picture(tmp_path) -> None:
    picture, table = tmp_path / "crossings.html", tmp_path / "crossings.csv"
    ran = invoked(*SMALL, "--system", "megatron", "--values", "0.01,10", "-o", picture)
    assert ran.exit_code == 0
    assert "by the link model" in ran.stdout
    assert "bandwidth (Gbit/s)" in ran.stdout
    assert "Plotly.newPlot" in picture.read_text()
    assert invoked(*SMALL, "--system", "megatron", "--over", "latency", "--values", "1", "-o", table).exit_code == 0
    assert table.read_text().startswith("latency,system,iteration_s")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--over", "speed"), "'speed' is not one of"),
        (("--values", "fast"), "--values is 'fast'; wanted numbers, such as 0.1,1,10 or 0.1:10:9"),
        (("--values", "0,1"), "a value of bandwidth is 0.0; wanted a number above 0 (Gbit/s)"),
        (("-o", "x.txt"), "x.txt ends in .txt; wanted one of .html"),
        (("--between", "regions", "--over", "bandwidth", "--precision", "3"), "precision is 3.0; wanted"),
    ],
)
def test_mistakes_are_told_in_a_line(shell, arguments, says) -> None:
    status, _, error = shell(*SMALL, *arguments)
    assert status == 2
    assert says in error
    assert len(error.strip().splitlines()) == 1
