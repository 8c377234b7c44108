"""Expected duration of each computation of a run, and the scale of the paced clock, from the calibration iterations."""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from dtfm_lab.domain.schedule import PASSES, Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime.protocol.profile import Measured
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation.durations import analytic, peak_of
from dtfm_lab.simulation.engine import simulate_iteration

PADDING = 5.0
"""Paced clock: least ratio of a computation's padded time to the wall time that nine of ten calibration runs took."""
LARGEST_SCALE = 40.0
"""Paced clock: most wall seconds per second of the run, on a network of equal devices. Where they are so much faster
than this machine that this scale is too small, their computations are stretched to what the machine can keep, and the
profile reports how many."""
LONGEST_S = 10.0
"""Paced clock, on a network of unequal devices: most wall seconds of an iteration in which these keep their ratio."""
UNEQUAL = (Kind.PACK, Kind.REDUCE, Kind.STEP)
"""Computations of which replicas of one stage may have different amounts."""

Work = tuple[int, int, Kind]
"""A kind of computation of one worker: (stage, replica, kind)."""


class Calibration(NamedTuple):
    """What the workers and the predictions are given before the first iteration."""

    profile: list[ComputeTime]
    time_scale: float
    """Wall seconds per second of the run; 1 unless the clock is paced."""
    stretched: int
    """Number of profile rows that are longer than on the device of the network."""


def calibrate(spec: RunSpec, measured: Mapping[Work, Measured]) -> Calibration:
    """Return the expected duration of every computation of the run."""
    # Replicas of a stage compute the same on the same machine, so their mean is steadier than each of them.
    alike: dict[Work, list[float]] = defaultdict(list)
    group = {key: key if key[2] in UNEQUAL else (key[0], -1, key[2]) for key in measured}
    for key, figures in measured.items():
        alike[group[key]].append(figures.wall_s if spec.clock == "real" else figures.cpu_s)
    seconds = {key: statistics.fmean(alike[group[key]]) for key in measured}
    if spec.clock != "paced":
        return Calibration(_rows(seconds), 1.0, 0)
    seconds = _device_seconds(spec, seconds)
    if spec.time_scale is not None:
        return Calibration(_rows(seconds), spec.time_scale, 0)
    needed_s = {key: PADDING * figures.crowded_wall_s for key, figures in measured.items()}
    enough = max(1.0, *(needed_s[key] / seconds[key] for key in seconds))
    if enough <= LARGEST_SCALE:
        return Calibration(_rows(seconds), enough, 0)
    if in_proportion := _in_proportion(spec, seconds, enough):
        return in_proportion
    stretched = sum(seconds[key] * LARGEST_SCALE < needed_s[key] for key in seconds)
    seconds = {key: max(each_s, needed_s[key] / LARGEST_SCALE) for key, each_s in seconds.items()}
    return Calibration(_rows(seconds), LARGEST_SCALE, stretched)


def _in_proportion(spec: RunSpec, seconds: Mapping[Work, float], enough: float) -> Calibration | None:
    """Return the calibration in which unequal devices keep the ratio of their speeds, though they outrun this machine.

    ``enough`` is the scale at which all computations fit. Links are slowed down with them if an iteration is short
    enough; else all computations are stretched alike, and links take less. None where both take too long, or where all
    devices are equal.
    """
    devices, dtype = spec.plan.topology.devices, spec.plan.job.dtype
    if len({peak_of(device, dtype) for device in devices}) == 1:
        return None
    for scale in (enough, LARGEST_SCALE):
        rows = _rows({key: each_s * enough / scale for key, each_s in seconds.items()})
        if scale * simulate_iteration(spec.plan, spec.built, rows, spec.links).makespan_s <= LONGEST_S:
            return Calibration(rows, scale, 0 if scale == enough else len(rows))
    return None


def _rows(seconds: Mapping[Work, float]) -> list[ComputeTime]:
    return [ComputeTime(*key, each_s) for key, each_s in sorted(seconds.items())]


def _device_seconds(spec: RunSpec, cpu_s: Mapping[Work, float]) -> dict[Work, float]:
    """Return the durations on the devices of the network.

    Passes take their FLOP over the device's peak. FLOP do not describe averaging and the optimiser step: these are
    slower than on this machine by the same factor as the forward pass.
    """
    analytic_rows = analytic(spec.plan, spec.programs(synchronise=True))
    device_s = {(row.stage, row.replica, row.kind): row.seconds for row in analytic_rows}

    def seconds(stage: int, replica: int, kind: Kind) -> float:
        if kind in PASSES:
            return device_s[stage, replica, kind]
        slower = device_s[stage, replica, Kind.FORWARD] / cpu_s[stage, replica, Kind.FORWARD]
        return cpu_s[stage, replica, kind] * slower

    return {key: seconds(*key) for key in cpu_s}
