"""The programme that waits for a GPU: it works on a CPU, says that it does, and its arithmetic is that of the lab."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab

torch = pytest.importorskip("torch", reason="the programme's steps need torch")

ROOT = Path(__file__).parents[1]
PROGRAMME = ROOT / "benchmarks" / "gpu"
sys.path.insert(0, str(PROGRAMME))

import batch_costs  # noqa: E402
from child import Interruption, run_step  # noqa: E402
from figures import Figure, Setting, Step  # noqa: E402
from machine_facts import table_row  # noqa: E402
from report import Report, StepRecord  # noqa: E402
from saved_bytes import SavedBytes  # noqa: E402

from dtfm_lab.planning.cost import pair_costs, total_costs  # noqa: E402


def programme(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAMME), *arguments, "--folder", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def processes_with(folder: Path) -> str:
    """Processes that have the folder in their command, one a line."""
    return subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True, check=False).stdout


def report_of(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


@pytest.mark.slow
def test_a_rehearsal_says_that_it_is_one_and_another_joins_it(tmp_path: Path) -> None:
    for step in ("batch_pricing", "codec_speed"):
        done = programme("--rehearse", "--steps", step, folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "rehearsed on the CPU: no figure of a GPU" in done.stdout
    report = report_of(tmp_path)
    assert {name: step["state"] for name, step in report["steps"].items()} == {
        "batch_pricing": "done",
        "codec_speed": "done",
    }
    verdicts = {figure["verdict"] for step in report["steps"].values() for figure in step["figures"]}
    assert verdicts == {"rehearsed"}
    page = (tmp_path / "report.md").read_text()
    assert page.startswith("# GPU report: rehearsed on the CPU: no figure of a GPU")
    assert "## eight_devices: not run" in page
    assert str(tmp_path) not in page


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_steps_say_why_they_did_not_run(tmp_path: Path) -> None:
    done = programme("--steps", "one_stage", folder=tmp_path)
    [step] = report_of(tmp_path)["steps"].values()
    assert step["state"] == "not run"
    assert "torch" in step["reason"]
    assert "\n" not in step["reason"]
    assert "Traceback" not in done.stdout + done.stderr
    assert "0 goals met, 0 missed; 0 of 10 steps done" in done.stdout


def test_a_step_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    done = programme("--steps", "mfu", folder=tmp_path)
    assert done.returncode == 2
    assert "there is no step mfu; wanted some of doctor, one_rank" in done.stderr


@pytest.mark.slow
def test_a_step_over_its_limit_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    record = run_step(Step("eight_devices", "", 9), tmp_path, rehearses=True, limit_s=0.5, interruption=Interruption())
    assert record.state == "failed"
    assert "not done after" in record.reason
    assert processes_with(tmp_path) == ""


@pytest.mark.slow
def test_ctrl_c_writes_what_is_there(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMME), "--rehearse", "--steps", "doctor,one_rank", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("[1/2]"):
                break
        while not (tmp_path / "steps").exists():
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        said = running.stdout.read()
        running.wait(100)
    assert "interrupted" in said
    assert report_of(tmp_path)["steps"]["doctor"]["reason"] == "interrupted"
    assert "one_rank" not in report_of(tmp_path)["steps"]
    assert processes_with(tmp_path) == ""


def test_verdicts_follow_from_goals(tmp_path: Path) -> None:
    report = Report(tmp_path, False, ["a", "b"])
    met, missed = (Figure(name="x", value=1.0, goal="1", met=which) for which in (True, False))
    report.keep("a", StepRecord(state="done", figures=[met, Figure(name="y", value="no goal")]))
    assert report.is_good
    assert report.summary == "1 goals met, 0 missed; 1 of 2 steps done"
    report.keep("b", StepRecord(state="done", figures=[missed]))
    assert not report.is_good
    again = Report.opened(tmp_path, False, ["a", "b"])
    assert again.steps["a"].figures == report.steps["a"].figures
    assert Report.opened(tmp_path, True, ["a", "b"]).steps == {}, "a rehearsal does not join a report of a GPU"


@pytest.mark.parametrize(
    ("said", "row"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("CPU", None),
    ],
)
def test_a_gpu_is_found_in_the_table_by_the_name_that_torch_says(said: str, row: str | None) -> None:
    found = table_row(said)
    assert (found and found[0]) == row


@pytest.mark.parametrize(("n", "n_stages"), [(12, 3), (16, 1), (16, 16), (64, 8)])
def test_batches_cost_what_compiled_loops_and_the_planners_say(n: int, n_stages: int) -> None:
    rng = np.random.default_rng(n)
    pairs = batch_costs.random_pairs(n, rng), batch_costs.random_pairs(n, rng)
    grids = batch_costs.random_grids(n, n_stages, 5, rng)
    compiled = batch_costs.compiled_costs(grids, *pairs)
    by_torch = batch_costs.torch_costs(*(torch.from_numpy(array) for array in (grids, *pairs))).numpy()
    np.testing.assert_array_equal(by_torch, compiled)


def test_batches_cost_what_a_plan_costs() -> None:
    plan = lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny"), steps=1, seed=0)
    pair = pair_costs(plan.topology, plan.job)
    grids = batch_costs.random_grids(8, 4, 20, np.random.default_rng(1))
    found = batch_costs.torch_costs(*(torch.from_numpy(array) for array in (grids, pair.group_s, pair.hop_s)))
    np.testing.assert_allclose(found.numpy(), total_costs(grids, pair), rtol=1e-13)


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_floating_point_operations_are_those_that_torch_counts(name: str) -> None:
    """Torch counts none of its CPU kernel of fused attention, so attention is the plain one here."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from dtfm_lab.runtime.worker.stages import build_stages

    job = lab.load_job(name, n_stages=1, n_replicas=1, global_batch=1, microbatch=1)
    model, tokens = build_stages(job, 1, [0], 0)[0], torch.zeros(1, job.modelled().seq_len, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        loss = model(tokens).sum()
    assert forward.get_total_flops() == job.modelled().forward_flop
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        loss.backward()
    assert backward.get_total_flops() == 2 * job.modelled().forward_flop


def test_saved_bytes_count_each_storage_once_and_for_as_long_as_it_is_held() -> None:
    weight, inputs = torch.ones(8, 8, requires_grad=True), torch.ones(4, 8)
    with SavedBytes() as saved:
        saved.leave_out([weight])
        outputs = (inputs @ weight).exp()
        assert saved.now == 2 * 4 * 8 * 4  # the inputs of the product, the result of the exponential
        outputs.sum().backward()
        del outputs
        assert (saved.now, saved.peak) == (0, 2 * 4 * 8 * 4)


@pytest.mark.slow
def test_measured_rows_are_read_by_what_calibrates(tmp_path: Path) -> None:
    import calibration_rows

    torch.set_num_threads(1)  # more of them fight over a crowded machine's cores
    figures = list(calibration_rows.measure(Setting(rehearses=True, folder=tmp_path)))
    assert figures[-1].name == "each row predicted from all others, mean error"
    calibration = lab.published.calibrate(tmp_path / "gpu-rows.csv")
    assert 0 < calibration.low <= calibration.efficiency <= calibration.high


def test_the_notebook_has_the_cells_of_its_source() -> None:
    jupytext, nbformat = pytest.importorskip("jupytext"), pytest.importorskip("nbformat")
    kept, source = ROOT / "notebooks" / "gpu" / "gpu.ipynb", ROOT / "tools" / "lessons" / "gpu" / "gpu.py"
    books = nbformat.read(kept, nbformat.NO_CONVERT), jupytext.read(source)
    one, other = ([(cell.cell_type, cell.source) for cell in book.cells] for book in books)
    assert one == other


def test_the_kept_report_of_an_h200_can_be_read_again() -> None:
    """Its rows give the efficiency and the error that it states, and both of its traces begin with the same loss."""
    kept = PROGRAMME / "reports" / "h200"
    stated = {
        figure["name"]: figure["value"]
        for step in json.loads((kept / "first.json").read_text())["steps"].values()
        for figure in step["figures"]
    }
    calibration = lab.published.calibrate(kept / "gpu-rows.csv")
    assert 100 * calibration.efficiency == pytest.approx(stated["efficiency"])
    # in points: the report states what the model of its day made of the rows
    assert 100 * calibration.mean_error == pytest.approx(
        stated["each row predicted from all others, mean error"], abs=1
    )
    traces = [lab.load_trace(kept / f"eight-devices-{clock}.json") for clock in ("virtual", "paced")]
    assert [trace.n_iterations for trace in traces] == [4, 1]
    assert traces[0].context.losses[0] == pytest.approx(traces[1].context.losses[0], rel=1e-6)
