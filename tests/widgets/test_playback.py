"""The rows that the network's views play: who computes, and which messages are under way."""

from __future__ import annotations

import numpy as np
import pytest
from loops import until

from dtfm_lab import lab
from dtfm_lab.domain.schedule import LANE, Lane
from dtfm_lab.domain.trace import Trace
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.running import playback
from dtfm_lab.widgets.running.playback import COMPUTES, Playback, device_names, rows_of_trace, split_into_gpus
from dtfm_lab.widgets.views.editor import TopologyEditor

PLAN = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6]])
PREDICTED = lab.simulate(PLAN, "gpipe")


def told(trace, row):
    names = device_names(trace.context)
    return names[int(row[3])], None if row[4] == COMPUTES else names[int(row[4])]


def test_every_computation_is_a_row_and_every_message_one_from_its_send_to_its_receive():
    rows = rows_of_trace(PREDICTED)
    frame = PREDICTED.to_frame()
    computed = frame[frame["lane"] == Lane.COMPUTE.value]
    received = frame[frame["lane"] == Lane.RECEIVE.value]
    assert len(rows) == len(computed) + len(received)
    assert (np.diff(rows[:, 0]) >= 0).all()
    messages = [row for row in rows if row[4] != COMPUTES]
    assert sorted(f"{a} -> {b}" for a, b in (told(PREDICTED, row) for row in messages)) == sorted(received["link"])
    ends = received.groupby("link")["end_s"].max()
    for link, end_s in ends.items():
        mine = [row[1] for row in messages if " -> ".join(map(str, told(PREDICTED, row))) == link]
        assert max(mine) == pytest.approx(end_s)
    assert float(rows[:, 1].max()) == pytest.approx(PREDICTED.iteration_s)


def test_a_message_is_not_played_before_both_of_its_ends_are_known():
    spans = PREDICTED.spans()
    sent = [span for span in spans if LANE[span.action.kind] is Lane.SEND]
    assert len(rows_of_trace(Trace.from_spans(PREDICTED.context, sent))) == 0
    played = rows_of_trace(Trace.from_spans(PREDICTED.context, spans))
    assert np.array_equal(np.sort(played, 0), np.sort(rows_of_trace(PREDICTED), 0))


def test_every_gpu_of_a_group_computes_and_its_first_one_sends_and_receives():
    # Device 0 is a group of two GPUs, device 1 one of three.
    rows = np.array([[0, 1, 0, 0, COMPUTES], [1, 2, 0, 0, 1], [2, 3, 1, 1, COMPUTES]], dtype="<f4")
    split, names = split_into_gpus(rows, [["a0", "a1"], ["b0", "b1", "b2"]])
    assert names == ["a0", "a1", "b0", "b1", "b2"]
    assert split[:, 3:].tolist() == [
        *([gpu, COMPUTES] for gpu in (0, 1)),
        [0, 2],
        *([gpu, COMPUTES] for gpu in (2, 3, 4)),
    ]
    assert split[:, 0].tolist() == [0, 0, 1, 2, 2, 2]
    alone, _ = split_into_gpus(rows, [["a"], ["b"]])
    assert np.array_equal(alone, rows)


def test_a_plan_with_tensor_parallelism_plays_all_of_its_gpus():
    network = lab.Topology.from_matrices(
        [[0.01] * 16] * 16, [[100.0] * 16] * 16, hosts=["one"] * 8 + ["two"] * 8, gpu="A100"
    )
    job = lab.load_job("gpt2-medium", n_stages=2, n_replicas=1, global_batch=8, microbatch=4, tensor_parallel=8)
    lab_state, drawing = LabState(topology=network, job=job), Drawing()
    played = Playback(lab_state, pytest.fail, drawing)
    lab_state.plan = lab.evaluate(network.grouped(8), job, stages=[[0], [1]])
    lab_state.predicted = lab.simulate(lab_state.plan)
    assert played.view.length_s > 0
    assert drawing.playback_devices == list(network.names)
    rows = np.frombuffer(drawing.playback, "<f4").reshape(-1, 5)
    assert set(rows[rows[:, 4] == COMPUTES, 3]) == set(range(16))
    assert set(rows[rows[:, 4] != COMPUTES, 3]) == {0, 8}


async def test_a_prediction_is_played_and_a_measurement_that_comes_with_it_wins():
    lab_state, drawing = LabState(), Drawing()
    played = Playback(lab_state, pytest.fail, drawing)
    lab_state.predicted = PREDICTED
    await until(lambda: played.view.length_s > 0)
    assert (played.view.source, played.view.known_s) == ("predicted", played.view.length_s)
    assert np.array_equal(np.frombuffer(drawing.playback, "<f4").reshape(-1, 5), rows_of_trace(PREDICTED))
    assert TopologyEditor(drawing).playback == drawing.playback
    with lab_state.hold_trait_notifications():
        lab_state.measured = PREDICTED
        lab_state.predicted = lab.simulate(PLAN, "1f1b")
    await until(lambda: played.view.length_s == pytest.approx(PREDICTED.iteration_s))
    lab_state.predicted = lab_state.measured = None
    await until(lambda: played.drawing.playback == b"" and played.view.length_s == 0)


def test_many_rows_are_sent_only_once_somebody_plays_them(monkeypatch):
    monkeypatch.setattr(playback, "MOST_UNASKED", 3)
    lab_state = LabState()
    played = Playback(lab_state, pytest.fail)
    lab_state.predicted = PREDICTED  # without an event loop at once
    assert played.view.length_s > 0
    assert played.drawing.playback == b""
    played.view.playing = True
    assert len(played.drawing.playback) == rows_of_trace(PREDICTED).nbytes
