"""Sailor's records: a record's plan has the record's messages and times, and records of one's own come out as well."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.extensions.published.api import reproduce
from dtfm_lab.extensions.published.row import document
from dtfm_lab.extensions.published.sailor_memory import (
    CONTEXT_BYTES,
    PAIR_BYTES,
    communicators,
    framework_bytes,
    reserved_bytes,
    unknown_because,
)
from dtfm_lab.extensions.published.sailor_records import (
    BYTES,
    INSIDE_A_HOST,
    Record,
    document_of,
    gathering_s,
    plan_of,
    predicted_s,
    profile_of,
    shared_nics,
)
from dtfm_lab.extensions.published.systems.sailor import COUNTED, ONE_FACTOR, ONE_KIND, packaged, rows_of

PACKAGED = packaged()
SHARING = shared_nics(PACKAGED.rows)


@cache
def packaged_rows():
    return tuple(rows_of(PACKAGED))


def record(case: str) -> Record:
    return next(row for row in PACKAGED.rows if row.case.endswith(case))


def test_curves_tell_which_hosts_have_one_nic():
    assert {"RTX-3090", "RTX-2080", "Titan-RTX"} == SHARING
    assert shared_nics([record("N4_D4")]) == set()  # curves of single GPUs alone tell nothing


@pytest.mark.parametrize("case", ["N16_D4", "N4_D1", "N6_D3", "N2_D2"])
def test_a_plan_has_the_messages_of_its_record_and_their_seconds(case):
    row = record(case)
    plan = plan_of(row, PACKAGED.message_bytes, SHARING)
    assert plan.job.transport == "blocking"
    iteration_s = lab.simulate(plan, profile=profile_of(row)).iteration_s
    assert predicted_s(row, PACKAGED.message_bytes, SHARING) == iteration_s
    links = Links.of(plan.topology)
    assert plan.job.microbatch_counts == (row.n_microbatches,) * row.n_replicas
    assert plan.job.activation_bytes == row.hop_bytes
    grid = plan.placement.devices
    if row.n_stages > 1:
        curve = row.curves[row.group[0, 0].hop]
        expected_s = np.interp(row.hop_bytes, PACKAGED.message_bytes, curve)
        assert links.moving_s(int(grid[0, 0]), int(grid[1, 0]), row.hop_bytes) == pytest.approx(expected_s)
    if row.n_replicas > 1:
        shard_bytes = BYTES * row.stage_parameters[0] / row.n_replicas
        a, b = row.group[0, 0], row.group[0, 1]
        curve = row.curves[f"{a.gpu} x1 -> {b.gpu} x1"]
        turns = a.tensor_parallel if {a.gpu, b.gpu} & SHARING else 1
        expected_s = turns * np.interp(shard_bytes, PACKAGED.message_bytes, curve)
        assert links.moving_s(int(grid[0, 0]), int(grid[0, 1]), shard_bytes) == pytest.approx(expected_s)


def test_only_passes_that_receive_gather():
    row = record("N16_D4")
    seconds = {(c.stage, c.kind): c.seconds for c in profile_of(row) if c.replica == 0}
    gather_s = gathering_s(row.group[0, 0], row.hop_bytes)
    assert gather_s == pytest.approx(3 / 4 * row.hop_bytes / INSIDE_A_HOST["GH-96"])
    for stage in range(4):
        group = row.group[stage, 0]
        assert seconds[stage, Kind.FORWARD] == pytest.approx(group.forward_s + (gather_s if stage > 0 else 0))
        assert seconds[stage, Kind.BACKWARD] == pytest.approx(group.backward_s + (gather_s if stage < 3 else 0))
    alone = replace(row.group[1, 0], tensor_parallel=1)
    assert gathering_s(alone, row.hop_bytes) == 0


def test_a_record_equal_to_another_is_named_suspect():
    suspect = {row.setting for row in packaged_rows() if "suspect" in row.note}
    assert suspect == {"mit/N3/N3_D1", "mit/N3/N3_D1" + COUNTED}


def test_a_factor_never_sees_its_own_row():
    changed = tuple(
        replace(row, measured_iteration_s=9 * row.measured_iteration_s) if row.case.endswith("N8_D4") else row
        for row in PACKAGED.rows
    )
    before, after = (
        {row.setting: row for row in rows if row.group == ONE_KIND + ONE_FACTOR}
        for rows in (packaged_rows(), rows_of(replace(PACKAGED, rows=changed)))
    )
    own = f"GPT-NEO/N8/N8_D4{ONE_FACTOR}"
    assert before[own].predicted == after[own].predicted
    assert before[own].published != after[own].published


def test_records_of_ones_own_come_out_as_the_packaged_ones_do(tmp_path):
    data = document("sailor.json")
    data["rows"] = [row for row in data["rows"] if row["case"].endswith(("N4_D4", "N2_D1", "N64_D8"))]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(data))
    ours = {row.key: row.predicted for row in packaged_rows()}
    found = {row.key: row.predicted for row in reproduce(own=path)}
    assert len(found) == 9  # seconds of each, and its memory with either framework
    assert found == {key: ours[key] for key in found}


def test_a_model_that_is_not_known_has_no_row_of_its_memory():
    row = record("N4_D1")
    assert (reserved_bytes(row) > 0).all()
    assert reserved_bytes(replace(row, model="GPT-5")) is None
    assert reserved_bytes(replace(row, layers_per_stage=())) is None
    (only,) = rows_of(replace(PACKAGED, rows=(replace(row, model="GPT-5"),)))
    assert (only.quantity, only.note) == ("iteration", "no memory predicted: model 'GPT-5' is not known")
    mixed = (replace(row.devices[0], tensor_parallel=2), *row.devices[1:])
    assert reserved_bytes(replace(row, devices=mixed)) is None
    assert "devices of tensor_parallel" in unknown_because(replace(row, devices=mixed))
    odd = tuple(replace(group, tensor_parallel=3) for group in row.devices)
    with pytest.raises(LabError, match=row.case):
        reserved_bytes(replace(row, tensor_parallel=3, devices=odd))


def test_published_memory_is_that_of_the_whole_gpu():
    """What nvidia-smi says are whole MiB; torch reserves in twos, and a sum of tensors is neither."""
    published = [row.measured_memory_bytes for row in PACKAGED.rows]
    assert all(n_bytes % 2**20 == 0 for n_bytes in published)
    assert any(n_bytes % 2**21 for n_bytes in published)


def test_a_gpu_opens_a_communicator_for_each_group_and_each_neighbour():
    row = record("N16_D4")  # 4 stages of 4 replicas of 4 GPUs
    assert communicators(4, 4, 4, 0) == (64, 4, 4, 16, 4, 4, 2)
    assert communicators(4, 4, 4, 1) == (64, 4, 4, 16, 4, 4, 2, 2)
    assert communicators(8, 1, 4, 0) == (32, 8, 8, 8, 4)  # one stage: neither a pipeline nor neighbours
    alone = replace(
        row,
        n_stages=1,
        n_replicas=1,
        tensor_parallel=1,
        stage_parameters=row.stage_parameters[:1],
        devices=(replace(row.devices[0], tensor_parallel=1, hop=None),),
    )
    assert communicators(1, 1, 1, 0) == ()
    assert framework_bytes(alone, 0) == CONTEXT_BYTES
    assert framework_bytes(row, 1) - framework_bytes(row, 0) == PAIR_BYTES
    assert framework_bytes(record("N4_D4"), 0) == CONTEXT_BYTES  # no NVLink: buffers are in the host's memory


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"devices": []}, "0 devices; wanted one of each stage and replica"),
        ({"curves": {}}, "no curve"),
        ({"measured_iteration_s": 0}, "measured_iteration_s is 0"),
        ({"stage_parameters": [1]}, "stage_parameters"),
        ({"hop_bytes": 16777217}, "whole numbers of 4 bytes"),
        ({"microbatch": 0}, "microbatch is 0; wanted more than 0"),
        ({"n_stages": 10**9}, "devices; wanted one of each stage"),
        ({"dtype": "bf16"}, "dtype"),
        ({"rows": [3]}, "rows.json holds no list of rows"),
        ({"message_bytes": []}, "message_bytes is empty or not rising"),
        ({"message_bytes": [1, 2]}, "17 values; wanted 2, seconds above 0"),
    ],
)
def test_wrong_records_and_documents_are_refused_in_one_line(tmp_path, change, complaint):
    data = document("sailor.json")
    data["rows"] = [row for row in data["rows"] if row["case"].endswith("N4_D1")][:1]
    if {"rows", "message_bytes"} & set(change):
        data |= change
    else:
        data["rows"][0] |= change
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(data))
    with pytest.raises(LabError, match=complaint) as refusal:
        reproduce(own=path)
    assert "rows.json" in str(refusal.value) or "N4_D1" in str(refusal.value)
    assert document_of(document("sailor.json"), "sailor.json") == PACKAGED


def test_where_a_pair_of_replicas_has_no_curve_the_slowest_that_is_named_stands_in():
    row = record("N4_D4")
    fast, slow = "RTX-2080 x1 -> RTX-3090 x1", "RTX-2080 x1 -> Titan-RTX x1"
    dropped = {
        name: seconds for name, seconds in row.curves.items() if name not in (fast, "RTX-3090 x1 -> RTX-2080 x1")
    }
    devices = tuple(replace(d, gradients=(slow,)) for d in row.devices)
    assert predicted_s(replace(row, curves=dropped, devices=devices), PACKAGED.message_bytes, SHARING) > 0
    with pytest.raises(LabError, match="no curve"):
        predicted_s(
            replace(row, curves=dropped, devices=tuple(replace(d, gradients=()) for d in devices)),
            PACKAGED.message_bytes,
            SHARING,
        )
