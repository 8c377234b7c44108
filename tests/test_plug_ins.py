"""A package of one's own adds planners, schedules, formats, networks, models, jobs and systems by entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
Python = Callable[[str], "subprocess.CompletedProcess[str]"]
SHELL = """
import contextlib, io, json, sys
from dtfm_lab.cli import main

def shell(*arguments):
    sys.argv = ["dtfm-lab", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            main()
        except SystemExit as left:
            assert not left.code, arguments
    return said.getvalue()
"""


def installed(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """What an installer leaves of a package beside its modules."""
    metadata = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {value}" for point, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder on the import path where the example is installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    for module in EXAMPLE.glob("*.py"):
        shutil.copy(module, folder)
    shutil.copytree(EXAMPLE / "dtfm_lab_neighbours", folder / "dtfm_lab_neighbours")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    installed(folder, project["name"], project["entry-points"])
    return folder


@pytest.fixture
def python(site: Path, tmp_path: Path) -> Python:
    """Runs code in a process of its own, in an empty folder, with the example on the import path."""
    work = tmp_path / "work"
    work.mkdir()

    def run(code: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, cwd=work, env=environment, check=False)

    return run


def test_the_api_the_lab_and_the_command_line_know_a_plug_in_by_its_names(python: Python) -> None:
    pytest.importorskip("ipywidgets")
    ran = python(
        SHELL
        + """
import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.simulation.schedules import build_named
assert "ring-of-eight" in files.topology_names()
assert "file-order" in lab.planners and "by-latency" in lab.schedules
plan = lab.plan("ring-of-eight", "mlp-small", planner="file-order")
assert plan.planner == "file-order" and plan.job.model.family == "mlp"
trace = lab.simulate(plan, "by-latency")
assert trace.iteration_s == lab.simulate(plan, "1f1b").iteration_s
assert lab.memory(plan, "by-latency").fits
assert len(lab.sweep(plan, schedule=["gpipe", "by-latency"], executor="loky:2")) == 2
assert len(lab.load_topology(lab.save(plan.topology, "eight.ring"))) == 8
assert lab.load_plan(lab.save(plan, "plan.json")).job == plan.job
open("job.yaml", "w").write(
    "dtfm_job: 1\\nmodel: {family: mlp, n_layers: 4, width: 8}\\n"
    "n_stages: 2\\nn_replicas: 1\\nglobal_batch: 4\\nmicrobatch: 1\\n"
)
assert lab.load_job("job.yaml").model.n_blocks == 4
print(repr(lab.planners))
import ipywidgets
offered = set()
def look(widget):
    if isinstance(widget, ipywidgets.Dropdown):
        offered.update(str(each[0] if isinstance(each, tuple) else each) for each in widget.options)
    for child in getattr(widget, "children", ()):
        look(child)
the_lab = lab.Lab("ring-of-eight", autosave=False)
the_lab.show_pane("plan")
look(the_lab)
missing = {"ring-of-eight", "file-order", "by-latency", "mlp-small"} - offered
assert not missing, (missing, offered)
try:
    build_named("by-latency", 2, 2, {})
except lab.LabError as error:
    print(error)

named = [network["name"] for network in json.loads(shell("topologies", "--json"))["topologies"]]
assert "ring-of-eight" in named
assert "file-order" in shell("plan", "--help")
shell("plan", "ring-of-eight", "--job", "mlp-small", "--planner", "file-order", "-o", "again.json")
told = json.loads(shell("simulate", "again.json", "--schedule", "by-latency", "--json"))
assert told["schedule"] == "by-latency"
"""
    )
    assert ran.returncode == 0, ran.stderr
    assert "Devices in the order of the file, once." in ran.stdout
    assert "schedule by-latency needs plan; wanted it for a plan that is simulated or run" in ran.stdout


def test_a_system_of_a_plug_in_is_asked_beside_the_others(python: Python) -> None:
    pytest.importorskip("dtfm_lab.extensions.systems", reason="systems are compared by an extension")
    ran = python(
        SHELL
        + """
import dtfm_lab as lab
found = lab.strategies("ring-of-eight", "mlp-small", systems=["one-pipeline", "megatron"])
assert found["one-pipeline"].job.n_stages == 8
assert "one-pipeline" in lab.systems.strategies and found["one-pipeline"].iteration_s > 0
assert "one-pipeline" in shell("strategies", "--help")
asked = ("strategies", "ring-of-eight", "--job", "mlp-small", "--system", "one-pipeline", "--json")
told = json.loads(shell(*asked, "--assume", "one-pipeline.schedule=gpipe"))
assert {row["system"] for row in told["systems"]} == {"one-pipeline", "one-pipeline (schedule gpipe)"}
"""
    )
    assert ran.returncode == 0, ran.stderr


def test_a_broken_plug_in_is_one_warning_that_names_its_package(site: Path, python: Python) -> None:
    points = {"missing": "no_such_module:planner", "number": "math:pi", "random": "dtfm_lab_example:file_order"}
    installed(site, "careless", {"dtfm_lab.planners": points})
    ran = python("import dtfm_lab as lab; print(*lab.planners, lab.planners['random'].__module__)")
    assert ran.returncode == 0
    *names, module = ran.stdout.split()
    assert {"dtfm", "evolutionary", "file-order", "hybrid", "random"} <= set(names)
    assert not {"missing", "number"} & set(names)
    assert module == "dtfm_lab.planning.planners.random_search"
    warnings = ran.stderr.splitlines()
    assert len(warnings) == 3
    assert all(line.startswith("package careless: ") for line in warnings)
    assert "planner 'missing' cannot be loaded: ModuleNotFoundError" in ran.stderr


def test_an_extension_adds_a_name_a_command_and_a_pane(python: Python) -> None:
    pytest.importorskip("ipywidgets")
    ran = python("""
import sys
import dtfm_lab as lab
assert "nearest" in dir(lab) and "nearest" in lab.__all__ and "nearest" in dir(lab.lab)
from dtfm_lab.cli import main
from dtfm_lab.cli.options import cli
import click
print(cli.get_help(click.Context(cli)))
assert "dtfm_lab_neighbours" in sys.modules and "dtfm_lab_neighbours.nearest" not in sys.modules
ring = lab.load_topology("ring-of-eight")
print(lab.nearest(ring, ring.names[3]) == ring.names[2])

the_lab = lab.Lab(ring, autosave=False, live=False)
assert [step.name for step in the_lab.steps][-1] == "neighbours"
assert the_lab.panels["neighbours"].result(the_lab.lab_state) == "Select a device."
the_lab.show_pane("neighbours")
the_lab.lab_state.selected = (ring.names[0],)
the_lab.bar.refresh()
print(the_lab.bar.view.headline["lead"])

sys.argv = ["dtfm-lab", "nearest", "ring-of-eight", "nobody"]
main()
""")
    assert ran.returncode == 2, ran.stderr
    assert "nearest Say which device is nearest to DEVICE." in " ".join(ran.stdout.split())
    assert "True" in ran.stdout.splitlines()
    assert " is nearest to " in ran.stdout.splitlines()[-1]
    assert "dtfm-lab: no device 'nobody' with a neighbour; wanted one of " in ran.stderr


def test_an_extension_that_cannot_be_used_is_one_warning_and_the_rest_stands(site: Path, python: Python) -> None:
    (site / "careless.py").write_text(
        "from dtfm_lab.domain.extension import Extension\n"
        "broken = Extension(name='broken', panes={'broken': 'no_such_module:step'},"
        " commands={'broken': ('no_such_module:command', 'Never.')}, api={'broken': 'no_such_module'})\n"
        "lonely = Extension(name='lonely', needs=('nobody',), api={'lonely': 'math:pi'})\n"
        "after = Extension(name='after', needs=('lonely',), api={'after': 'math:pi'})\n"
    )
    points = {name: f"careless:{name}" for name in ("broken", "lonely", "after")} | {"number": "math:pi"}
    installed(site, "careless", {"dtfm_lab.extensions": points})
    ran = python("""
import sys
import dtfm_lab as lab
assert not {"lonely", "after"} & set(dir(lab))
try:
    lab.lonely
except AttributeError as error:
    print(error)
try:
    lab.broken
except ModuleNotFoundError as error:
    print(error)
from dtfm_lab.cli import main
sys.argv = ["dtfm-lab", "broken"]
main()
""")
    assert ran.returncode == 2
    assert ran.stdout.splitlines() == [
        "module 'dtfm_lab' has no attribute 'lonely'",
        "No module named 'no_such_module'",
    ]
    *warnings, last = ran.stderr.splitlines()
    assert sorted(warnings) == [
        "extension after is left out: it needs lonely",
        "extension lonely is left out: it needs nobody",
        "package careless: extension 'number' cannot be loaded: TypeError('math:pi is not an Extension')",
    ]
    assert last.startswith("dtfm-lab: the command broken cannot be loaded: ModuleNotFoundError")
