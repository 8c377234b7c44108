"""Choose the reader for each file, and return what the files report about your machines."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError
from dtfm_lab.extensions.machines import clusters, driver, iperf, kubernetes, nccl, skypilot
from dtfm_lab.extensions.machines.seen import SourceReport
from dtfm_lab.extensions.machines.text import documents
from dtfm_lab.files.reading import MOST_YAML_BYTES, mapping_of, read_text

MOST_BYTES = 2**26
"""Maximum size of a source in bytes. A catalogue of Amazon's has about 10 MB."""
MOST_DOCUMENTS = 10_000
"""Maximum number of JSON values in a file. Each line of ``iperf3 --json-stream`` is one, and it prints one per
second."""

Reader = Callable[[Any, Path], SourceReport]
OF_TEXT: Sequence[tuple[Callable[[str], bool], Reader]] = (
    (driver.is_smi, driver.read_smi),
    (nccl.is_nccl, nccl.read_nccl),
    (driver.is_rocm, driver.read_rocm),
    (driver.is_topo, driver.read_topo),
    (clusters.is_slurm, clusters.read_slurm),
    (clusters.is_ssh, clusters.read_ssh),
)
OF_DATA: Sequence[tuple[Callable[[object], bool], Reader]] = (
    (iperf.is_iperf, iperf.read_iperf),
    (kubernetes.is_kubernetes, kubernetes.read_kubernetes),
    (clusters.is_ray, clusters.read_ray),
)
READ = (
    "nvidia-smi -q -x, nvidia-smi topo -m, iperf3 --json, a test of NCCL, kubectl get nodes -o json, ray list nodes "
    "--format json, scontrol show node, sinfo -N -o '%N %G', an ssh config, a SkyPilot task (YAML) or catalogue (CSV)"
)


def read_sources(paths: Sequence[Path]) -> list[SourceReport]:
    """Return what each file reports. SkyPilot's tasks come last, with the catalogues' prices. Raises FileError."""
    offers: skypilot.Offers = {}
    tasks: list[tuple[Any, Path]] = []
    seen = []
    for path in paths:
        text = read_text(path, MOST_BYTES)
        if skypilot.is_catalogue(text):
            offers |= skypilot.read_catalogue(text, path)
            continue
        found = _data(text, path)
        if skypilot.is_task(task := skypilot.task_of(found, path)):
            tasks.append((task, path))
        elif found:
            seen += [_read(data, path, OF_DATA) for data in found]
        else:
            seen.append(_read(text, path, OF_TEXT))
    # Last, because catalogues may come after them in the list of files.
    seen += [skypilot.read_task(data, path, offers) for data, path in tasks]
    if offers and not tasks:
        raise FileError("a catalogue has offers but no machines; wanted a SkyPilot task beside it, which names them")
    return seen


def ssh_config_among(paths: Iterable[str | os.PathLike[str]]) -> Path | None:
    """Return the first of these files that is an ssh config; None if none is."""
    for path in map(Path, paths):
        text = read_text(path, MOST_BYTES)
        readers = (read for is_written, read in OF_TEXT if is_written(text))
        if text.lstrip()[:1] not in ("{", "[") and next(readers, None) is clusters.read_ssh:
            return path
    return None


def _data(text: str, path: Path) -> list[Any]:
    """Return the JSON values in a text, or the YAML documents if the file's name says that it is YAML. Empty for other
    text.

    Text that starts with a bracket need not be JSON: ``mpirun --tag-output`` starts each line with ``[1,0]<stdout>:``.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        if len(text) > MOST_YAML_BYTES:
            raise FileError(f"{path}: has {len(text)} characters; wanted at most {MOST_YAML_BYTES} as YAML")
        return _yaml_documents(text, path)
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        found = documents(text, path)
    except FileError:
        # Text of another tool may begin with a bracket as well.
        if any(is_written(text) for is_written, _ in OF_TEXT[:-1]):
            return []
        raise
    if len(found) > MOST_DOCUMENTS:
        raise FileError(f"{path.name}: holds {len(found)} JSON values; wanted at most {MOST_DOCUMENTS}")
    events = [each for each in found if isinstance(each, dict) and iperf.is_event(each)]
    return [*iperf.tests_of(events), *(each for each in found if not iperf.is_event(each))]


def _yaml_documents(text: str, path: Path) -> list[Any]:
    """Return the mappings in a YAML file, one per document. Empty documents are skipped. Raises FileError if the whole
    file is empty."""
    parts, line = [], 0
    for part in re.split(r"^---[ \t]*(?:#.*)?$", text, flags=re.MULTILINE):
        if any(each.strip() and not each.lstrip().startswith("#") for each in part.splitlines()):
            parts.append("\n" * line + part)  # so that an error names the line in the file
        line += part.count("\n")
    return [mapping_of(part, path) for part in parts] or [mapping_of(text, path)]


def _read(content: Any, path: Path, readers: Sequence[tuple[Callable[[Any], bool], Reader]]) -> SourceReport:
    """Return the report by the first reader that recognises the content. Raises FileError if none does."""
    for is_known, read in readers:
        if is_known(content):
            return read(content, path)
    raise FileError(f"{path.name}: is the output of no tool that is read; wanted {READ}")
