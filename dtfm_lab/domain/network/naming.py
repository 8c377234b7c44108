"""Short names for sets of devices: by host, by region, by runs of numbered names, or by kind.

``host-2 to host-16 and 5 of host-1`` replaces a list of 125 names.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from dtfm_lab.domain.network.device import Device
from dtfm_lab.domain.registry import listed
from dtfm_lab.domain.units import by_key, counted

FEW_NAMES = 4
"""Up to this many devices are listed by name: as many as fit into a sentence."""
MOST_PARTS = 4
"""Up to this many hosts, regions or runs are listed by name. More are counted."""
NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")
"""Matches a name and the last number in it."""
SHORTEST_RUN = 3
"""From this many names on, a run is written as its two ends."""


def set_words(devices: Sequence[Device], members: Iterable[int], few: int = FEW_NAMES, most: int = MOST_PARTS) -> str:
    """Describe a set of devices in at most ``few`` names or ``most`` parts; empty text for an empty set.

    The parts are hosts or regions (if every device of the set names one), runs of numbered names, or kinds of GPU: the
    first of these that needs few enough parts. A host or region named without a count has all its devices in the set.
    If the set holds a group of GPUs of a named host, it is always described in parts. A group carries only the name of
    its first GPU.
    """
    chosen = sorted(set(members))
    names = [devices[i].name for i in chosen]
    if len(names) <= few and not any(devices[i].gpus > 1 and devices[i].host for i in chosen):
        return listed(names)
    by_host, by_region = [device.host for device in devices], [device.region for device in devices]
    gpus = [device.gpus for device in devices]
    ways = [parts_of(kind, chosen, gpus) for kind in (by_host, by_region) if all(kind[i] for i in chosen)]
    # Hosts say most about a set, then regions, then runs of numbers, then kinds of GPU.
    ways.append(in_ranges(names))
    ways.append([counted(n, f"{gpu} device") for gpu, n in Counter(devices[i].gpu for i in chosen).most_common()])
    # The first way that is short enough, because earlier ways say more.
    best = next((way for way in ways if len(way) <= most), min(ways, key=len))
    return listed(best, most)


def count_words(devices: Sequence[Device], members: Iterable[int]) -> str:
    """Say how many devices are in a set, and which: ``8 of 128: all of host-16``. Count GPUs if devices are groups."""
    chosen = set(members)
    several = any(device.gpus > 1 for device in devices)
    n, total = sum(devices[i].gpus for i in chosen), sum(device.gpus for device in devices)
    count = f"{n:,} of {total:,}{' GPUs' * several}"
    words = set_words(devices, chosen)
    return f"{count}{', ' if words.startswith('all of ') else ': '}{words}" if words else count


def parts_of(group_of: Sequence[str], members: Sequence[int], gpus: Sequence[int]) -> list[str]:
    """Describe the groups (such as hosts) that hold some members: whole groups first, as runs, then parts of others.

    ``group_of`` has the group of every device, ``gpus`` its number of GPUs. A single whole group is ``all of host-16``.
    """
    whole_size = Counter(group_of)
    found = Counter(group_of[i] for i in members)
    whole = in_ranges([group for group, n in found.items() if n == whole_size[group]])
    if len(found) == sum(n == whole_size[group] for group, n in found.items()) == 1:
        return [f"all of {whole[0]}"]
    unit = " GPUs" if any(n > 1 for n in gpus) else ""
    held: Counter[str] = Counter()
    for i in members:
        held[group_of[i]] += gpus[i]
    parts = by_key((held[group], group) for group, n in found.items() if n < whole_size[group])
    return whole + [
        f"{n}{unit} of {'each of ' * (len(groups) > 1)}{listed(in_ranges(groups), MOST_PARTS)}"
        for n, groups in sorted(parts.items(), reverse=True)
    ]


def uneven_hosts(devices: Sequence[Device]) -> list[str]:
    """Return a sentence for each region whose counted hosts are all the same size, except for a smaller last one.

    ``130 GPUs in hosts of 8: the last host has 2``. A file's ``per_host`` makes such hosts (``counted_host``).
    """
    sizes: dict[str, dict[str, int]] = {}
    for device in devices:
        if device.region and device.host.startswith(counted_host(device.region, "")):
            of_region = sizes.setdefault(device.region, {})
            of_region[device.host] = of_region.get(device.host, 0) + device.gpus
    found = []
    for region, held in sizes.items():
        *full, last = held.values()
        if full and len(set(full)) == 1 and last < full[0]:
            words = f"{sum(full) + last:,} GPUs in hosts of {full[0]}: the last host has {last}"
            found.append(words if len(sizes) == 1 else f"{region}: {words}")
    return found


def counted_host(region: str, number: int | str) -> str:
    """Return the name of host ``number`` of a region whose file only says how many devices each host has:
    ``rack-host-0``."""
    return f"{region}-host-{number}"


def name_words(names: Sequence[str], most: int = FEW_NAMES) -> str:
    """List names. If there are more than ``most``, runs of numbered names are shortened: ``host-1 to host-16 and
    spare``."""
    return listed(names if len(names) <= most else in_ranges(names), most)


def in_ranges(names: Sequence[str]) -> list[str]:
    """Return the names without a number, then the numbered ones: grouped by the text around the number, in order of the
    number. Each run of at least ``SHORTEST_RUN`` consecutive numbers becomes one text: ``host-2 to host-16``."""
    found: list[str] = []
    runs: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name in dict.fromkeys(names):
        if match := NUMBERED.fullmatch(name):
            before, digits, after = match.groups()
            runs.setdefault((before, after), []).append((int(digits), name))
        else:
            found.append(name)
    for numbered in runs.values():
        found += _runs(sorted(numbered))
    return found


def _runs(numbered: Sequence[tuple[int, str]]) -> list[str]:
    """Return names in order of their numbers. Each run of at least ``SHORTEST_RUN`` consecutive numbers becomes ``first
    to last``."""
    by_run = by_key((number - place, name) for place, (number, name) in enumerate(numbered))
    found: list[str] = []
    for names in by_run.values():
        found += [f"{names[0]} to {names[-1]}"] if len(names) >= SHORTEST_RUN else names
    return found
