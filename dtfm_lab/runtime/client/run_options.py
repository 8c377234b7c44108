"""Options of a run as plain values, each refused in one line where it is none."""

from __future__ import annotations

import math
import os
import tempfile
from numbers import Integral
from pathlib import Path

from dtfm_lab.domain.errors import JobError, LabError, TopologyError
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.files import load_topology
from dtfm_lab.runtime.protocol.gradient_shards import CARRIES
from dtfm_lab.runtime.protocol.run_spec import RunSpec

MOST_COUNT = 10**9
UNLIKE_SUMS = ("ring", "hierarchical")
"""ways of averaging in which the order of a sum depends on where in the vector, or in which region, a number is"""

AnyPath = str | os.PathLike[str]


def whole_number(what: str, value: object, least: int = 0) -> int:
    """A count, numpy's too; raises LabError."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= MOST_COUNT:
        raise LabError(f"{what} is {shortened(value)}; wanted a whole number from {least} to {MOST_COUNT}")
    return int(value)


def above_0(what: str, value: object, wanted: str) -> float:
    """A finite number above 0, numpy's too; raises LabError."""
    number = as_number(value)
    if number is None or not 0 < number < math.inf:
        raise LabError(f"{what} is {shortened(value)}; wanted {wanted}")
    return number


def path(what: str, given: object) -> str | None:
    """Absolute, for a process that may stand elsewhere; raises LabError."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike):
        raise LabError(f"{what} is {shortened(given)}; wanted a path")
    try:
        found = os.fspath(Path(given).resolve())
        Path(found).exists()
        return os.fsencode(found).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no name that a file can have"
        raise LabError(f"{what} is {shortened(os.fspath(given))}: {reason}; wanted a path") from None


def folder(what: str, given: object) -> str | None:
    """As ``path``; a folder that can be written to, and is there then."""
    if (found := path(what, given)) is None:
        return None
    if given == "":
        raise LabError(f"{what} is empty; wanted a path")
    if Path(found).exists() and not Path(found).is_dir():
        raise LabError(f"{what} {found}: is a file; wanted a folder, or a name that is free")
    try:
        Path(found).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=found):
            return found
    except OSError as error:
        raise LabError(f"{what} {found}: cannot be written to: {error.strerror or error}") from None


def network(emulated: object, topology: Topology, clock: str) -> Topology:
    """The network whose links are emulated in place of the plan's; raises LabError, or what ``load_topology`` does."""
    found = load_topology(emulated) if isinstance(emulated, str | os.PathLike) else emulated
    if not isinstance(found, Topology):
        raise LabError(f"emulated is {shortened(emulated)}; wanted a network by name, a file, or a Topology")
    if clock == "real":
        raise LabError(f"emulated is {found.name} on the real clock, which emulates no links; wanted another clock")
    if len(found) != len(topology):
        raise TopologyError(
            f"emulated network {found.name} has {len(found)} devices; wanted {len(topology)}, as many as the plan's "
            f"network {topology.name}"
        )
    return found


def check_job(spec: RunSpec) -> None:
    """Of what workers compute: whether they know how. Raises JobError."""
    job = spec.trained
    if job.synchronisation not in CARRIES:
        known = ", ".join(CARRIES)
        raise JobError(
            f"job {job.name}: synchronisation is {job.synchronisation}, which can be simulated; real runs know {known}"
        )
    if job.ties_stages and job.synchronise_every > 1 and (job.synchronisation in UNLIKE_SUMS or job.codes_gradients):
        how = f"{job.gradients_as} messages" if job.codes_gradients else f"{job.synchronisation} synchronisation"
        raise JobError(
            f"job {job.name}: {how} every {job.synchronise_every} iterations would round the two copies of a tied "
            f"embedding differently; wanted every iteration, an untied model, or sharded synchronisation uncompressed"
        )
    job.cut(spec.built.n_stages)
