"""The core is whole without its extensions, and every extension without those that it does not need."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dtfm_lab.domain.extension import OURS, extensions

ROOT = Path(__file__).parents[1]
EXTENSIONS = {name: one for name, one in extensions().items() if (ROOT / "dtfm_lab" / "extensions" / name).is_dir()}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not EXTENSIONS, reason="there is no extension to leave out"),
]

NAMED = {
    "advice": r"advis(e|es|ing)",
    "course": r"missions?|lessons?|slides",
    "elasticity": r"replay(s|ed)?|availabilit(y|ies)|polic(y|ies)|histor(y|ies)",
    "hosts": r"run folders?|rendezvous",
    "machines": r"probes?|ssh|iperf3?",
    "proofs": r"or-?tools|planner exact",
    "published": r"reproduces?|ledger|published rows?",
    "systems": r"strateg(y|ies)|training systems?|waterfalls?",
}
"""Words of which an extension alone speaks: without it, no text that a person reads has them."""

USED = """
import asyncio
import re
import sys
import click
import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.cli import doctor
from dtfm_lab.cli.options import cli
from ipywidgets import Layout, Widget

gone_names, gone_commands, gone_panes, gone_former = {gone!r}
plan = lab.plan("lecture-hall", "tiny", steps=1)
assert lab.simulate(plan).iteration_s > 0
assert lab.evaluate(plan.topology, plan.job, rank_map=plan.rank_map).iteration_s == plan.iteration_s

texts = {{name: getattr(lab, name).__doc__ or "" for name in lab.__all__}}
texts |= {{f"figures.{{name}}": getattr(figures, name).__doc__ or "" for name in figures.__all__}}
context = click.Context(cli, info_name="dtfm-lab")
texts["dtfm-lab"] = cli.get_help(context)
for name in cli.known:
    texts[f"dtfm-lab {{name}}"] = cli.imported(name).get_help(click.Context(cli.imported(name), info_name=name))
assert not set(gone_names) & {{*dir(lab), *dir(lab.lab)}}, set(gone_names) & set(dir(lab))
assert not set(gone_commands) & cli.known

async def opened():
    the_lab = lab.Lab(plan, autosave=False, live=False)
    the_lab.lab_state.predicted = lab.simulate(plan)
    for step in the_lab.steps:
        the_lab.show_pane(step.name)
        if tasks := asyncio.all_tasks() - {{asyncio.current_task()}}:
            await asyncio.wait(tasks, timeout=60)
    return the_lab

the_lab = asyncio.run(opened())
panes = [step.name for step in the_lab.steps]
own = ["schedule", "groups", "plan", "what-if", "worth", "run", "compare", "words"]
assert [name for name in panes if name in own] == own
assert all(step.tab or step.title for step in the_lab.steps)
assert not set(gone_panes) & set(panes)
texts["panes"] = " ".join(step.title for step in the_lab.steps)
shown, seen = [the_lab, *(panel.view for panel in the_lab.panels.values() if hasattr(panel, "view"))], []
while shown:
    match shown.pop():
        case Layout():
            pass
        case Widget() as widget if widget not in seen:
            seen.append(widget)
            traits = set(widget.trait_names()) - set(Widget.class_trait_names())
            shown += [getattr(widget, name) for name in traits if name[0] != "_" or name == "_options_labels"]
        case str(text):
            texts.setdefault("widgets", "")
            texts["widgets"] += " | " + re.sub("<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)
        case dict(held):
            shown += [*held, *held.values()]
        case list(held) | tuple(held):
            shown += held
assert len(seen) > 100 and "Micro-batch" in texts["widgets"]
doctor.probed_libraries = lambda: dict(torch=None, cupy=None)  # no extension's: to load them takes seconds
texts["doctor"] = str(doctor.described(doctor.doctor_facts()))
texts["planners"] = repr(lab.planners)
for name in gone_former:
    try:
        getattr(lab, name)
    except AttributeError as error:
        assert str(error) == f"module 'dtfm_lab' has no attribute {{name!r}}"
    else:
        raise AssertionError(name)

said = [f"lab.{{name}}" for name in gone_names] + [f"dtfm-lab {{name}}" for name in gone_commands]
found = []
for where, text in texts.items():
    words = " ".join(text.split())
    for each in said:
        at = words.find(each)
        found += [] if at < 0 or words[at + len(each) :][:1].isalnum() else [(where, each)]
    for named in re.finditer({named!r}, words, re.IGNORECASE):
        found.append((where, words[max(0, named.start() - 40) : named.end() + 40]))
assert not found, found
assert not [name for name in sys.modules if name.startswith("dtfm_lab.extensions.")] or {some!r}
print("whole")
"""


def test_the_core_is_whole_without_the_extensions(tmp_path: Path) -> None:
    use_without(set(EXTENSIONS), tmp_path)


@pytest.mark.parametrize("name", sorted(EXTENSIONS))
def test_the_rest_is_whole_without_one_extension_and_those_that_need_it(name: str, tmp_path: Path) -> None:
    without = {name}
    while more := {other for other, one in EXTENSIONS.items() if set(one.needs) & without} - without:
        without |= more
    use_without(without, tmp_path)


def use_without(without: set[str], folder: Path) -> None:
    """Use what is left in a process that finds a copy of the package first."""
    copy_without(without, folder)
    left = [EXTENSIONS[name] for name in EXTENSIONS.keys() - without]
    kept = {name for one in left for name in (*one.api, *one.commands, *one.panes)}
    lost = [EXTENSIONS[name] for name in without]
    gone = [sorted({name for one in lost for name in getattr(one, kind)} - kept) for kind in KINDS]
    gone.append(sorted({name for one in lost for name in (*one.moved, *one.went)}))
    named = "|".join(rf"\b({NAMED[name]})\b" for name in sorted(without) if name in NAMED)
    code = USED.format(gone=gone, some=bool(left), named=named)
    environment = os.environ | {"PYTHONPATH": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment)
    assert (ran.returncode, ran.stdout.split()[-1:]) == (0, ["whole"]), ran.stderr
    assert "extension" not in ran.stderr


KINDS = ("api", "commands", "panes")


def copy_without(without: set[str], folder: Path) -> None:
    """Copy the package without some extensions, with what an installer says of it: the entry points that are left."""
    leave = {ROOT / "dtfm_lab" / "extensions" / name for name in without}
    if without == set(EXTENSIONS):
        leave = {ROOT / "dtfm_lab" / "extensions"}

    def ignored(at: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(at) / name in leave}

    shutil.copytree(ROOT / "dtfm_lab", folder / "dtfm_lab", ignore=ignored, copy_function=linked)
    take_kernels(folder / "dtfm_lab")
    for name in ("topologies", "notebooks", "docs"):
        (folder / name).symlink_to(ROOT / name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [f"[console_scripts]\ndtfm-lab = {project['scripts']['dtfm-lab']}"]
    for group, points in project["entry-points"].items():
        stay = {name: place for name, place in points.items() if not _is_of(place, without)}
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in stay.items())]
    metadata = folder / f"dtfm_lab-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dtfm_lab\nVersion: {project['version']}\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def linked(source: str, target: str) -> None:
    """Link a file, for a hundred megabytes of machine code are in the package; between two disks copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def take_kernels(package: Path) -> None:
    """Let the copied machine code of kernels be found: numba keeps it under a digest of the sources' folder."""
    for folder in package.glob("**/__pycache__/kernels-*"):
        sources = folder.parents[1]
        was, now = (folder / _digest(each) for each in (ROOT / "dtfm_lab" / sources.relative_to(package), sources))
        if was.exists():
            was.rename(now)


def _digest(sources: Path) -> str:
    return f"{sources.name}_{hashlib.sha1(str(sources).encode(), usedforsecurity=False).hexdigest()}"


def _is_of(place: str, without: set[str]) -> bool:
    """Whether an entry point leads into one of these extensions."""
    module = place.partition(":")[0].removeprefix(f"{OURS}extensions.")
    return module.partition(".")[0] in without
