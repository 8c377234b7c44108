"""What a lab is set to is plain, comes back, and what is not possible is passed over: in every panel alike."""

import json

import pytest

import dtfm_lab as lab

SET = {
    "replanning": {"on": True},
    "plan": {
        "job": {"batch": 64, "schedule": "1f1b", "microbatch": 1, "shape": []},
        "search": {"planner": "dtfm", "seed": 7, "seconds": 9.0, "against": "seconds"},
        "race": {"seconds": 12.0, "planners": ["evolutionary", "random"]},
        "frontier": {"searches": 5},
        "objective": {"objective": "price", "max_iteration_s": 2.5},
        "mode": "Race",
    },
    "groups": {"step": "c", "mode": "weights"},
    "schedule": {"critical_path": True, "messages": True},
    "run": {"clock": "paced", "iterations": 12, "options": {"sample_bytes": 100}},
    "compare": {"table": "devices", "sort_by": "relative", "descending": False},
    "course": {"chosen": "half-and-half"},
    "network": {"view": "map"},
}
IMPOSSIBLE = {
    "replanning": [{"on": "perhaps"}],
    "plan": [
        {"job": 3, "search": [], "race": None, "mode": "By hand"},
        {"job": {"job": "nobody's", "shape": [3, 3], "batch": -1}},
        {"search": {"planner": "luck", "seconds": -2, "seed": "x", "speed": 4, "against": "hope"}},
        {"race": {"planners": 5, "seconds": 1e9}},
    ],
    "groups": [{"step": "z", "mode": "pie", "edge": 2}],
    "schedule": [{"critical_path": "of iron"}],
    "run": [
        {"clock": "sundial", "iterations": 10**9, "options": {"text": 3, "sample_bytes": -1}},
        {"clock": None, "iterations": "many", "options": None},
    ],
    "compare": [{"table": "chairs", "sort_by": 3, "descending": "yes"}, {"sort_by": ["label"], "table": []}],
    "course": [{"chosen": "no-such-mission"}],
    "network": [{"document": 3, "view": "globe"}, {"document": {"devices": "all"}}, {"measured": []}],
}


def holds(kept: object, wanted: object) -> bool:
    if isinstance(kept, dict) and isinstance(wanted, dict):
        return all(name in kept and holds(kept[name], value) for name, value in wanted.items())
    return kept == wanted


@pytest.fixture(scope="module")
def labs() -> tuple[lab.Lab, lab.Lab]:
    one, other = (lab.Lab("lecture-hall", autosave=False, live=False) for _ in range(2))
    return one, other


@pytest.mark.parametrize("name", SET)
def test_what_a_panel_is_set_to_comes_back_and_what_is_impossible_is_passed_over(
    labs: tuple[lab.Lab, lab.Lab], name: str
) -> None:
    one, other = labs
    if name not in one.panels:
        pytest.skip(f"{name} is the pane of an extension that is not installed")
    one.panels[name].restore(SET[name])
    kept = json.loads(json.dumps(one.panels[name].settings()))
    assert holds(kept, SET[name])
    for given in (kept, {}, {"of tomorrow": 1}, *IMPOSSIBLE[name]):
        other.panels[name].restore(given)
        assert json.loads(json.dumps(other.panels[name].settings())) == kept
    assert (other.lab_state.busy, other.lab_state.message) == ((), "")
