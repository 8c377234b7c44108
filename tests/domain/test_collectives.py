"""Networks that state how much slower collectives are when more hosts take part."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.network import CollectiveSpeed, Links, Topology, hosts_among
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files.plans import network_from_mapping, network_to_mapping
from dtfm_lab.files.topology_writing import topology_to_mapping
from dtfm_lab.files.topology_yaml import topology_from_mapping
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.iteration.structured.layouts import GridLayout, averages

ROWS = ((2, 0.8), (8, 0.2, 0.4))


def hosts_of(n: int, per_host: int = 1, **fields: object) -> Topology:
    """Equal devices on equal links, in hosts."""
    hosts = [f"h{i // per_host}" for i in range(n)]
    plain = Topology.from_matrices(np.full((n, n), 1.0), np.full((n, n), 1.0), hosts=hosts, gpu="A100")
    return replace(plain, **fields)


def averaging(topology: Topology, **fields: object) -> Plan:
    """A plan whose only messages are those of one average over all devices."""
    n = len(topology)
    job = lab.load_job(
        "tiny", n_stages=1, n_replicas=n, microbatch=1, global_batch=n, **{"synchronisation": "ring"} | fields
    )
    return unpriced_plan(topology, job, np.arange(n)[None, :])


def test_a_table_begins_with_the_whole_bandwidth_and_is_a_power_law_between_rows():
    slowdowns = hosts_of(16, collectives=ROWS).slowdowns
    assert slowdowns is not None
    assert slowdowns[[1, 2, 8, 16]] == pytest.approx([1, 1 / 0.8, 5, 5])
    assert slowdowns[4] == pytest.approx(1 / np.sqrt(0.8 * 0.2))  # half way between 2 and 8 in the logarithm
    assert (np.diff(slowdowns) >= 0).all()


def test_a_spread_is_linear_in_the_logarithm_of_hosts():
    topology = hosts_of(2, collectives=ROWS, link_spread=0.2)
    assert [topology.spread_over(n) for n in (1, 2, 4, 8, 99)] == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.4])


def test_only_hosts_that_take_part_count():
    links = Links.of(hosts_of(8, per_host=2, collectives=((2, 0.5), (4, 0.25))))
    groups = np.array([[0, 1], [0, 2], [1, 3]])
    assert links.slower(groups) == pytest.approx([1, 2, 2])
    assert links.slower(np.arange(8)) == pytest.approx(4)
    assert [links.least_slower(n) for n in (1, 2, 3, 4, 8)] == pytest.approx([1, 1, 2, 2, 4])
    assert hosts_among(groups, None).tolist() == [2, 2, 2]


@pytest.mark.parametrize("fields", [{}, {"sharding": "zero-3"}, {"synchronisation": "sharded"}])
def test_an_average_over_few_bytes_of_latency_takes_as_many_times_as_long(fields: dict[str, str]):
    """Without a table and on links slower by its factor, an iteration takes the same seconds."""
    topology = hosts_of(8)
    slower = replace(topology, bandwidth_bytes_per_s=0.2 * topology.bandwidth_bytes_per_s)
    stated = replace(topology, collectives=ROWS)
    assert lab.simulate(averaging(stated, **fields)).iteration_s == pytest.approx(
        lab.simulate(averaging(slower, **fields)).iteration_s, rel=1e-12
    )


def test_messages_between_stages_keep_their_speed():
    job = lab.load_job("tiny", n_stages=4, n_replicas=1, microbatch=1, global_batch=4)
    plain, stated = (
        lab.simulate(unpriced_plan(one, job, np.arange(4)[:, None])).iteration_s
        for one in (hosts_of(4), hosts_of(4, collectives=ROWS))
    )
    assert plain == stated


def test_the_interval_is_that_of_the_hosts_that_take_part():
    topology = hosts_of(8, collectives=ROWS)
    assert lab.simulate(averaging(topology)).context.link_spread == 0.4
    assert lab.simulate(averaging(topology.subset(range(2)))).context.link_spread == topology.link_spread


def test_the_compiled_replay_and_the_bound_count_it():
    plan = averaging(hosts_of(6, collectives=((6, 0.1),)))
    engine_s = lab.simulate(plan).iteration_s
    job = plan.job.with_fields(microbatch=1, schedule="1f1b")
    *_, bound_s = iteration_bound_steps(IterationProblem.of(plan.topology, job), 2 * engine_s)
    assert bound_s == pytest.approx(engine_s, rel=1e-6)


def test_files_keep_it(tmp_path: Path):
    topology = hosts_of(2, collectives=ROWS)
    wanted = (CollectiveSpeed(2, 0.8), CollectiveSpeed(8, 0.2, 0.4))
    assert topology.collectives == wanted
    for name in ("net.yaml", "net.json", "net.npz"):
        assert lab.load_topology(lab.save(topology, tmp_path / name)).collectives == wanted
    assert network_from_mapping(network_to_mapping(topology)).fingerprint == topology.fingerprint
    assert Topology.from_networkx(topology.to_networkx()).collectives == wanted
    assert "collectives" not in topology_to_mapping(hosts_of(2)) | network_to_mapping(hosts_of(2))


def test_a_table_changes_the_fingerprint():
    assert len({hosts_of(2, collectives=rows).fingerprint for rows in ((), ROWS, ROWS[:1])}) == 3


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (((2, 0.8), (2, 0.5)), "row 2: hosts is 2; wanted a whole number from 3 on"),
        (((0, 1.0),), "row 1: hosts is 0; wanted a whole number from 1 on"),
        (((2.5, 1.0),), "hosts is 2.5"),
        (((2, 0.5), (4, 0.6)), "row 2: fraction is 0.6; wanted 1e-06 to 0.5"),
        (((2, 0.0),), "fraction is 0.0"),
        (((2, 1.5),), "fraction is 1.5; wanted 1e-06 to 1"),
        (((2, float("nan")),), "fraction is nan"),
        (((2, "a"),), "fraction is 'a'"),
        (((2, 0.5, 4.0),), "spread is 4.0; wanted 0 to 3"),
        (((2,),), "wanted rows of hosts, fraction and spread"),
        (3, "collectives is 3; wanted rows"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(rows: object, said: str):
    with pytest.raises(TopologyError, match=said) as refused:
        hosts_of(2, collectives=rows)
    assert "\n" not in str(refused.value)


def test_a_wrong_table_in_a_file_is_refused():
    data = topology_to_mapping(hosts_of(2)) | {
        "collectives": [{"hosts": 4, "fraction": 0.5}, {"hosts": 2, "fraction": 0.4}]
    }
    with pytest.raises(LabError, match=r"collectives, row 2: hosts is 2"):
        topology_from_mapping(data)


@pytest.mark.parametrize("how", ["ring", "sharded", "sharded-at-once", "hierarchical"])
def test_the_search_estimates_it(how: str):
    topology = Topology.from_matrices(np.full((6, 6), 1.0), np.full((6, 6), 1.0), regions=[*"aaabbb"])
    grid = np.arange(6)[None, :]
    plain, stated = (
        averages(GridLayout(Links.of(one), grid, "dp-pp", grid[0]), one, (how,))[0]
        for one in (topology, replace(topology, collectives=((6, 0.25),)))
    )
    assert stated.latency_s == plain.latency_s
    assert stated.there_s_per_byte == pytest.approx(4 * plain.there_s_per_byte)
    assert stated.back_s_per_byte == pytest.approx(4 * plain.back_s_per_byte)
