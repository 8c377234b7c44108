"""A race over one quantity, and figures of changed plans: what they mark is what brute force finds."""

from itertools import pairwise

import numpy as np
import pytest
from pinned_jobs import pinned_job

from dtfm_lab import lab
from dtfm_lab.domain.errors import PlanError, TraceError, UnknownName
from dtfm_lab.extensions.course.small_networks import of_sites
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.policies.restart import daly_s, young_s
from dtfm_lab.extensions.elasticity.race import Race
from dtfm_lab.extensions.elasticity.replaying import replay
from dtfm_lab.figures import alt_text, race, replans
from dtfm_lab.planning import Replan

TABLE = {n: 40.0 * n for n in range(4, 9)}
NAMES = [f"d{i}" for i in range(8)]
ALIKE = {1: 100.0}
"""Any number of devices is as fast."""


def hours(seed: int = 3) -> Availability:
    return Availability.sampled(NAMES, 8 * 3600, mean_life_s=7200, mean_absence_s=1200, seed=seed)


def test_the_best_interval_lies_a_step_at_most_from_youngs_and_dalys() -> None:
    """Exponential lives of a large fleet: some two thousand losses, each of which goes back to a checkpoint."""
    write_s, between_s = 5.0, 900.0
    many = [f"d{i}" for i in range(64)]
    lost = Availability.sampled(many, 2000 * between_s, mean_life_s=64 * between_s, mean_absence_s=1.0, seed=1)
    given = {"start_s": 0.0, "restart_s": 0.0, "checkpoint_s": write_s, "bound": False}
    found = replay(ALIKE, 100, lost, "restart", over="every_s", **given)
    assert found.between_losses_s == pytest.approx(between_s, rel=0.05)
    ratio = found.points[1].value / found.points[0].value
    for by_formula in (young_s(write_s, between_s), daly_s(write_s, between_s)):
        assert 1 / ratio <= found.best.value / by_formula <= ratio * 1.05
    at = found.points.index(found.best)
    around = found.points[at - 1 : at + 2]
    by_hand = [replay(ALIKE, 100, lost, "restart", every_s=each.value, **given).samples for each in around]
    assert by_hand == [each.histories[0].samples for each in around]
    assert max(by_hand) == by_hand[1] == max(each.histories[0].samples for each in found.points)
    figure = race(found)
    star = next(trace for trace in figure.data if trace.marker.symbol == "star")
    assert star.x[0] == found.best.value
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx(list(found.formulas.values()))


def test_formulas_are_shown_only_where_every_loss_goes_back_to_a_checkpoint() -> None:
    assert set(replay(TABLE, 512, hours(), "restart", over="every_s", checkpoint_s=5.0).formulas) == {"Young", "Daly"}
    for policy in ("oobleck", ["restart", "swarm"]):
        assert replay(TABLE, 512, hours(), policy, over="every_s", checkpoint_s=5.0).formulas == {}
    assert replay(TABLE, 512, hours(), "restart", over="every_s").formulas == {}  # of a table nothing takes time


def crossed() -> Race:
    asked = ["restart", "oobleck", "bamboo"]
    return replay(TABLE, 512, hours(), asked, over="rate", values=(0.25, 32, 8), checkpoint_s=5, precision=0.02)


def test_the_lead_changes_between_the_ends_of_every_bracket_and_nowhere_else() -> None:
    found = crossed()
    assert found.leads
    for lead in found.leads:
        assert 0 < lead.high - lead.low <= 0.02 * lead.high
        for value, ahead, behind in ((lead.low, lead.before, lead.after), (lead.high, lead.after, lead.before)):
            by_hand = [
                replay(TABLE, 512, hours().faster(value), one, checkpoint_s=5).samples for one in (ahead, behind)
            ]
            assert by_hand[0] > by_hand[1], (value, ahead, behind)
    leaders = [found.policies[point.leader] for point in found.points]
    assert sum(a != b for a, b in pairwise(leaders)) == len(found.leads)
    figure = race(found)
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx([lead.value for lead in found.leads])
    assert found.leads[0].after in alt_text(figure)
    assert len(found.to_frame()) == 3 * len(found.points)


def test_a_race_by_dollars_asks_who_is_paid_for_it() -> None:
    spot, steady = hours(), Availability.from_intervals({each: [(0, 28800)] for each in NAMES}, 28800, name="on demand")
    made = {
        "spot": replay(TABLE, 512, spot, "oobleck", price_per_hour=0.9),
        "on demand": replay(TABLE, 512, steady, "oobleck", price_per_hour=3.0),
    }
    assert made["on demand"].dollars == pytest.approx(8 * 8 * 3.0)
    assert made["on demand"].samples > made["spot"].samples
    assert list(race(made).layout.yaxis.ticktext) == ["on demand", "spot"]
    assert list(race(made, by="dollars").layout.yaxis.ticktext) == ["spot", "on demand"]
    assert list(race(list(made.values())).layout.yaxis.ticktext) == ["oobleck, on demand", "oobleck, sampled"]
    assert "not all of the same hours" in race(made).layout.title.subtitle.text
    assert "same hours" not in race([made["spot"], replay(TABLE, 512, spot, "restart")]).layout.title.subtitle.text
    for by, otherwise in (("dollars", "costs nothing; wanted a price_per_hour"), ("foresight", "with bound=False")):
        with pytest.raises(TraceError, match=otherwise):
            race([replay(TABLE, 512, spot, "oobleck", bound=False)], by=by)
    with pytest.raises(UnknownName, match="did you mean 'dollars'"):
        race(made, by="dollar")


def test_what_cannot_be_varied_is_refused_in_a_line() -> None:
    for given, says in (
        ({"over": "notice_s"}, "notice_s varies, and no values are given; wanted 1 to 1000 numbers"),
        ({"over": "rate", "values": "fast"}, "values of rate are 'fast'; wanted"),
        ({"over": "rate", "values": (4, 1, 3)}, r"values of rate are \(4, 1, 3\); wanted"),
        ({"over": "rate", "values": [0]}, "0.0 times faster; wanted a factor above 0"),
        ({"over": "every", "values": [1]}, "did you mean 'every_s'"),
        ({"over": "rate", "precision": 0}, "precision is 0; wanted a share above 0, at most 1"),
        ({"values": [1]}, "values are given without over"),
        ({"price_per_hour": -1}, "price_per_hour is -1; wanted US dollars, 0 or more"),
    ):
        with pytest.raises(lab.LabError, match=says):
            replay(TABLE, 512, hours(), "restart", **given)
    with pytest.raises(TraceError, match="policy is \\['restart'\\] without over"):
        replay(TABLE, 512, hours(), ["restart"])
    with pytest.raises(TraceError, match="policy is an empty list"):
        replay(TABLE, 512, hours(), [], over="rate")


NETWORK = of_sites(["a"] * 4 + ["b"] * 4, (0.5, 10.0), (2, 5.0), name="two-rooms", gpu="T4")
JOB = pinned_job("gpt2-small", dtype="fp16", global_batch=64, microbatch=4)


def test_shapes_are_ranked_by_what_they_make_after_a_loss() -> None:
    shapes = ((8, 1), (4, 2))
    plans = [lab.plan(NETWORK, JOB.with_fields(n_stages=s, n_replicas=r), seed=0, steps=1) for s, r in shapes]
    found = [lab.replan(plan, lost=[name]) for plan in plans for name in NETWORK.names[:2]]
    figure = replans(found, every_s=600)
    by_name = {trace.name: trace for trace in figure.data}

    def made(one: Replan) -> float:
        return (3600 - one.move_s - 300 * one.moves.from_checkpoint.any()) / one.plan.iteration_s

    by_hand = {"8 × 1": np.mean([made(one) for one in found[:2]]), "4 × 2": np.mean([made(one) for one in found[2:]])}
    assert list(figure.layout.yaxis.ticktext) == sorted(by_hand, key=by_hand.get, reverse=True)
    assert list(by_name["made"].x) == pytest.approx(sorted(by_hand.values(), reverse=True))
    undisturbed = {f"{s} × {r}": 3600 / plan.iteration_s for (s, r), plan in zip(shapes, plans, strict=True)}
    assert list(by_name["undisturbed"].x) == pytest.approx([undisturbed[name] for name in figure.layout.yaxis.ticktext])
    assert by_name["redone"].x[list(figure.layout.yaxis.ticktext).index("4 × 2")] == 0, "each stage has a second copy"
    assert by_name["redone"].x[list(figure.layout.yaxis.ticktext).index("8 × 1")] > 0


def test_a_move_pays_where_the_two_curves_meet() -> None:
    found = lab.replan(lab.plan(NETWORK.subset(range(6)), JOB, seed=0, steps=2), joined=NETWORK)
    assert found.pays_after_s
    figure = replans(found)
    heights = [np.interp(found.pays_after_s, each.x, each.y) for each in figure.data]
    assert heights[0] == pytest.approx(heights[1])
    assert "unless the next change comes within" in figure.layout.title.text
    nothing = replans(lab.replan(found.plan, lost=[]))
    assert "Stay" in nothing.layout.title.text
    with pytest.raises(PlanError, match="no replans; wanted one at least"):
        replans([])
