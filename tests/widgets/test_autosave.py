"""What is on the screen survives a restart of the kernel."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from loops import WAIT_S, until

from dtfm_lab.domain.errors import FileError
from dtfm_lab.widgets.shell import autosave
from dtfm_lab.widgets.shell.autosave import Autosave, autosave_path


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autosave, "DELAY_S", 0.02)


async def nothing(_path: Path) -> None:
    """What reads nothing."""


def saver(path: Path, text: str = "one", read=nothing, *, restores: bool = False) -> Autosave:
    return Autosave(path, lambda where: lambda: where.write_text(text), read, restores=restores)


async def written(path: Path) -> None:
    await until(lambda: path.exists() and path.read_text() != "")


async def idle() -> None:
    """Wait until nothing else is left on the event loop, so that nothing will be written."""
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_many_changes_in_a_row_are_written_once(tmp_path) -> None:
    writes = []
    kept = Autosave(tmp_path / "lab.json", lambda path: lambda: writes.append(path), nothing)
    for _ in range(5):
        kept.changed()
    await idle()
    assert writes == [tmp_path / "lab.json"]


async def test_the_next_lab_offers_what_was_kept_until_it_is_restored(tmp_path) -> None:
    path, seen = tmp_path / "new" / "lab.json", []
    first = saver(path)
    assert first.view.layout.display == "none", "nothing was kept yet"
    first.changed()
    await written(path)

    async def read(where: Path) -> None:
        seen.append(where.read_text())

    second = saver(path, read=read)
    assert second.view.layout.display == ""
    assert not path.exists(), "opening another lab overwrites nothing"
    third = saver(path, read=read)
    assert third.view.layout.display == "", "a lab that nobody touched leaves what was kept before"
    third.restore.click()
    await until(lambda: seen == ["one"] and third.view.layout.display == "none")
    second.forget.click()
    assert saver(path).view.layout.display == "none"


async def test_a_damaged_file_is_one_line_and_no_error(tmp_path) -> None:
    (tmp_path / "lab.json").write_text("{")

    async def read(path: Path) -> None:
        raise FileError(f"{path.name}: not <b>JSON</b>")

    kept = saver(tmp_path / "lab.json", read=read)
    kept.restore.click()
    await until(lambda: "JSON" in kept.view.children[0].value)
    assert "not &lt;b&gt;JSON" in kept.view.children[0].value, "a file writes no HTML into the page"
    assert not kept.restore.disabled


async def test_a_change_while_one_is_written_is_written_after_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(autosave, "DELAY_S", 0)  # a second write would begin within a few turns of the loop
    n_begun, ended, changed = 0, [], threading.Event()

    def write(_path: Path):
        nonlocal n_begun
        n_begun += 1

        def work() -> None:
            changed.wait(WAIT_S)
            ended.append(n_begun)

        return work

    kept = Autosave(tmp_path / "lab.json", write, nothing)
    kept.changed()
    await until(lambda: n_begun == 1)
    for _ in range(3):
        kept.changed()
        for _ in range(10):
            await asyncio.sleep(0)
    assert n_begun == 1, "two never write one file at once"
    changed.set()
    await idle()
    assert ended == [1, 2], "the last change is not lost"


async def test_nothing_is_offered_where_there_is_no_room_to_keep_it(tmp_path) -> None:
    (tmp_path / "file").write_text("no folder")
    kept = saver(tmp_path / "file" / "lab.json")
    kept.changed()
    await until(lambda: "autosave: " in kept.view.children[0].value)
    assert kept.view.children[0].value.count("autosave: ") == 1
    assert len(kept.view.children) == 1, "nothing to restore, nothing to forget"


def test_a_script_without_an_event_loop_writes_nothing(tmp_path) -> None:
    saver(tmp_path / "lab.json").changed()
    assert list(tmp_path.iterdir()) == []


def test_every_notebook_has_a_file_of_its_own(monkeypatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/one.ipynb")
    one = autosave_path()
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/two.ipynb")
    assert autosave_path() != one


def test_every_visitor_of_a_page_has_a_file_of_their_own(tmp_path) -> None:
    ada, alan = (autosave_path(tmp_path, visitor) for visitor in ("ada", "../alan"))
    assert ada != alan
    assert ada == autosave_path(tmp_path, "ada"), "after a reload"
    assert {ada.parent, alan.parent} == {tmp_path}


async def test_what_a_visitor_left_is_put_back_at_once(tmp_path) -> None:
    seen = []

    async def read(where: Path) -> None:
        seen.append(where.read_text())

    first = Autosave(None, lambda where: lambda: where.write_text("one"), read)
    first.changed()
    assert list(tmp_path.iterdir()) == [], "nobody knows yet whose it is"
    first.keep_in(tmp_path / "lab.json", restores=True)
    first.changed()
    await written(tmp_path / "lab.json")
    second = saver(tmp_path / "lab.json", read=read, restores=True)
    await until(lambda: seen == ["one"])
    assert second.view.layout.display == "none", "there is nothing to ask"


def test_what_was_not_written_yet_is_written_when_the_kernel_ends(tmp_path) -> None:
    script = f"""
import asyncio, pathlib
from dtfm_lab.widgets.shell.autosave import Autosave
async def work():
    kept = Autosave(pathlib.Path({str(tmp_path / "lab.json")!r}), lambda path: lambda: path.write_text("one"), None)
    kept.changed()
    await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.run_until_complete(work())
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert (tmp_path / "lab.json").read_text() == "one"
