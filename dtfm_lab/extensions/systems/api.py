"""Models of training systems: what each would do with a network and a job. One model of links and devices predicts all
of them.

``strategy`` defines what a strategy is. ``modelled/`` has one file per system. ``choosing`` finds each system's best
plan. ``outcomes`` compares them. ``why`` removes one cause at a time (``ablations``), and leads from one system to
another. ``waterfall`` leads from one model of a system to another.
"""

from dtfm_lab.extensions.systems import modelled
from dtfm_lab.extensions.systems.choosing import outcome_of
from dtfm_lab.extensions.systems.crossings import Crossing, CrossingPoint, Crossings, stream_crossings
from dtfm_lab.extensions.systems.launches import Launch, from_flags
from dtfm_lab.extensions.systems.outcome import Outcome
from dtfm_lab.extensions.systems.outcomes import Outcomes, stream_outcomes
from dtfm_lab.extensions.systems.strategy import (
    NOT_MODELLED,
    Assumption,
    Budget,
    Strategy,
    strategies,
    variant,
    work_of,
)
from dtfm_lab.extensions.systems.waterfall import Switch, Waterfall, WaterfallStep, waterfall
from dtfm_lab.extensions.systems.why import Why, stream_why

__all__ = [
    "NOT_MODELLED",
    "Assumption",
    "Budget",
    "Crossing",
    "CrossingPoint",
    "Crossings",
    "Launch",
    "Outcome",
    "Outcomes",
    "Strategy",
    "Switch",
    "Waterfall",
    "WaterfallStep",
    "Why",
    "from_flags",
    "modelled",
    "outcome_of",
    "strategies",
    "stream_crossings",
    "stream_outcomes",
    "stream_why",
    "variant",
    "waterfall",
    "work_of",
]
