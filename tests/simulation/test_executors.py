"""Sweeps through executors: equal rows wherever they are computed, interrupted or not; lost workers; refusals."""

from __future__ import annotations

import errno
import itertools
import json
import operator
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import wraps
from io import FileIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest
from plans import plan_of, uneven

from dtfm_lab import lab
from dtfm_lab.domain.errors import FileError, LabError, RunError
from dtfm_lab.files.sweep_rows import SweepRows
from dtfm_lab.planning import sweeps as module
from dtfm_lab.planning.sweeps import sweep_points
from dtfm_lab.simulation.executors import IN_FLIGHT, TaskLost, results_of
from dtfm_lab.simulation.task_runner import fingerprint

PLAN = plan_of(4, 8, 2, uneven(8, 5), n_layers=8, d_model=8, dtype="fp32")
SETTINGS: dict[str, Any] = {"schedule": ["1f1b", "gpipe"], "bandwidth": [0.5, 1, 2], "microbatch": [1, 2, 3]}
PLANNED: dict[str, Any] = {"planner": ["random"], "objective": "communication", "repeats": 4, "steps": 2}


@pytest.fixture(scope="module")
def rows() -> Any:
    return lab.sweep(PLAN, executor="here", **SETTINGS)


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    """A client of a scheduler with two worker processes; a task that kills its worker twice is given up."""
    distributed = pytest.importorskip("distributed")
    config = pytest.importorskip("dask").config
    with (
        config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="CRITICAL"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def loky() -> Iterator[Any]:
    from loky import get_reusable_executor

    yield get_reusable_executor(max_workers=2)
    get_reusable_executor(max_workers=2).shutdown(kill_workers=True)


class Later:
    """A future of nobody's library: done when it has been looked at a few times."""

    def __init__(self, call: Any, looks: int = 1) -> None:
        self.call, self.looks, self.looked, self.taken, self.cancelled = call, looks, 0, False, False

    def done(self) -> bool:
        self.looked += 1
        return self.looked > self.looks

    def result(self) -> Any:
        self.taken = True
        return self.call()

    def cancel(self) -> None:
        self.cancelled = True


class Plain:
    """The least that an executor has."""

    def __init__(self) -> None:
        self.futures: list[Later] = []

    def submit(self, function: Any, *arguments: Any) -> Later:
        self.futures.append(Later(lambda: function(*arguments), looks=min(len(self.futures), 10)))
        return self.futures[-1]


def test_rows_are_equal_on_threads_and_on_futures_that_can_only_be_asked(rows: Any) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert lab.sweep(PLAN, executor=threads, **SETTINGS).equals(rows)
    assert lab.sweep(PLAN, executor="threads:2", **SETTINGS).equals(rows)
    assert lab.sweep(PLAN, executor=Plain(), **SETTINGS).equals(rows)


@pytest.mark.slow
def test_rows_are_equal_on_loky_and_a_worker_killed_amid_them_changes_none(rows: Any, loky: Any) -> None:
    killed: list[int] = []

    def kill(point: Any) -> None:
        if point.number == 4:
            killed.append(next(iter(loky._processes)))
            psutil.Process(killed[0]).kill()

    assert lab.sweep(PLAN, executor=loky, progress=kill, **SETTINGS).equals(rows)
    assert killed


@pytest.mark.slow
def test_rows_are_equal_on_dask_and_a_worker_killed_amid_them_changes_none(rows: Any, dask: Any) -> None:
    killed: list[int] = []

    def kill(point: Any) -> None:
        if point.number == 2:
            killed.append(next(iter(dask.run(os.getpid).values())))
            psutil.Process(killed[0]).kill()

    assert lab.sweep(PLAN, executor=dask, progress=kill, **SETTINGS).equals(rows)
    assert killed


@pytest.mark.slow
def test_plans_of_a_sweep_are_equal_on_dask(dask: Any) -> None:
    here, there = (lab.sweep(PLAN.topology, PLAN.job, executor=executor, **PLANNED) for executor in ("here", dask))
    assert there.drop(columns="planning_s").equals(here.drop(columns="planning_s"))


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_lost_alone(loky: Any) -> None:
    tasks = [(abs, -1), (os._exit, 1), (abs, -3), (abs, -4)]
    found = list(results_of(loky, operator.call, tasks, named="point {}".format))
    assert [one for one in found if not isinstance(one, TaskLost)] == [1, 3, 4]
    assert isinstance(found[1], TaskLost)
    assert found[1].reason.startswith("point 1: its worker was lost: ")
    assert "\n" not in found[1].reason


@pytest.mark.slow
def test_dask_gives_up_a_task_that_kills_its_workers_and_goes_on(dask: Any) -> None:
    lost, *others = results_of(dask, operator.call, [(os._exit, 1), (abs, -2), (abs, -3), (abs, -4)])
    assert isinstance(lost, TaskLost)
    assert lost.reason.startswith("task 0: its worker was lost: KilledWorker: ")
    assert others == [2, 3, 4]


@pytest.mark.slow
def test_a_pool_that_breaks_for_good_keeps_what_it_did() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert next(results_of(pool, abs, [(-1,)])) == 1
        found = list(results_of(pool, operator.call, [(abs, -1), (os._exit, 1), *[(abs, -3)] * 20]))
        assert found[0] == 1
        assert all(isinstance(one, TaskLost) for one in found[1:])
        with pytest.raises(RunError, match="the executor takes no tasks: BrokenProcessPool"):
            list(results_of(pool, abs, [(-1,)]))


class Refusing:
    """An executor whose futures all fail, such as one whose workers lack the lab."""

    def submit(self, function: Any, *arguments: Any) -> Later:
        return Later(lambda: int("no number"))


def test_an_executor_that_runs_nothing_is_told_in_one_line() -> None:
    with pytest.raises(RunError, match=r"^the executor runs nothing; point bandwidth 1.0: ValueError: invalid"):
        list(sweep_points(PLAN, executor=Refusing(), bandwidth=1))
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(RunError, match="the executor takes no tasks: RuntimeError: cannot schedule"):
        list(sweep_points(PLAN, executor=closed, bandwidth=1))


def test_a_mistake_on_a_worker_names_the_task_and_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(RunError, match=r"^task 1 failed on its worker: TypeError: bad operand"):
        list(results_of(Plain(), abs, [(1,), ("one",)]))
    with pytest.raises(RunError, match="cannot be sent to a worker"):
        list(results_of(Plain(), abs, [(lambda: 1,)]))


def test_an_end_leaves_nothing_queued() -> None:
    plain = Plain()
    plain._max_workers = 2  # type: ignore[attr-defined]  as pools of the standard library have it
    points = sweep_points(PLAN, executor=plain, bandwidth=[1 + i for i in range(100)])
    assert [point.number for point in itertools.islice(points, 3)] == [1, 2, 3]
    points.close()  # type: ignore[attr-defined]
    assert len(plain.futures) <= 3 + 2 * IN_FLIGHT
    waiting = [future for future in plain.futures if not future.taken]
    assert waiting
    assert all(future.cancelled for future in waiting)


INTERRUPTED = """
import os, sys
sys.path[:0] = {path!r}
from test_executors import PLAN, SETTINGS, lab
lab.sweep(PLAN, executor="here", resume={rows!r}, progress=lambda point: point.number == 5 and os._exit(9), **SETTINGS)
"""


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []
    original = module.outcome_of

    @wraps(original)
    def counting(*task: Any) -> Any:
        calls.append(task)
        return original(*task)

    monkeypatch.setattr(module, "outcome_of", counting)
    return calls


def test_a_sweep_that_was_killed_goes_on(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"
    code = INTERRUPTED.format(path=[os.path.dirname(__file__)], rows=str(file))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(file.read_bytes().splitlines()) == 1 + 5
    calls = counted(monkeypatch)
    assert lab.sweep(PLAN, executor="here", resume=file, **SETTINGS).equals(rows)
    assert len(calls) == len(rows) - 5
    file.write_bytes(file.read_bytes()[:-9])  # a machine that lost power amid the last line
    assert lab.sweep(PLAN, executor=Plain(), resume=file, **SETTINGS).equals(rows)
    assert len(calls) == len(rows) - 5 + 1
    assert lab.sweep(PLAN, executor="here", resume=file, **SETTINGS).equals(rows)
    assert len(calls) == len(rows) - 5 + 1
    lab.sweep(PLAN, executor="here", resume=file, **SETTINGS | {"bandwidth": [1, 4]})
    assert len(calls) == len(rows) - 5 + 1 + 6  # 1 is known, 4 is not


def test_an_interrupted_sweep_of_plans_goes_on(tmp_path: Path) -> None:
    def interrupt(point: Any) -> None:
        if point.number == 3:
            raise KeyboardInterrupt

    file = tmp_path / "rows.jsonl"
    begun = lab.sweep(PLAN.topology, PLAN.job, resume=file, progress=interrupt, **PLANNED)
    whole = lab.sweep(PLAN.topology, PLAN.job, resume=file, **PLANNED)
    assert whole[:3].equals(begun)
    assert len(whole) == 4


ROW = {"iteration_s": 1.0, "tokens_per_s": 1.0, "mfu": None, "pflops": 0.5, "bubble_share": 0.5, "fits": True}
ROW |= {"peak_memory_bytes": 8.0, "over_bytes": 0.0, "peak_activations": 2, "price_per_million_tokens": None}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"outcome": ROW | {"iteration_s": "1"}}, "iteration_s is '1'; wanted a number, 0 or more, or null"),
        ({"outcome": ROW | {"iteration_s": [1]}}, r"iteration_s is \[1\]; wanted a number"),
        ({"outcome": ROW | {"iteration_s": True}}, "iteration_s is True; wanted a number"),
        ({"outcome": ROW | {"iteration_s": 10**400}}, "iteration_s is 1000.*; wanted a number"),
        ({"outcome": ROW | {"peak_memory_bytes": -8.0}}, "peak_memory_bytes is -8.0; wanted a number, 0 or more"),
        ({"outcome": ROW | {"fits": 1.0}}, "fits is 1.0; wanted true or false"),
        ({"outcome": ROW | {"fits": None}}, "fits is None; wanted true or false"),
        ({"outcome": ROW | {"peak_activations": 2.5}}, "peak_activations is 2.5; wanted a whole number"),
        ({"outcome": ROW | {"peak_activations": 2**70}}, "peak_activations is 118.*; wanted a whole number"),
        ({"outcome": {"iteration_s": 1.0}}, "lacks 'bubble_share'; wanted iteration_s, "),
        ({"outcome": ROW | {"colour": 1}}, "knows no 'colour'; wanted iteration_s, "),
        ({"outcome": 0.5}, "found 0.5; wanted a mapping of results"),
        ({"outcome": None}, "found None; wanted a mapping"),
        ({"outcome": ROW, "planned": [1]}, r"found \[1\]; wanted a mapping"),
        ({"outcome": ROW, "planned": {}}, "lacks 'communication_cost_s'"),
        ({"outcoe": ROW}, "a row of 'outcoe, planned'; wanted outcome and planned, or an error in words"),
        ({"error": ["x"]}, "a row of 'error, planned'; wanted outcome"),
    ],
)
def test_a_damaged_row_is_named_with_its_line(row: dict[str, Any], says: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lab.sweep(PLAN, executor="here", resume=file, schedule=["gpipe", "1f1b"])
    head, first, second = file.read_text().splitlines()
    broken = json.dumps({"key": json.loads(second)["key"], "planned": None} | row)
    file.write_text(f"{head}\n{first}\n{broken}\n")
    with pytest.raises(FileError, match=rf"rows.jsonl, line 3: {says}"):
        lab.sweep(PLAN, executor="here", resume=file, schedule=["gpipe", "1f1b"])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[" * 100_000, "line 2 is not JSON"),
        (f'{{"key": {"9" * 5000}}}', "line 2 is not JSON"),
        ("[1]", "line 2 is not a row of a sweep; wanted a mapping with a key"),
        ('{"key": 3}', "line 2 is not a row of a sweep"),
        ("", "line 2 is not JSON"),
    ],
)
def test_a_line_that_is_no_row_is_named(line: str, says: str, tmp_path: Path) -> None:
    (file := tmp_path / "rows.jsonl").write_text('{"dtfm_sweep_rows": 1}\n' + line + "\n")
    with pytest.raises(FileError, match=f"rows.jsonl, {says}"):
        lab.sweep(PLAN, executor="here", resume=file, **SETTINGS)


@pytest.mark.parametrize("head", ['{"dtfm_sweep_rows": 2}', '{"dtfm_sweep_rows": true}', '{"dtfm_sweep_rows": [1]}'])
def test_rows_of_another_version_are_refused(head: str, tmp_path: Path) -> None:
    (file := tmp_path / "rows.jsonl").write_text(head + "\n")
    with pytest.raises(FileError, match=r"dtfm_sweep_rows is version .*; this release reads version 1"):
        lab.sweep(PLAN, executor="here", resume=file, **SETTINGS)


def test_a_fingerprint_knows_what_a_row_depends_on() -> None:
    assert fingerprint(PLAN) == fingerprint(PLAN.changed(seconds=9.0))
    others = [PLAN.changed(queueing="nics"), PLAN.changed(job=PLAN.job.with_fields(microbatch=2))]
    others += [PLAN.changed(topology=PLAN.topology.scaled(2.0, 1.0))]
    assert len({fingerprint(plan) for plan in (PLAN, *others)}) == 4
    assert len({fingerprint({"a": value}) for value in (1, 1.0, True, "1", None, (1,), [1])}) == 7


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}\n", "is not a file of a sweep's rows; wanted one, or a new path"),
        ("name: campus", "is not a file of a sweep's rows"),
        ('{"dtfm_sweep_rows": 1}\n{"key": 1}\n', "line 2 is not a row of a sweep; wanted a mapping with a key"),
        ('{"dtfm_sweep_rows": 1}\n{"key"\n{}\n', "line 2 is not JSON"),
    ],
)
def test_another_file_is_refused_and_stays(content: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text(content)
    with pytest.raises(FileError, match=says):
        lab.sweep(PLAN, resume=file, bandwidth=1)
    assert file.read_text() == content


def test_rows_are_json_and_of_one_sweep_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"

    def again(_: Any) -> None:
        with pytest.raises(FileError, match="is in use by another sweep; wanted a file for each"):
            lab.sweep(PLAN, resume=file, bandwidth=2)

    lab.sweep(PLAN, resume=file, progress=again, bandwidth=1)
    for line in file.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    with pytest.raises(FileError, match="cannot be opened: No such file or directory"):
        lab.sweep(PLAN, resume=tmp_path / "no" / "rows", bandwidth=1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"executor": "lok"}, "executor is 'lok'; wanted here, loky, loky:N, threads:N or dask://HOST:PORT"),
        ({"executor": "threads"}, "executor is 'threads'; wanted here"),
        ({"executor": "threads:0"}, "N from 1"),
        ({"executor": "loky:two"}, "executor is 'loky:two'; wanted here"),
        ({"executor": "dask:"}, "executor is 'dask:'; wanted here"),
        ({"executor": "dask://127.0.0.1:1:1"}, "no scheduler of Dask answers at 127.0.0.1:1:1"),
        ({"executor": 4}, "executor is 4; wanted an object with submit"),
        ({"executor": ThreadPoolExecutor}, "wanted an object with submit"),
        ({"resume": 4}, "resume is 4; wanted the path of a file of rows"),
    ],
    ids=str,
)
def test_mistakes_are_told_in_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(LabError, match=re.escape(says)):
        lab.sweep(PLAN, bandwidth=1, **given)


class TakesFewBytes(FileIO):
    """A file on a disk that takes a part of each write, as one that is about to be full does."""

    def write(self, content: Any, /) -> int:
        return super().write(bytes(content)[:3])


def test_a_row_of_which_the_disk_takes_a_part_at_a_time_is_whole(tmp_path: Path) -> None:
    with SweepRows(tmp_path / "rows") as rows:
        rows._file.close()
        rows._file = TakesFewBytes(tmp_path / "rows", "a+")
        rows.keep("a", {"x": 1})
        rows.keep("b", {"x": 2})
    with SweepRows(tmp_path / "rows") as rows:
        assert [rows["a"], rows["b"]] == [{"x": 1}, {"x": 2}]


def test_rows_are_kept_where_the_file_system_has_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with SweepRows(tmp_path / "rows") as rows:
        rows.keep("a", {"x": 1})
