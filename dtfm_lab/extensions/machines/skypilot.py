"""Read SkyPilot's machines: a task's YAML gives GPUs and region, a catalogue's CSV their price."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import HARDWARE, as_number, known_gpu, shortened, variants_of
from dtfm_lab.domain.units import GiB
from dtfm_lab.extensions.machines.links import as_modules
from dtfm_lab.extensions.machines.seen import MOST_GPUS, ReportedGpu, ReportedHost, SourceReport, ToolOutput
from dtfm_lab.files.reading import cells_of, parse

MOST_NODES = 512
COLUMNS = {"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"}

Offers = dict[tuple[str, float, str], tuple[float | None, float | None]]
"""Prices of the cheapest instance of each kind: US dollars per hour on demand, and as a spot instance; None if not
sold.

The key is the accelerator's name in lower case, the number of accelerators, and the region.
"""


Accelerators = str | dict[str, float | None] | list[str] | None


class _Resources(ToolOutput):
    accelerators: Accelerators = None
    region: str = ""
    zone: str = ""
    infra: str = ""
    use_spot: bool = False
    network_tier: str = ""


class _Task(ToolOutput):
    name: str = ""
    num_nodes: int = Field(default=1, ge=1, le=MOST_NODES)
    resources: _Resources


def is_task(data: object) -> bool:
    return isinstance(data, dict) and isinstance(data.get("resources"), dict) and "dtfm_topology" not in data


def task_of(documents: Sequence[Any], path: Path) -> Any:
    """Return the task of a YAML file. If the file is a pipeline, return its task with GPUs. The first document of a
    pipeline may only hold a name. If no task has GPUs, return the last document, or None if there are no documents.

    Raises FileError for a pipeline with several such tasks: they run one after the other, each on its own machines.
    """
    # A task without GPUs, such as one that copies data, is not refused.
    with_gpus = [each for each in documents if is_task(each) and _wants_gpus(each["resources"])]
    if len(with_gpus) > 1:
        raise FileError(
            f"{path.name}: holds {len(with_gpus)} tasks with accelerators, which run one after the other; wanted one "
            "of them alone"
        )
    return next(iter(with_gpus), documents[-1] if documents else None)


def _wants_gpus(resources: dict[str, Any]) -> bool:
    choices = [*_listed(resources.get("any_of")), *_listed(resources.get("ordered"))]
    return bool(resources.get("accelerators")) or any(each.get("accelerators") for each in choices)


def _listed(choices: object) -> list[dict[str, Any]]:
    return [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []


def read_task(data: Any, path: Path, offers: Offers) -> SourceReport:
    """Read the nodes of a task. If resources are an ordered list, its first entry counts.

    With ``offers``, each GPU gets its share of the price of the cheapest instance that fits. Raises FileError if none
    fits.

    Source of the format: SkyPilot's documentation, Task YAML.
    """
    data, notes = _decided(data, path)
    task = parse(_Task, data, path.name)
    needs = task.resources
    name, count = _accelerator(needs.accelerators, path, notes)
    region = needs.region or (needs.infra.split("/")[1] if needs.infra.count("/") else "")
    region = "" if region == "*" else region
    # Zones end in a letter, which regions lack.
    region = region or re.sub(r"(?<=\d)-?[a-z]$", "", needs.zone)
    price = None
    if offers:
        fitting = {key: both for key, both in offers.items() if key[:2] == (name.casefold(), float(count))}
        prices = [both[needs.use_spot] for key, both in fitting.items() if region in ("", key[2])]
        known = [each for each in prices if each is not None]
        if not known:
            where, how = (f" in {region}" if region else ""), " as spot" if needs.use_spot else ""
            raise FileError(
                f"{path.name}: the catalogue has no price of {count} x {name}{where}{how}; wanted one that has"
            )
        # SkyPilot takes the cheapest offer.
        price = min(known) / count
    base = task.name or path.name.partition(".")[0]
    names = [base] if task.num_nodes == 1 else [f"{base}-{i}" for i in range(task.num_nodes)]
    gpu = ReportedGpu(_as_sold(name, count))
    is_best = needs.network_tier.casefold() == "best"
    hosts = [
        ReportedHost(name=each, gpus=(gpu,) * count, region=region, price_per_hour=price, has_best_network=is_best)
        for each in names
    ]
    return SourceReport(hosts=tuple(hosts), are_near=True, notes=tuple(notes))


def _decided(data: Any, path: Path) -> tuple[Any, list[str]]:
    """Return the task with its choices of resources resolved, and notes.

    Of ``ordered`` choices, the first counts. Of ``any_of`` choices, only the values that all share are kept. Raises
    FileError if these have different accelerators, because SkyPilot would choose by price.
    """
    resources, notes = dict(data["resources"]), []
    for which in ("ordered", "any_of"):
        if not (choices := _listed(resources.pop(which, None))):
            continue
        # SkyPilot would choose by price and availability, which this cannot know.
        if which == "any_of" and len({str(each.get("accelerators")) for each in choices}) > 1:
            raise FileError(f"{path.name}: its resources leave a choice; wanted one kind of accelerator in one region")
        if which == "any_of" and len(choices) > 1:
            same = {key: value for key, value in choices[0].items() if all(each.get(key) == value for each in choices)}
            resources |= same
            notes.append(f"{path.name}: leaves open where it runs, of {len(choices)} choices")
            continue
        resources |= choices[0]
        if len(choices) > 1:
            notes.append(f"{path.name}: the first of {len(choices)} ordered choices counts")
    return {**data, "resources": resources}, notes


OF_40_GB = "A100"
"""SkyPilot's name of the A100 with 40 GB. Its A100-80GB is the GPU that the lab calls ``A100``."""


OTHER_SPELLINGS = {"H100-MEGA": "H100", "RTX6000": "Quadro RTX 6000", "RTXPRO6000": "RTX PRO 6000 Blackwell"}
"""SkyPilot's name of a GPU -> the name to look up. H100-MEGA is the H100 in Google's a3-megagpu, RTX6000 is Lambda's
Turing Quadro, and RTXPRO6000 is the Blackwell."""


def spelled_out(accelerator: str) -> str:
    """Translate SkyPilot's name of a GPU, such as ``A6000``, ``RTX4090`` or ``A100``, to the lab's or the driver's
    name."""
    if accelerator.upper() == OF_40_GB:
        return "A100 40GB"
    if (other := OTHER_SPELLINGS.get(re.sub(r"-?(?:SE|SERVER)$", "", accelerator.upper()))) is not None:
        return other
    return re.sub(r"^(?:RTX)?(?=A\d000|\d{4})", "RTX ", accelerator)


def _as_sold(accelerator: str, count: int) -> str:
    """Return the driver's name of a GPU in a host with ``count`` GPUs. Clouds sell some kinds as modules joined by
    NVLink."""
    name = spelled_out(accelerator)
    kind = known_gpu(name)
    if variants_of(name) and kind is not None:  # a bare V100 has 16 GB in SkyPilot, the other is V100-32GB
        name += f" {HARDWARE[kind].memory_bytes / GiB:.0f}GB"
    return as_modules(name, count)


def _accelerator(given: Accelerators, path: Path, notes: list[str]) -> tuple[str, int]:
    """Return the kind and the number of GPUs from ``A100:8``, ``{A100: 8}``, a set of one entry, or the first entry of
    an ordered list. Raises FileError for anything else."""
    choices = [given] if isinstance(given, str) else [*(given or ())]
    if isinstance(given, list) and len(choices) > 1:
        notes.append(f"{path.name}: the first of {len(choices)} ordered accelerators counts")
        choices = choices[:1]
    if len(choices) > 1:
        raise FileError(
            f"{path.name}: accelerators leave a choice of {len(choices)}, {shortened(given)}; wanted one kind, such as "
            "A100:8"
        )
    if not choices or not choices[0].partition(":")[0].strip():
        raise FileError(f"{path.name}: accelerators are {shortened(given)}; wanted one kind, such as A100:8")
    name, _, text = choices[0].partition(":")
    if isinstance(given, dict) and given[choices[0]] is not None:
        name, text = choices[0], str(given[choices[0]])
    try:
        count = float(text or 1)
    except ValueError:
        count = 0
    if count not in range(1, MOST_GPUS + 1):
        raise FileError(f"{path.name}: {name} are {shortened(text)}; wanted a whole number of GPUs, 1 to {MOST_GPUS}")
    return name.strip(), int(count)


def is_catalogue(text: str) -> bool:
    return {*text.partition("\n")[0].strip().split(",")} >= COLUMNS


def _rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the cells by column of each row. Missing cells are empty."""
    lines = cells_of(text, path)
    _, columns = next(lines)
    for number, cells in lines:
        yield number, dict(zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=False))


def read_catalogue(text: str, path: Path) -> Offers:
    """Read the minimum prices of a catalogue (skypilot-catalog, ``vms.csv``) for each kind, number and region. Raises
    FileError for invalid numbers, or without any accelerator."""
    offers: Offers = {}
    for number, row in _rows(text, path):
        if not row["AcceleratorName"]:
            continue
        try:
            count = float(row["AcceleratorCount"])
            prices = [float(each) if each else None for each in (row["Price"], row.get("SpotPrice"))]
        except (TypeError, ValueError):
            raise FileError(f"{path.name}: line {number}: {shortened(row)}; wanted numbers, and all columns") from None
        if any(each is not None and not 0 <= each < 1e6 for each in prices) or as_number(count) is None:
            raise FileError(f"{path.name}: line {number} has prices {prices}; wanted dollars an hour")
        key = row["AcceleratorName"].casefold(), count, row["Region"] or ""
        before = offers.get(key, (None, None))
        least = [min((e for e in pair if e is not None), default=None) for pair in zip(before, prices, strict=True)]
        offers[key] = least[0], least[1]
    if not offers:
        raise FileError(f"{path.name}: offers no accelerator; wanted a catalogue of machines that have some")
    return offers
