"""dtfm-lab plan --codesign: a table, JSON, files, and refusals in one line."""

import json

import pytest
from click.testing import CliRunner

import dtfm_lab as lab
from dtfm_lab.cli import cli

SMALL = ("plan", "--codesign", "lecture-hall", "--job", "tiny", "--steps", "1")


def invoked(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_json_is_what_python_returns() -> None:
    told = json.loads(invoked(*SMALL, "--knob", "batch", "--target", "0.7", "--batch", "32", "--json").stdout)
    job = lab.load_job("tiny", global_batch=32)
    found = lab.codesign("lecture-hall", job, steps=1, knobs="batch", target=0.7)
    assert told["designs"] == json.loads(json.dumps(found.to_dict()["designs"]))
    assert told["sentence"] == found.sentence


def test_a_table_a_picture_and_a_plan_of_ones_own(tmp_path) -> None:
    plan, picture, table = tmp_path / "plan.json", tmp_path / "codesign.svg", tmp_path / "codesign.csv"
    lab.save(lab.plan("lecture-hall", "tiny", steps=1), plan)
    knobs = ("--knob", "batch", "--knob", "every")
    ran = invoked(*SMALL, *knobs, "--plan", plan, "-o", picture)
    assert ran.exit_code == 0, ran.output
    assert "would remain with free messages" in ran.stdout
    assert "beyond the critical batch size" in " ".join(ran.stdout.split())
    assert "<svg" in picture.read_text()
    assert invoked(*SMALL, *knobs, "-o", table).exit_code == 0
    assert table.read_text().startswith("knob,value,global_batch")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--knob", "depth"), "'depth' is not one of"),
        (("--target", "2"), "codesign: target is 2.0; wanted"),
        (("-o", "x.txt"), "x.txt ends in .txt; wanted one of .html"),
        (("--plan", "none.json"), "none.json"),
    ],
)
def test_mistakes_are_told_in_a_line(shell, arguments, says) -> None:
    status, _, error = shell(*SMALL, *arguments)
    assert status == 2
    assert says in error
    assert len(error.strip().splitlines()) == 1
