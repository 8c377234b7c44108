"""``dtfm-lab export``: what it delivers, and one line for what a user gets wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import dtfm_lab as lab


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    return str(lab.save(plan, tmp_path_factory.mktemp("plans") / "plan.json"))


def test_export_tells_each_hosts_line(prints, tells, refuses, plan_file):
    told = tells("export", plan_file, "-o", "run", "--schedule", "1f1b", "--per-host", "4")
    assert told["folder"] == "run"
    assert len(told["commands"]) == 2
    for name, line in told["commands"].items():
        assert line.endswith(f"dtfm_lab.extensions.hosts.hosted run --host {name}")
    assert "20 by default" not in " ".join(prints("export", "--help").split()), "the help says one default"
    refuses("an earlier run folder is there; wanted a new folder, or --force", "export", plan_file, "-o", "run")
    out = prints("export", plan_file, "-o", "run", "--force")
    assert "8 workers on 8 hosts; instructions are in run/README.md" in out
    assert Path("run/README.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--hosts", "none.yaml", "--per-host", "2"), "--hosts says which host runs what; wanted it without"),
        (("--per-host", "0"), "workers per host is 0; wanted 1 or more"),
    ],
)
def test_mistakes_of_an_export_are_one_line(refuses, plan_file, arguments, complaint):
    refuses(complaint, "export", plan_file, "-o", "run", *arguments)
    assert not Path("run").exists()


def test_a_plan_is_exported_as_a_page_by_its_ending(tells, refuses, plan_file):
    said = tells("export", plan_file, "-o", "plan.html", "--schedule", "1f1b")
    assert said == {"page": "plan.html", "bytes": Path("plan.html").stat().st_size}
    says = "--per-host is only for run folders; wanted other.html without it"
    refuses(says, "export", plan_file, "-o", "other.html", "--per-host", "2")
    assert not Path("other.html").exists()


def test_a_folder_of_something_else_is_left_alone(refuses, plan_file):
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("mine")
    refuses("mine: holds other files; wanted a new folder", "export", plan_file, "-o", "mine")
