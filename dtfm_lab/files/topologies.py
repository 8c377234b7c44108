"""Load topologies by name or from files, and save them. The suffix of a file decides its format.

| suffix                                      | holds                                            |
| ------------------------------------------- | ------------------------------------------------ |
| .yaml, .yml, .json                          | everything, as people write it                   |
| .npz                                        | all except measured GPUs, dense; by far fastest  |
| .csv                                        | links and names: one row per directed link       |
| .latency_ms.csv with .bandwidth_gbps.csv    | links and names: two matrices                    |

Latencies and bandwidths that were entered in milliseconds and Gbit/s are read back exactly. Others may differ in the
last bit or two of a float.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dtfm_lab.domain.errors import FileError, TopologyError, UnknownName
from dtfm_lab.domain.job import JOBS
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.registry import Registry, current_name, unknown
from dtfm_lab.files import topology_csv, topology_npz, topology_yaml
from dtfm_lab.files.reading import reason_of, shipped


class TopologyFormat(Protocol):
    """A file format for topologies: a module or an object with these three names."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of its file names, in lower case, with the leading dot."""

    def read(self, path: Path, /) -> Topology:
        """Read a topology. Raises LabError, naming the file, if it holds none, and FileError if it is empty."""

    def write(self, topology: Topology, path: Path, /) -> Path:
        """Write the topology and return the path. Raises FileError if it cannot be written."""


def _is_format(entry: object) -> bool:
    return all(hasattr(entry, name) for name in ("suffixes", "read", "write"))


FORMATS: Registry[TopologyFormat] = Registry(
    "topology format",
    group="dtfm_lab.topology_formats",
    entries={"csv": topology_csv, "npz": topology_npz, "yaml": topology_yaml},
    fits=_is_format,
)
"""Every known format. If a file name ends in the suffixes of two formats, the longer suffix wins."""

NETWORKS: Registry[Callable[[], Topology]] = Registry("network", group="dtfm_lab.networks")
"""Networks from plug-ins: functions that return a Topology."""


class MachineReader(Protocol):
    """Builds a network from several files that describe machines, such as the output of tools."""

    def __call__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        /,
        *,
        at: Mapping[str, str] | None,
        peak_tflops: Mapping[str, float] | None,
        memory_gib: Mapping[str, float] | None,
    ) -> Topology: ...


MACHINE_READERS: Registry[MachineReader] = Registry("reader of machines", group="dtfm_lab.machine_readers")
"""Readers for lists of files that describe machines. The first entry is used."""


def topology_names() -> list[str]:
    """Return the names of the networks that come with the lab or with plug-ins."""
    return sorted({*(path.stem for path in shipped("topologies").glob("*.yaml")), *NETWORKS})


def load_topology(
    name_or_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    memory_gib: Mapping[str, float] | None = None,
) -> Topology:
    """Return a topology by name (see ``topology_names``) or from a file with one of ``topology_suffixes``.

    A list of files that describe machines goes to the first of ``MACHINE_READERS``. Only then may you give ``at``
    ({host: region}), ``peak_tflops`` and ``memory_gib`` (both {GPU: value}).

    Raises FileError (unreadable, broken, unknown key, unknown suffix), TopologyError (missing or impossible link, or
    one of these arguments with one network) or UnknownName. Each error says where.
    """
    if isinstance(name_or_path, list | tuple) and MACHINE_READERS:
        read = next(iter(MACHINE_READERS.values()))
        return read(name_or_path, at=at, peak_tflops=peak_tflops, memory_gib=memory_gib)
    if at or peak_tflops or memory_gib:
        wanted = "a list of outputs of tools, which they complete" if MACHINE_READERS else "a network alone"
        raise TopologyError(f"at, peak_tflops or memory_gib with one network; wanted {wanted}")
    if not isinstance(name_or_path, str | os.PathLike):
        raise TopologyError(f"topology is {shortened(name_or_path)}; wanted a name or a path")
    name = current_name("topology", os.fspath(name_or_path))
    if name in topology_names():
        file = shipped("topologies") / f"{name}.yaml"
        return topology_yaml.read(file) if file.exists() else _plug_in_network(name)
    path = Path(name)
    if (found := _format_of(path)) is not None:
        return found.read(path)
    if os.path.exists(path) and name:
        raise FileError(f"{path}: {_why_no_format(path)}")
    error = unknown("topology", shortened(name) if len(name) > 60 else name, topology_names())
    # A common slip: the name of a job.
    raise UnknownName(f"{error} ({name} is a job)") if name in JOBS else error


def save_topology(topology: Topology, path: str | os.PathLike[str]) -> Path:
    """Write a topology in the format that the path's suffix names. Raises FileError for another suffix."""
    path = Path(path)
    if (found := _format_of(path)) is not None:
        return found.write(topology, path)
    graphs = "networkx.write_graphml(topology.to_networkx(), path)"
    raise FileError(f"{path}: {_why_no_format(path, graphs)}")


def topology_suffixes() -> list[str]:
    """Return the suffixes that a topology file may have."""
    return sorted(suffix for each in FORMATS.values() for suffix in each.suffixes)


def _plug_in_network(name: str) -> Topology:
    """Return a plug-in's network. Raises TopologyError if the plug-in fails."""
    try:
        made = NETWORKS[name]()
    except Exception as error:  # a plug-in may raise anything
        raise TopologyError(f"network {name} cannot be made: {reason_of(error)}") from error
    if not isinstance(made, Topology):
        raise TopologyError(f"network {name} is {shortened(made)}; wanted a Topology")
    return made


def _format_of(path: Path) -> TopologyFormat | None:
    name = path.name.lower()
    by_suffix = {suffix: each for each in FORMATS.values() for suffix in each.suffixes}
    fitting = [suffix for suffix in by_suffix if name.endswith(suffix) and name != suffix]
    return by_suffix[max(fitting, key=len)] if fitting else None


def _why_no_format(path: Path, graphs: str = "Topology.from_networkx(networkx.read_graphml(path))") -> str:
    if path.exists() and not path.is_file():
        return f"is not a file; wanted a topology file that ends in {', '.join(topology_suffixes())}"
    found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
    if path.suffix.lower() == ".graphml":
        return f"{found}; wanted {graphs}"
    return f"{found}; wanted a topology file that ends in {', '.join(topology_suffixes())}"
