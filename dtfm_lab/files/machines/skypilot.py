"""SkyPilot's machines: a task's YAML says what to rent where, a catalogue's CSV for how much."""

import csv
import io
import re
from pathlib import Path
from typing import Any

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import as_number, known_gpu, shortened
from dtfm_lab.files.machines.seen import Gpu, Host, Seen, Told
from dtfm_lab.files.reading import parse

MOST_NODES = 512
COLUMNS = {"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"}

Offers = dict[tuple[str, float, str], tuple[float | None, float | None]]
"""Of an accelerator's name in small letters, how many and a region: least dollars an hour of an instance, and spot."""


class _Resources(Told):
    accelerators: str | dict[str, float | None] | None = None
    region: str = ""
    zone: str = ""
    infra: str = ""
    use_spot: bool = False


class _Task(Told):
    name: str = ""
    num_nodes: int = Field(default=1, ge=1, le=MOST_NODES)
    resources: _Resources


def is_task(data: object) -> bool:
    return isinstance(data, dict) and isinstance(data.get("resources"), dict) and "dtfm_topology" not in data


def read_task(data: Any, path: Path, offers: Offers) -> Seen:
    """Its nodes, at the catalogue's price where there is one.

    Source of the format: SkyPilot's documentation, Task YAML.
    """
    found = data["resources"].get("accelerators")
    if isinstance(found, list) or any(which in data["resources"] for which in ("any_of", "ordered")):
        raise FileError(f"{path.name}: its resources leave a choice; wanted one kind of accelerator in one region")
    task = parse(_Task, data, path.name)
    needs = task.resources
    name, count = _accelerator(needs.accelerators, path)
    region = needs.region or (needs.infra.split("/")[1] if needs.infra.count("/") else "")
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
        price = min(known) / count
    base = task.name or path.name.partition(".")[0]
    names = [base] if task.num_nodes == 1 else [f"{base}-{i}" for i in range(task.num_nodes)]
    gpu = Gpu(spelled_out(name))
    hosts = [Host(name=each, gpus=(gpu,) * count, region=region, price_per_hour=price) for each in names]
    return Seen(hosts=tuple(hosts), are_near=True)


OF_40_GB = "A100"
"""SkyPilot's name of the A100 with 40 GB, where the one with 80 is A100-80GB; the lab's ``A100`` is the latter."""


def spelled_out(accelerator: str) -> str:
    """A GPU's name as the lab or its driver has it, where SkyPilot's is another: ``A6000``, ``RTX4090``, ``A100``."""
    if accelerator.upper() == OF_40_GB:
        return "A100 40GB"
    return re.sub(r"^(?:RTX)?(?=A\d000|\d{4})", "RTX ", accelerator)


def accelerator_of(gpu: str) -> str:
    """SkyPilot's name of a GPU of the lab's table, of which its reader makes the same GPU."""
    name = known_gpu(gpu) or gpu
    if name.startswith("A100"):
        return OF_40_GB if name == "A100 40GB" else "A100-80GB"
    return name.replace("RTX ", "RTX").replace(" ", "-")


def _accelerator(given: str | dict[str, float | None] | None, path: Path) -> tuple[str, int]:
    pairs = [*given.items()] if isinstance(given, dict) else [((given or "").partition(":")[::2])]
    if len(pairs) != 1 or not pairs[0][0]:
        raise FileError(f"{path.name}: accelerators are {shortened(given)}; wanted one kind, such as A100:8")
    name, text = pairs[0]
    try:
        count = float(text or 1)
    except ValueError:
        count = 0
    if count not in range(1, 65):
        raise FileError(f"{path.name}: {name} are {shortened(text)}; wanted a whole number of GPUs, 1 to 64")
    return name.strip(), int(count)


def is_catalogue(text: str) -> bool:
    return {*text.partition("\n")[0].strip().split(",")} >= COLUMNS


def read_catalogue(text: str, path: Path) -> Offers:
    """The prices of a catalogue (skypilot-catalog, ``vms.csv``), the least of each kind, number and region."""
    offers: Offers = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
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
