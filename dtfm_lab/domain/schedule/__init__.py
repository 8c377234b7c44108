"""Pipeline schedules as data, and the programs that devices follow.

A Schedule orders forwards and backwards; ``lower`` adds messages, synchronisation and the optimizer's step;
``task_graph`` lays the resulting Programs out as arrays.
"""

from dtfm_lab.domain.schedule.program import Programs, check_passes, lower
from dtfm_lab.domain.schedule.schedule import (
    ACROSS_STAGES,
    COMPUTE,
    LANE,
    PASSES,
    RECEIVES,
    SENDS,
    SYNCHRONISATION,
    Action,
    Kind,
    Lane,
    Program,
    Schedule,
    Step,
    passes,
    taking_turns,
    with_warmups,
)
from dtfm_lab.domain.schedule.synchronisation import BY_SHARDS, Averaging, Bucket, synchronisations
from dtfm_lab.domain.schedule.task_graph import TaskGraph, task_graph
