"""Damaged files: whatever a file holds, reading it ends in a value or in one line, soon and in little memory.

For each format that the lab reads, some thousand mutants of valid files are read: bytes are flipped and lines doubled,
swapped or cut, numbers become 0, -1, 1e300, not a number or thousands of digits, values become lists in lists, the text
gets another encoding or control characters. Files are read in two processes that live on. A mutant is ``read``, or
``refused`` in one line by a LabError. It counts as a failure where there is a traceback or a refusal of several lines,
where it takes more than 5 s of a processor (or a minute in all), or more than 500 MB of address space beyond what the
process had before. The mutants follow from the seed alone. Exits with 1 where any failed; --keep writes those.
"""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import click
import yaml

MOST_CPU_S, MOST_WALL_S = 5.0, 60.0
"""Of one mutant. Seconds of a processor do not depend on what else the machine does; the others end a hang."""
MOST_BYTES = 500 * 10**6
CHUNK = 50
"""Mutants that a process is given at once."""
DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
OUTCOMES = ("read", "refused", "traceback", "too late", "too much memory")


@dataclass(frozen=True)
class Format:
    """Files of one kind: their ending, valid ones, and what reads one."""

    ending: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]


class TooLateError(BaseException):
    """Raised by a timer; no Exception, so that no reader takes it for a broken file."""


def formats() -> dict[str, Format]:
    """Every format by name, its valid files read or written here."""
    from dtfm_lab import files, lab
    from dtfm_lab.cli.marking import asked
    from dtfm_lab.course import missions
    from dtfm_lab.course.graded import read_students
    from dtfm_lab.course.progress import Progress, read_progress, save_progress
    from dtfm_lab.course.teaching import assignment
    from dtfm_lab.files.models import load_model
    from dtfm_lab.files.workspaces import WorkspaceState, load_workspace, save_workspace
    from dtfm_lab.planning.evaluate import evaluate
    from dtfm_lab.published.own import read_rows
    from dtfm_lab.runtime.multihost.hosts import load_hosts
    from dtfm_lab.runtime.protocol.run_options import RunSpec
    from dtfm_lab.simulation.schedules import schedules
    from dtfm_lab.simulation.simulate import simulate
    from dtfm_lab.systems import from_flags

    def texts(*names: str) -> tuple[bytes, ...]:
        return tuple((DATA / name).read_bytes() for name in names)

    def with_others(*names: str) -> Callable[[Path], object]:
        return lambda path: files.load_topology([path, *(DATA / "machines" / name for name in names)])

    def written(write: Callable[[Any, Path], object], thing: object, ending: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            write(thing, path := Path(folder) / f"valid{ending}")
            return path.read_bytes()

    small = files.load_topology("volunteers").subset(["amy", "eve", "gus", "mia"])
    plan = evaluate(small, files.load_job("tiny", n_stages=2, n_replicas=2), stages=[[0, 1], [3, 2]])
    zero_bubble = schedules["zb-h1"](2, 4)
    spec = RunSpec.from_line((DATA / "saved" / "run" / "spec.json").read_text())

    def topology(ending: str) -> Format:
        return Format(ending, (written(files.save_topology, small, ending),), files.load_topology)

    def priced(path: Path) -> object:
        """A job that is read, and a plan of it. Batches between have so many micro-batches that to simulate them takes
        long, but may."""
        job = files.load_job(path)
        if job.model is not None and not 10**5 < job.global_batch < 10**8:
            lab.evaluate("lecture-hall", job, stages=[[0, 1], [2, 3]])
        return job

    def rows(path: Path) -> None:
        with files.SweepRows(path):
            pass

    jobs = (*texts("saved/job.yaml"), JOB.encode(), JOB_OF_SIZES.encode())
    sky = json.dumps({"metadata": {"gap_seconds": 30}, "data": [2, 0, 1, 3]}).encode()
    configs = sorted((DATA / "hf_configs").glob("*.json"))
    machines = {
        "nvidia-smi -q -x": (".smi.xml", ["gpubox.smi.xml"], ["gpu01.topo.txt"]),
        "nvidia-smi topo -m": (".topo.txt", ["gpu01.topo.txt", "gpu03.topo.txt"], ["scontrol.txt"]),
        "iperf3": (".json", ["ada-to-alan.iperf.json", "ada-and-alan.iperf.json"], ["ssh_config", "task.yaml"]),
        "nccl-tests": (".txt", ["all_reduce.txt"], []),
        "kubernetes": (".json", ["nodes.json"], []),
        "slurm": (".txt", ["scontrol.txt", "sinfo.txt", "scontrol-states.txt", "sinfo-cut.txt"], []),
        "skypilot task": (".yaml", ["task.yaml"], ["vms.csv"]),
        "skypilot catalogue": (".csv", ["vms.csv"], ["task.yaml"]),
        "ray": (".json", ["ray_list.json", "ray_nodes.json"], []),
        "ssh config": (".txt", ["ssh_config"], ["scontrol.txt"]),
    }
    lesson = next(iter(missions.values())).lesson
    notebook = json.dumps(assignment(lesson, solved=False)).encode()
    return {
        "topology yaml": topology(".yaml"),
        "topology json": topology(".json"),
        "topology csv": topology(".csv"),
        "topology npz": topology(".npz"),
        "topology matrix": Format(".latency_ms.csv", texts("saved/two-towns.latency_ms.csv"), _matrix),
        "job yaml": Format(".yaml", jobs, priced),
        "job json": Format(".json", tuple(json.dumps(yaml.safe_load(job)).encode() for job in jobs), priced),
        "model config": Format(".json", tuple(path.read_bytes() for path in configs), load_model),
        "plan": Format(".json", (written(files.save_plan, plan, ".json"), *texts("saved/plan.json")), files.load_plan),
        "trace": Format(
            ".json",
            (written(files.save_trace, simulate(plan), ".json"), *texts("saved/measured.json")),
            files.load_trace,
        ),
        "schedule txt": Format(".txt", (written(files.save_schedule, zero_bubble, ".txt"),), files.load_schedule),
        "schedule csv": Format(".csv", (written(files.save_schedule, zero_bubble, ".csv"),), files.load_schedule),
        "measured rows csv": Format(".csv", (MEASURED.encode(),), read_rows),
        "measured rows json": Format(".json", (json.dumps(_records()).encode(),), read_rows),
        "availability csv": Format(".csv", (EVENTS.encode(), COUNTS.encode()), files.load_availability),
        "availability json": Format(".json", (sky,), files.load_availability),
        "launch flags": Format(".txt", tuple(map(str.encode, LAUNCHES)), lambda path: from_flags(_text(path))),
        "sweep rows": Format(".jsonl", (SWEEP.encode(),), rows),
        "run spec": Format(".json", texts("saved/run/spec.json"), lambda path: RunSpec.from_line(_text(path))),
        "run hosts": Format(".yaml", texts("saved/run/hosts.yaml"), lambda path: load_hosts(path, spec)),
        "workspace": Format(
            ".json",
            (written(save_workspace, WorkspaceState(topology=small, plan=plan), ".json"),),
            load_workspace,
        ),
        "notebook": Format(".ipynb", (notebook,), asked),
        "students": Format(".txt", (b"ada\nalan\ngrace\n",), read_students),
        "progress": Format(".json", (written(save_progress, Progress("ada", {}, []), ".json"),), read_progress),
        **{
            name: Format(ending, texts(*(f"machines/{each}" for each in names)), with_others(*others))
            for name, (ending, names, others) in machines.items()
        },
    }


def _matrix(path: Path) -> object:
    """A mutant as both matrices of a network."""
    from dtfm_lab.files import load_topology

    path.with_name(path.name.replace("latency_ms", "bandwidth_gbps")).write_bytes(path.read_bytes())
    return load_topology(path)


def _text(path: Path) -> str:
    from dtfm_lab.files.reading import read_text

    return read_text(path)


def _records() -> list[dict[str, str]]:
    head, *lines = MEASURED.splitlines()
    return [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]


JOB = """dtfm_job: 1
base: tiny
n_stages: 2
n_replicas: 2
model: {name: small, n_layers: 2, d_model: 8, n_heads: 2, seq_len: 8, vocab_size: 16}
"""
JOB_OF_SIZES = """dtfm_job: 1
base: gpt3-xl
n_stages: 2
n_replicas: 2
microbatch: 1
global_batch: 64
schedule: 1f1b
compression: int8
checkpointing: block
blocks_per_stage: [12, 12]
microbatches_per_replica: [30, 34]
"""
EVENTS = """# end_seconds: 60
# devices: ["a", "b"]
seconds,event,node
0,add,a
0,add,b
7.5,remove,a
"""
COUNTS = """seconds,count
0,4
60,2
120,3
180,3
"""
MEASURED = """setting,quantity,published,unit,gpu,gpus,inside_gbps,between_gbps,job,n_stages,n_replicas,band
one,iteration,1.5,s,A100,8,2400,100,gpt3-xl,4,2,10%
two,throughput,9000,tokens/s,A100,8,2400,100,gpt2-xl,2,4,1.3x
"""
SWEEP = """{"dtfm_sweep_rows": 1}
{"key": "a1", "iteration_s": 1.25, "error": "", "n_stages": 4}
{"key": "b2", "iteration_s": 2.5, "error": "", "n_stages": 2}
"""
LAUNCHES = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 2 --global-batch-size 64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
    "--bf16 --use-distributed-optimizer\n",
    json.dumps(
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {"stage": 3, "overlap_comm": True},
            "bf16": {"enabled": True},
        }
    ),
    "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
    "[parallelism]\ndata_parallel_shard_degree = 8\n[activation_checkpoint]\nmode = 'full'\n",
)

HOSTILE: tuple[bytes, ...] = (
    *(b"0", b"-1", b"1e300", b"1e999", b"NaN", b"nan", b"inf", b"null", b"true", b"[]", b"{}", b"''", b'""', b"a"),
    *(b"9" * 400, b"9" * 6000, b"1" + b"0" * 18, b"2147483648", b"1e-320", b"-0.0", b"1:1:1", b"0x10", b"1_000"),
    *(b"2026-13-45", b"*a", b"&a ", b"<<: *a", b"!!python/object/apply:os.system ", b"---\n", b"? ", b"- ", b"%YAML 9"),
    *(
        b"&lol;",
        b"<a>",
        b"</a>",
        b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
        b"\\ud800",
        b"\xff",
        b"\x00",
        b"\t",
        b"\r",
        b"\x1b",
    ),
    *(b"\x85", "é\u2028\u202e".encode(), b"[" * 3000, b'{"a":' * 3000, b"- " * 3000, b"(" * 3000, b"1" * 140_000),
    *(b" " * 200_000, b"a," * 100_000, b"1 " * 100_000),
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def mutant(seed: bytes, rng: random.Random) -> bytes:
    """A valid file with one to three things changed, most often one, as a reader stops at the first that it finds."""
    data = seed
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(min(rng.randint(1, 8), len(data))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _cut(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.randint(1, 60) :]


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines.insert(at, lines[at])
        case 1:
            lines[at], lines[other] = lines[other], lines[at]
        case 2:
            del lines[at]
        case 3:
            lines[at:at] = [lines[at]] * rng.choice((10, 1000, 20_000))
    return b"".join(lines)[: 2 * 10**6]


def _number(data: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(data[:500_000]))
    if not found:
        return data
    for match in sorted(rng.sample(found, min(rng.randint(1, 3), len(found))), key=lambda m: -m.start()):
        data = data[: match.start()] + rng.choice(HOSTILE) + data[match.end() :]
    return data


def _put(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(HOSTILE) + data[at + rng.randint(0, 3) :]


def _encode(data: bytes, rng: random.Random) -> bytes:
    match rng.randrange(7):
        case 0:
            return b"\xef\xbb\xbf" + data
        case 1:
            return data.decode("utf-8", "replace").encode("utf-16")
        case 2:
            return data.decode("utf-8", "replace").encode("latin-1", "replace")
        case 3:
            return data.replace(b"\n", b"\r\n")
        case 4:
            return data.replace(b"\n", b"\r")
        case 5:
            return data.replace(b" ", b"\xc2\xa0")
        case _:
            return data.decode("utf-8", "replace").encode("utf-32")


def _restructure(data: bytes, rng: random.Random) -> bytes:
    """Another value somewhere in JSON or YAML."""
    try:
        value = json.loads(data)
        write: Callable[[Any], str] = json.dumps
    except ValueError:
        try:
            value, write = yaml.safe_load(data[:100_000]), yaml.safe_dump
        except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError):
            return _flip(data, rng)
    except RecursionError:
        return _flip(data, rng)
    places = list(_places(value))[:20_000]
    if not places:
        return _put(data, rng)
    holder, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]] * rng.choice((1, 2, 1000))
        case 2:
            other, place = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[place] if place in _keys(other) else None, default=str))
        case _:
            holder[key] = rng.choice(STRANGE)
    try:
        return write(value).encode("utf-8", "surrogatepass")[: 4 * 10**6]
    except (ValueError, RecursionError, yaml.YAMLError):
        return _flip(data, rng)


STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2.5, 10**9, 10**15, 10**400, 1e300, 1e308, 1e-320, float("nan"), float("inf")),
    *("", "a", "a\nb", "\ud800", "\0", "nan", "1e999", "x" * 5000, "9" * 5000, [], [[]], [None], [0] * 5000, {}),
    *({"a": 1}, {"": None}, {"name": "a"}, -(10**9), 10**6, 65536, ["a", "a"], [1, 2]),
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Holder and key of every value within."""
    for key in _keys(value):
        yield value, key
        yield from _places(value[key])


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


MUTATIONS = (_flip, _truncate, _cut, _lines, _number, _number, _put, _encode, _restructure, _restructure)


def outcome(read: Callable[[Path], object], path: Path) -> tuple[str, str]:
    """What came of reading a file, and how it failed."""
    from dtfm_lab.domain.errors import LabError

    before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (before + MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        read(path)
    except LabError as error:
        one_line = len(str(error).splitlines()) == 1
        return ("refused", "") if one_line else ("traceback", f"a refusal of several lines from {_place_of(error)}")
    except MemoryError as error:
        return "too much memory", _place_of(error)
    except TooLateError as error:
        return "too late", _place_of(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__} in {_place_of(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return "read", ""


def _place_of(error: BaseException) -> str:
    """Where in the lab's code it happened."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/dtfm_lab/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/dtfm_lab/')[2]}:{frames[-1].lineno}" if frames else "elsewhere"


def _serve(orders: Connection, folder: str) -> None:
    """Read mutants until there are no more orders."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.stderr = io.StringIO()

    def late(*_: object) -> None:
        raise TooLateError

    signal.signal(signal.SIGPROF, late)
    known = formats()
    for name, one in known.items():  # what is loaded at first is not the mutant's
        path = Path(folder) / f"valid{one.ending}"
        path.write_bytes(one.seeds[0])
        try:
            one.read(path)
        except Exception as error:
            orders.send(("valid", name, str(error)))
    orders.send(("ready", "", ""))
    while (order := orders.recv()) is not None:
        name, number, seed = order
        one = known[name]
        path = Path(folder) / f"mutant{one.ending}"
        path.write_bytes(of_number(name, one, number, seed))
        path.chmod(0o600)
        orders.send((*outcome(one.read, path), number))


def of_number(name: str, one: Format, number: int, seed: int) -> bytes:
    """The mutant of this number."""
    rng = random.Random(f"{seed} {name} {number}")
    return mutant(one.seeds[number % len(one.seeds)], rng)


class Reader:
    """A process that reads mutants, replaced where it dies or hangs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.broken: list[tuple[str, str]] = []
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(self._folder)), daemon=True)
        self._process.start()
        theirs.close()
        while (said := self.connection.recv())[0] != "ready":
            self.broken.append(said[1:])

    def ask(self, name: str, number: int, seed: int) -> None:
        self.asked, self.at_s = (name, number), time.monotonic()
        self.connection.send((name, number, seed))

    def answer(self) -> tuple[str, str]:
        """What came of the mutant; a process that is gone had too little memory, or was ended by a signal."""
        try:
            found: tuple[str, str] = self.connection.recv()[:2]
        except (EOFError, ConnectionResetError):
            self._process.join()
            self._start()
            return "too much memory", f"its process died with {self._process.exitcode}"
        return found

    def end(self) -> tuple[str, str]:
        """Replace the process, which hangs."""
        self._process.kill()
        self._process.join()
        self._start()
        return "too late", f"still reading after {MOST_WALL_S:.0f} s"

    def close(self) -> None:
        self.connection.send(None)
        self._process.join(5)
        self._process.kill()


@click.command()
@click.option("--mutants", default=2000, show_default=True, help="Of each format.")
@click.option("--format", "chosen", multiple=True, help="Formats to read; all by default.")
@click.option("--seed", default=0, show_default=True)
@click.option("--processes", default=2, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Write the mutants that failed to this folder.")
def main(mutants: int, chosen: tuple[str, ...], seed: int, processes: int, keep: Path | None) -> None:
    """Read mutants of each format, and say what came of them."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    known = formats()
    if strange := [name for name in chosen if name not in known]:
        raise click.UsageError(f"no format {strange[0]}; known: {', '.join(known)}")
    wanted = iter([(name, number) for name in chosen or known for number in range(mutants)])
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failures: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        readers = [Reader(Path(folder) / str(i)) for i in range(processes)]
        for name, why in readers[0].broken:
            click.echo(f"{name}: the valid file is not read: {why}")

        def took(reader: Reader, what: tuple[str, str]) -> None:
            name, number = reader.asked
            counts[name][what[0]] += 1
            if what[0] in OUTCOMES[2:]:
                failures[name, *what].append(number)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    one = known[name]
                    (keep / f"{name.replace(' ', '-')}-{number}{one.ending}").write_bytes(
                        of_number(name, one, number, seed)
                    )

        busy = [reader for reader in readers if (order := next(wanted, None)) and (reader.ask(*order, seed) or True)]
        while busy:
            answered = wait([reader.connection for reader in busy], 1.0)
            for reader in list(busy):
                if reader.connection in answered:
                    took(reader, reader.answer())
                elif time.monotonic() - reader.at_s > MOST_WALL_S:
                    took(reader, reader.end())
                else:
                    continue
                if (order := next(wanted, None)) is None:
                    busy.remove(reader)
                else:
                    reader.ask(*order, seed)
        for reader in readers:
            reader.close()
    width = max(map(len, counts))
    click.echo(f"{'format':{width}}  " + "  ".join(f"{what:>15}" for what in OUTCOMES))
    for name, found in counts.items():
        click.echo(f"{name:{width}}  " + "  ".join(f"{found[what]:>15,}" for what in OUTCOMES))
    for (name, what, why), numbers in sorted(failures.items(), key=lambda each: (each[0][0], -len(each[1]))):
        click.echo(f"{name}: {what} {len(numbers)} times, first by mutant {numbers[0]}: {why}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
