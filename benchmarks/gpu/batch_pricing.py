"""Step 9: placements priced in batches on the GPU, beside the compiled loops on all cores of this machine.

What is priced is the communication cost of whole placements as their columns pair. The planners price moves from what
they already know, so a faster batch helps those that judge populations, and is kept for them where it is faster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from batch_costs import compiled_costs, random_grids, random_pairs, torch_costs
from figures import Figure, Setting
from timing import seconds_of

SIZES = {1024: 32, 4096: 64}
"""Number of devices -> stages."""
CLOSE = 1e-12


def measure(setting: Setting) -> Iterator[Figure]:
    rng, threads = np.random.default_rng(0), torch.get_num_threads()
    for n, n_stages in {64: 8}.items() if setting.rehearses else SIZES.items():
        group_s, hop_s = random_pairs(n, rng), random_pairs(n, rng)
        grids = random_grids(n, n_stages, 32 if setting.rehearses else 512, rng)
        compiled_costs(grids[:1], group_s, hop_s)  # compiles
        times_s = []
        for _ in range(3):
            began_s = time.perf_counter()
            wanted = compiled_costs(grids, group_s, hop_s, threads)
            times_s.append(time.perf_counter() - began_s)
        by_cores = len(grids) / float(np.median(times_s))
        yield Figure(name=f"{n} devices, compiled, {threads} threads", value=by_cores, unit="placements/s")
        there = [torch.from_numpy(array).to(setting.runs_on) for array in (grids, group_s, hop_s)]
        found = torch_costs(*there).cpu().numpy()
        error = float(np.abs(found / wanted - 1).max())
        yield Figure(
            name=f"{n} devices, relative difference", value=error, goal=f"at most {CLOSE:g}", met=error <= CLOSE
        )

        def both_ways(there: list[torch.Tensor] = there, grids: np.ndarray = grids) -> None:
            torch_costs(torch.from_numpy(grids).to(there[0].device), *there[1:]).cpu()

        for what, seconds in (
            ("torch", seconds_of(lambda there=there: torch_costs(*there), setting.runs_on, 5)),
            ("torch, placements sent and costs fetched", seconds_of(both_ways, setting.runs_on, 5)),
        ):
            fetched = what != "torch"
            yield Figure(
                name=f"{n} devices, {what}",
                value=len(grids) / seconds,
                unit="placements/s",
                goal="faster than compiled" if fetched else "",
                met=len(grids) / seconds > by_cores if fetched else None,
                note=f"{len(grids) / seconds / by_cores:.3g} times compiled",
            )
