"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from dtfm_lab import cli
from dtfm_lab.domain.errors import LabError

# A shell starts background jobs with SIGINT ignored. Tests that interrupt a search or a run need the usual handling,
# which processes that they start inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine an example may take any time. Where a law says nothing else, it is tried on so many.
settings.register_profile("any time", deadline=None, max_examples=20)
settings.load_profile("any time")

# Modules and tests are there until the end: whoever looks for garbage need not walk through millions of their objects.
gc.disable()

Shell = Callable[..., tuple[int, str, str]]

LONG = "test_core_alone.py", "test_documented_code.py", "test_site.py"
"""Files with single tests of a minute. They begin first: at the end they would keep one process busy and the others
waiting."""

TWO_LINES: list[str] = []
"""What errors of the lab said that were made in this process, if it was more than a line."""


def _listen(error: LabError, *told: object) -> None:
    Exception.__init__(error, *told)
    if "\n" in str(error):
        TWO_LINES.append(str(error))


LabError.__init__ = _listen  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def every_error_is_one_line() -> Iterator[None]:
    """A user's mistake is one line, whichever test makes it and wherever it is caught."""
    TWO_LINES.clear()
    yield
    assert TWO_LINES == []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, with the fixtures that it names, on an event loop of its own."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests of long files before all others. Those of a file stay together, so that they share what it makes."""
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage only among what tests make, and more rarely than programs do: it is a quarter of their time.

    Lessons are run by forks of a kernel. One that imports the lab itself is in tests/test_notebook_files.py.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    if any(item.path.suffix == ".ipynb" for item in session.items):
        sys.path.append(str(Path(__file__).with_name("browser")))
        import kernel_forks

        kernel_forks.provide("LessonsKernel")


@pytest.fixture(autouse=True, scope="session")
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Labs save themselves in a temporary folder, never in the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def own_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the progress of whoever runs it."""
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path / "progress"))
    monkeypatch.setenv("DTFM_LAB_READER", "ada")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """``shell("plan", "worldwide")`` is (exit status, stdout, stderr), in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it, and tables would be folded

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dtfm-lab", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def prints(shell: Shell) -> Callable[..., str]:
    """``prints("show", "plan.json")`` is what the command writes on standard output; it holds it to exit status 0."""

    def succeed(*arguments: str) -> str:
        status, out, err = shell(*arguments)
        assert status == 0, err
        return out

    return succeed


@pytest.fixture
def tells(shell: Shell) -> Callable[..., Any]:
    """``tells("plan", "worldwide")`` is what the command says with --json, and nothing beside it."""

    def tell(*arguments: str) -> Any:
        status, out, err = shell(*arguments, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    return tell


@pytest.fixture
def refuses(shell: Shell) -> Callable[..., str]:
    """``refuses("wanted", "plan")`` holds a user's mistake to exit status 2 and one line on standard error, which says
    so and is returned; nothing is on standard output."""

    def refuse(says: str, *arguments: str) -> str:
        status, out, line = shell(*arguments)
        assert (status, out, len(line.strip().splitlines())) == (2, "", 1), line
        assert line.startswith("dtfm-lab: ")
        assert says in line
        return line

    return refuse
