"""A search that is cancelled from another thread."""

import threading

import dtfm_lab as lab
from dtfm_lab.planning import Cancellation
from dtfm_lab.planning.cancellation import flag


def test_a_thread_hears_its_own_cancellation_and_no_other():
    one, other = Cancellation(), Cancellation()
    with one.heard():
        other.set()
        assert not flag()[0]
        one.set()
        assert flag()[0]
        found = []
        thread = threading.Thread(target=lambda: found.append(bool(flag()[0])))
        thread.start()
        thread.join()
        assert found == [False]
    assert not flag()[0]


def test_one_that_was_set_before_is_heard_at_once():
    cancellation = Cancellation()
    cancellation.set()
    with cancellation.heard():
        assert flag()[0]


def test_time_that_is_over_ends_loops_but_is_no_cancellation():
    cancellation, over = Cancellation(), threading.Event()
    with cancellation.heard() as end_after:
        end_after(0.0)
        while not flag()[0]:
            assert not over.wait(0.01)
        assert not cancellation.is_set()
    with cancellation.heard():
        assert not flag()[0]


def test_a_cancelled_annealing_makes_no_move():
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("gpt3-xl")
    options = {"planner": "evolutionary", "objective": "iteration", "seed": 0, "steps": 2}
    cancellation = Cancellation()
    cancellation.set()
    with cancellation.heard():
        ended = lab.plan(topology, job, **options)
    assert ended.iteration_s >= lab.plan(topology, job, **options).iteration_s
    assert ended.placement.devices.size == len(set(ended.placement.devices.ravel().tolist()))
