"""How far to trust a prediction: it is calibrated, modelled within the tested range, or guessed.

A prediction is *calibrated* if it rests on your own measurement: timed blocks (``dtfm-lab calibrate``), measured
iterations, or a run's profile. It is *modelled* if its constants were tested on similar published measurements.
Otherwise it is *guessed*, and the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dtfm_lab.costs.efficiency import GUESS, GivenEfficiency, efficiency_of, why_not_measured
from dtfm_lab.domain.network import Device
from dtfm_lab.domain.network.topology import LINK_SPREAD
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Basis
from dtfm_lab.domain.units import counted

MOST_STEADY_HOSTS = 8
"""Up to this number of hosts, measurements of a data centre's network were steady. With 16 hosts or more, the 5th and
the 95th percentile of an all-reduce were a factor of six apart (Hugging Face, "Ultra-Scale Playbook", 2025)."""
MOST_TENSOR = 8
"""Up to this number of GPUs that share a layer, predictions count as tested. Only one of the published sources that
were compared has more, which is too few."""
PARAMETERS = 1e9, 1.1e12
"""Minimum and maximum number of parameters of the models that were tested."""


def basis_of(plan: Plan, efficiency: GivenEfficiency = None) -> Basis:
    """Return what a prediction of this plan rests on. ``efficiency`` is used instead of the plan's, if given.

    Raises JobError for a job without a model.
    """
    given = plan.efficiency if efficiency is None else efficiency
    if given is not None and not isinstance(given, int | float):
        return Basis("calibrated", "devices reach what you measured")
    used = sorted({int(i) for i in plan.placement.devices.flat})
    kinds = list({(d.gpu, d.gpus): d for d in (plan.topology.devices[i] for i in used)}.values())
    measured = [d.measured for d in kinds if d.measured is not None and not why_not_measured(plan.job, d.measured)]
    if given is None and len(measured) == len(kinds) and not (reasons := [*_untested_links(plan)]):
        return Basis("calibrated", "; ".join(dict.fromkeys(one.sentence for one in measured)))
    own = ["the efficiency is a number of yours"] if given is not None else _unknown(plan, kinds)
    reasons = [*_untested_links(plan), *_untested(plan), *own]
    return Basis("guessed", "; ".join(reasons)) if reasons else Basis("modelled")


def profiled_basis(clock: str) -> Basis:
    """Return the basis of a prediction from a profile. The clock ``model`` marks a profile that was given, not
    measured."""
    return Basis("calibrated", "with the run's own profile" if clock != "model" else "with the profile that was given")


def _unknown(plan: Plan, kinds: Sequence[Device]) -> Iterable[str]:
    """Yield reasons for the GPUs whose share of the peak with this job was never measured."""
    unknown = [device for device in kinds if efficiency_of(plan.job, device) == GUESS]
    yield from dict.fromkeys(why_not_measured(plan.job, d.measured) for d in unknown if d.measured is not None)
    if names := dict.fromkeys(device.gpu for device in unknown if device.measured is None):
        yield f"nothing measured says what share of its peak {' or '.join(names)} reaches with this model"


def _untested_links(plan: Plan) -> Iterable[str]:
    """Yield reasons why a plan's network lies outside the tested range: too many hosts, estimated links, or large
    groups."""
    devices = [plan.topology.devices[int(i)] for i in plan.placement.devices.flat]
    n_hosts = len({device.host for device in devices if device.host})
    stated = plan.topology.link_spread != LINK_SPREAD or any(row.spread for row in plan.topology.collectives)
    if n_hosts > MOST_STEADY_HOSTS and not stated:
        yield (
            f"networks between more than {MOST_STEADY_HOSTS} hosts varied by a factor of six where they were measured, "
            f"and this one of {counted(n_hosts, 'host')} states no link_spread"
        )
    if plan.topology.estimates:  # imported only for networks that have estimated links
        from dtfm_lab.domain.network.estimates import estimated

        if links := ", ".join(map(str, estimated(plan.topology))):
            yield f"bandwidths are estimates: {links}"
    most = max(device.gpus for device in devices)
    if most > MOST_TENSOR:
        yield f"groups of {most} GPUs share a layer; up to {MOST_TENSOR} were tested"


def _untested(plan: Plan) -> Iterable[str]:
    """Yield reasons why a plan's model lies outside the tested range."""
    model, (least, largest) = plan.job.modelled(), PARAMETERS
    n_parameters = model.parameters + model.frozen_elements  # with adapters, most of a model's parameters are frozen
    if not least <= n_parameters <= largest:
        large = n_parameters >= 1e9
        size = f"{n_parameters / (1e9 if large else 1e6):.3g} {'billion' if large else 'million'}"
        yield f"the model has {size} parameters; 1 to 1,100 billion were tested"
