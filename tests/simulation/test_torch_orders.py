"""Our builders against torch.distributed.pipelining, whose orders are stored: torch_orders.py says how."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.simulation.schedules import schedules

DUMP = Path(__file__).with_name("torch_orders.py")
STORED = json.loads((Path(__file__).parents[1] / "data" / "torch_orders.json").read_text())
CASES = [(name, size) for name, orders in STORED["orders"].items() for size in orders]


def ours(name, size):
    n_devices, stages_per_device, n_microbatches = map(int, size.split())
    return schedules[name](n_devices, n_microbatches, stages_per_device=stages_per_device)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_builder_orders_what_torch_does(name, size):
    assert list(ours(name, size).orders) == STORED["orders"][name][size]


@pytest.mark.parametrize("size", STORED["refused"])
def test_interleaving_refuses_what_torch_refuses(size):
    with pytest.raises(ScheduleError, match="do not divide into"):
        ours("interleaved-1f1b", size)


def test_every_schedule_that_torch_has_is_compared_at_many_sizes():
    assert set(STORED["orders"]) == set(STORED["oracles"]) == set(schedules) - {"adaptive-1f1b"}
    sizes = [tuple(map(int, size.split())) for size in STORED["orders"]["interleaved-1f1b"]]
    assert {p for p, _, _ in sizes} == set(range(2, 9))
    assert {v for _, v, _ in sizes} == {2, 3, 4}
    assert any(m % p for p, _, m in sizes)


@pytest.mark.slow
def test_torch_still_orders_as_stored():
    pytest.importorskip("torch.distributed.pipelining")
    told = subprocess.run([sys.executable, DUMP], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    anew = json.loads(told.stdout)
    assert anew["orders"] == STORED["orders"]
    assert anew["refused"] == STORED["refused"]
