"""The event loop: the same as asking the links one by one, nothing lost, nothing early, nothing twice on a link."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import Case, cases, equal, node_of, passes_of, plan_of, uneven
from slow_interpreter import interpret

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.network import QUEUEING, Links, Topology
from dtfm_lab.domain.schedule import PASSES, Schedule, synchronisations
from dtfm_lab.domain.schedule.task_graph import RECEIVE, SEND
from dtfm_lab.simulation import engine
from dtfm_lab.simulation.engine import simulate_iteration
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.sensitivity import gains

LINKS = list(itertools.product(QUEUEING, TRANSPORTS))
EVERY = [
    (name, how, *LINKS[(i + j) % len(LINKS)])
    for i, name in enumerate(sorted(schedules))
    for j, how in enumerate(sorted(synchronisations))
]
"""Every schedule with every way to average, each of these on other links."""


def same_as_asking_the_links(case: Case, *, synchronise: bool = True) -> None:
    tasks = case.tasks(synchronise=synchronise)
    simulated = tasks.simulate(case.links)
    nodes = node_of(tasks)
    seconds = {node: float(tasks.compute_s[i]) for node, i in nodes.items()}
    times = interpret(case.plan, tasks.graph.programs, case.links, seconds)
    assert times.keys() == nodes.keys()
    for node, i in nodes.items():
        assert times[node] == pytest.approx((simulated.start_s[i], simulated.end_s[i]), rel=1e-9, abs=1e-12)


@given(cases, st.booleans())
def test_every_row_is_as_the_links_of_a_real_run_would_have_it(case, synchronise):
    same_as_asking_the_links(case, synchronise=synchronise)


@pytest.mark.parametrize(("name", "synchronisation", "queueing", "transport"), EVERY)
def test_no_schedule_and_no_way_to_average_is_left_out_of_that(name, synchronisation, queueing, transport):
    same_as_asking_the_links(Case(name, 3, 6, 4, synchronisation, queueing, True, "int8", 7, transport))


@given(cases)
def test_compiled_and_plain_kernels_give_the_same_bits(case):
    assert engine.start_compiling().wait(120)
    compiled = engine.compiled_kernels
    assert set(compiled) == set(engine.PLAIN)
    tasks = case.tasks()
    found = []
    for forms in (compiled, engine.PLAIN):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "kernel", lambda name, n, forms=forms: forms[name])
            simulated = tasks.simulate(case.links)
            found.append([getattr(simulated, c) for c in ("start_s", "end_s", "after", "before", "order", "slack_s")])
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


@given(cases, st.booleans())
def test_no_schedule_deadlocks_loses_or_repeats_an_action(case, synchronise):
    tasks = case.tasks(synchronise=synchronise)
    simulated = tasks.simulate(case.links)
    nodes = node_of(tasks)
    assert sorted(simulated.order.tolist()) == sorted(nodes.values())
    assert len(nodes) == len(tasks.graph)
    programs = tasks.graph.programs
    wanted = {
        (r, step.action) for p in range(case.n_stages) for r in range(case.n_replicas) for step in programs.of(p, r)
    }
    assert nodes.keys() == wanted
    for replica, n_microbatches in enumerate(case.counts):
        assert {a for r, a in nodes if r == replica and a.kind in PASSES} == passes_of(case.schedule, n_microbatches)


@given(cases)
def test_what_is_ready_first_is_served_first(case):
    """A send is before another on its link or NIC exactly where its content was ready before."""
    simulated = case.simulated()
    whole, served = simulated.tasks.graph, simulated.before
    source = whole.sources
    ready_s = np.zeros(len(whole))
    np.maximum.at(ready_s, whole.successors, simulated.end_s[source])
    later = np.flatnonzero((served >= 0) & (whole.role == SEND))
    assert (ready_s[served[later]] <= ready_s[later]).all()
    received = np.flatnonzero((served >= 0) & (whole.role == RECEIVE))
    first_byte_s = simulated.start_s[whole.partner] + simulated.latency_s[whole.partner]
    assert (first_byte_s[served[received]] <= first_byte_s[received]).all()


@pytest.mark.parametrize("queueing", QUEUEING)
def test_a_network_too_large_for_a_table_of_pairs_queues_alike(monkeypatch, queueing):
    case = Case("1f1b", 3, 5, 3, "sharded-at-once", queueing, True, "none", 3)
    dense = case.simulated()
    monkeypatch.setattr(engine, "MOST_UNUSED", 0)
    assert case.simulated().start_s.tobytes() == dense.start_s.tobytes()


@given(cases, st.sampled_from([0.25, 2.0, 1024.0]))
def test_a_world_that_is_slower_throughout_takes_as_much_longer(case, factor):
    """Exactly: factors that are powers of two change no digit."""
    tasks, links = case.tasks(), case.links
    slow = replace(tasks, compute_s=tasks.compute_s * factor).simulate(links.scaled(factor, 1 / factor))
    assert (slow.end_s == factor * tasks.simulate(links).end_s).all()


def test_compiled_kernels_return_no_array():
    """Making one for the caller runs Python; an interrupt there would end in a SystemError of numba's."""
    engine.start_compiling().wait()
    for kernel in engine.compiled_kernels.values():
        for signature in kernel.nopython_signatures:
            assert isinstance(signature.return_type, numba.types.Integer | numba.types.NoneType)


# schedules that cannot finish: one line, with the circle of who waits for whom


KNOTS = {
    # stage 0 wants its first gradient before it sends the second micro-batch, stage 1 begins with the second
    "two devices": ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"],
    "three devices": ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", "2F1 2B1 2F0 2B0"],
    "interleaved": ["0F0 2F0 2B0 0B0", "3F0 1F0 3B0 1B0"],
    "interleaved backwards": ["0F0 2F0 0B0 2B0", "1F0 3F0 3B0 1B0"],
    "split": ["0F0 0I0 0W0 0F1 0I1 0W1", "1F1 1I1 1W1 1F0 1I0 1W0"],
}


@pytest.mark.parametrize("what", KNOTS)
@pytest.mark.parametrize("n_replicas", [1, 3])
def test_a_circle_of_waiting_is_refused_and_written_out_in_one_line(what, n_replicas):
    schedule = Schedule.from_orders("knot", KNOTS[what])
    plan = plan_of(schedule.n_devices, schedule.n_microbatches, n_replicas, n_layers=schedule.n_stages)
    links = Links.free(len(plan.topology))
    with pytest.raises(ScheduleError, match=r"schedule knot cannot finish: .*, in a circle") as refused:
        simulate_iteration(plan, schedule, equal(plan, 1, 1, schedule.n_stages), links)
    said = str(refused.value)
    assert "\n" not in said
    circle = said.removeprefix("schedule knot cannot finish: ").removesuffix(", in a circle").split(" waits for ")
    assert circle[0] == circle[-1]
    programs = [program.split() for program in schedule.orders]
    for waiting, wanted in itertools.pairwise(circle):
        same = [p for p in programs if waiting in p and wanted in p]
        neighbours = abs(int(waiting[0]) - int(wanted[0])) == 1 and waiting[-1] == wanted[-1]
        assert neighbours or same[0].index(wanted) < same[0].index(waiting)


def test_a_long_circle_is_cut_short():
    """One device wants its first gradient at once, all others run every forward first."""
    n = 30
    hasty = " ".join(f"0F{m} 0B{m}" for m in range(n))
    patient = [" ".join(f"{s}{kind}{m}" for kind in "FB" for m in range(n)) for s in range(1, n)]
    plan = plan_of(n, n)
    with pytest.raises(ScheduleError, match=r" and \d+ more, in a circle") as refused:
        simulate_iteration(plan, Schedule.from_orders("knot", [hasty, *patient]), equal(plan, 1, 1), Links.free(n))
    assert len(str(refused.value)) < 300


# links that were timed at several sizes: simulator and emulation take the same time for every message


def timed(topology: Topology, seed: int, known: float = 0.7) -> Topology:
    """The same network, most of its pairs timed at four sizes around those of the messages."""
    rng, n = np.random.default_rng(seed), len(topology)
    times = topology.latency_s[:, :, None] + np.cumsum(rng.random((n, n, 4)), axis=2)
    times[rng.random((n, n)) > known] = np.nan
    return replace(topology, message_bytes=[1.0, 20.0, 50.0, 300.0], message_s=times)


@dataclass(frozen=True)
class TimedCase(Case):
    @property
    def topology(self) -> Topology:
        return timed(super().topology, self.seed)


@given(cases, st.booleans())
def test_every_row_on_measured_links_is_as_the_links_of_a_real_run_would_have_it(case, synchronise):
    same_as_asking_the_links(TimedCase(**vars(case)), synchronise=synchronise)


def test_more_bandwidth_on_a_measured_link_shortens_its_messages():
    plan = plan_of(2, 4, 1, uneven(2, 1), d_model=20)
    plan = replace(plan, topology=timed(plan.topology, 3, known=1.0))
    (gain,) = gains(plan, "gpipe", what="bandwidth", factor=2)
    improved = Links.of(plan.topology).scaled(bandwidth=2)
    assert gain.iteration_s < gain.before_s
    assert improved.moving_s(0, 1, 40.0) == pytest.approx(Links.of(plan.topology).moving_s(0, 1, 40.0) / 2)
