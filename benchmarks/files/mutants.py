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
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path

import click
from mutant_formats import Format, formats
from mutations import mutant

MOST_CPU_S, MOST_WALL_S = 5.0, 60.0
"""Of one mutant. Seconds of a processor do not depend on what else the machine does; the others end a hang."""
MOST_BYTES = 500 * 10**6
CHUNK = 50
"""Mutants that a process is given at once."""
OUTCOMES = ("read", "refused", "traceback", "too late", "too much memory")


class TooLateError(BaseException):
    """Raised by a timer; no Exception, so that no reader takes it for a broken file."""


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
