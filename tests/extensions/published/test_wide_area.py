"""hivemind's rounds by closed forms, AMP's trials by laws, and fits that never saw their own row."""

import numpy as np
import pytest

from dtfm_lab.domain.units import from_gbps
from dtfm_lab.extensions.published.row import numbers
from dtfm_lab.extensions.published.systems import amp, hivemind

HALF_GB = 0.25e9
"""Parameters whose gradient is half a gigabyte in fp16."""


@pytest.fixture
def streams(monkeypatch):
    """Two zones of a link of 8 Gbit/s, and 100 ms between them, over which a stream has 2 MB under way."""
    near, far = hivemind.TcpStream(1e9, 0.0), hivemind.TcpStream(2e7, 0.1)
    monkeypatch.setattr(hivemind, "single_streams", lambda: {("eu", "eu"): near, ("us", "us"): near, ("eu", "us"): far})


def run_of(peers):
    line = {"run": peers, "experiment": "X", "peers": peers, "params_million": str(HALF_GB / 1e6)}
    return hivemind.HivemindRun(line)


def round_s(peers, **software):
    return hivemind.averaging_seconds(run_of(peers), hivemind.Software(**software)) - hivemind.MATCHMAKING_S


def test_a_round_of_two_sends_half_of_the_gradient_there_and_the_other_half_back(streams):
    alone_s = round_s("1 T4 in us + 1 T4 in eu", taken_bytes_per_s={})
    assert alone_s == pytest.approx(2 * (0.05 + HALF_GB / 2e7))
    taken = {"T4": 1e8}  # faster than the stream, whose own window is read as it comes in
    assert round_s("1 T4 in us + 1 T4 in eu", taken_bytes_per_s=taken) == pytest.approx(alone_s)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_within_a_zone_a_host_takes_all_its_peers_shares_at_its_rate(streams, n):
    taken = {"T4": 1e8}
    each_way_s = (n - 1) / n * 2 * HALF_GB / 1e8
    assert round_s(f"{n} T4 in us", taken_bytes_per_s=taken) == pytest.approx(2 * each_way_s, rel=1e-6)


def test_the_other_peers_windows_delay_a_far_stream(streams):
    peers = "2 T4 in us + 2 T4 in eu"
    shard = 2 * HALF_GB / 4
    alone_s, delayed_s = (round_s(peers, taken_bytes_per_s=taken) for taken in ({}, {"T4": 1e8}))
    assert alone_s == pytest.approx(2 * (0.05 + shard / 2e7))
    assert delayed_s == pytest.approx(alone_s + 2 * shard * 2 / 1e8)


def test_a_host_of_the_premises_makes_a_round_longer(monkeypatch):
    pairs = {("RTX8000", "eu"): hivemind.TcpStream(2e7, 0.02)}
    monkeypatch.setattr(hivemind, "single_streams", lambda: pairs)
    without_s, with_s = (
        round_s("1 RTX8000 in RTX8000 + 1 T4 in eu", taken_bytes_per_s={}, premises_s=extra_s) for extra_s in (0.0, 7.0)
    )
    assert with_s - without_s == pytest.approx(7.0)


def test_every_pair_of_a_round_was_tested():
    tested = hivemind.single_streams()
    for run in hivemind.runs():
        places = [peer.place for peer in run.peers]
        pairs = {tuple(sorted((a, b))) for i, a in enumerate(places) for b in places[:i]}
        assert pairs <= set(tested), run.name
    assert tested["eu", "us"].bytes_per_s == pytest.approx(from_gbps(0.212), rel=0.01)


def test_a_round_is_predicted_from_other_runs():
    rates = {"a": ("T4", 1.0), "b": ("T4", 2.0), "c": ("T4", 8.0)}
    fits = hivemind.Fits(rates, {"d": 3.0, "e": 5.0, "f": 9.0}, {"a": 0.5, "b": 0.6, "c": 0.7})

    def named(name):
        return hivemind.HivemindRun({"run": name})

    assert fits.software_for(named("a")).taken_bytes_per_s["T4"] == pytest.approx(4.0)
    assert fits.software_for(named("b")).taken_bytes_per_s["8 V100"] == pytest.approx(8**0.5)
    assert fits.software_for(named("f")).premises_s == pytest.approx(15**0.5)
    assert fits.share_for(named("b")) == pytest.approx((0.5 * 0.7) ** 0.5)


def trial_of(microbatch, tp=4, dp=2, pp=2):
    sizes = {"microbatch": microbatch, "tp": tp, "dp": dp, "pp": pp}
    return amp.AmpTrial({"cut": "0 14 30"} | {name: str(size) for name, size in sizes.items()})


def test_small_micro_batches_are_bound_by_launches():
    one, two = (amp.seconds(trial_of(microbatch), inside_gbps=1e6) for microbatch in (1, 2))
    launched_s = amp.LAUNCHES * sum(amp.profile()[4][layer] for layer in amp.BLOCKS) / 2
    assert one > 16 * launched_s
    assert two < one, "half as many passes, which the host bounds, take less"


def test_slower_links_inside_a_host_make_iterations_longer():
    slow, fast = (amp.seconds(trial_of(8), inside_gbps=gbps) for gbps in (10.0, 50.0))
    assert slow > fast


def test_a_bandwidth_is_chosen_without_the_row_that_it_predicts():
    errors = np.ones((3, len(amp.TRIED_GBPS)))
    errors[0, 2] = 0.0
    errors[1:, 5] = 0.4
    assert amp.fitted_gbps(errors) == [amp.TRIED_GBPS[best] for best in (5, 2, 2)]


def test_stages_of_a_trial_share_the_blocks_of_its_cut():
    plan = amp.plan_of(trial_of(1))
    assert plan.job.blocks_per_stage == (12, 12)
    assert len(plan.topology) == 4, "four GPUs share each layer"


def test_held_out_rows_are_not_in_the_data():
    assert {line["model"] for line in numbers("wan_hivemind_roberta.csv")} == {"RoBERTaXLM"}
    assert {line["experiment"] for line in numbers(amp.NUMBERS)} == {"homogeneous"}
