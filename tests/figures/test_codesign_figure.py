"""The figure of what makes a network compute-bound: a panel for each knob."""

import pytest
from drawn import array

import dtfm_lab as lab
from dtfm_lab import figures


@pytest.fixture(scope="module")
def found():
    return lab.codesign("lecture-hall", small_batch(), steps=1, target=0.8)


def small_batch() -> lab.Job:
    """A batch from which few doublings lead to compute-bound."""
    return lab.load_job("tiny", global_batch=16, n_stages=2, n_replicas=4)


def test_every_knob_has_a_panel_with_its_shares(found) -> None:
    figure = figures.codesign(found)
    for trace, one in zip(figure.data, found.turned, strict=True):
        assert array(trace.y) == pytest.approx([100 * design.computing for design in one.designs])
        if one.knob.name != "compression":
            assert array(trace.x) == pytest.approx([one.value(design) for design in one.designs])
        own = [symbol.startswith("diamond") for symbol in trace.marker.symbol]
        assert own == [design is found.base for design in one.designs]
    assert found.sentence in figures.alt_text(figure)


def test_designs_that_do_not_fit_are_hollow() -> None:
    job = lab.load_job("gpt2-small", n_stages=1, n_replicas=2, global_batch=2, microbatch=1)
    links = [[0, 2.0], [2.0, 0]]
    topology = lab.Topology.from_matrices(links, links, peak_tflops=50, memory_gib=6)
    found = lab.codesign(topology, job, plan=lab.evaluate(topology, job, rank_map=[0, 1]), knobs="sequence")
    [trace] = figures.codesign(found).data
    assert [symbol.endswith("-open") for symbol in trace.marker.symbol] == [
        not design.fits for design in found["sequence"].designs
    ]
    assert any(not design.fits for design in found["sequence"].designs)


@pytest.mark.parametrize("knobs", ["batch", ["batch", "every"], "compression"])
def test_some_knobs_are_drawn_and_written(tmp_path, knobs) -> None:
    found = lab.codesign("lecture-hall", small_batch(), steps=1, knobs=knobs, target=0.8)
    assert "<svg" in figures.save(figures.codesign(found), tmp_path / "codesign.svg").read_text()
