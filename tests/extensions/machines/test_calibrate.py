"""What ``dtfm-lab calibrate`` writes, what it refuses, and that it leaves no process."""

import json
import os
import socket

import numpy as np
import pytest

from dtfm_lab import files
from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.extensions.machines import calibrate as calibrating
from dtfm_lab.extensions.machines.probe.loopback import loopback_bytes_per_s
from dtfm_lab.extensions.machines.probe.messages import together_bytes_per_s

SMALL = [(32, 1, 16, 1), (64, 2, 16, 1), (96, 3, 16, 1)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that a CPU passes in no time, and streams that end at once."""
    monkeypatch.setitem(calibrating.SHAPES, "cpu", SMALL)
    monkeypatch.setattr(calibrating, "BLOCKS_S", 0.0)
    monkeypatch.setattr(calibrating, "LOOPBACK_S", 0.01)
    monkeypatch.setattr(calibrating, "_runs_on", lambda: ("cpu", "the CPU was measured"))


def test_what_it_measured_is_in_the_file_with_where_and_when(quick, prints, tmp_path):
    pytest.importorskip("torch")
    told = json.loads(prints("calibrate", "-o", str(tmp_path / "own.yaml"), "--json"))
    assert told["notes"] == ["the CPU was measured"]
    assert {row["unit"] for row in told["rows"]} == {"s", "bytes", "bytes/s"}
    device = files.load_topology(tmp_path / "own.yaml").devices[0]
    measured = device.measured
    assert [block.d_model for block in measured.blocks] == [32, 64, 96]
    assert all(block.forward_s > 0 and block.backward_s > 0 for block in measured.blocks)
    assert measured.block_launch_s > 0
    assert (measured.host, measured.dtype) == (calibrating.host_name(), "fp32")
    assert "torch" in measured.versions


def test_a_network_without_this_machine_s_gpu_is_refused_before_blocks_are_timed(quick):
    pytest.importorskip("torch")
    nothing = np.zeros((1, 1))
    with pytest.raises(LabError, match="paris has 'T4', but this machine has"):
        calibrating.calibrate(Topology((Device(name="a", gpu="T4"),), nothing, nothing, name="paris"))


def test_what_cannot_be_is_refused_in_one_line(refuses, tmp_path):
    refuses("mine.csv ends in .csv; wanted one of .yaml, .yml, .json", "calibrate", "-o", "mine.csv")
    refuses("wanted fp16, bf16, fp32", "calibrate", "--dtype", "int4", "-o", str(tmp_path / "own.yaml"))
    refuses("wanted dtfm-lab calibrate HOST...", "calibrate", "--at", "ada=Oslo")
    refuses("wanted one of them", "calibrate", "ada", "--network", "campus")


def test_a_process_that_fails_is_told_by_its_last_words_and_none_is_left():
    question = {"runs_on": "cpu", "dtype": "fp32", "seconds": 0.0, "ends_s": 60.0}
    says = "the step could not be measured: the computing process says KeyError: 'shapes'"
    with calibrating.answers_of(question) as answer:
        answer("processor")
        with pytest.raises(RunError, match=says):
            answer("step")


def test_an_interrupt_ends_the_process_that_computes(monkeypatch):
    started = []
    popen = calibrating.subprocess.Popen
    monkeypatch.setattr(calibrating.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    question = {"runs_on": "cpu", "dtype": "fp32", "shapes": [], "seconds": 0.0, "ends_s": 60.0}
    with pytest.raises(KeyboardInterrupt), calibrating.answers_of(question):
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def test_several_streams_move_bytes_and_one_that_is_closed_is_told():
    assert loopback_bytes_per_s(1, 0.01) > 0
    assert loopback_bytes_per_s(4, 0.01) > 0
    here, there = socket.socketpair()
    there.close()
    with here, pytest.raises(OSError):  # noqa: PT011  which one is the system's
        together_bytes_per_s([here], 0.01)
