"""Missions about memory: what wins them, and what does not."""

from dataclasses import replace

from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course import missions


def test_sixteen_bytes():
    assert_won_by_its_answer("sixteen-bytes")
    given = missions["sixteen-bytes"].given(READERS[0])
    count, right = given.millions * 1e6, worked_answer("sixteen-bytes", READERS[0])
    assert_not_won("sixteen-bytes", 16 * count, because="without ZeRO")
    assert_not_won("sixteen-bytes", 16 * count / given.n_replicas, because="ZeRO-3")
    assert_not_won("sixteen-bytes", right / 2**30, because="GiB")
    assert_not_won("sixteen-bytes", 0.9 * right, because="below")


def test_what_a_shard_takes_is_what_the_lab_predicts():
    given = missions["sixteen-bytes"].given(READERS[0])
    job = lab.load_job("gpt3-xl", n_stages=1, n_replicas=given.n_replicas, sharding="zero-1")
    network = lab.load_topology("worldwide").subset(range(given.n_replicas))
    row = lab.memory(lab.evaluate(network, job, stages=[[*range(given.n_replicas)]]), "1f1b").to_frame().iloc[0]
    each = (row.parameters_bytes + row.gradients_bytes + row.optimizer_bytes) / (row.parameters_bytes / 2)
    assert abs(each - (4 + 12 / given.n_replicas)) < 1e-4


def test_most_held():
    assert_won_by_its_answer("most-held")
    assert_not_won("most-held", lambda order: order.count("F"), because="which is wrong")
    assert_not_won("most-held", lambda order: order.split("B")[0].count("F"), because="zb-h1")
    assert_not_won("most-held", lambda order: 5, because="which is wrong")
    assert_not_won("most-held", lambda order: order[1000], because="IndexError")


def test_into_sixteen():
    assert_won_by_its_answer("into-sixteen")
    given = missions["into-sixteen"].given(READERS[0])
    assert_not_won("into-sixteen", given.plan, because="with gpipe")
    assert_not_won("into-sixteen", lab.with_job(given.plan, schedule="1f1b"), because="it fits, and takes")
    assert_not_won("into-sixteen", lab.with_job(given.plan, recompute=True), because="it fits, and takes")
    easier = lab.with_job(given.plan, schedule="adaptive-1f1b", global_batch=16)
    assert_not_won("into-sixteen", easier, because="global_batch")
    rounded = lab.with_job(given.plan, schedule="1f1b", compression="int8")
    assert_not_won("into-sixteen", rounded, because="compression")
    network = given.plan.topology
    larger = replace(network, devices=tuple(replace(each, memory_bytes=2**37) for each in network.devices))
    roomy = lab.evaluate(larger, given.plan.job, stages=given.plan.stages)
    assert_not_won("into-sixteen", roomy, because="another network")
