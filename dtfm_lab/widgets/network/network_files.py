"""Networks that come from the page, as bytes with a file's name, and go back there as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology, save_topology
from dtfm_lab.files.reading import write_bytes

NamedBytes = tuple[str, bytes]
"""a file's name, without a folder, and what it holds"""


def topology_from_bytes(files: Sequence[NamedBytes]) -> Topology:
    """The network that these files hold: one, or two matrices. Raises a LabError that names the file."""
    if not files:
        raise FileError("no file was given; wanted one")
    with TemporaryDirectory(prefix="dtfm-") as folder:
        paths = [Path(folder, Path(name.replace("\\", "/")).name or "unnamed") for name, _ in files]
        try:
            for path, (_, data) in zip(paths, files, strict=True):
                write_bytes(path, data)
            return load_topology(paths[0])
        except LabError as error:
            said = str(error).replace(f"{folder}/", "")
            raise type(error)(said) from None


def yaml_of(topology: Topology) -> str:
    """The network as a YAML file holds it."""
    with TemporaryDirectory(prefix="dtfm-") as folder:
        return save_topology(topology, Path(folder, "network.yaml")).read_text(encoding="utf-8")
