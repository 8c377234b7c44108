"""Missions about data parallelism and pipelines: what wins them, and what does not."""

import numpy as np
from mission_cases import assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course.tasks.data_and_pipeline import bytes_between_regions


def test_bytes_by_hand():
    assert_won_by_its_answer("bytes-by-hand")
    given = lab.missions.given("bytes-by-hand")
    gradients = 4 * (given.n_replicas - 1) * given.blocks * given.block_millions / 1e3
    activations = worked_answer("bytes-by-hand") - gradients
    assert_not_won("bytes-by-hand", gradients, because="boundaries between stages")
    assert_not_won("bytes-by-hand", gradients / 2 + activations, because="averages")
    assert_not_won("bytes-by-hand", gradients + activations * given.n_replicas, because="share the batch")
    assert_not_won("bytes-by-hand", 1.0, because="below")


def test_turning_batch():
    assert_won_by_its_answer("turning-batch")
    right, given = worked_answer("turning-batch"), lab.missions.given("turning-batch")
    assert_not_won("turning-batch", right / given.n_replicas, because="one replica")
    assert_not_won("turning-batch", right / 2, right * 2, because=" ")
    assert_not_won("turning-batch", right * 1.05, because="above")


def sends(trace):
    rows = trace.to_frame()
    return rows[rows.kind.str.startswith("SEND")]


def sizes(trace, topology, rows):
    ends = [tuple(topology.index(name) for name in link.split(" -> ")) for link in rows.link]
    seconds = (rows.end_s - rows.start_s).to_numpy()
    return ends, seconds * [topology.bandwidth_bytes_per_s[end] for end in ends]


def test_count_the_border():
    assert_won_by_its_answer("count-the-border")

    def everything(trace, topology):
        return sizes(trace, topology, sends(trace))[1].sum()

    def twice(trace, topology):
        rows = trace.to_frame()
        rows = rows[rows.link != ""]
        ends, each = sizes(trace, topology, rows)
        region = [device.region for device in topology.devices]
        return each[[region[a] != region[b] for a, b in ends]].sum()

    assert_not_won("count-the-border", everything, because="inside regions")
    assert_not_won("count-the-border", twice, because="one message")
    assert_not_won("count-the-border", lambda trace, topology: 1e6, because="it returned 1e+06")
    assert_not_won("count-the-border", lambda trace: 0, because="raised TypeError")


def test_the_border_is_what_the_job_says():
    """With every city a stage it is the activations of the whole batch, over every boundary, both ways."""
    cities = lab.load_topology("worldwide").subset(range(16))
    job = lab.load_job(
        "gpt3-xl", n_stages=2, n_replicas=8, global_batch=64, microbatch=1, schedule="gpipe", dtype="fp16"
    )
    trace = lab.simulate(lab.evaluate(cities, job, stages=np.arange(16).reshape(2, 8).tolist()))
    crossed = bytes_between_regions(trace, cities)
    assert np.isclose(crossed, 2 * 64 * job.activation_bytes + 8 * 2 * job.embedding_bytes)


def test_keep_it_home():
    assert_won_by_its_answer("keep-it-home")
    given = lab.missions.given("keep-it-home")
    by_chance = lab.evaluate(given.network, given.job, stages=np.arange(16).reshape(4, 4).tolist())
    assert_not_won("keep-it-home", by_chance, because="GB cross; wanted")
    fastest = lab.plan(given.network, given.job, objective="communication", seed=0, steps=2)
    assert_not_won("keep-it-home", fastest, because="GB cross; wanted")
    smaller = lab.with_job(by_chance, compression="int8")
    assert_not_won("keep-it-home", smaller, because="the job has")
