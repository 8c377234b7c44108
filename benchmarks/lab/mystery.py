"""Secret faults found from residuals: of so many, in how many is the first suspect the culprit?

Each is a real run on the virtual clock in which a link or a device is three times slower than it is told. The suspects
are named from the prediction and the measured trace alone. Exits with 1 where fewer than wanted are found.
"""

from __future__ import annotations

import sys

import click
import numpy as np
from machine import machine_line

from dtfm_lab import lab
from dtfm_lab.runtime.client.launch import start_mystery

STAGES = [[0, 2], [4, 6], [1, 3], [5, 7]]
WANTED = 28 / 30
"""Share of the faults whose culprit is to come first."""


@click.command(help=__doc__)
@click.option("--faults", default=30, show_default=True, help="Of how many runs.")
@click.option("--iterations", default=6, show_default=True, help="Of each run.")
@click.option("--job", default="tiny", show_default=True)
@click.option("--first", default=0, show_default=True, help="The first seed.")
def main(faults: int, iterations: int, job: str, first: int) -> None:
    print(machine_line(), flush=True)
    plan = lab.evaluate("lecture-hall", job, stages=STAGES)
    found = 0
    for seed in range(first, first + faults):
        run, secret = start_mystery(plan, "gpipe", np.random.default_rng(seed), iterations=iterations)
        measured = run.wait()
        comparison = lab.compare(lab.simulate(plan, like=measured), measured)
        suspects = comparison.suspects
        accused = "nobody" if not len(suspects) else f"{suspects['of'][0]} {suspects['name'][0]}"
        hit = accused == f"{secret.of} {secret.name}"
        found += hit
        print(
            f"seed {seed:3}: {secret.of} {secret.name:24} {'found ' if hit else 'MISSED'} "
            f"{comparison.error_text:22} {len(suspects)} suspects{'' if hit else f', first {accused}'}",
            flush=True,
        )
    verdict = "" if found >= WANTED * faults else "  MISSED"
    wanted = f"wanted >= {WANTED * faults:.0f}"
    print(f"mystery: the first suspect is the culprit in {found} of {faults} ({wanted}){verdict}")
    sys.exit(found < WANTED * faults)


if __name__ == "__main__":
    main()
