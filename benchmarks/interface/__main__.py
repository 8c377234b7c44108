"""How the lab feels, in JupyterLab and a headless Chromium on this machine: each figure beside what is wanted of it.

``opening``: from the kernel's being ready until a planned picture moves. ``drag``: from a move of a link's label until
the new plan's chart is painted, and frames a second meanwhile. ``play``: frames a second while an iteration plays on
the map. ``jumps``: parts of the frame that move while a story is told. ``axe``: serious findings of axe-core on every
pane. ``many``: 256 devices. ``gesture``: from the release of the mouse in
the page until the kernel has taken the edit in. ``live``: a search that is watched, beside the same
search unwatched in a fresh process.
``gantt``: from the call in Python until the chart is painted, and frames a second under a turning wheel and a dragging
mouse. ``replan``: from an edit until the new plan is there. ``whatif``: from a slider's move until the answer is there.
``processes``: what is left when a kernel is shut down or restarted in the middle of a search or of a real run.
``tasks``: what a newcomer wants, by hand: five things timed, two counted in clicks.
``walk``: random edits by hand on five networks; after each, every number on the screen is compared with Python's.
``weights``: of the JavaScript, and of the notebooks saved after a run. ``memory``: of kernel and page before and after
searching and editing.

Clocks: the page and the kernel read the same machine's. Any load beside this slows everything: see the first line.
Exits with 1 where a figure is missed or could not be measured.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import click

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests" / "browser")]

from browser import Figure, LabInBrowser, opened_browser
from charts import gantt
from drags import drag, play
from edits import gesture, opening, replan, whatif
from frame import axe, jumps
from lasting import memory, processes
from machine import machine_line
from searches import live
from sizes import many
from tasks import tasks
from walk import NETWORKS, walk
from weights import weights

PARTS: dict[str, Callable[[LabInBrowser], Iterable[Figure]]] = {
    "opening": opening,
    "drag": drag,
    "play": play,
    "jumps": jumps,
    "axe": axe,
    "many": many,
    "gesture": gesture,
    "live": live,
    "gantt": gantt,
    "replan": replan,
    "whatif": whatif,
    "processes": processes,
    "weights": weights,
    "tasks": tasks,
}


@click.command(help=__doc__)
@click.option("--only", default="", help="Some of the parts, with commas between them.")
@click.option("--minutes", default=1.0, show_default=True, help="Of search, for memory; 10 are the full proof.")
@click.option("--edits", default=1000, show_default=True, help="Of the network, for memory.")
@click.option("--walked", default=50, show_default=True, help="Edits by hand, for walk; 300 are the full proof.")
@click.option("--networks", default=",".join(NETWORKS), show_default=True, help="For walk.")
@click.option("--seed", default=0, show_default=True, help="For walk.")
def main(only: str, minutes: float, edits: int, walked: int, networks: str, seed: int) -> None:
    parts = PARTS | {
        "memory": lambda browser: memory(browser, minutes, edits),
        "walk": lambda browser: walk(browser, walked, seed, tuple(networks.split(","))),
    }
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(parts)
    if unknown := [name for name in chosen if name not in parts]:
        raise click.UsageError(f"no part named {unknown[0]!r}; known: {', '.join(parts)}")
    print(machine_line(), flush=True)
    missed = 0
    for name in chosen:
        # Of each part's own: what one leaves in a kernel or a browser must not weigh on the next.
        with tempfile.TemporaryDirectory(prefix="dtfm-interface-", ignore_cleanup_errors=True) as root:
            try:
                with opened_browser(Path(root)) as browser:
                    for figure in parts[name](browser):
                        print(figure, flush=True)
                        missed += not figure.kept
            except Exception:
                print(f"{name}: could not be measured\n{traceback.format_exc(limit=-4)}", file=sys.stderr)
                missed += 1
    print(machine_line())
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
