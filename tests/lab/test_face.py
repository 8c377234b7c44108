"""The names of ``dtfm_lab`` and their keywords: complete, typed, and refused by name."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.extension import offered
from dtfm_lab.domain.job import Job, JobChanges
from dtfm_lab.domain.options import options_of
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.lab.arguments import FrontierOptions, SimulationOptions, SpreadOptions
from dtfm_lab.planning import draws
from dtfm_lab.runtime.protocol.run_options import RunOptions

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import keywords
from type_checked import refused_lines

PLAN = lab.plan("lecture-hall", "tiny", steps=1)
FORMER = {**read_mapping(Path(lab.lab.__file__).with_name("former_names.yaml"))["went"], **offered("went")}
MOVED = offered("moved")


HEAVY = {"IPython", "asyncio", "cupy", "ipywidgets", "loky", "networkx", "numba", "ortools", "plotly", "ssl", "torch"}
HEAVY |= {"dtfm_lab.files", "dtfm_lab.planning", "dtfm_lab.simulation.engine", "importlib.metadata"}
HEAVY |= {"pandas", "scipy.special"}
"""What takes a while to load, and is loaded by what needs it."""


def test_importing_the_lab_loads_nothing_heavy() -> None:
    command = [sys.executable, "-c", "import sys, dtfm_lab; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & set(loaded)


@pytest.fixture(scope="module")
def completions() -> Iterator[object]:
    """What Tab offers in IPython, where jedi does not run code."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.user_ns.update(lab=lab, plan=PLAN)

    def offered(text: str) -> set[str]:
        provisional = pytest.importorskip("IPython.core.completer").provisionalcompleter
        with provisional():
            return {each.text.split(".")[-1] for each in shell.Completer.completions(text, len(text))}

    return offered


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lab.run(plan, eval", {"evaluate_every="}),
        ("lab.start(plan, stand", {"stand_in="}),
        ('lab.load_job("tiny", micro', {"microbatch="}),
        ("lab.with_job(plan, gradient_c", {"gradient_compression="}),
        ("lab.plan('lecture-hall', plan", {"planner="}),
        ("lab.simulate(plan, queue", {"queueing="}),
        ("lab.sweep(plan, stages_p", {"stages_per_device="}),
        ("lab.fig", {"figures"}),
        ("lab.La", {"Lab", "LabError"}),
        ("lab.plann", {"planners"}),
    ],
)
def test_tab_completes_names_and_keywords(completions, text: str, wanted: set[str]) -> None:
    assert wanted <= completions(text)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: lab.run(PLAN, iteratons=3), "no option named 'iteratons'; did you mean 'iterations'"),
        (lambda: lab.start(PLAN, clok="real"), "no option named 'clok'; did you mean 'clock'"),
        (lambda: lab.plan("lecture-hall", sed=3), "no option named 'sed'; did you mean 'seed'"),
        (lambda: lab.simulate(PLAN, queuing="nics"), "no option named 'queuing'; did you mean 'queueing'"),
        (lambda: lab.explain(PLAN).sensitivity(facto=2), "no option named 'facto'; did you mean 'factor'"),
        (lambda: lab.sweep(PLAN, latncy=1), "no setting of a sweep named 'latncy'; did you mean 'latency'"),
        (lambda: lab.sweep(PLAN, repeat=2), "no setting of a sweep named 'repeat'; did you mean 'repeats'"),
        (lambda: lab.load_job("tiny", recomput=True), "no job field named 'recomput'; did you mean 'recompute'"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_one(call, says: str) -> None:
    with pytest.raises(lab.LabError, match="^" + re.escape(says)):
        call()


def test_every_public_name_is_there_and_listed() -> None:
    assert set(lab.__all__) <= set(dir(lab))
    for name in lab.__all__:
        assert getattr(lab, name) is not None


def test_names_loaded_when_used_stay_functions_whatever_was_imported() -> None:
    assert callable(lab.compare)
    assert set(lab.lab.HOMES) < set(lab.__all__)
    assert inspect.signature(lab.compare).parameters["draws"].default == draws.DRAWS


@pytest.mark.parametrize("name", sorted(FORMER))
def test_a_name_that_went_says_what_to_use_instead(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"lab\.{name} went; use {re.escape(FORMER[name])}$"):
        getattr(lab, name)


@pytest.mark.parametrize("name", sorted(MOVED))
def test_a_name_that_moved_still_works_and_says_where_it_is(name: str) -> None:
    with pytest.warns(FutureWarning, match=rf"lab\.{name} is lab\.{re.escape(MOVED[name])} now"):
        assert getattr(lab, name) is attrgetter(MOVED[name])(lab)


@pytest.mark.parametrize("text", [*FORMER.values(), *(f"lab.{place}" for place in MOVED.values())])
def test_what_is_to_be_used_instead_is_there(text: str) -> None:
    for name in re.findall(r"\blab\.(\w+)", text):
        assert hasattr(lab, name), text


def test_save_writes_by_the_kind_and_the_ending(tmp_path: Path) -> None:
    trace = lab.simulate(PLAN)
    kept = lab.save(PLAN, tmp_path / "plan.json"), lab.save(PLAN.job, tmp_path / "job.yaml")
    assert (lab.load_plan(kept[0]).stages, lab.load_job(kept[1])) == (PLAN.stages, PLAN.job)
    assert lab.load_topology(lab.save(PLAN.topology, tmp_path / "net.npz")).names == PLAN.topology.names
    assert lab.load_trace(lab.save(trace, tmp_path / "trace.json")).iteration_s == trace.iteration_s
    assert "traceEvents" in json.loads(lab.save(trace, tmp_path / "trace.chrome.json").read_text())
    with pytest.raises(lab.LabError, match="the trace holds no losses"):
        lab.save(trace, tmp_path / "losses.csv")


@pytest.mark.parametrize(
    ("thing", "name", "says"),
    [
        (PLAN, "plan.yaml", r"plan\.yaml: ends in \.yaml; wanted a plan as \.json"),
        (PLAN.job, "job", r"job: ends in nothing; wanted a job as \.yaml or \.yml"),
        (3, "three.json", r"three\.json: the thing to save is 3; wanted one of Topology, Schedule, Job, Plan, Trace"),
    ],
)
def test_save_refuses_what_it_cannot_write(thing, name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(lab.LabError, match=says):
        lab.save(thing, tmp_path / name)


def test_every_option_of_a_job_and_of_a_run_is_a_keyword() -> None:
    for function, kind in ((lab.load_job, JobChanges), (lab.with_job, JobChanges), (lab.start, RunOptions)):
        named = inspect.signature(function).parameters
        assert {option.name for option in options_of(kind)} <= set(named)
    assert {option.name for option in options_of(Job)} <= {option.name for option in options_of(JobChanges)}


@pytest.mark.parametrize("kind", [JobChanges, RunOptions, SpreadOptions, FrontierOptions, SimulationOptions])
def test_every_option_has_a_help_from_its_annotation_or_from_the_text_below_its_field(kind: type) -> None:
    for option in options_of(kind):
        assert option.help.endswith("."), option.name
        assert "\n" not in option.help


def test_registries_list_what_they_hold_with_a_line_each() -> None:
    assert "1f1b" in lab.schedules
    assert len(lab.schedules) == len(list(lab.schedules))
    lines = repr(lab.planners).splitlines()
    assert [line.split()[0] for line in lines] == list(lab.planners)
    assert all(len(line.split()) > 3 for line in lines)


TYPED = """
import dtfm_lab as lab
job = lab.load_job("tiny", microbatch=2, model="tiny")
plan = lab.plan("lecture-hall", job, seed=1)
lab.simulate(plan, "1f1b", queueing="nics").iteration_s
lab.sweep(plan, schedule=["gpipe", "1f1b"], microbatch=2)
lab.frontier(plan.topology, progress=print, batches=[8])
lab.load_job("tiny", microbtch=2)  # refused
lab.load_job("tiny", n_stages="many")  # refused
lab.plan("lecture-hall", job, planner=3)  # refused
lab.search("lecture-hall", job, spread=0.3)  # refused
lab.run(plan, iteratons=2)  # refused
lab.sweep(plan, bandwith=[1, 2])  # refused
"""


def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    assert refused_lines(TYPED, tmp_path) == [n for n, line in enumerate(TYPED.splitlines(), 1) if "refused" in line]


def test_keyword_types_are_what_the_options_declare() -> None:
    for path in keywords.paths():
        assert path.read_text(encoding="utf-8") == keywords.text(path), "run python tools/keywords.py"


def test_no_public_function_hides_its_keywords() -> None:
    for name in lab.lab.__all__:
        function = inspect.unwrap(getattr(lab, name))
        if inspect.isfunction(function):
            rest = [p for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]
            assert all("Keywords" in str(one.annotation) for one in rest), name
