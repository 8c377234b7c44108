"""``dtfm-lab calibrate``: measure how fast this machine computes and how fast its links are. The result is a calibrated
network.

A process that loads torch (``runtime.worker.block_times``) measures blocks of three widths, kernel launches and the
memory of a training step. The probe over ssh measures links between hosts. Without other hosts, TCP over this host's
loopback is measured.
"""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from dtfm_lab.costs.efficiency import efficiency_of, job_of_block, peak_of
from dtfm_lab.domain.errors import LabError, MissingExtra, RunError
from dtfm_lab.domain.job import LayerKind
from dtfm_lab.domain.network import Device, MeasuredBlock, MeasuredGpu, Topology, known_gpu, shortened
from dtfm_lab.domain.network.streams import streams_bandwidth
from dtfm_lab.domain.units import TERA, format_bytes, format_gbps, format_s, to_gbps
from dtfm_lab.extensions.machines.driver import read_smi, read_topo
from dtfm_lab.extensions.machines.network import network_from
from dtfm_lab.extensions.machines.probe.loopback import loopback_bytes_per_s
from dtfm_lab.planning import evaluate
from dtfm_lab.runtime.client.gpu_inventory import NoGpu, cuda_of_torch, driver_gpus
from dtfm_lab.simulation.memory import memory

ENDS_S = 110.0
"""Seconds after which the process that measures ends by itself. The command takes at most two minutes."""
BLOCKS_S = 15.0
"""Seconds for timing all blocks together. A slow machine takes longer, because each block gets a minimum number of
passes."""
LOOPBACK_S = 2.0
STREAMS = 8
"""Number of TCP streams that are timed together, to compare with a single stream. By default NCCL opens 16 sockets to a
peer on AWS, 4 on Google Cloud and 1 elsewhere (NVIDIA/nccl, src/transport/net_socket.cc)."""
DTYPES = "fp16", "bf16", "fp32"
SHAPES = {
    "cuda": [(1024, 8, 2048, 4), (4096, 32, 2048, 4), (8192, 64, 2048, 2)],
    "cpu": [(256, 4, 256, 4), (512, 8, 256, 4), (1024, 16, 256, 4)],
}
"""Shapes of the timed blocks, narrowest first: width, heads, tokens per sequence and sequences per micro-batch. On GPUs
they match models with 0.3, 7 and 70 billion parameters. On a CPU they are sizes that a CPU can train."""
SIZES = "d_model", "n_heads", "seq_len", "microbatch"
NO_TORCH = "calibrate needs torch, which is not installed: pip install 'dtfm_lab[train]'"
Report = Callable[[str], None]


class CalibrationRow(NamedTuple):
    """One measured quantity, and the value that the lab assumed for it before."""

    what: str
    measured: float
    assumed: float | None
    """The value that the lab assumed before; None if it assumed none."""
    unit: str
    """``s``, ``bytes`` or ``bytes/s``."""

    @property
    def words(self) -> tuple[str, str, str]:
        """Name, measured value and assumed value as text; ``-`` if nothing was assumed."""
        known = "-" if self.assumed is None else _in_words(self.assumed, self.unit)
        return self.what, _in_words(self.measured, self.unit), known


def _in_words(value: float, unit: str) -> str:
    if unit == "s":
        return format_s(value)
    return format_bytes(value) if unit == "bytes" else format_gbps(to_gbps(value))


@dataclass(frozen=True)
class CalibratedNetwork:
    """A network whose devices hold the measurements, and rows that compare these with the lab's assumptions."""

    topology: Topology
    gpu: str
    """Name of the timed GPU or CPU, as in the network's devices."""
    rows: tuple[CalibrationRow, ...]
    notes: tuple[str, ...]


def calibrate(
    network: Topology | None = None,
    *,
    probe: Callable[[dict[tuple[str, str], float]], Topology] | None = None,
    dtype: str | None = None,
    report: Report = lambda line: None,
) -> CalibratedNetwork:
    """Measure this machine in at most two minutes, and the links of other hosts with ``probe``.

    The result applies to all devices with the same GPU in the network. The network is ``network``, or what ``probe``
    returns, or this host alone. ``probe`` also fills the dictionary that it gets with the bandwidth of several streams,
    by pair of hosts. Without a GPU, the CPU is measured. ``report`` is called with a line of text about every step.

    Raises LabError for an unknown ``dtype`` or if ``network`` lacks this machine's GPU, MissingExtra without torch, and
    RunError if the measuring process fails.
    """
    if dtype is not None and dtype not in DTYPES:
        raise LabError(f"dtype is {shortened(dtype)}; wanted {', '.join(DTYPES)}")
    if cuda_of_torch() is None:
        raise MissingExtra(NO_TORCH)
    runs_on, why = _runs_on()
    notes = [why] if why else []
    own = host_name()
    shapes = [dict(zip(SIZES, shape, strict=True)) for shape in SHAPES[runs_on]]
    question: dict[str, Any] = {"runs_on": runs_on, "dtype": dtype, "seconds": BLOCKS_S, "ends_s": ENDS_S}
    question |= {"shapes": shapes}
    # Loading torch takes seconds, so the message says what the wait is for.
    report(f"measuring {'the GPU' if runs_on == 'cuda' else 'the CPU'} of {own}: loading torch first")
    with answers_of(question) as answer:
        processor, step = answer("processor"), answer("step")
        product = answer("product")["flop_per_s"]
        device = _own_device(own, processor, product)
        # Raise errors before the two minutes of measuring.
        if network is not None:
            _check_has(network, device.gpu)
        blocks = []
        for number, shape in enumerate(shapes, 1):
            wide = f"block {number} of {len(shapes)}, {shape['d_model']:,} wide in {processor['dtype']}"
            if (found := answer("block")["seconds"]) is None:
                report(f"{wide}: does not fit into the GPU's memory")
                continue
            forward_s, backward_s = found
            blocks.append(MeasuredBlock(**shape, forward_s=forward_s, backward_s=backward_s))
            report(f"{wide}: forward {format_s(forward_s)}, backward {format_s(backward_s)}")
        launch = answer("launch")
    measured = MeasuredGpu(
        dtype=processor["dtype"],
        blocks=tuple(blocks),
        block_launch_s=launch["block_launch_s"],
        step_bytes=step["step_bytes"],
        host=own,
        date=time.strftime("%Y-%m-%d"),
        versions=f"dtfm_lab {version('dtfm_lab')}, {processor['versions']}",
    )
    # Each row has a measured number, and what the lab would have assumed.
    rows = [*_block_rows(device, measured), *_other_rows(device, measured, launch["launch_s"], step["shape"])]
    together: dict[tuple[str, str], float] = {}
    if probe is not None:
        network = probe(together)
        rows += _pair_rows(network, together)
    else:
        report("timing TCP over the loopback")
        one, several = (loopback_bytes_per_s(n, LOOPBACK_S) for n in (1, STREAMS))
        rows += [CalibrationRow(f"loopback, {n}", rate, None, "bytes/s") for n, rate in _streams(one, several)]
    if network is None:
        network = _own_network(own, device, product, runs_on)
        if len(kinds := {one.gpu for one in network.devices}) == 1:  # the driver may use another name than torch
            device = replace(device, gpu=kinds.pop())
    if not any(one.gpu == device.gpu for one in network.devices):
        notes.append(
            f"{network.name} has no {device.gpu}, which was timed here, so its devices are unchanged: run it on a "
            "host of the network"
        )
    devices = tuple(replace(d, measured=measured if d.gpu == device.gpu else d.measured) for d in network.devices)
    return CalibratedNetwork(replace(network, devices=devices), device.gpu, tuple(rows), tuple(notes))


def host_name() -> str:
    """Return this host's name up to the first dot."""
    return platform.node().partition(".")[0] or "this-host"


def _runs_on() -> tuple[str, str]:
    """Return what torch computes on, ``cuda`` or ``cpu``, and the reason if it is not a GPU."""
    torch = cuda_of_torch()
    try:
        driver_gpus()
    except NoGpu as error:
        return "cpu", f"the CPU was measured, because this host shows no GPU: {error}"
    if torch is not None and torch[1] is None:
        told = "dtfm-lab doctor names a build with CUDA"
        return "cpu", f"the CPU was measured, because torch {torch[0]} is built without CUDA: {told}"
    return "cuda", ""


@contextmanager
def answers_of(question: Mapping[str, Any]) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Start the process that measures. Yield a function that takes the name of the next answer, and waits for that
    answer.

    The process is killed when the ``with`` block ends. The function raises RunError, with the last line of the
    process's output, if it ends early or gives another answer.
    """
    command = [sys.executable, "-m", "dtfm_lab.runtime.worker.block_times", json.dumps(question)]
    with tempfile.TemporaryFile("w+", errors="replace") as remarks:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": remarks}
        # a separate session, so that Ctrl-C reaches only this process, which then ends the other
        process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
        # The process stops itself after ``ends_s``, once torch is loaded. This ends one that hangs before.
        deadline = threading.Timer(question["ends_s"] + 10.0, _end, [process])
        deadline.start()

        def answer(what: str) -> dict[str, Any]:
            assert process.stdout is not None, "it is a pipe"
            with contextlib.suppress(ValueError):
                found = json.loads(process.stdout.readline())
                if found.get("what") == what:
                    return dict(found)
            remarks.seek(0)
            lines = remarks.readlines()
            said = " ".join(lines[-1].split())[:200] if lines else f"nothing within {question['ends_s']:g} s"
            raise RunError(f"the {what} could not be measured: the computing process says {said}")

        try:
            yield answer
        finally:
            deadline.cancel()
            _end(process)
            process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process and all others in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _own_device(own: str, processor: Mapping[str, Any], product_flop_per_s: float) -> Device:
    """Return the timed device. Its peak and memory come from the lab's table, or are measured here if the table lacks
    the device."""
    if not processor["gpu"]:
        cpu = f"{_cpu_name()}, {processor['cores']} cores"
        held = float(psutil.virtual_memory().total)
        return Device(name=own, gpu=cpu, peak_flop_per_s=product_flop_per_s, memory_bytes=held)
    held = float(processor["memory_bytes"])
    if (known := known_gpu(processor["gpu"], held)) is not None:
        return Device(name=own, gpu=known)
    return Device(name=own, gpu=processor["gpu"], peak_flop_per_s=product_flop_per_s, memory_bytes=held)


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].replace("(R)", "").replace("(TM)", "").split())[:100]
    return platform.processor() or platform.machine() or "CPU"


def _own_network(own: str, device: Device, product_flop_per_s: float, runs_on: str) -> Topology:
    """Return a network of this host alone.

    Its devices are its GPUs, linked as the driver reports. A CPU, or a GPU without nvidia-smi, is a single device.
    """
    if runs_on == "cuda" and (smi := _printed("-q", "-x")):
        found = read_smi(smi, Path(f"{own}.xml"))
        if len(found.hosts[0].gpus) > 1 and "GPU1" in (topo := _printed("topo", "-m")):
            between = read_topo(topo, Path(own)).hosts[0].between
            found = replace(found, hosts=(replace(found.hosts[0], between=between),))
        names = {gpu.name for gpu in found.hosts[0].gpus if known_gpu(gpu.name) is None}
        peaks = dict.fromkeys(names, product_flop_per_s / TERA)
        return network_from((), probed={f"nvidia-smi on {own}": found}, peak_tflops=peaks, name=own)
    nothing = np.zeros((1, 1))
    return Topology((device,), nothing, nothing, name=own, description=f"{own} alone, calibrated")


def _printed(*options: str) -> str:
    try:
        return subprocess.run(["nvidia-smi", *options], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _check_has(network: Topology, gpu: str) -> None:
    if not any(device.gpu == gpu for device in network.devices):
        found = ", ".join(dict.fromkeys(device.gpu for device in network.devices))
        raise LabError(
            f"{network.name} has {shortened(found)}, but this machine has {gpu}; wanted a network with this GPU, or "
            "calibrate on one of its hosts"
        )


def _block_rows(device: Device, measured: MeasuredGpu) -> Iterator[CalibrationRow]:
    """Yield the seconds of each block's forward and backward: measured, and as the lab assumed before."""
    for block in measured.blocks:
        job = job_of_block(block, measured.dtype, 1)
        model = job.modelled()
        flop = block.microbatch * next(one.forward_flop for one in model.layers if one.kind is LayerKind.BLOCK)
        share = efficiency_of(job, replace(device, measured=None)).share
        once_s = flop / share / peak_of(device, measured.dtype)
        name = f"block {block.d_model:,} wide, {block.microbatch} x {block.seq_len:,} tokens"
        yield CalibrationRow(f"{name}, forward", block.forward_s, once_s, "s")
        yield CalibrationRow(f"{name}, backward", block.backward_s, once_s * model.backward.whole, "s")


def _other_rows(
    device: Device, measured: MeasuredGpu, launch_s: float, step: Mapping[str, int]
) -> Iterator[CalibrationRow]:
    yield CalibrationRow("launches of a block (block_launch_s)", measured.block_launch_s, 0.0, "s")
    yield CalibrationRow("one launch", launch_s, None, "s")
    if measured.step_bytes:
        block = MeasuredBlock(**step, forward_s=1.0, backward_s=1.0)
        nothing = np.zeros((1, 1))
        alone = Topology((replace(device, measured=None),), nothing, nothing, name="alone")
        held = float(memory(evaluate(alone, job_of_block(block, "fp32", 1), rank_map=[0])).peak_bytes.max())
        name = f"memory of a training step, {block.d_model:,} wide in fp32"
        yield CalibrationRow(name, measured.step_bytes, held, "bytes")


def _streams(one: float, several: float) -> tuple[tuple[str, float], tuple[str, float]]:
    return ("1 stream", one), (f"{STREAMS} streams", several)


def _pair_rows(network: Topology, together: Mapping[tuple[str, str], float]) -> Iterator[CalibrationRow]:
    """Yield the measured bandwidth from the timing host of each pair to the other, with one stream and with several.
    The assumed value is the maximum that TCP's default window allows."""
    hosts = [device.host or device.name for device in network.devices]
    for (a, b), several in together.items():
        if a not in hosts or b not in hosts:
            continue
        i, j = hosts.index(a), hosts.index(b)
        round_trip_s = float(network.latency_s[i, j] + network.latency_s[j, i])
        rates = _streams(float(network.bandwidth_bytes_per_s[i, j]), several)
        for (name, rate), n in zip(rates, (1, STREAMS), strict=True):
            most = float(streams_bandwidth(np.inf, round_trip_s, n)) if round_trip_s > 0 else None
            yield CalibrationRow(f"{a} -> {b}, {name}", rate, most, "bytes/s")
