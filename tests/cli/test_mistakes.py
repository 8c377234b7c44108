"""Names, prices and arguments that are mistaken on the command line: each is refused in one line."""

import json
import subprocess
import sys

import pytest

LONG = "x" * 400


def test_typical_prices_are_an_option_of_a_plan(shell, refuses):
    priced = ("plan", "lecture-hall", "--job", "tiny", "--objective", "price", "--steps", "1", "--json")
    refuses("no device of lecture-hall has a price", *priced, "--typical-prices")
    few = ("plan", "raspberry-pi", "--job", "tiny", "--steps", "1", "--typical-prices", "--json")
    assert json.loads(shell(*few)[1])["price_per_hour"] > 0


def test_a_file_of_no_kind_that_is_shown_is_not_taken_for_a_network(refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.txt").write_text("a plan")
    refuses("wanted a plan, a trace or a topology", "show", "plan.txt")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", LONG),
        ("show", f"{LONG}.json"),
        ("plan", "lecture-hall", "--job", LONG),
        ("plan", "lecture-hall", "--job", f"{LONG}.yaml"),
        ("plan", "lecture-hall", "--job", "tiny", "--set", f"model={LONG}"),
        ("simulate", "--sweep", f"{LONG}.json", "--vary", "bandwidth=1"),
        ("compare", LONG, LONG),
    ],
    ids=" ".join,
)
def test_a_name_too_long_for_a_file_is_refused_as_any_other(refuses, arguments):
    refuses(LONG[:50], *arguments)


@pytest.mark.parametrize(
    ("key", "alone"),
    [("stages", [["ada", "alan"], ["barbara", 3]]), ("rank_map", [0, 1, 2, 3, None, None, None, None])],
)
def test_a_placement_may_be_a_list_alone(shell, refuses, tmp_path, key, alone):
    file, told = tmp_path / "placement.json", []
    for held in (alone, {key: alone}):
        file.write_text(json.dumps(held))
        told.append(shell("evaluate", "lecture-hall", "--job", "tiny", "--placement", str(file), "--stages", "2"))
    assert told[0] == told[1]
    assert told[0][0] == 0
    for wrong in (3, {"list": 3}, ["ada"], {}):
        file.write_text(json.dumps(wrong))
        refuses("wanted", "evaluate", "lecture-hall", "--job", "tiny", "--placement", str(file))


@pytest.mark.parametrize("field", ["gradient_compression", "flush_every"])
def test_what_no_planner_chooses_is_not_left_to_it(refuses, field):
    refuses("'auto'", "plan", "lecture-hall", "--job", "tiny", "--steps", "1", "--set", f"{field}=auto")


def test_a_plan_that_cannot_be_simulated_says_why(prints, tells):
    uneven = ("--stages", "2", "--replicas", "2", "--batch", "20", "--microbatch", "2")
    how = ("--schedule", "interleaved-1f1b", "--objective", "communication", "--steps", "1")
    out = prints("plan", "lecture-hall", "--job", "tiny", *uneven, *how)
    assert "iteration not simulated: schedule interleaved-1f1b: 5 micro-batches on 2 devices do not divide" in out
    found = tells("plan", "lecture-hall", "--job", "tiny", *uneven, *how)
    assert (found["iteration_s"], "do not divide" in found["not_simulated"]) == (None, True)


def test_the_package_runs_as_the_command_does():
    done = subprocess.run([sys.executable, "-m", "dtfm_lab", "network"], capture_output=True, text=True, check=False)
    assert (done.returncode, "lecture-hall" in done.stdout, done.stderr) == (0, True, "")
