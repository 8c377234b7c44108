"""The closed forms of averaging say what the programs do, and what is held of a parameter is what the report counts."""

import numpy as np
import pytest

from dtfm_lab.costs import seconds
from dtfm_lab.costs.memory import beside_static_bytes, gathered_of, static_bytes, static_memory
from dtfm_lab.costs.seconds import WAYS, Coded, GroupRings, ring_link_s, ring_rounds, ring_share, shard, sum_seconds
from dtfm_lab.domain.job import Job, coded_bytes, compressed_bytes, gpt
from dtfm_lab.domain.job.options import COMPRESSIONS, SHARDINGS, coding_of
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.schedule import BY_SHARDS, Averaging, Kind, Step, lower
from dtfm_lab.simulation.schedules import schedules

WHOLE_S = 7.0
REGIONS = ("north", "north", "south", "", "north", "south", "east")
"""Of replicas; those of the first n are taken."""


def tails(way: str, n: int, *, splits: bool, locally: bool) -> tuple[tuple[Step, ...], ...]:
    """What each of n replicas does behind its passes, with compressed gradients."""
    schedule = schedules["1f1b"](1, 1)
    sharding = "zero-1" if splits else "none"
    averaging = Averaging(way, (REGIONS[:n],), compressed=True, locally=locally, sharding=sharding)
    return lower(schedule, n, averaging).tails[0]


def closed_form(way: str, replica: int, n: int, *, splits: bool) -> Coded:
    if way in ("sharded", "sharded-at-once"):
        return seconds.coded_in_shards(WHOLE_S, n, splits)
    if way == "ring":
        return seconds.coded_in_ring(WHOLE_S, n, splits)
    if way == "central":
        return seconds.coded_at_root(n) if replica == 0 else seconds.coded_by_member(WHOLE_S)
    of = [region or f" {i}" for i, region in enumerate(REGIONS[:n])]
    if of.index(of[replica]) != replica:
        return seconds.coded_by_member(WHOLE_S)
    return seconds.coded_by_leader(WHOLE_S, of.count(of[replica]), len(set(of)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("splits", "locally"), [(False, False), (False, True), (True, False)])
def test_replicas_code_what_the_closed_forms_say(way, splits, locally):
    if splits and way not in BY_SHARDS:
        return
    for n in range(2, len(REGIONS) + 1):
        for replica, tail in enumerate(tails(way, n, splits=splits, locally=locally)):
            of = {kind: [one.coded for one in tail if one.action.kind is kind] for kind in seconds.CODING}
            coded = closed_form(way, replica, n, splits=splits)
            sum_s, last_s = sum_seconds(WHOLE_S, coded, splits or locally)
            assert WHOLE_S * sum(of[Kind.PACK]) == pytest.approx(coded.pack_s)
            sums = of[Kind.REDUCE]
            assert len(sums) == coded.n_sums + (splits or locally)
            assert WHOLE_S * sum(sums) == pytest.approx(coded.n_sums * sum_s + (splits or locally) * last_s)
            if not (splits or locally):
                assert WHOLE_S * sum(of[Kind.STEP]) == pytest.approx(last_s)


def test_a_ring_carries_a_shard_in_each_of_its_rounds():
    for n in range(2, len(REGIONS) + 1):
        (tail, *_) = tails("ring", n, splits=False, locally=False)
        sent = [one.share for one in tail if one.action.kind is Kind.SEND_G]
        assert (len(sent), sum(sent)) == (ring_rounds(n), pytest.approx(ring_share(n)))
        assert sent == [pytest.approx(shard(1.0, n))] * len(sent)


def test_a_ring_of_equal_links_takes_as_long_by_each_of_its_formulas():
    n, n_bytes, links = 5, 1e6, np.ones((5, 5))
    topology = Topology.from_matrices(latency_s=1e-3 * links, bandwidth_bytes_per_s=1e6 * links)
    rings = GroupRings(topology, Links.of(topology), np.arange(n)[None])
    moving_s = shard(n_bytes, n) / 1e6
    both_s = ring_link_s(n, moving_s + 1e-3, moving_s + 1e-3, 0.0)
    assert both_s == pytest.approx(2 * rings.gather_s(0, n_bytes))
    assert both_s == pytest.approx(seconds.ring_all_reduce_s(n_bytes, n, 1e6, 1e-3))


@pytest.mark.parametrize("how", COMPRESSIONS)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_many_counts_take_the_bytes_of_each(how, dtype):
    counts = np.array([0, 1, 2, 255, 256, 257, 10**9 + 7])
    each = [compressed_bytes(int(n), dtype, how) for n in counts]
    assert coded_bytes(counts, coding_of(dtype, how)).tolist() == each


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("gradient_dtype", [None, "fp32"])
@pytest.mark.parametrize("data_gpus", [1, 2])
def test_the_memory_report_holds_as_much_of_a_parameter_as_the_search_counts(sharding, gradient_dtype, data_gpus):
    if data_gpus > 1 and sharding in ("zero-2", "zero-3"):
        return
    model = gpt(n_layers=4, d_model=64, n_heads=4, seq_len=32, vocab_size=512)
    options = {"sharding": sharding, "synchronisation": "ring", "gradient_dtype": gradient_dtype}
    shape = {"n_stages": 2, "n_replicas": 3, "microbatch": 1, "context_parallel": data_gpus}
    job = Job(model=model, global_batch=6, **shape, **options)
    report = static_memory(job, 2).total
    for layers, parameters, held in zip(job.stage_layers, job.stage_parameters, report, strict=True):
        counted = parameters * static_bytes(job, 3) + sum(beside_static_bytes(job, one) for one in layers)
        counted += gathered_of(job, layers, 3).total_bytes(job)
        assert abs(held - counted) <= 32  # shards are rounded up to whole numbers
