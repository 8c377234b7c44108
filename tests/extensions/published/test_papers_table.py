"""DT-FM's table: its settings as published, laws between its entries, and the ratios as they come out."""

import pytest

import dtfm_lab as lab
from dtfm_lab.extensions.published.paper.settings import Setting
from dtfm_lab.extensions.published.paper.systems import placement, published_name
from dtfm_lab.extensions.published.paper.table import STATED
from dtfm_lab.extensions.published.row import numbers
from dtfm_lab.simulation.memory import memory

SYSTEMS = ("dt-fm", "dt-fm-random", "megatron", "megatron-random")


@pytest.fixture(scope="module")
def table():
    return lab.published.papers_table(layers=(24,), batches=(1024,), systems=SYSTEMS)


@pytest.mark.parametrize(("layers", "batch", "peta"), [(24, 1024, 23.64), (32, 2048, 63.04), (40, 4096, 157.64)])
def test_flop_are_counted_as_its_authors_count_them(layers, batch, peta):
    assert Setting("worldwide", layers, batch).flop / 1e15 == pytest.approx(peta, rel=3e-4)


def test_the_ratios_of_the_paper_are_those_of_the_first_and_the_last_measured_setting_with_random_ranks():
    lines = {
        (one["case"], int(one["layers"]), int(one["batch"]), one["system"]): float(one["seconds_1"])
        for one in numbers("dt_fm_seconds.csv")
    }

    def first(system, setting):
        return lines.get((setting.case, setting.layers, setting.batch, published_name(system, setting.case)))

    found = [
        round(stated.of(Setting("worldwide", *of), first), 1)
        for stated, of in [
            (STATED[0], (24, 1024)),
            (STATED[0], (40, 4096)),
            (STATED[2], (40, 4096)),
            (STATED[2], (24, 1024)),
            (STATED[3], (40, 4096)),
        ]
    ]
    assert found == [3.8, 4.8, 1.7, 3.5, 2.7]


def test_the_scheduler_is_never_slower_than_chance(table):
    for entry in table:
        if entry.system == "dt-fm":
            setting = entry.setting
            drawn = table.entry("dt-fm-random", setting.case, setting.layers, setting.batch)
            assert entry.iteration_s <= drawn.iteration_s


def test_every_plan_fits_and_takes_all_gpus(table):
    for entry in table:
        plan = entry.outcome.plan
        assert memory(plan).fits
        assert plan.placement.devices.size * (plan.job.tensor_parallel or 1) == 64


def test_ratios_as_they_come_out(table):
    first = [one.range[0] for one in table.ratios]
    assert first == pytest.approx([4.17, 0.96, 3.55, 2.37], rel=0.02)
    assert [one.residue for one in table.ratios] == pytest.approx([1, 1, 1.015, 1], abs=0.02)
    assert "3 of 4 published ratios overlap ours" in table.sentence  # all four do with the other eight settings


def test_seconds_on_shaped_networks_are_predicted_with_nothing_fitted(table):
    frame = table.to_frame().set_index(["case", "system"])
    assert frame["published_s"].notna().sum() == 18  # random ranks were measured on shaped networks only
    flop = Setting("worldwide", 24, 1024).flop
    assert (frame["pflops"] * frame["iteration_s"]).to_numpy() == pytest.approx(flop / 1e15)
    frame = frame["ratio"]
    shaped = frame[["universities", "regional", "worldwide"]]
    assert shaped.min() > 0.7
    assert shaped.max() < 1.1
    assert shaped[:, "megatron"].to_dict() == pytest.approx(
        {"universities": 0.96, "regional": 0.85, "worldwide": 0.98}, abs=0.02
    )


def test_placements_are_the_best_of_the_papers_cost():
    assert placement("worldwide").cost.total_s == pytest.approx(49.21838, rel=1e-5)
    assert placement("datacenter").cost.total_s == pytest.approx(3.439799, rel=1e-5)


def test_an_interrupted_table_keeps_its_entries():
    def stop(table):
        raise KeyboardInterrupt

    table = lab.published.papers_table(cases=("worldwide",), layers=(24,), batches=(1024,), progress=stop)
    assert len(table) == 1
    assert "1 of 5 entries" in table.sentence


@pytest.mark.slow
def test_the_waterfall_leads_from_our_grid_to_the_measured_ratio():
    found = lab.published.papers_waterfall()
    assert found.start == pytest.approx(1.12, abs=0.03)
    assert found.end == pytest.approx(3.95, abs=0.1)
    assert found.residue == pytest.approx(0.95, abs=0.03)
    assert all(step.source for step in found)


def test_a_setting_that_the_paper_does_not_have_is_refused():
    with pytest.raises(lab.LabError, match="wanted 24, 32 or 40 layers"):
        lab.published.papers_waterfall(12)
    with pytest.raises(lab.LabError, match="no system of the table named 'megatrn'"):
        lab.published.papers_table(systems=("megatrn",))
    with pytest.raises(lab.LabError, match="known: 1024, 2048, 4096"):
        lab.published.papers_table(batches=(512,))
