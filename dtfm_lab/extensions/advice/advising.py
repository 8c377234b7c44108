"""Advise where to train: plan the options one by one, then try upgrades of the best one that uses your own machines."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from dtfm_lab import files
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import OF_ONE_SHAPE
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.advice.advice import DEFAULT_SECONDS, Advice, AdviceOptions, MemoryFit, Spot, UpgradeGain
from dtfm_lab.extensions.advice.keywords import AdviceKeywords
from dtfm_lab.extensions.advice.ways import RENTED, FleetOption, room_of, ways_of, with_one_more
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.replaying import replay
from dtfm_lab.extensions.machines.skypilot import Offers, is_catalogue, read_catalogue
from dtfm_lab.files.reading import read_text
from dtfm_lab.lab.arguments import Progress, newest_of
from dtfm_lab.lab.plans import nouns
from dtfm_lab.planning.explain.worth import replanned
from dtfm_lab.planning.explain.worth import seconds as seconds_of
from dtfm_lab.simulation.sensitivity import gains

OF_HOME = 3.0
"""With a time limit, an option with all your own machines, with or without rented ones, is searched this many times as
long as one with a single machine or only rented ones. The search with a second copy of a device takes as long."""
CHANGES: tuple[dict[str, Any], ...] = (
    {"checkpointing": None, "recompute": False},
    {"microbatch": 1},
    {"optimizer": "adam-8bit"},
    {"adapters": 16},
    {"adapters": 16, "frozen_weights": "nf4"},
)
"""Changes to a job that reduce its memory, the mildest first. A job that already has adapters keeps them."""
FACTOR = 2.0
"""Bandwidth of an upgraded link, divided by its bandwidth now."""
LEAST_GAIN = 0.01
"""Minimum share of the iteration that an upgrade of a link must save to be reported."""
MOST_GAINS = 3
"""Maximum number of upgrades of links to report."""
LIFE_S = 12 * 3600.0
"""Assumed seconds until a spot machine is interrupted, on average: 12 h."""
ABSENCE_S = 1800.0
"""Assumed seconds until its replacement, on average: half an hour."""
LEAST_S = 24 * 3600.0
"""Minimum seconds of the replay in which spot machines are interrupted. A short sample says little. A longer job is
replayed for as long as it lasts, up to ``MOST_S``."""
MOST_S = 48 * 3600.0
"""Maximum seconds of this replay."""
MAGNITUDES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


@takes_options(AdviceOptions)
def advise(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[AdviceKeywords],
) -> Advice:
    """Advise where to train a job on a number of tokens: on your own machines, with rented ones, only rented, or not at
    all.

    Devices with a price are rented. Those without are your own and cost electricity. Each option is planned for the
    fastest iteration, with its own shape. The result displays itself in a notebook and prints as text. It has
    ``.verdict``, ``.best``, ``.options``, ``.to_frame()`` and ``.save("advice.md")``.

    With ``deadline_days`` the best option is the cheapest one that finishes in time. With only ``budget_dollars`` it is
    the fastest one within the budget. With neither it is the cheapest that takes at most ten times as long as the
    fastest. If the job fits nowhere, the mildest change that makes it fit is applied and reported. Ctrl-C keeps the
    options planned so far.
    """
    return newest_of(growing_advice(*nouns(topology, job), AdviceOptions(**options)), progress)


def growing_advice(network: Topology, job: Job, asked: AdviceOptions) -> Iterator[Advice]:
    """Yield the advice after every option, and the complete one at the end. Raises LabError for a job without a model,
    for a number of tokens that is not above 0, and for a catalogue that cannot be used."""
    job.modelled()
    job = job.with_fields(**dict.fromkeys(OF_ONE_SHAPE))
    # Without a limit each option would be searched for ever.
    if asked.seconds is None and asked.steps is None:
        asked = replace(asked, seconds=DEFAULT_SECONDS)
    tokens, offers = _tokens(asked.tokens), None if asked.catalogue is None else _read(Path(asked.catalogue))
    ways = list(ways_of(network, offers, tokens=tokens, electricity_per_kwh=asked.electricity_per_kwh))
    parts = [1.0 if way.kind == RENTED or way.is_single else OF_HOME for way in ways]
    part_s = None if asked.seconds is None else asked.seconds / (sum(parts) + OF_HOME)
    limits = [{"seed": asked.seed, "steps": asked.steps, "seconds": part_s and part_s * n} for n in (*parts, OF_HOME)]
    found = Advice(topology=network, job=job, tokens=tokens, asked=asked, options=(), wanted=len(ways) + 1)
    for trained, words, _ in _jobs(job):
        # No option has room for this version, so searching all of them would find nothing.
        if words and not any(room_of(way.topology, trained).fits for way in ways):
            continue
        done: tuple[FleetOption, ...] = ()
        for way, limit in zip(ways, limits, strict=False):
            done = (*done, way.planned(trained, start=_start(way, done), **limit))
            yield (found := replace(found, options=done, changed=words))
        # The first version that fits somewhere: later ones change more.
        if any(way.plan for way in done):
            break
    else:
        found = replace(found, changed="")
    shown = {way.name for way in found.options if way.kind != RENTED}
    fits = tuple(_fits(job, [way for way in ways if way.name in shown]))
    found = replace(found, fits=() if all(all(one.fits.values()) for one in fits[:1]) else fits)
    planned = [way for way in found.options if way.plan is not None]
    home = min((way for way in planned if way.kind != RENTED), key=lambda way: way.is_single, default=None)
    paid = next((way for way in planned if any(device.price_per_hour for device in way.serving)), None)
    found = replace(found, base=home, gains=() if home is None else tuple(_gains(home, limits[-1])))
    yield found if paid is None else replace(found, spot=_spot(paid, asked.seed))


def _tokens(given: Any) -> float:
    text = given.strip().lower() if isinstance(given, str) else ""
    number = as_number(given)
    with suppress(ValueError):
        number = float(text.rstrip("kmbt")) * MAGNITUDES.get(text[-1:], 1.0) if text else number
    if number is None or not 0 < number < 1e18:
        raise LabError(f"tokens is {shortened(given)}; wanted a number above 0, such as 100M")
    return number


def _read(path: Path) -> Offers:
    text = read_text(path)
    if not is_catalogue(text):
        raise LabError(f"{path.name}: is not a SkyPilot catalogue; wanted a vms.csv")
    return read_catalogue(text, path)


def _start(way: FleetOption, done: Sequence[FleetOption]) -> Plan | None:
    """Return the fastest plan so far on a subset of this option's devices; None if no plan is
    known yet. A search that starts from it never finds a slower plan for more devices."""
    names = {*way.topology.names}
    plans = [one.plan for one in done if one.plan is not None and names.issuperset(one.plan.topology.names)]
    return min(plans, key=seconds_of, default=None)


def _jobs(job: Job) -> Iterator[tuple[Job, str, int]]:
    """Yield the job and its changed versions, each with a description and its number of changes. Those with the fewest
    and mildest changes come first.

    Changes that the job does not allow are skipped.
    """
    seen: list[Job] = []
    adapted = {"adapters"} if job.modelled().frozen_elements else set()
    # Fewest changes first, so that the first version that fits is the mildest.
    for chosen in chain.from_iterable(combinations(CHANGES, n) for n in range(len(CHANGES) + 1)):
        fields = {name: value for one in chosen for name, value in one.items() if name not in adapted}
        with suppress(LabError):  # such as a micro-batch that contradicts the job's shares of the batch
            if (other := files.override(job, **fields)) not in seen:
                seen.append(other)
                words = [f"{name}={value}" for name, value in fields.items() if value]
                words = ["checkpointing left open"] * ("checkpointing" in fields) + words
                yield other, ", ".join(words), len(chosen)


def _fits(job: Job, ways: list[FleetOption]) -> Iterator[MemoryFit]:
    """Yield the memory of the job unchanged and with each single change. Combinations of changes follow if they make
    one more option fit."""
    fitted: set[str] = set()
    for other, words, n_changes in _jobs(job):
        rooms = {way.name: room_of(way.topology, other) for way in ways}
        now = {name for name, room in rooms.items() if room.fits}
        # Combinations are only worth a row if they make one more network fit.
        if rooms and (n_changes < 2 or now - fitted):
            needs = next(iter(rooms.values())).needs_bytes
            yield MemoryFit(words or "as it is", needs, {name: room.fits for name, room in rooms.items()})
        fitted |= now


def _gains(way: FleetOption, limits: dict[str, Any]) -> Iterator[UpgradeGain]:
    """Yield the gain of a second copy of your fastest device in use. Then yield up to ``MOST_GAINS`` gains of twice the
    bandwidth on one link, or between two regions, the largest first."""
    plan = way.plan
    assert plan is not None
    assert plan.iteration_s is not None
    own = [int(d) for d in plan.placement.devices.flat if not plan.topology.devices[d].price_per_hour]
    if own:
        best = max(own, key=lambda d: plan.topology.devices[d].peak_flop_per_s)
        twin = replace(plan.topology.devices[best], name=f"another {plan.topology.names[best]}")
        more = replanned(with_one_more(plan.topology, twin, best), plan, plan, **limits)
        if more is not None and more.iteration_s is not None:
            yield UpgradeGain(f"another {plan.topology.names[best]}", plan.iteration_s, more.iteration_s)
    # If several have the same gain, keep the last: all links between two regions come after the single links.
    links = [one for one in gains(plan, factor=FACTOR, what=["bandwidth"]) if one.of in ("link", "regions")]
    faster = {round(one.change, 6): one for one in links}
    for gain in [one for change, one in sorted(faster.items()) if change < -LEAST_GAIN][:MOST_GAINS]:
        yield UpgradeGain(f"twice the bandwidth on {gain.name}", gain.before_s, gain.iteration_s)


def _spot(way: FleetOption, seed: int) -> Spot:
    """Replay a day or two in which the rented machines in use are interrupted and return at random."""
    plan = way.plan
    assert plan is not None
    network = plan.topology.subset([device.name for device in way.serving])
    paid = [device.name for device in network.devices if device.price_per_hour]
    own = [device.name for device in network.devices if not device.price_per_hour]
    end_s = min(max(way.seconds, LEAST_S), MOST_S)
    sampled_hours = Availability.sampled(paid, end_s, mean_life_s=LIFE_S, mean_absence_s=ABSENCE_S, seed=seed)
    # Own machines are there all the time, and only rented ones come and go.
    here = replace(
        sampled_hours,
        devices=(*paid, *own),
        time_s=np.append(sampled_hours.time_s, np.zeros(len(own))),
        device=np.append(sampled_hours.device, len(paid) + np.arange(len(own))),
        comes=np.append(sampled_hours.comes, np.ones(len(own), dtype=bool)),
    )
    history = replay(network, plan.job, here, seed=seed, bound=False)
    return Spot(
        way=way.name,
        hours=end_s / 3600,
        interruptions=int((~sampled_hours.comes).sum()),
        share=min(1.0, history.goodput * way.iteration_s / plan.job.global_batch),
        states={state: spent_s / end_s for state, spent_s in history.seconds.items()},
        rates=f"each is interrupted every {LIFE_S / 3600:g} h on average, for {ABSENCE_S / 60:g} min",
    )
