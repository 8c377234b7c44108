"""Random arrivals and departures: lifetimes, absences, a daily rhythm, and outages of a whole region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray, counted

DAY_S = 86_400.0
MOST_EVENTS = 20_000_000
"""Maximum number of sampled events: one gigabyte of memory."""
LONGEST_S = 10 * 365.25 * DAY_S
"""Maximum length of an availability: ten years, in seconds. A replay goes through it change by change."""
SHAPES = (0.2, 20.0)
"""Range of Weibull shapes. Outside it, a single lifetime dominates, or all lifetimes are practically equal."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How long devices stay and how long they are away, on average. ``Availability.sampled`` describes the fields.

    Raises TraceError for a number that is missing or out of range.
    """

    mean_life_s: float
    mean_absence_s: float
    shape: float = 1.0
    daily: float = 0.0
    weekends: bool = False
    region_loss_s: float | None = None

    def __post_init__(self) -> None:
        ranges = {
            "mean_life_s": (0 < self._number("mean_life_s") < math.inf, "seconds above 0"),
            "mean_absence_s": (self._number("mean_absence_s") > 0, "seconds above 0, infinite for no return"),
            "shape": (SHAPES[0] <= self._number("shape") <= SHAPES[1], f"{SHAPES[0]:g} to {SHAPES[1]:g}"),
            "daily": (0 <= self._number("daily") <= 1, "0 to 1"),
        }
        if self.region_loss_s is not None:
            ranges["region_loss_s"] = (0 < self._number("region_loss_s") < math.inf, "seconds above 0, or None")
        for what, (allowed, wanted) in ranges.items():
            if not allowed:
                raise TraceError(f"{what} is {shortened(getattr(self, what))}; wanted {wanted}")

    def __str__(self) -> str:
        kind = "exponential" if self.shape == 1 else f"Weibull of shape {self.shape:g}"
        away = "never back" if math.isinf(self.mean_absence_s) else f"away for {self.mean_absence_s:g} s"
        parts = [f"mean life {self.mean_life_s:g} s ({kind}), {away}"]
        parts += [f"daily rhythm {self.daily:g}" + " with weekends" * self.weekends] if self.daily else []
        parts += [f"a region lost every {self.region_loss_s:g} s"] if self.region_loss_s is not None else []
        return ", ".join(parts)

    def events(
        self, regions: Sequence[str], end_s: float, rng: np.random.Generator
    ) -> tuple[FloatArray, IntArray, BoolArray]:
        """Return three arrays with one entry per event until the end: its time, its device, and True for an arrival.

        ``regions`` has the name of each device's region; empty for a device without a region. Raises TraceError for
        more than ``MOST_EVENTS``, and for outages of regions if no device has a region.
        """
        self._check_events(len(regions), end_s)
        lost = self._region_losses(regions, end_s, rng)
        # Devices that begin offline arrive later, and some only after the end.
        device = np.arange(len(regions))
        time_s, age_s = self._beginnings(len(regions), end_s, rng)
        on = time_s <= end_s
        device, time_s, age_s = device[on], time_s[on], age_s[on]
        events: list[tuple[FloatArray, IntArray, bool]] = []
        while len(device):
            leaves_s = self._later(time_s, age_s, end_s, rng, life=True)
            if lost is not None:
                # A region takes all its devices at once, whatever their own lifetimes.
                leaves_s = np.minimum(leaves_s, lost.after(device, time_s))
            events.append((time_s, device, True))
            on = leaves_s <= end_s
            device, leaves_s = device[on], leaves_s[on]
            events.append((leaves_s, device, False))
            time_s = self._later(leaves_s, np.zeros(len(device)), end_s, rng, life=False)
            on = time_s <= end_s
            device, time_s, age_s = device[on], time_s[on], np.zeros(int(on.sum()))
        if not events:
            return np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        times, devices, comes = zip(*events, strict=True)
        n_each = [len(part) for part in times]
        return np.concatenate(times), np.concatenate(devices), np.repeat(np.array(comes), n_each)

    def _beginnings(self, n: int, end_s: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return the second at which each device is first online, and how many seconds it had already been online then.

        Devices are sampled as if they had come and gone for a long time before. Devices online at the start have second
        0 and a sampled age. Later arrivals have age 0. If devices never return, all have second 0 and age 0.
        """
        if math.isinf(self.mean_absence_s):
            return np.zeros(n), np.zeros(n)
        there = rng.random(n) * (self.mean_life_s + self.mean_absence_s) < self.mean_life_s
        # a device found online is more likely to be in a long life than in a short one (length-biased sampling)
        whole_s = self._scale_s * rng.gamma(1 + 1 / self.shape, size=n) ** (1 / self.shape)
        age_s = np.where(there, rng.random(n) * whole_s, 0.0)
        return np.where(there, 0.0, self._later(np.zeros(n), np.zeros(n), end_s, rng, life=False)), age_s

    def _later(
        self, time_s: FloatArray, age_s: FloatArray, end_s: float, rng: np.random.Generator, *, life: bool
    ) -> FloatArray:
        """Return when each lifetime, or absence if not ``life``, ends. It is ``age_s`` old at ``time_s``. A result
        above ``end_s`` only means that it ends later.

        The daily rhythm is sampled by thinning: times are sampled at the highest rate, and each is kept with
        probability (rate at that time) / (highest rate).
        """
        shape, scale_s = (self.shape, self._scale_s) if life else (1.0, self.mean_absence_s)
        if math.isinf(scale_s):
            return np.full(len(time_s), np.inf)
        hazard = (age_s / scale_s) ** shape
        ends_s = np.empty(len(time_s))
        pending = np.arange(len(time_s))
        while len(pending):
            # Sampled at the highest rate of the day; thinning below removes what is too much at other hours.
            hazard[pending] += rng.exponential(size=len(pending)) / (1 + self.daily)
            at_s = np.maximum(
                time_s[pending] + scale_s * hazard[pending] ** (1 / shape) - age_s[pending], time_s[pending]
            )
            ends_s[pending] = at_s
            # Without a daily rhythm nothing has to be removed.
            if not self.daily:
                break
            rate = 1 - self._night(at_s) * (self.daily if life else -self.daily)
            pending = pending[(at_s <= end_s) & (rng.random(len(pending)) * (1 + self.daily) > rate)]
        return ends_s

    def _night(self, time_s: FloatArray) -> FloatArray:
        """Return a number from -1 at noon to 1 at midnight. With ``weekends``, days 6 and 7 of a week count as
        midnight."""
        night = np.cos(time_s * (2 * np.pi / DAY_S))
        return np.where(time_s // DAY_S % 7 >= 5, 1.0, night) if self.weekends else night

    @property
    def _scale_s(self) -> float:
        return self.mean_life_s / math.gamma(1 + 1 / self.shape)

    def _region_losses(self, regions: Sequence[str], end_s: float, rng: np.random.Generator) -> _Losses | None:
        if self.region_loss_s is None:
            return None
        names = sorted({*regions} - {""})
        if not names:
            raise TraceError("region_loss_s is given, but no device has a region; wanted a network of regions")
        times = [np.sort(rng.random(rng.poisson(end_s / self.region_loss_s)) * end_s) for _ in names]
        return _Losses(np.array([names.index(region) if region else -1 for region in regions]), times)

    def _check_events(self, n: int, end_s: float) -> None:
        if not isinstance(end_s, int | float | np.number) or not 0 < end_s <= LONGEST_S:
            raise TraceError(f"sampled until {shortened(end_s)} s; wanted more than 0, at most {LONGEST_S:.3g}")
        cycle_s = self.mean_life_s + self.mean_absence_s
        times = 2 * (1 if math.isinf(cycle_s) else 1 + end_s / cycle_s) + end_s / (self.region_loss_s or math.inf)
        if n * times > MOST_EVENTS:
            raise TraceError(
                f"{counted(n, 'device')} for {end_s:g} s make about {n * times:.2g} events; wanted at most "
                f"{MOST_EVENTS:,}: a shorter time or longer lives"
            )

    def _number(self, what: str) -> float:
        number = as_number(getattr(self, what))
        return math.nan if number is None else number


@dataclass(frozen=True)
class _Losses:
    """The times at which each region is lost as a whole."""

    region: IntArray
    """(devices,) index of the device's region; -1 for a device without a region."""
    times_s: list[FloatArray]
    """Times of the losses of each region, ascending."""

    def after(self, device: IntArray, time_s: FloatArray) -> FloatArray:
        """Return the time of the next loss of each device's region after ``time_s``; infinite if none follows."""
        found = np.full(len(device), np.inf)
        region = self.region[device]
        for index, times_s in enumerate(self.times_s):
            here = region == index
            found[here] = np.append(times_s, np.inf)[np.searchsorted(times_s, time_s[here], side="right")]
        return found
