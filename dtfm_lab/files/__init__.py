"""Read and write topologies, jobs, models, schedules, plans, traces, workspaces and sweep rows. All formats are
versioned and validated."""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError, MissingExtra
from dtfm_lab.domain.extension import load, offered
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.jobs import job_names, load_job, override, save_job
from dtfm_lab.files.models import load_model
from dtfm_lab.files.plans import load_plan, plan_from_mapping, plan_to_mapping, save_plan
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.files.schedules import load_schedule, save_schedule
from dtfm_lab.files.sweep_rows import SweepRows
from dtfm_lab.files.topologies import load_topology, save_topology, topology_names, topology_suffixes
from dtfm_lab.files.topology_writing import topology_to_mapping
from dtfm_lab.files.topology_yaml import topology_from_mapping
from dtfm_lab.files.traces import load_trace, save_chrome_trace, save_losses, save_trace, trace_from_mapping

Writer = Callable[[Any, Path], Path]


def save_page(plan: Plan, path: Path) -> Path:
    """Write a plan as an HTML page that works without Python. Raises MissingExtra without the packages that widgets
    need.

    The page is made of widgets, which this package must not import before they are needed.
    """
    if find_spec("anywidget") is None:
        raise MissingExtra(f"{path.name} needs anywidget, which is not installed: pip install 'dtfm_lab[lab]'")
    written: Path = import_module("dtfm_lab.widgets.shell.still_page").save_page(plan, path)
    return written


WRITERS: dict[type, dict[str, Writer]] = {
    Topology: {"": save_topology},
    Schedule: {"": save_schedule},
    Job: {".yaml": save_job, ".yml": save_job},
    Plan: {".json": save_plan, ".html": save_page},
    Trace: {".chrome.json": save_chrome_trace, ".json": save_trace, ".csv": save_losses},
}
"""For each class that can be saved, its writers by path suffix. The first match wins. A writer under "" takes every
suffix and refuses those that it cannot write."""


def save(thing: Topology | Job | Plan | Schedule | Trace | Any, path: str | os.PathLike[str]) -> Path:
    """Write a network, job, plan, schedule or trace (or an extension's noun) to a file, all or nothing.

    The suffix decides the format:

    - network: .yaml, .json, .npz or .csv
    - job: .yaml
    - schedule: .txt, or .csv in torch's format
    - plan: .json, or .html for a page with map, Gantt chart and player that needs neither Python nor a network
      connection
    - trace: .json, .chrome.json for ui.perfetto.dev, or .csv for its losses

    Returns the path. Raises FileError for any other suffix or thing, or if the file cannot be written. Raises
    MissingExtra for .html without the packages that widgets need, and TraceError for a trace that the format cannot
    hold: without losses as .csv, or of more than 104 days as .chrome.json.
    """
    path = Path(path)
    writers = next((each for noun, each in WRITERS.items() if isinstance(thing, noun)), None)
    if writers is None:
        writers = _of_extensions(thing)
    if not writers:
        nouns = ", ".join(noun.__name__ for noun in WRITERS)
        raise FileError(f"{path}: the thing to save is {shortened(thing)}; wanted one of {nouns}")
    for ending, write in writers.items():
        if path.name.lower().endswith(ending):
            return write(thing, path)
    kind = type(thing).__name__.lower()
    article = "an" if kind[0] in "aeiou" else "a"
    raise FileError(f"{path}: ends in {path.suffix or 'nothing'}; wanted {article} {kind} as {' or '.join(writers)}")


def _of_extensions(thing: Any) -> dict[str, Writer]:
    """Return the writers that extensions provide for a noun, by path suffix."""
    noun = f"{type(thing).__name__}."
    places = {key.removeprefix(noun): place for key, place in offered("writers").items() if key.startswith(noun)}
    return {f".{ending}": load(place) for ending, place in places.items()}
