"""The teaching search on every bundled network: how often something falls to be seen, for how long, and where it ends.

A fall counts where the best cost, or the median of the population, falls by at least 0.2 % of the range of its curve.
Seconds are those of watching, a frame a generation at the lab's pace. Some networks have very few costs at all: the
column "costs below" counts the different ones that the whole search met below the best of chance. Where they are fewer
than ten, no search by this cost can show more falls of the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

import dtfm_lab as lab
from dtfm_lab.lab.plans import default_job
from dtfm_lab.planning.teaching import PACE_S, SEED, TeachingFrame, teach

NETWORKS = sorted(path.stem for path in (Path(__file__).parents[1] / "topologies").glob("*.yaml"))
WANTED, WANTED_S = 10, 10.0
VISIBLE = 0.002
"""Share of a curve's range by which it has to fall to be seen."""


def falls(values: Sequence[float]) -> list[int]:
    """Return the generations at which a curve fell visibly."""
    least, found, visible = values[0], [], VISIBLE * (np.ptp(values) or 1.0)
    for generation, value in enumerate(values):
        if value < least - visible:
            least = value
            found.append(generation)
    return found


def visible_falls(frames: Sequence[TeachingFrame]) -> tuple[list[int], list[int]]:
    """Return the generations at which the best fell, and those at which the best or the median did."""
    best = falls([frame.best.cost_s for frame in frames])
    return best, sorted({*best, *falls([frame.median_s for frame in frames])})


@click.command(help=__doc__)
@click.option("--seed", default=SEED, show_default=True)
@click.option("--only", default="", help="Some of the networks, with commas between them.")
def main(seed: int, only: str) -> None:
    click.echo(f"teaching search, seed {seed}, a frame every {PACE_S * 1e3:.0f} ms")
    head = ("network", "falls of best", "best or median", "over s", "end s", "dtfm's s", "planner's s", "costs below")
    click.echo(f"{head[0]:14}" + "".join(f"{title:>15}" for title in head[1:]))
    for name in only.split(",") if only else NETWORKS:
        topology = lab.load_topology(name)
        job = default_job(topology)
        job = job if job.shaped else job.fitted(len(topology))
        met: list[np.ndarray] = []
        frames = list(teach(topology, job, np.random.default_rng(seed), priced=met.append))
        best, both = visible_falls(frames)
        seconds = (both[-1] - both[0]) * PACE_S if both else 0.0
        papers, planners = (
            lab.plan(topology, job, planner=planner, objective="communication", seed=0, seconds=2).cost.total_s
            for planner in ("dtfm", "evolutionary")
        )
        different = np.unique(np.round(np.concatenate(met) / frames[0].best.cost_s, 6))
        below = int((different < 1 - 1e-6).sum())
        end_s = frames[-1].best.cost_s
        note = "" if end_s <= papers * (1 + 1e-3) else "  dearer than dtfm's"
        if len(both) < WANTED or seconds < WANTED_S:
            note += "  fewer costs exist" if below < WANTED else "  fewer falls than wanted"
        numbers = f"{len(best):15}{len(both):15}{seconds:15.1f}{end_s:15.4g}{papers:15.4g}{planners:15.4g}{below:15,}"
        click.echo(f"{name:14}{numbers}{note}")


if __name__ == "__main__":
    main()
