"""How much a predicted number is worth: whether it was calibrated, modelled inside what was tested, or guessed.

A prediction is *calibrated* where it rests on a measurement of one's own. It is *modelled* where its constants were
tested on rows of other sources that are like it. Else it is *guessed*, and why is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dtfm_lab.costs.efficiency import GUESS, GivenEfficiency, efficiency_of
from dtfm_lab.domain.network.topology import LINK_SPREAD
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted

MOST_STEADY_HOSTS = 8
"""Hosts up to which measured networks of data centres were steady. From 16 hosts on the 5th and the 95th percentile of
an all-reduce were a factor of six apart (Hugging Face, "Ultra-Scale Playbook", 2025)."""
MOST_TENSOR = 8
"""GPUs that share a layer, in all rows but one source's."""
PARAMETERS = 1e9, 1.1e12
"""Of the models that were tested."""


class Basis(NamedTuple):
    """One word for a prediction, and why."""

    word: str
    """``calibrated``, ``modelled`` or ``guessed``."""
    because: str
    """What it is calibrated with, or what of the plan nobody has tested; empty where it is modelled."""


def basis_of(plan: Plan, efficiency: GivenEfficiency = None) -> Basis:
    """What a prediction of this plan rests on, with an efficiency or that of the plan.

    Raises JobError for a job without a model.
    """
    given = plan.efficiency if efficiency is None else efficiency
    if given is not None and not isinstance(given, int | float):
        return Basis("calibrated", "devices reach what you measured")
    reasons = [*_untested(plan), *(["the efficiency is a number of yours"] if given is not None else _unknown(plan))]
    return Basis("guessed", "; ".join(reasons)) if reasons else Basis("modelled", "")


def _unknown(plan: Plan) -> Iterable[str]:
    """The GPUs of which no measurement says what share of their peak they reach with this job."""
    used = {int(i) for i in plan.placement.devices.flat}
    of_kind = {(d.gpu, d.gpus): d for d in (plan.topology.devices[i] for i in sorted(used))}
    names = dict.fromkeys(gpu for (gpu, _), device in of_kind.items() if efficiency_of(plan.job, device) == GUESS)
    if names:
        yield f"nothing measured says what share of its peak {' or '.join(names)} reaches with this model"


def _untested(plan: Plan) -> Iterable[str]:
    """What of a plan lies outside of what was tested, whatever its devices reach."""
    devices = [plan.topology.devices[int(i)] for i in plan.placement.devices.flat]
    n_hosts = len({device.host for device in devices if device.host})
    if n_hosts > MOST_STEADY_HOSTS and plan.topology.link_spread == LINK_SPREAD:
        yield (
            f"networks between more than {MOST_STEADY_HOSTS} hosts varied by a factor of six where they were measured, "
            f"and this one of {counted(n_hosts, 'host')} states no link_spread"
        )
    most = max(device.gpus for device in devices)
    if most > MOST_TENSOR:
        yield f"groups of {most} GPUs share a layer; tested were up to {MOST_TENSOR}"
    n_parameters, (least, largest) = plan.job.modelled().parameters, PARAMETERS
    if not least <= n_parameters <= largest:
        yield f"the model has {n_parameters / 1e9:.3g} billion parameters; tested were 1 to 1,100"
