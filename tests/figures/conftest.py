from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dtfm_lab.compare import compare
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import plan, search
from dtfm_lab.simulation import simulate


@pytest.fixture(scope="session")
def small_plan():
    return plan(load_topology("lecture-hall"), load_job("tiny"), steps=2)


@pytest.fixture(scope="session")
def large_plan():
    return plan(load_topology("worldwide"), load_job("dtfm-gpt3-xl"), planner="random", steps=3)


@pytest.fixture(scope="session")
def steps():
    return list(search(load_topology("worldwide"), load_job("dtfm-gpt3-xl"), planner="random", steps=20))


@pytest.fixture(scope="session")
def population():
    """Steps of a planner that keeps one, and so has a median and a diversity."""
    return list(search(load_topology("lecture-hall"), load_job("tiny"), steps=3))


@pytest.fixture(scope="session")
def predicted(small_plan):
    return simulate(small_plan, "1f1b")


@pytest.fixture(scope="session")
def measured(predicted):
    """What a run would have recorded: three iterations, the second a little and the third much slower."""
    n = len(predicted)
    slower = np.repeat([1.05, 1.1, 3.0], n)
    context = replace(predicted.context, source="measured", clock="virtual", links="emulated", losses=(5.5, 5.0, 4.6))
    return Trace(
        context,
        predicted.actions,
        np.repeat([0, 1, 2], n),
        np.tile(predicted.replica, 3),
        np.tile(predicted.action, 3),
        np.tile(predicted.start_s, 3) * slower,
        np.tile(predicted.end_s, 3) * slower,
    )


@pytest.fixture(scope="session")
def compared(predicted, measured):
    return compare(predicted, measured)


@pytest.fixture(scope="session")
def samples(small_plan, large_plan, predicted, measured, compared, steps, population):
    """All of these by short names."""
    plans = {"small": small_plan, "large": large_plan}
    traces = {"predicted": predicted, "measured": measured, "compared": compared}
    return SimpleNamespace(**plans, **traces, steps=steps, population=population)
