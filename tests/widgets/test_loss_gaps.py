"""A device that is lost leaves a gap in its row, which grows until its copy takes over."""

from types import SimpleNamespace

import numpy as np
import pytest

from dtfm_lab.domain.trace import Fault
from dtfm_lab.widgets.running.run_progress import SHOWN_S, LossGaps
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import LONGEST, Bars, Chart, gaps_before

KILLED = Fault(3, "ada", "was killed by SIGKILL", "alan", 0.6)
WHOLE_S = 10.0


def a_chart() -> GanttView:
    """Two devices, each with a row for computations; the iteration lasts ten seconds."""
    chart = GanttView()
    bars = Bars.of([0.0, 4.0], [4.0, WHOLE_S], [0, 1], [0, 0], [0, 0])
    chart.set_predicted(Chart(bars), rows=["a", "b"], kinds=[{"name": "forward"}])
    chart.devices = ["ada", "alan"]
    return chart


def a_run(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(**({"faults": (), "conditions": {}, "time_scale": 1.0} | fields))


def test_the_gap_opens_at_the_last_that_was_measured_and_grows_until_the_copy_takes_over() -> None:
    now_s = [100.0]
    chart = a_chart()
    gaps = LossGaps(chart, lambda: now_s[0])
    gaps.draw(a_run(conditions={"alan": "2 x slower"}), 3)
    assert chart.gaps == []
    chart.reset_measured(3)
    chart.extend_measured([0.0], [3.5], [0], [0], [0])
    lost = a_run(conditions={"ada": "lost"})
    for later_s in (0.0, 0.5, 2.0):
        now_s[0] = 100.0 + later_s
        gaps.draw(lost, 3)
        (gap,) = chart.gaps
        assert (gap["device"], gap["open"]) == ("ada", True)
        assert (gap["from"], gap["to"]) == pytest.approx((3.5, 3.5 + later_s))
    back = a_run(faults=(KILLED,), conditions={"ada": "back"})
    gaps.draw(back, 3)
    (gap,) = chart.gaps
    assert (gap["from"], gap["to"], gap["text"], gap["open"]) == (-0.6, 0.0, "600 ms lost", False)
    assert gap["tip"].startswith("ada was killed by SIGKILL: 600 ms of this machine until its copy took over")
    assert gap["tip"] in chart.alt_text()
    gaps.draw(back, 4)
    assert chart.gaps == [], "the next iteration lost nobody"


def test_an_iteration_that_was_begun_again_is_shown_for_a_while_however_fast_the_run_goes_on() -> None:
    now_s = [0.0]
    gaps = LossGaps(a_chart(), lambda: now_s[0])
    assert gaps.iteration(a_run(), 2) == 2
    run = a_run(faults=(KILLED,))
    assert gaps.iteration(run, 3) == 3
    now_s[0] = SHOWN_S * 0.9
    assert gaps.iteration(run, 40) == 3
    now_s[0] = SHOWN_S * 1.1
    assert gaps.iteration(run, 41) == 41


def test_a_gap_is_as_long_as_the_loss_in_the_seconds_of_the_chart_and_never_hides_the_iteration() -> None:
    (gap,) = gaps_before([KILLED], 3, WHOLE_S, time_scale=3.0)
    assert gap["from"] == pytest.approx(-0.2)
    (gap,) = gaps_before([KILLED._replace(lost_s=600.0)], 3, WHOLE_S)
    assert gap["from"] == pytest.approx(-LONGEST * WHOLE_S)
    assert gap["tip"].endswith("(drawn shorter than it was)")
    assert gaps_before([KILLED], 4, WHOLE_S) == []
    twice = gaps_before([KILLED, KILLED._replace(lost_s=0.3), KILLED._replace(device="alan")], 3, WHOLE_S)
    assert [(gap["device"], gap["text"]) for gap in twice] == [("ada", "300 ms lost"), ("alan", "600 ms lost")]
    assert np.all([gap["to"] == 0.0 for gap in twice])
