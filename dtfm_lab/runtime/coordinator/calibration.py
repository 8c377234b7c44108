"""What each computation is expected to take in a run, and how slowly time has to pass: from what rehearsals took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from dtfm_lab.domain.schedule import PASSES, Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime.protocol.profile import Measured
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation.durations import analytic

PADDING = 5.0
"""paced clock: the drawn device's time over the wall time that nine of ten computations took in rehearsals"""
SLOWEST = 40.0
"""paced clock: most wall seconds a second. Where the drawn devices are so much faster than this machine that
this does not do, their computations are stretched to what it can keep, and that is said."""
UNEQUAL = (Kind.PACK, Kind.REDUCE, Kind.STEP)
"""computations that replicas of one stage may do more or less of"""

Work = tuple[int, int, Kind]
"""stage, replica, kind"""


class Expected(NamedTuple):
    profile: list[ComputeTime]
    time_scale: float
    stretched: int
    """rows of the profile longer than on the drawn device"""


def expected(spec: RunSpec, measured: Mapping[Work, Measured]) -> Expected:
    """Of every computation of the run."""
    # replicas of a stage compute the same on the same machine: one figure from all of them is the steadier
    alike: dict[Work, list[float]] = defaultdict(list)
    group = {key: key if key[2] in UNEQUAL else (key[0], -1, key[2]) for key in measured}
    for key, figures in measured.items():
        alike[group[key]].append(figures.wall_s if spec.clock == "real" else figures.cpu_s)
    seconds = {key: statistics.fmean(alike[group[key]]) for key in measured}
    scale, stretched = 1.0, 0
    if spec.clock == "paced":
        seconds = _drawn(spec, seconds)
        needed_s = {key: PADDING * figures.crowded_wall_s for key, figures in measured.items()}
        scale = spec.time_scale or min(SLOWEST, max(1.0, *(needed_s[key] / seconds[key] for key in seconds)))
        if spec.time_scale is None:
            stretched = sum(seconds[key] * scale < needed_s[key] for key in seconds)
            seconds = {key: max(each_s, needed_s[key] / scale) for key, each_s in seconds.items()}
    return Expected([ComputeTime(*key, each_s) for key, each_s in sorted(seconds.items())], scale, stretched)


def _drawn(spec: RunSpec, cpu_s: Mapping[Work, float]) -> dict[Work, float]:
    """The drawn devices' times: FLOP over peak where FLOP count, and coding; averaging and stepping, which FLOP do
    not describe, as many times slower than here as the forward is."""
    known = analytic(spec.plan, spec.programs(synchronise=True))
    drawn = {(row.stage, row.replica, row.kind): row.seconds for row in known}

    def seconds(stage: int, replica: int, kind: Kind) -> float:
        if kind in PASSES:
            return drawn[stage, replica, kind]
        slower = drawn[stage, replica, Kind.FORWARD] / cpu_s[stage, replica, Kind.FORWARD]
        return cpu_s[stage, replica, kind] * slower

    return {key: seconds(*key) for key in cpu_s}
