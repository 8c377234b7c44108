"""Lower bounds against the optimum of a thousand small networks, and the gaps they prove on large irregular ones.

Small: 8 to 10 devices of seven kinds, half of them with different links in the two directions, some devices idle. The
bound must not exceed the optimum, which enumeration finds, nor the optimum the cost of a planner's plan. Large: the
reference networks of the tests, whose best known cost is not proven; the quick bound and the one some seconds later.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click
import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.proofs.bound_search import increasing_bounds
from dtfm_lab.planning.cost import bound_of_pairs, pair_costs

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "extensions" / "proofs"))
from bound_networks import KINDS, NETWORKS, drawn_case, optimum, reference  # noqa: E402


@click.command(help=__doc__)
@click.option("--networks", default=1000, show_default=True, help="Small networks to draw.")
@click.option("--seconds", default=30.0, show_default=True, help="Of the bound search, on each large network.")
def main(networks: int, seconds: float) -> None:
    small(networks)
    large(seconds)


def small(n_networks: int) -> None:
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    optimal = 0
    for i in range(n_networks):
        kind, topology, job = drawn_case(i)
        pair = pair_costs(topology, job)
        best_s = optimum(pair, job.n_stages, job.n_replicas)[1]
        bound_s = bound_of_pairs(pair, job.n_stages, job.n_replicas)
        found_s = lab.plan(topology, job, seed=i, steps=3).cost.total_s
        assert bound_s <= best_s * (1 + 1e-9), f"{topology.name}: bound {bound_s} above the optimum {best_s}"
        assert best_s <= found_s * (1 + 1e-9), f"{topology.name}: optimum {best_s} above a plan of {found_s}"
        ratios[kind].append(bound_s / best_s)
        optimal += found_s <= best_s * (1 + 1e-9)
    print(f"{n_networks} networks of 8 to 10 devices; three generations find the optimum of {optimal}")
    print(f"{'bound / optimum':16}{'networks':>10}{'median':>10}{'least':>10}{'proven':>10}")
    ratios["all"] = [ratio for ratios_of_kind in ratios.values() for ratio in ratios_of_kind]
    for kind, of in ratios.items():
        proven = np.mean(np.array(of) > 1 - 1e-9)
        print(f"{kind:16}{len(of):>10}{np.median(of):>10.3f}{min(of):>10.3f}{proven:>10.0%}")


def large(seconds: float) -> None:
    print(f"\n{'gap to best known':18}{'at once':>10}{f'{seconds:.0f} s':>10}{'first':>12}{'longest step':>15}")
    cases = [(name, *reference(name)) for name in json.loads((NETWORKS / "index.json").read_text())]
    worldwide: Topology = lab.load_topology("worldwide")
    cases.append(("worldwide", worldwide, lab.load_job("dtfm-gpt3-xl"), 49.218380))
    for name, topology, job, best_s in cases:
        pair = pair_costs(topology, job)
        began = last = time.perf_counter()
        times, bounds = [], []
        for bound_s in increasing_bounds(pair, job.n_stages, job.n_replicas, best_s * (1 + 1e-9)):
            now = time.perf_counter()
            times.append(now - last)
            bounds.append(min(bound_s, best_s))
            last = now
            if now - began > seconds:
                break
        print(
            f"{name:18}{1 - bounds[0] / best_s:>10.2%}{1 - bounds[-1] / best_s:>10.2%}"
            f"{times[0]:>10.3f} s{max(times[1:], default=0.0):>13.2f} s"
        )


if __name__ == "__main__":
    main()
