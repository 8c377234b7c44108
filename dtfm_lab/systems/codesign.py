"""Which batch, width, sequence, compression or rarer averaging makes a network compute-bound: the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.job import COMPRESSIONS
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import plain_rows, to_gbps
from dtfm_lab.systems.compute_share import Share
from dtfm_lab.systems.variations import Variation, apart


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """A job with one knob turned, or as it is, on a plan, and its share of computing."""

    turned_to: float | None = None
    """Value of the knob that is turned; None of the job as it is."""
    plan: Plan
    share: Share
    fits: bool
    """Whether the plan's devices have the memory."""
    memory: str = ""
    """What they lack, in a sentence."""

    @property
    def computing(self) -> float:
        """Share of the iteration that would remain were every message free."""
        return self.share.computing

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all replicas in a second."""
        return self.plan.job.tokens / self.share.iteration_s


@dataclass(frozen=True, kw_only=True, eq=False)
class Turned:
    """One knob alone, at all values that were tried."""

    knob: Variation
    designs: Sequence[Design]
    """In the order of the values, the plan's own among them."""
    reason: str = ""
    """Why some value cannot be, or nothing can be tried."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "designs", tuple(sorted(self.designs, key=self.value)))

    def value(self, design: Design) -> float:
        """The knob's value of a design."""
        return self.knob.own if design.turned_to is None else design.turned_to

    def text(self, design: Design) -> str:
        """A design in words, such as ``a batch of 64``."""
        return "the job as it is" if design.turned_to is None else self.knob.text(design.turned_to)

    def least(self, target: float) -> Design | None:
        """The least value tried from which on the target is reached, whether memory suffices or not."""
        found = None
        for design in reversed(self.designs):
            if design.computing < target:
                break
            found = design
        return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CoDesign:
    """What makes a network compute-bound for a job, one knob at a time.

    A plan is compute-bound where at least ``target`` of its iteration would remain were every message free: with the
    same devices, passes and order, no latency, no compression and unlimited bandwidth. Fill and drain of a pipeline and
    waits for slow devices count as computing here, because a better network does not bring them.
    """

    plan: Plan
    """The plan of the job as it is; every other keeps its devices and shape."""
    target: float
    base: Design
    turned: tuple[Turned, ...] = ()
    latest: str = ""
    """What was just evaluated, in words."""
    finished: bool = False

    def __repr__(self) -> str:
        return f"<CoDesign of {self.plan.job.name} on {self.plan.topology.name}: {self.sentence}>"

    def __getitem__(self, knob: str) -> Turned:
        return next(one for one in self.turned if one.knob.name == knob)

    @property
    def done(self) -> int:
        """Designs evaluated so far."""
        return 1 + sum(len(one.designs) - 1 for one in self.turned)

    @property
    def bound(self) -> bool:
        """Whether the plan is compute-bound as it is."""
        return self.base.computing >= self.target

    @cached_property
    def reaching(self) -> dict[str, float]:
        """The least value of each knob that alone reaches the target in the memory that there is, by name."""
        found = ((one, one.least(self.target)) for one in self.turned)
        return {one.knob.name: one.value(design) for one, design in found if design is not None and design.fits}

    @property
    def headline(self) -> str:
        """Whether the network is compute-bound for the job, and what alone makes it so, or how little keeps it so."""
        job, network = self.plan.job, self.plan.topology.name
        share = f"{self.base.computing:.0%} of an iteration of {job.name} on {network} would remain with free messages"
        text = f"{share}: {self._margins() if self.bound else self._needs()}"
        return text if self.finished else f"so far: {text}"

    @property
    def sentence(self) -> str:
        """The headline, and what alone does not suffice, or not in the memory that there is."""
        return self.headline if self.bound else "; ".join([self.headline, *self._short_of()])

    def _margins(self) -> str:
        kept = []
        for one in self.turned:
            if one.knob.halved and (design := one.least(self.target)) is not None:
                value = one.value(design)
                if value < one.knob.own:
                    kept.append(f"down to {one.knob.text(value)}")
        return f"it is compute-bound ({self.target:.0%} or more)" + (
            f", and stays so {' or '.join(kept)}" if kept else ""
        )

    def _needs(self) -> str:
        does = []
        for one in self.turned:
            design = one.least(self.target)
            if design is not None and design.fits:
                does.append(f"{one.knob.text(one.value(design))} instead of {_bare(one.knob)}")
        text = f"to be compute-bound ({self.target:.0%}) it needs {', or '.join(does)}" if does else ""
        return text or f"nothing alone makes it compute-bound ({self.target:.0%})"

    def _short_of(self) -> list[str]:
        """What alone does not reach the target, or not in memory."""
        lacks, does_not = [], []
        for one in self.turned:
            design = one.least(self.target)
            if design is not None and not design.fits:
                lacks.append(f"{one.knob.text(one.value(design))} would, but not in the devices' memory")
            elif design is None and len(one.designs) > 1:
                last = one.designs[-1]
                beyond = "" if last.fits else ", beyond the memory"
                told = f"up to {_end(one, last)} ({last.computing:.0%}{beyond})"
                does_not.append(f"{one.knob.noun} alone does not, {told}")
        return [*lacks, *does_not]

    @property
    def skipped(self) -> dict[str, str]:
        """Knobs that could not be turned, or not as far as others, and why."""
        return {one.knob.name: one.reason for one in self.turned if one.reason}

    @property
    def mathematics(self) -> dict[str, str]:
        """What each knob changes of the training itself, by name."""
        return {one.knob.name: one.knob.mathematics for one in self.turned if one.knob.mathematics}

    def brief_frame(self) -> pd.DataFrame:
        """The rows of ``to_frame`` that the sentence speaks of: as it is, and of each knob the least value that reaches
        the target, or the last one tried."""
        shown = [(one, one.least(self.target) or one.designs[-1]) for one in self.turned]
        return self._table(shown)

    def to_frame(self) -> pd.DataFrame:
        """One row a design: the knob turned, its value, settings of the job, compute_share, iteration_s, free_s,
        tokens_per_s, reached, fits and mathematics."""
        return self._table([(one, design) for one in self.turned for design in one.designs])

    def _table(self, designs: Iterable[tuple[Turned, Design]]) -> pd.DataFrame:
        rows = [self._row("as it is", None, "", self.base)]
        for one, design in designs:
            if design is not self.base:
                rows.append(self._row(one.knob.name, one.value(design), one.knob.mathematics, design))
        return pd.DataFrame(rows)

    def _row(self, knob: str, value: float | None, mathematics: str, design: Design) -> dict[str, Any]:
        job = design.plan.job
        return {
            "knob": knob,
            "value": COMPRESSIONS[int(value)] if knob == "compression" and value is not None else value,
            "global_batch": job.global_batch,
            "d_model": job.modelled().d_model,
            "seq_len": job.modelled().seq_len,
            "compression": job.compression,
            "synchronise_every": job.synchronise_every,
            "bandwidth_gbps": median_gbps(design.plan),
            "compute_share": design.computing,
            "iteration_s": design.share.iteration_s,
            "free_s": design.share.free_s,
            "tokens_per_s": design.tokens_per_s,
            "reached": design.computing >= self.target,
            "fits": design.fits,
            "mathematics": mathematics,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "topology": self.plan.topology.name,
            "job": self.plan.job.name,
            "target": self.target,
            "compute_share": self.base.computing,
            "bound": self.bound,
            "sentence": self.sentence,
            "reaching": {
                name: COMPRESSIONS[int(value)] if name == "compression" else value
                for name, value in self.reaching.items()
            },
            "skipped": self.skipped,
            "mathematics": self.mathematics,
            "designs": plain_rows(self.to_frame()),
            "plan": self.plan.summary(),
            "finished": self.finished,
        }


def _bare(knob: Variation) -> str:
    """The knob's own value, without the words that a sentence has said."""
    words = knob.text(knob.own)
    for before in ("a batch of ", "a width of ", "sequences of ", "averaging ", "messages "):
        words = words.removeprefix(before)
    return words.removesuffix(" between hosts").removesuffix(" tokens")


def _end(one: Turned, design: Design) -> str:
    words = one.knob.text(one.value(design))
    for before in ("a batch of ", "a width of ", "sequences of ", "averaging ", "messages in "):
        words = words.removeprefix(before)
    return words


def median_gbps(plan: Plan) -> float | None:
    """Gbit/s of the median link between hosts of a plan's network; None where it has none."""
    mask = apart(plan.topology, "hosts")
    return float(to_gbps(np.median(plan.topology.bandwidth_bytes_per_s[mask]))) if mask.any() else None
