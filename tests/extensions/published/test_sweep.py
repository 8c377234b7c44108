"""Configurations of nanotron on hosts of H100s: predictions beside a sweep that was measured, and choices by them."""

import csv
import statistics
from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.units import by_key
from dtfm_lab.extensions.published import nanotron
from dtfm_lab.extensions.published.blind import opened, save_sealed, seal
from dtfm_lab.extensions.published.nanotron import Configuration, cut_of, predict, read_sweep, slow_mode

COLUMNS = ("model", "nodes", "dp", "tp", "pp", "mbs", "grad_acc", "gbs", "zero")
MEASURED = ("status", "tokens_per_s_per_gpu", "mfu_percent", "peak_memory_gb", "copies")


def sweep(folder: Path, rows: list[dict[str, str]], columns: tuple[str, ...] = COLUMNS + MEASURED) -> Path:
    path = folder / "sweep.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def packaged(**wanted: str) -> list[dict[str, str]]:
    lines = [line for line in nanotron.SWEEP.read_text().splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if all(row[name] == value for name, value in wanted.items())]


def test_the_sweep_has_its_rows_and_no_row_of_the_models_that_are_held_out():
    rows = read_sweep()
    ran = [row for row in rows if row.iteration_s is not None]
    assert {row.one.model for row in rows} == {"1B", "3B"}
    assert len(ran) == 1127
    assert sum(slow_mode(ran)) > 100


def test_runs_that_nearly_fill_a_gpu_are_slow_and_others_are_not():
    rows = [row for row in read_sweep() if row.iteration_s is not None and row.peak_memory_bytes is not None]

    def parallelism(row):
        return row.one.model, row.one.nodes, row.one.dp, row.one.tp, row.one.pp, row.one.zero

    alike = by_key((parallelism(row), row.iteration_s) for row in rows)
    # Runs of smaller micro-batches are slow for other reasons.
    slower = [
        (row.peak_memory_bytes, row.iteration_s / min(alike[parallelism(row)])) for row in rows if row.one.mbs >= 4
    ]
    full = [times for peak, times in slower if peak > 70e9]
    roomy = [times for peak, times in slower if 50e9 < peak <= 70e9]
    assert (len(full), round(min(full)), round(max(full))) == (9, 5, 12)
    assert (len(roomy), sum(times >= min(full) for times in roomy)) == (61, 1)


def test_stages_are_cut_by_their_multiplications_and_the_head_is_one_of_them():
    assert cut_of("1B", 2) == (11, 5)
    assert cut_of("3B", 8) == (4, 4, 4, 4, 4, 4, 4, 0), "the last stage has the head alone"
    assert cut_of("1B", 8) == (3, 3, 2, 3, 2, 3, 0), "and one behind it nothing"
    for name, (n_layers, *_) in nanotron.SHAPES.items():
        assert all(sum(cut_of(name, n)) == n_layers for n in (1, 2, 4, 8, 16))


def test_a_sample_of_the_sweep_is_predicted_within_the_bands_that_the_page_states():
    rows = [row for row in read_sweep() if row.iteration_s is not None]
    slow = dict(zip(rows, slow_mode(rows), strict=True))
    sample = rows[::37]
    found = {row: predict(row.one) for row in sample}
    off = [abs(found[row].iteration_s / row.iteration_s - 1) for row in sample if not slow[row]]
    held = [found[row].interval_s[0] <= row.iteration_s <= found[row].interval_s[1] for row in sample]
    memory = [abs(found[row].memory_bytes / row.peak_memory_bytes - 1) for row in sample if row.peak_memory_bytes]
    assert statistics.median(off) < 0.12
    assert sum(held) > 0.8 * len(held)
    assert statistics.median(memory) < 0.12


def test_a_pipeline_between_hosts_waits_for_launches():
    shape = {"model": "1B", "nodes": 2, "dp": 1, "tp": 8, "pp": 2, "mbs": 1, "grad_acc": 256, "zero": 0}
    found = predict(Configuration(**shape))
    most = max(cut_of("1B", 2))
    assert found.simulated_s > found.one.grad_acc * most * nanotron.LAUNCH_IN_PIPELINE_S[8]


WRONG = [
    ({"dp": "3"}, "dp 3 x tp 1 x pp 8 are 24 GPUs; wanted 8, 8 on each of 1 nodes"),
    ({"model": "7B"}, "model is 7B; wanted one of 1B, 3B, 8B, 80B"),
    ({"mbs": "two"}, "row 1: wanted whole numbers"),
    ({"mbs": "0"}, "mbs is 0; wanted a whole number from 1"),
    ({"zero": "3"}, "zero is 3; wanted 0 or 1"),
    ({"tokens_per_s_per_gpu": "fast"}, "row 1, column tokens_per_s_per_gpu: fast; wanted a number above 0, or nothing"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=lambda case: " ".join(case) if isinstance(case, dict) else "")
def test_a_row_that_is_no_configuration_is_refused_in_one_line(tmp_path, change, says):
    with pytest.raises(FileError, match=says):
        read_sweep(sweep(tmp_path, [packaged()[0] | change]))


def test_another_file_is_no_sweep(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("model,nodes\n1B,1\n")
    assert not nanotron.is_sweep(path)
    with pytest.raises(FileError, match=r"has the columns model, nodes; wanted model, nodes, dp, tp"):
        read_sweep(path)


FEW = [row for row in packaged(model="1B", nodes="1") if row["mbs"] in "12" and row["pp"] in "12"]


def test_a_choice_does_not_know_what_was_measured(tmp_path):
    found = lab.published.regret(sweep(tmp_path, FEW))
    ran = [row for row in FEW if row["status"] == "ok"]
    speeds = [row["tokens_per_s_per_gpu"] for row in ran]
    turned = dict(zip(map(id, ran), reversed(speeds), strict=True))
    other = lab.published.regret(
        sweep(tmp_path, [row | {"tokens_per_s_per_gpu": turned.get(id(row), "")} for row in FEW])
    )
    (cell,), (again,) = found.cells, other.cells
    assert [choice.one for choice in cell.choices] == [choice.one for choice in again.choices]
    assert all(0 < choice.share <= 1 for choice in cell.choices)
    assert cell.choices[0].share > 0.95
    assert found.mean() == cell.choices[0].share
    assert len(found.to_frame()) == len(ran) == cell.n_measured


def test_a_sweep_without_measurements_is_sealed_and_opened(tmp_path):
    rows = [row for row in FEW if row["status"] == "ok"][:4]
    blind = sweep(tmp_path, rows, COLUMNS)
    sealed = save_sealed(seal(blind), tmp_path / "sealed.json")
    ledger = opened(sealed, sweep(tmp_path, rows))
    assert len(ledger) == 2 * len(rows)
    assert {row.quantity for row in ledger} == {"throughput", "memory"}
    assert all(row.covered for row in ledger if row.quantity == "throughput")
    with pytest.raises(FileError, match="holds a measurement; wanted none"):
        seal(sweep(tmp_path, rows))


def test_regret_wants_one_row_that_was_measured(tmp_path):
    with pytest.raises(LabError, match="no row of the sweep was measured"):
        lab.published.regret(sweep(tmp_path, FEW[:1], COLUMNS))
