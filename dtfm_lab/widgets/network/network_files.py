"""Networks from files that the page sends as bytes, and as YAML text that it saves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology, save_topology
from dtfm_lab.files.reading import write_bytes

NamedBytes = tuple[str, bytes]
"""(name without a folder, content) of a file."""


def topology_from_bytes(files: Sequence[NamedBytes]) -> Topology:
    """Return the network of one file, or of two with matrices. Raises a LabError that names the file."""
    if not files:
        raise FileError("no file was given; wanted one")
    with TemporaryDirectory(prefix="dtfm-") as folder:
        paths = [Path(folder, Path(name.replace("\\", "/")).name or "unnamed") for name, _ in files]
        try:
            for path, (_, data) in zip(paths, files, strict=True):
                write_bytes(path, data)
            return load_topology(paths[0])
        except LabError as error:
            line = str(error).replace(f"{folder}/", "")
            raise type(error)(line) from None


def yaml_of(topology: Topology) -> str:
    """Return the network as the text of a YAML file."""
    with TemporaryDirectory(prefix="dtfm-") as folder:
        return save_topology(topology, Path(folder, "network.yaml")).read_text(encoding="utf-8")
