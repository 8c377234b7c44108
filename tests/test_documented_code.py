"""Every line of code in the documentation runs: Python blocks with shorter searches, and shell lines as the command
line parses them; those that cost little are run, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import dtfm_lab as lab
from dtfm_lab.cli import cli
from tools import reference_pages
from tools.website.examples import examples_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
TESTED_ELSEWHERE = {
    "compare-systems.md": "tests/test_questions.py",
    "python-api.md": "tests/test_site.py",
}
SHORTER = [(r"\bseconds=\d+", "steps=1"), (r"\brepeats=\d+", "repeats=2"), (r"\biterations=\d+", "iterations=2")]
"""What makes searches and runs shorter than a reader's: pattern -> replacement."""
ALSO = {
    "README.md": [(r'strategies\("lecture-hall"', "strategies(plan.topology.subset(range(4))")],
    "devices-that-come-and-go.md": [
        (r'"worldwide", "gpt3-xl", seconds=2', '"lecture-hall", "tiny", steps=1'),
        (r'"Tokyo-3"', '"ada"'),
        (r'"bamboo-g4dn", "goodput"', 'lab.load_availability("bamboo-g4dn").until(4 * 3600), "goodput"'),
        (r'"gpt2-small", dtype="fp16"', '"tiny", n_stages=None, n_replicas=None, dtype="fp16"'),
        (r"time_scale=0.1", "time_scale=0.003"),
        (r"48 \* 3600", "8 * 3600"),
        (r"s in \(1, 2, 4, 8\)", "s in (2, 4)"),
        (r"for name in cards.names\]", "for name in cards.names[:2]]"),
        (r"values=\(0.25, 16, 4\)", "values=(0.25, 16, 2)"),
    ],
    "extend.md": [
        (r'Client\("tcp://scheduler:8786"\)', "Client(processes=False, n_workers=1, dashboard_address=None)"),
        (r"steps=20", "steps=1"),
    ],
    "how-a-plan-is-found.md": [
        (r'"mixed-gpus", "gpt3-xl"', 'lab.load_topology("mixed-gpus").subset([0, 8, 16, 24]), "gpt2-small"'),
        (r"seconds=20", "steps=1, searches=2"),
        (r"256, 512, 1024\]", "256], steps=1, searches=2"),
    ],
    "how-an-iteration-is-predicted.md": [
        (r'"worldwide", "gpt3-xl", systems', '"lecture-hall", "tiny", steps=1, systems')
    ],
    "how-far-to-trust-it.md": [
        (r"reproduce\(\)", 'reproduce("sailor")'),
        (r'clock="virtual"\), \.\.\.\]', "iterations=2)]"),
    ],
    "own-machines.md": [(r'"llama-3-8b", global_batch=32, seq_len=2048, adapters=16', '"tiny"')],
    "run-for-real.md": [
        (r"\biterations=20", "iterations= 6"),  # the blank keeps it from SHORTER: it waits for the third
        (r'"lecture-hall", "tiny", systems=asked, steps=5', 'four, "tiny", systems=asked, steps=1'),
    ],
}
"""What else is shortened on a page."""
BEFORE = {
    "how-far-to-trust-it.md": """
        plan, other = (lab.plan("lecture-hall", "tiny", steps=1, seed=seed) for seed in (0, 1))
        import numpy as np
        cluster = lab.Topology.from_matrices(np.full((8, 8), 0.1), np.full((8, 8), 100.0), gpu=["A100"] * 8)
        lab.save(cluster, "cluster.yaml")
        __import__("pathlib").Path("mine.csv").write_text(CSV)
    """,
    "teach.md": """
        display = repr
        lab.guess("example", "How long?", 49.5, "s").guess(12)
        lab.missions.export("handed-in")
    """,
}
"""What a reader of a page has before its first line."""
CHEAP = ("topologies", "show --schema", "show --schedule", "strategies --list")
"""Commands of which every documented line is run, as are all those of QUICK."""
QUICK = [
    "plan lecture-hall --job tiny -o plan.json",
    "simulate plan.json --schedule adaptive-1f1b --chrome trace.json",
    "explain plan.json --device ada",
    "explain --sensitivity plan.json",
    "simulate --sweep plan.json --vary schedule=gpipe,1f1b --vary bandwidth=0.5,1,2",
    "simulate --hours lecture-hall --job small --availability bamboo-p3 --policy restart --policy goodput",
    "explain --worth plan.json",
    "export plan.json -o run",
    "export plan.json -o megatron --to megatron --to slurm",
    "export plan.json -o own --to kubernetes",
]
"""Documented lines that are run one after the other, in one folder."""


def blocks(page: Path) -> list[str]:
    return PYTHON.findall(page.read_text())


API = ROOT / "docs" / "python-api.md"


def test_every_public_name_has_an_example_that_uses_it() -> None:
    by_name = dict(examples_of(API.read_text()))
    assert [name for name in lab.__all__ if f"lab.{name}" not in by_name.get(name, "")] == []


def test_every_figure_has_an_example_that_uses_it() -> None:
    by_name = dict(examples_of(API.read_text()))
    names = lab.figures.__all__
    assert [name for name in names if f"lab.figures.{name}(" not in by_name.get(f"figures.{name}", "")] == []


def test_the_site_runs_every_example() -> None:
    """Its build, in tests/test_site.py, executes them one after the other, and ends where one of them fails."""
    assert [code for _, code in examples_of(API.read_text())] == blocks(API)


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_reference_page_says_what_the_code_says(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert reference_pages.PAGES[name](page) == page, "python tools/reference_pages.py writes it"


WITH_CODE = [page for page in PAGES if page.name not in TESTED_ELSEWHERE and blocks(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_every_block_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one namespace and an empty folder, one after the other, as a reader would run them."""
    monkeypatch.chdir(tmp_path)
    csv = re.findall(r"```csv\n(.*?)```", page.read_text(), re.DOTALL)
    names: dict[str, Any] = {"lab": lab, "CSV": "".join(csv)}
    run(re.sub(r"^ {8}", "", BEFORE.get(page.name, ""), flags=re.MULTILINE), names, "before")
    for code in blocks(page):
        for pattern, shorter in (*ALSO.get(page.name, ()), *SHORTER):
            code = re.sub(pattern, shorter, code)
        run(code, names, page.name)


def run(code: str, names: dict[str, Any], where: str) -> None:
    try:
        exec(compile(code, where, "exec"), names)
    except Exception as error:
        raise AssertionError(f"{where}: {error!r} in\n{code}") from error


def shell_lines(page: Path) -> Iterator[list[str]]:
    """The arguments of every line of ``dtfm-lab`` in a page's shell blocks."""
    for block in SHELL.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            starts = [0, *(i + 1 for i, word in enumerate(words) if word in (";", "&&", "|"))]
            for start, end in zip(starts, [*(s - 1 for s in starts[1:]), len(words)], strict=True):
                command = words[start:end]
                if command[:1] == ["dtfm-lab"]:
                    yield command[1:]


ALL_LINES = [(page.name, arguments) for page in PAGES for arguments in shell_lines(page)]


@pytest.mark.parametrize(("page", "arguments"), ALL_LINES, ids=lambda each: each if isinstance(each, str) else each[0])
def test_every_shell_line_is_one_that_the_command_line_takes(page: str, arguments: list[str]) -> None:
    """As click parses it, down to the options of the command; nothing is run."""
    try:
        top = cli.make_context("dtfm-lab", list(arguments))
        name, command, rest = cli.resolve_command(top, [*top._protected_args, *top.args])
        assert command is not None
        command.make_context(name, rest, parent=top)
    except click.exceptions.Exit:  # --help
        return


CHEAP_LINES = [a for _, a in ALL_LINES if " ".join(a).startswith(CHEAP)]


@pytest.mark.parametrize("arguments", CHEAP_LINES, ids=" ".join)
def test_shell_lines_that_cost_little_run(arguments: list[str], shell) -> None:
    status, _, error = shell(*arguments)
    assert status == 0, error


@pytest.mark.slow
def test_shell_lines_about_one_plan_run_one_after_the_other(shell) -> None:
    documented = [" ".join(arguments) for _, arguments in ALL_LINES]
    for line in QUICK:
        assert line in documented, f"no page has {line}"
        status, _, error = shell(*line.split())
        assert status == 0, f"{line}: {error}"
