"""What follows from blocks that were timed on a GPU: its share of the peak, and the word of a prediction."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.costs.basis import basis_of
from dtfm_lab.costs.efficiency import GUESS, efficiency_of, share_of
from dtfm_lab.costs.seconds import layer_passes
from dtfm_lab.domain.errors import FileError, TopologyError, UnknownName
from dtfm_lab.domain.job import Job, LayerKind, gpt
from dtfm_lab.domain.network import Device, MeasuredBlock, MeasuredGpu, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import save_topology, topology_from_mapping, topology_to_mapping
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation import simulate

GPU, PEAK = "a GPU of nobody's table", 1e14


def job(width: int = 1024, **fields: object) -> Job:
    model = gpt(name="m", n_layers=4, d_model=width, n_heads=width // 64, seq_len=512, vocab_size=1000)
    sizes = {"n_stages": 1, "n_replicas": 1, "global_batch": 2, "microbatch": 2, "dtype": "bf16"}
    return Job(name="j", model=model, **sizes | fields)


def at_share(width: int, share: float, peak: float = PEAK) -> MeasuredBlock:
    """The block as it is passed at a share of a peak, a third of the time forwards."""
    model = job(width).modelled()
    flop = next(layer.forward_flop for layer in model.layers if layer.kind is LayerKind.BLOCK)
    seconds = 2 * flop * (1 + model.backward.whole) / peak / share
    sizes = {"d_model": width, "n_heads": width // 64, "seq_len": 512, "microbatch": 2}
    return MeasuredBlock(**sizes, forward_s=seconds / 3, backward_s=2 * seconds / 3)


def measured(*blocks: MeasuredBlock, **fields: object) -> MeasuredGpu:
    where = {"dtype": "bf16", "host": "ada", "date": "2026-11-30"}
    return MeasuredGpu(blocks=blocks, **where | fields)


def device(of: MeasuredGpu | None, gpu: str = GPU, name: str = "d") -> Device:
    own = {} if gpu != GPU else {"peak_flop_per_s": PEAK, "memory_bytes": 1e11}
    return Device(name=name, gpu=gpu, measured=of, **own)


def planned(of: MeasuredGpu | None, **fields: object) -> Plan:
    nothing = np.zeros((1, 1))
    return evaluate(Topology((device(of),), nothing, nothing, name="one"), job(**fields), rank_map=[0])


TWO = measured(at_share(1024, 0.1), at_share(4096, 0.4))


@pytest.mark.parametrize(("width", "share"), [(1024, 0.1), (4096, 0.4), (2048, 0.2), (512, 0.1), (8192, 0.4)])
def test_a_share_goes_with_the_logarithm_of_the_width_and_stays_beyond_the_last(width: int, share: float):
    assert share_of(job(width), device(TWO)) == pytest.approx(share)


def test_where_the_gpu_has_a_model_the_factor_on_it_holds_for_other_widths_and_micro_batches():
    a100 = Device(name="d", gpu="A100")
    known = efficiency_of(job(4096), a100).share
    fast = replace(a100, measured=measured(at_share(4096, 0.9 * known, a100.peak_flop_per_s)))
    for other in (job(4096), job(8192), job(4096, microbatch=1)):
        assert share_of(other, fast) == pytest.approx(0.9 * share_of(other, a100), rel=0.05)


@pytest.mark.parametrize("other", [job(128), job(32768), job(dtype="fp32")], ids=["narrow", "wide", "precision"])
def test_what_the_blocks_do_not_tell_of_keeps_its_guess(other: Job):
    assert efficiency_of(other, device(TWO)) == GUESS


def test_half_precisions_count_as_one():
    assert share_of(job(dtype="fp16"), device(TWO)) == pytest.approx(0.1)


def test_the_spread_is_how_far_the_middle_block_is_from_the_line_through_its_neighbours():
    bent = measured(at_share(1024, 0.1), at_share(2048, 0.3), at_share(4096, 0.4))
    assert efficiency_of(job(), device(bent)).spread == pytest.approx(np.log(0.3 / 0.2))


def test_no_block_takes_less_than_its_launches_but_what_a_job_states_comes_first():
    slow = device(replace(TWO, block_launch_s=9.0))
    block = next(layer for layer in job().modelled().layers if layer.kind is LayerKind.BLOCK)
    assert layer_passes(job(), block, slow, 1e14).backward == pytest.approx(6.0)
    assert layer_passes(job(block_launch_s=3.0), block, slow, 1e14).forward == pytest.approx(1.0)


def test_a_guess_becomes_calibrated_and_says_with_what():
    assert basis_of(planned(None)).word == "guessed"
    assert basis_of(planned(TWO)) == ("calibrated", "blocks timed on ada, 2026-11-30")
    assert simulate(planned(TWO)).context.basis == basis_of(planned(TWO))
    word, why = basis_of(planned(TWO, dtype="fp32"))
    assert (word, "blocks were timed in bf16, and the job computes in fp32" in why) == ("guessed", True)


def test_one_measurement_counts_for_all_devices_with_the_gpu_and_two_are_refused():
    nothing = np.full((2, 2), 1.0)
    one = Topology((device(TWO), device(None, name="e")), nothing, nothing, name="two")
    assert one.devices[1].measured == TWO
    with pytest.raises(TopologyError, match="was measured twice"):
        Topology((device(TWO), device(measured(at_share(512, 0.1)), name="e")), nothing, nothing)
    assert one.devices[0].with_gpu("T4").measured is None


def test_a_file_keeps_what_was_measured():
    nothing = np.zeros((1, 1))
    topology = Topology((device(replace(TWO, block_launch_s=1e-3, versions="torch 2")),), nothing, nothing, name="one")
    mapping = topology_to_mapping(topology)
    assert topology_to_mapping(topology_from_mapping(mapping)) == mapping
    again = topology_from_mapping(mapping).devices[0].measured
    assert (again.host, again.block_launch_s) == ("ada", pytest.approx(1e-3))
    assert topology.fingerprint != replace(topology, devices=(device(None),)).fingerprint


def test_an_archive_which_cannot_keep_it_is_refused(tmp_path):
    nothing = np.zeros((1, 1))
    topology = Topology((device(TWO),), nothing, nothing, name="one")
    with pytest.raises(FileError, match=r"one\.npz: cannot hold the measured blocks of GPUs; wanted \.yaml or \.json"):
        save_topology(topology, tmp_path / "one.npz")
    assert not (tmp_path / "one.npz").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu": "T4"}, "no GPU of a device named 'T4'"),
        ({"dtype": "int4"}, "no dtype of a measured GPU named 'int4'"),
        ({"blocks": []}, "blocks"),
    ],
    ids=["gpu", "dtype", "blocks"],
)
def test_a_file_with_a_measurement_of_nothing_is_refused(change: dict, says: str):
    nothing = np.zeros((1, 1))
    mapping = topology_to_mapping(Topology((device(TWO),), nothing, nothing, name="one"))
    mapping["measured"]["gpus"][0] |= change
    with pytest.raises((TopologyError, UnknownName, Exception), match=says):
        topology_from_mapping(mapping)


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ((), "has no blocks"),
        ((at_share(4096, 0.4), at_share(1024, 0.1)), "each wider than the last"),
        ((replace(at_share(1024, 0.1), forward_s=0.0),), "forward_s of a measured block is 0"),
        ((replace(at_share(1024, 0.1), n_heads=7),), "not a multiple of its 7 heads"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(blocks: tuple[MeasuredBlock, ...], says: str):
    with pytest.raises(TopologyError, match=says):
        measured(*blocks)
