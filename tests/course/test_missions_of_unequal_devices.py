"""Missions about unequal devices: what wins them, and what does not."""

from itertools import product

from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course import missions
from dtfm_lab.course.tasks.unequal_devices import shortest_ms


def test_worth_of_a_slow_one():
    assert_won_by_its_answer("worth-of-a-slow-one")
    given = missions["worth-of-a-slow-one"].given(READERS[0])
    right = worked_answer("worth-of-a-slow-one", READERS[0])
    fast_s, slow_s, batch = given.fast_ms / 1e3, given.slow_ms / 1e3, given.n_microbatches
    without_s = batch * fast_s / given.n_fast
    assert_not_won("worth-of-a-slow-one", without_s - batch * slow_s / (given.n_fast + 1), because="equal shares")
    one_more = without_s - batch * fast_s / (given.n_fast + 1)
    assert_not_won("worth-of-a-slow-one", one_more, because="fast device")
    assert_not_won("worth-of-a-slow-one", 1e3 * right, because="milliseconds")


def test_fair_shares():
    assert_won_by_its_answer("fair-shares")
    given = missions["fair-shares"].given(READERS[0])
    right, total = worked_answer("fair-shares", READERS[0]), given.n_microbatches
    even = [total // 5] * 4 + [total - 4 * (total // 5)]
    assert_not_won("fair-shares", even, because="sooner")
    by_time = [round(total * each / sum(given.pass_ms)) for each in given.pass_ms]
    by_time[0] += total - sum(by_time)
    assert_not_won("fair-shares", by_time, because="sooner")
    assert_not_won("fair-shares", [each + 1 for each in right], because="add up")
    assert_not_won("fair-shares", [total], ["a"] * 5, [*right[:4], -1], because="five whole numbers")


def test_giving_micro_batches_out_one_by_one_is_best():
    for pass_ms in ([3, 5, 7], [2, 2, 9], [4, 1, 6]):
        shares = (each for each in product(range(11), repeat=3) if sum(each) == 10)
        assert shortest_ms(pass_ms, 10) == min(max(n * ms for n, ms in zip(s, pass_ms, strict=True)) for s in shares)


def test_a_cut_of_your_own():
    assert_won_by_its_answer("a-cut-of-your-own")
    given = missions["a-cut-of-your-own"].given(READERS[0])
    job = given.job.with_fields(schedule="1f1b")
    even = lab.evaluate(given.network, job, stages=[[device] for device in range(4)])
    assert_not_won("a-cut-of-your-own", even, because="blocks (3, 3, 3, 3) take")
    slowest = min(range(4), key=lambda at: given.network.devices[at].peak_flop_per_s)
    most_on_it = tuple(9 if at == slowest else 1 for at in range(4))
    wrong_way = lab.evaluate(given.network, job.with_fields(blocks_per_stage=most_on_it), stages=even.stages)
    assert_not_won("a-cut-of-your-own", wrong_way, because="wanted at most")
    smaller = lab.plan(given.network, given.job.with_fields(global_batch=64), seed=0, steps=2)
    assert_not_won("a-cut-of-your-own", smaller, because="global_batch")
    alone = lab.plan(given.network, lab.load_job("gpt2-small", n_stages=1, n_replicas=4), seed=0, steps=2)
    assert_not_won("a-cut-of-your-own", alone, because="the job has")
