"""Sets of devices are named in a few words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.network import Device, count_words, name_words, set_words, uneven_hosts
from dtfm_lab.domain.network.naming import in_ranges

HOSTS = [Device(name=f"host-{h}-gpu-{g}", gpu="H100", host=f"host-{h}") for h in range(1, 17) for g in range(8)]
"""16 hosts of 8 GPUs."""


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (range(120, 128), "8 of 128, all of host-16"),
        (range(3, 128), "125 of 128: host-2 to host-16 and 5 of host-1"),
        (range(0, 128, 2), "64 of 128: 4 of each of host-1 to host-16"),
        ([127], "1 of 128: host-16-gpu-7"),
        ([], "0 of 128"),
    ],
)
def test_many_devices_are_counted_and_named_by_host(members, words):
    assert count_words(HOSTS, members) == words


def counted(region: str, n: int, per_host: int, gpus: int = 1) -> list[Device]:
    """Devices of a region as a file with ``per_host`` counts them into hosts."""
    return [
        Device(name=f"{region}-{i}", gpu="H100", region=region, host=f"{region}-host-{i // per_host}", gpus=gpus)
        for i in range(n)
    ]


def test_a_smaller_last_host_is_noted_and_other_hosts_are_not():
    assert uneven_hosts(counted("node", 130, 8)) == ["130 GPUs in hosts of 8: the last host has 2"]
    assert uneven_hosts(counted("node", 65, 4, gpus=2)) == ["130 GPUs in hosts of 8: the last host has 2"]
    two = [*counted("a", 9, 4), *counted("b", 8, 4), *counted("c", 3, 8)]
    assert uneven_hosts(two) == ["a: 9 GPUs in hosts of 4: the last host has 1"]
    assert uneven_hosts(counted("node", 128, 8)) == []
    assert uneven_hosts(HOSTS[:-3]) == [], "hosts that were named are as they were meant"
    assert uneven_hosts([]) == []


def test_groups_of_gpus_are_counted_in_gpus():
    groups = [Device(name=f"host-{h}-gpu-{g}+3", gpu="H100", gpus=4, host=f"host-{h}") for h in (1, 2) for g in (0, 4)]
    assert count_words(groups, [0, 1]) == "8 of 16 GPUs, all of host-1"
    assert set_words(groups, [0, 1, 2]) == "host-1 and 4 GPUs of host-2"


def test_devices_without_hosts_are_named_by_region_then_by_number_then_by_kind():
    regions = [Device(name=f"{r}-{i}", gpu="T4", region=r) for r in ("Oslo", "Zurich") for i in range(8)]
    assert set_words(regions, range(4, 16)) == "Zurich and 4 of Oslo"
    bare = [Device(name=f"gpu-{i}", gpu="T4") for i in range(40)]
    assert set_words(bare, range(5, 30)) == "gpu-5 to gpu-29"
    odd = [Device(name=name, gpu="T4" if name < "m" else "V100") for name in "abcdefghijklmnopqrst"]
    assert set_words(odd, range(20)) == "12 T4 devices and 8 V100 devices"


def test_numbers_with_zeros_in_front_are_one_run():
    assert in_ranges([f"node{i:02}" for i in range(8, 13)]) == ["node08 to node12"]
    assert in_ranges(["b2", "b1", "a"]) == ["a", "b1", "b2"]
    assert name_words([f"n{i}" for i in range(9)] + ["spare"]) == "spare and n0 to n8"


@given(st.sets(st.integers(0, 127)))
def test_no_set_takes_more_than_a_line(members):
    assert len(count_words(HOSTS, members)) < 300
