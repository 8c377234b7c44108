"""Plans to run in tests, ways to wait, and what a run has left behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import dtfm_lab as lab
from dtfm_lab.compare import Comparison
from dtfm_lab.domain.job import ModelSpec, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.runtime.protocol.checkpoint_folders import TENSORS, describe
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation import build


def even_plan(n_stages: int = 2, n_replicas: int = 2, **fields: object) -> Plan:
    """``tiny`` on a network whose links are all alike, stage by stage in device order."""
    n = n_stages * n_replicas
    topology = Topology.from_matrices(
        np.full((n, n), 3.0), np.full((n, n), 0.5), name="even", gpu="laptop", peak_flop_per_s=5e10
    )
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **fields)
    return lab.evaluate(topology, job, stages=np.arange(n).reshape(n_stages, n_replicas).tolist())


def small_plan(n_stages: int = 2, n_replicas: int = 2, *, tied: bool = False, **fields: object) -> Plan:
    """A model of a few thousand parameters on alike links; the devices of a stage lie in regions a, a, b, c."""
    n = n_stages * n_replicas
    topology = Topology.from_matrices(
        np.full((n, n), 3.0),
        np.full((n, n), 0.5),
        regions=[("a", "a", "b", "c")[i % n_replicas % 4] for i in range(n)],
        name="small",
        gpu="laptop",
        peak_flop_per_s=5e10,
    )
    sizes = {"global_batch": 16, "microbatch": 1, "dtype": "fp64", "model": small_model(tied=tied)}
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **(sizes | fields))
    return lab.evaluate(topology, job, stages=np.arange(n).reshape(n_stages, n_replicas).tolist())


def small_model(*, tied: bool = False) -> ModelSpec:
    """A GPT of four blocks and a few thousand parameters."""
    return gpt(name="small", n_layers=4, d_model=32, n_heads=2, seq_len=16, vocab_size=256, tied=tied)


def lecture_hall_plan(n_stages: int, n_replicas: int, **fields: object) -> Plan:
    """On links that are unlike each other, stage by stage in the network's order."""
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **fields)
    grid = np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas)
    return lab.evaluate(lab.load_topology("lecture-hall"), job, stages=grid.tolist())


def spec_of(plan: Plan, schedule: str = "1f1b", **options: Any) -> RunSpec:
    """What the processes of a run would get."""
    built = build(plan, schedule)
    return RunSpec(plan=plan, schedule=built.name, orders=built.orders, **({"iterations": 1} | options))


def assert_as_predicted(plan: Plan, measured: Trace) -> Comparison:
    """Prediction and measurement have the same rows, and messages take what their links take."""
    comparison = lab.compare(lab.simulate(plan, like=measured), measured)
    print(f"error {comparison.iteration_error:+.2%}")
    assert len(comparison.rows) == len(measured)
    messages = comparison.rows[comparison.rows["lane"] != "compute"]
    assert messages["duration_s_error"].abs().max() < 1e-9
    return comparison


def assert_close(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    """Parameters by name, within what double precision rounds."""
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=1e-9, rtol=0, err_msg=name)


def kept_parameters(parent: Path) -> dict[str, np.ndarray]:
    """The parameters in the newest checkpoint below a folder, by their names in the whole model."""
    files = sorted(describe(parent).folder.glob(TENSORS))
    kept = {name: array for file in files for name, array in load_file(file).items()}
    return {name: array for name, array in kept.items() if not name.endswith(("moment", "in_common"))}


def left_behind(group: int, patience_s: float = 120.0) -> list[str]:
    """Command lines of living processes of this process group, once none is left or patience is over."""
    deadline = time.monotonic() + patience_s
    while True:
        listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        alive = [row[2] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)


def until(holds: Callable[[], bool], patience_s: float = 300.0) -> None:
    """Wait until the condition holds; fail where it does not in time."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
