"""Advice on where to train: laws of its numbers, of its verdict by its own rule, and its refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pinned_jobs import pinned_job

import dtfm_lab as lab
from dtfm_lab.domain.network import BETWEEN, HARDWARE, BandwidthEstimate
from dtfm_lab.domain.report import as_html
from dtfm_lab.domain.units import from_gbps
from dtfm_lab.extensions.advice.advice import SLOWER, Advice
from dtfm_lab.extensions.advice.ways import LINE_BYTES_PER_S, watts_of, with_one_more

TOKENS = 100e6
CATALOGUE = Path(__file__).parents[1] / "machines" / "recorded" / "vms.csv"
SHORT = ("--catalogue", str(CATALOGUE))
HEAD = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"


def llama(**fields) -> lab.Job:
    return pinned_job("llama-3-8b", global_batch=32, seq_len=2048, **fields)


def home(*gpus: str, price_per_hour: float = 0.0) -> lab.Topology:
    n = len(gpus)
    links = np.full((n, n), 1.0)
    return lab.Topology.from_matrices(links, links, gpu=list(gpus), price_per_hour=[price_per_hour] * n)


@pytest.fixture(scope="module")
def advice() -> Advice:
    """Four odd machines, Llama 3 8B with adapters, 100 million tokens."""
    return lab.advise("at-home", llama(adapters=16), tokens="100M", steps=1)


def one(advice: Advice, name: str):
    return next(way for way in advice.options if way.name == name)


def test_three_numbers_of_the_four_machines_by_hand(advice: Advice) -> None:
    spot, desk = one(advice, "spot alone"), one(advice, "desk alone")
    hours = TOKENS / (32 * 2048) * spot.iteration_s / 3600
    assert spot.seconds / 3600 == pytest.approx(hours)
    assert spot.dollars == pytest.approx(1.2 * hours)
    assert desk.kwh == pytest.approx(0.45 * desk.seconds / 3600)  # the data sheet of an RTX 4090: 450 W
    assert desk.dollars == pytest.approx(0.30 * desk.kwh)
    # 2 FLOP a parameter and token forward, and about as many backward through frozen weights; its 24 GiB keep few
    # activations, so that the blocks' forward is done twice
    flop = 3 * 2 * 8.03e9 * TOKENS
    assert flop / HARDWARE["RTX 4090"].peak_flop_per_s < desk.seconds < 4 * flop / HARDWARE["RTX 4090"].peak_flop_per_s


def test_the_page_says_which_machines_stay_idle_and_where_each_gpu_is_from(advice: Advice) -> None:
    page, shown = str(advice), advice._repr_html_()
    assert advice.verdict.split(":")[0] in ("At home", "Both", "In the cloud")
    assert advice.verdict in page
    assert "idle: " in page
    for way in advice.options:
        assert way.name in page
        assert way.name in shown
        assert all(f"{device.gpu}: " in page for device in way.topology.devices)
    assert advice.spot is not None
    assert 0 < advice.spot.share <= 1
    assert sum(advice.spot.states.values()) == pytest.approx(1)


def test_the_best_single_machine_stands_beside_all_together(advice: Advice) -> None:
    alone = [way for way in advice.options if way.is_single]
    assert [way.name for way in alone] == ["desk alone"]


def test_machines_with_others_are_never_slower_than_without(advice: Advice) -> None:
    whole = {way.name: way for way in advice.options if way.plan is not None}
    for few in whole.values():
        for more in whole.values():
            if {*few.topology.names} < {*more.topology.names}:
                assert more.iteration_s <= few.iteration_s * (1 + 1e-9), (few.name, more.name)


def test_more_machines_or_bandwidth_never_slow_the_plan_they_are_tried_on(advice: Advice) -> None:
    assert advice.gains
    assert all(gain.after_s <= gain.before_s * (1 + 1e-9) for gain in advice.gains)
    assert advice.base is not None
    assert advice.base.kind != "rented"


@given(st.none() | st.floats(1e-3, 10), st.none() | st.floats(0.01, 50), st.none() | st.floats(0, 10))
@settings(max_examples=25)
def test_no_way_of_the_table_beats_the_verdicts_by_its_own_rule(
    advice: Advice, days: float | None, dollars: float | None, per_kwh: float | None
) -> None:
    asked = replace(advice.asked, deadline_days=days, budget_dollars=dollars)
    ways = [replace(way, electricity_per_kwh=0.3 if per_kwh is None else per_kwh) for way in advice.options]
    decided = replace(advice, asked=asked, options=tuple(ways))
    planned = [way for way in decided.options if way.plan is not None]
    most_s = SLOWER * min(way.seconds for way in planned) if days is None and dollars is None else np.inf
    most_s = most_s if days is None else days * 86400
    allowed = [way for way in planned if way.seconds <= most_s and (dollars is None or way.dollars <= dollars)]
    if not allowed:
        assert decided.best is None
        assert decided.verdict.startswith("Not at all: there is no option ")
        return
    assert decided.best is decided.options[0]
    by_time = dollars is not None and days is None
    least = min(way.seconds if by_time else way.dollars for way in allowed)
    assert (decided.best.seconds if by_time else decided.best.dollars) == least
    assert decided.best.name in decided.verdict


def test_a_tighter_deadline_never_picks_a_slower_way_and_a_budget_below_all_says_so(advice: Advice) -> None:
    slowest = max(way.seconds for way in advice.options if way.plan) / 86400
    chosen = [
        replace(advice, asked=replace(advice.asked, deadline_days=share * slowest)).best for share in (1, 0.3, 0.05)
    ]
    assert all(way is not None for way in chosen)
    assert chosen[0].seconds > chosen[-1].seconds
    assert chosen[0].dollars < chosen[-1].dollars
    refused = replace(advice, asked=replace(advice.asked, budget_dollars=0.01))
    assert refused.best is None
    assert refused.verdict.startswith("Not at all: there is no option for at most $0.01; for 100 M tokens ")


def test_days_and_dollars_are_proportional_to_tokens_and_the_same_call_gives_the_same_page() -> None:
    few, again, more = (
        lab.advise(home("T4"), "tiny", tokens=n, steps=1, catalogue=CATALOGUE) for n in (1e6, "1M", 3e6)
    )
    assert str(few) == str(again)
    a, b = few.to_frame().set_index("way"), more.to_frame().set_index("way")
    for what in ("days", "days_low", "days_high", "dollars", "dollars_high", "kwh"):
        assert (3 * a[what]).to_numpy() == pytest.approx(b[what][a.index].to_numpy())
    assert a["iteration_s"].to_numpy() == pytest.approx(b["iteration_s"][a.index].to_numpy())


def test_own_machines_cost_their_electricity_and_one_of_unknown_watts_is_named() -> None:
    found = lab.advise(home("T4", "laptop"), "tiny", tokens=1e6, electricity_per_kwh=0.5, steps=1, catalogue=CATALOGUE)
    own = [way for way in found.options if way.kind == "own"]
    assert own
    for way in own:
        watts = sum(watts_of(device) or 0 for device in way.serving)
        assert way.rent == 0
        assert way.dollars == pytest.approx(0.5 * watts * way.seconds / 3.6e6)
        assert way.unmetered == [device.name for device in way.serving if device.gpu == "laptop"]


def test_priced_machines_are_rented_and_cost_no_electricity() -> None:
    found = lab.advise(home("T4", price_per_hour=2.0), "tiny", tokens=1e6, steps=1, catalogue=CATALOGUE)
    assert {way.kind for way in found.options} == {"rented"}
    (way,) = [way for way in found.options if way.topology.devices[0].price_per_hour == 2.0]
    assert (way.kwh, way.dollars) == (0, pytest.approx(2 * way.seconds / 3600))


def test_a_job_that_fits_nowhere_gets_the_mildest_change_with_which_it_does(tmp_path: Path) -> None:
    (tmp_path / "vms.csv").write_text(HEAD + "one,T4,1,8,32,0.4,here,,0.1\n")
    found = lab.advise(home("RTX 3060"), llama(), tokens=1e6, steps=1, catalogue=tmp_path / "vms.csv")
    assert found.changed == "adapters=16"
    assert str(found).startswith("**The job fits nowhere as it is. Everything below is for the job with adapters=16.**")
    rows = {row.job: row.fits for row in found.fits}
    assert not any(rows["as it is"].values())
    assert rows["adapters=16, frozen_weights=nf4"]["device-0"]
    assert one(found, "1 x T4 (here, spot)").topology.devices[0].price_per_hour == 0.1


def test_a_job_that_fits_with_no_change_either_is_not_to_be_trained(tmp_path: Path) -> None:
    (tmp_path / "vms.csv").write_text(HEAD + "one,T4,1,8,32,0.4,here,,\n")
    found = lab.advise(home("RTX 3060"), "llama-2-70b", tokens=1e6, steps=1, catalogue=tmp_path / "vms.csv")
    assert found.best is None
    assert found.verdict == "Not at all: the job fits none of 3 options, even with the changes tried below"
    assert all("needs about" in way.lacks for way in found.options)


def test_advice_that_hangs_on_a_link_that_nobody_measured_says_so(tmp_path: Path) -> None:
    (tmp_path / "vms.csv").write_text(HEAD + "one,T4,1,8,32,0.4,here,,\n")
    links = np.full((2, 2), 100.0)
    pair = lab.Topology.from_matrices(links / 1000, links, gpu="RTX 4090")
    guess = BandwidthEstimate(BETWEEN, from_gbps(100), from_gbps(0.001), from_gbps(100))

    def asked(topology: lab.Topology) -> Advice:
        job = lab.load_job("gpt2-medium", global_batch=32)
        limits = {"budget_dollars": 1000, "catalogue": tmp_path / "vms.csv"}
        return lab.advise(topology, job, tokens=100e6, steps=1, **limits)

    estimated, measured = asked(replace(pair, estimates=(guess,))), asked(pair)
    assert estimated.best.name == measured.best.name == "your machines"
    assert estimated.note.startswith("These links were not measured: between hosts 100 Gbit/s (0.001 to 100). ")
    assert "the best option is device-0 alone (" in estimated.note
    assert estimated.note.endswith(") if they are as slow as they may be")
    assert estimated.note in str(estimated)
    assert measured.note == ""


def test_a_catalogue_offers_its_own_kinds_and_regions() -> None:
    found = lab.advise(home("T4"), "tiny", tokens=1e6, steps=1, catalogue=CATALOGUE)
    rented = {way.name for way in found.options if way.kind == "rented"}
    assert rented == {"1 x RTX A6000 (us-west-2)", "4 x RTX A6000 (us-west-2)", "8 x V100 (europe-central-1)"}


def test_an_interrupt_keeps_the_ways_so_far() -> None:
    def stop(found: Advice) -> None:
        if len(found.options) == 2:
            raise KeyboardInterrupt

    found = lab.advise(home("T4"), "tiny", tokens=1e6, steps=1, progress=stop)
    assert found.stopped
    assert len(found.options) == 2
    assert found.best in found.options


def test_one_device_more_is_linked_as_the_one_that_it_is_like() -> None:
    net = lab.load_topology("at-home")
    desk, spot, n = net.index("desk"), net.index("spot"), len(net)
    twin = with_one_more(net, replace(net.devices[desk], name="twin"), desk)
    assert twin.subset(range(n)).bandwidth_bytes_per_s.tolist() == net.bandwidth_bytes_per_s.tolist()
    assert twin.bandwidth_bytes_per_s[n, spot] == net.bandwidth_bytes_per_s[desk, spot]
    assert twin.bandwidth_bytes_per_s[spot, n] == net.bandwidth_bytes_per_s[spot, desk]
    assert twin.bandwidth_bytes_per_s[n, desk] == 1e9 / 8  # the switch at home
    far = with_one_more(net, lab.Device(name="far", gpu="T4"))
    assert (far.bandwidth_bytes_per_s[n, :n] == LINE_BYTES_PER_S).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tokens": 0}, "tokens is 0; wanted a number above 0, such as 100M"),
        ({"tokens": "many"}, "tokens is 'many'; wanted"),
        ({}, "tokens is None; wanted"),
        ({"tokens": 1e6, "budget_dollars": -3}, "advice: budget_dollars is -3; wanted more than 0"),
        ({"tokens": 1e6, "deadline_days": 0}, "advice: deadline_days is 0; wanted more than 0"),
        ({"tokens": 1e6, "electricity_per_kwh": float("nan")}, "advice: electricity_per_kwh is nan; wanted"),
        ({"tokens": 1e6, "catalogue": __file__}, "test_advise.py: is not a SkyPilot catalogue; wanted a vms.csv"),
        ({"tokens": 1e6, "budgt": 3}, "no option named 'budgt'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options, says: str) -> None:
    with pytest.raises(lab.LabError, match="^" + re.escape(says)):
        lab.advise("at-home", "tiny", **options)


def test_a_job_without_a_model_is_refused() -> None:
    sizes = lab.Job.from_bytes(1, 2, gradient_bytes=1.0, activation_bytes=1.0)
    with pytest.raises(lab.LabError, match="model"):
        lab.advise("at-home", sizes, tokens=1e6)


def test_the_page_is_saved_and_the_command_prints_it(advice: Advice, tells, refuses, tmp_path: Path) -> None:
    assert advice.save(tmp_path / "advice.md").read_text() == str(advice)
    assert advice.verdict.split(",")[0] in advice.save(tmp_path / "advice.html").read_text()
    told = tells("advise", "raspberry-pi", "--job", "tiny", "--tokens", "1M", "--steps", "1", *SHORT)
    assert [way["way"] for way in told["ways"] if way["chosen"]] == [told["ways"][0]["way"]]
    assert {"verdict", "fits", "gains", "spot", "how"} <= set(told)
    refuses("a.txt", "advise", "at-home", "--job", "tiny", "--tokens", "1M", "-o", str(tmp_path / "a.txt"))


def test_a_name_that_moved_still_works_and_says_where_it_is() -> None:
    with pytest.warns(FutureWarning, match=r"lab\.calibrate is lab\.published\.calibrate now"):
        assert lab.calibrate is lab.published.calibrate


def test_dollars_of_a_page_are_no_formula_to_a_notebook():
    html = as_html(["for $5.42 the cheapest, for **$6.32** the fastest"])
    assert html.count("<span>$</span>") == html.count("$") == 2


def test_a_module_of_ones_own_is_counted_in_samples():
    tiny = lab.load_job("tiny")
    own = tiny.with_fields(model=replace(tiny.model, source="own.py:module"), n_stages=None, n_replicas=None)
    page = str(lab.advise("volunteers", own, tokens="1M", steps=1))
    assert "1 M samples" in page
    assert "samples/s" in page
    assert "tokens" not in page
