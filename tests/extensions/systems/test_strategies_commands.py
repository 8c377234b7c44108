"""dtfm-lab strategies and systems: what each system would do, with assumptions of one's own, refusals, and Ctrl-C."""

import json
import re

import pytest
from click.testing import CliRunner

import dtfm_lab as lab
from dtfm_lab.cli import cli
from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.systems.commands import _assumable, system_names

SMALL = ("lecture-hall", "--job", "tiny", "--steps", "1")


def invoked(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_json_is_what_python_returns():
    told = json.loads(invoked("strategies", *SMALL, "--system", "megatron", "--batch", "32", "--json").stdout)
    job = lab.load_job("tiny", global_batch=32)
    assert told == json.loads(json.dumps(lab.strategies("lecture-hall", job, systems="megatron").to_dict()))
    assert told["global_batch"] == 32


def test_an_assumption_is_asked_beside_the_system_itself(tmp_path):
    ran = invoked(
        *("strategies", *SMALL, "--system", "megatron", "--assume", "megatron.transport=overlapped", "--assume"),
        *("megatron.order=pp-dp", "--plans", tmp_path / "plans", "-o", tmp_path / "systems.md"),
    )
    assert ran.exit_code == 0
    assert "Megatron-LM (order pp-dp, transport overlapped)" in ran.stdout
    assert "by the link model" in ran.stdout
    written = {path.name for path in (tmp_path / "plans").iterdir()}
    assert written == {"megatron.json", "megatron-order-pp-dp-transport-overlapped.json"}
    plan = lab.load_plan(tmp_path / "plans" / "megatron.json")
    assert lab.simulate(plan).iteration_s == plan.iteration_s
    assert "Assumed:" in (tmp_path / "systems.md").read_text()


def test_a_name_too_long_for_a_file_is_refused_as_any_other(refuses):
    refuses("x" * 50, "strategies", "lecture-hall", "--flags", "x" * 400)


def test_a_launch_is_asked_besides_all_systems(monkeypatch):
    asked = []

    def refused(topology, job, *, systems, **options):
        asked.extend(one.name for one in systems)
        raise LabError("no plan")

    monkeypatch.setattr("dtfm_lab.extensions.systems.commands.asked_of", refused)
    invoked("strategies", *SMALL, "--flags", "--micro-batch-size 1 --global-batch-size 8", "--system", "all")
    assert asked == ["megatron", *lab.systems.strategies]


def test_why_one_is_slower_is_said_below_the_table():
    asked = ("strategies", *SMALL, "--system", "megatron", "--system", "dtfm-lab", "--why", "megatron")
    found = lab.strategies("lecture-hall", "tiny", systems=["megatron", "dtfm-lab"], steps=1)
    why = lab.explain(found["megatron"], found)
    told = json.loads(invoked(*asked, "--json").stdout)["why"]
    assert told == json.loads(json.dumps(why.summary()))
    words = " ".join(invoked(*asked).stdout.split())
    assert " ".join(why.text.split()) in words


def test_a_memory_reserve_and_an_optimizer_of_the_job_are_those_of_its_systems():
    for fields in ({"reserve_bytes": 16 * 2**30 - 8 * 2**20}, {"optimizer": "adam-8bit"}, {}):
        (found,) = lab.strategies("lecture-hall", lab.load_job("tiny", **fields), systems=["ddp"])
        assert (found.found is None) == ("reserve_bytes" in fields)
        assert found.found is None or found.found.job.optimizer == fields.get("optimizer", "adam")


def test_ctrl_c_keeps_those_so_far(monkeypatch):
    def interrupted(topology, job, *, progress, **options):
        def stop(found):
            progress(found)
            raise KeyboardInterrupt

        return ask(topology, job, progress=stop, **options)

    ask = lab.strategies
    monkeypatch.setattr("dtfm_lab.extensions.systems.commands.asked_of", interrupted)
    ran = invoked("strategies", *SMALL)
    assert ran.exit_code == 130
    assert re.search(r"1 of \d+ systems so far, .+ is fastest", ran.stdout)
    assert f"stopped; 1 of {len(lab.systems.strategies)} systems are shown" in ran.stderr


def test_tab_completes_systems_and_assumptions():
    assert system_names(None, None, "mega") == ["megatron"]
    assert "megatron.transport=overlapped" in _assumable(None, None, "megatron.t")


def test_help_and_the_list_name_every_system():
    helped, listed = invoked("strategies", "--help").stdout, invoked("strategies", "--list").stdout
    for name, kind in lab.systems.strategies.items():
        assert name in helped
        assert all(one.source in listed for one in kind().assumptions)


def test_the_list_is_json_too():
    told = json.loads(invoked("strategies", "--list", "megatron", "--json").stdout)
    (megatron,) = told["systems"]
    assert set(megatron) == {"name", "title", "cite", "url", "mathematics", "assumptions"}
    assert set(megatron["assumptions"][0]) == {"name", "value", "help", "source", "choices"}
    assert set(json.loads(invoked("strategies", "--list", "--json").stdout)["not_modelled"]) == set(
        lab.systems.NOT_MODELLED
    )


# dtfm-lab strategies --crossings: a table, JSON, files, and refusals in one line


CROSSINGS = ("strategies", "--crossings", "lecture-hall", "--job", "tiny", "--assume", "megatron.transport=overlapped")


def test_crossings_as_json_are_what_python_returns() -> None:
    systems = ["megatron", lab.systems.variant("megatron", transport="overlapped")]
    told = json.loads(invoked(*CROSSINGS, "--system", "megatron", "--values", "0.1:10:3", "--json").stdout)
    found = lab.strategies("lecture-hall", "tiny", over="bandwidth", systems=systems, values=(0.1, 10.0, 3))
    assert told == json.loads(json.dumps(found.to_dict()))


def test_a_table_and_a_picture(tmp_path) -> None:
    picture, table = tmp_path / "crossings.html", tmp_path / "crossings.csv"
    ran = invoked(*CROSSINGS, "--system", "megatron", "--values", "0.01,10", "-o", picture)
    assert ran.exit_code == 0
    assert "by the link model" in ran.stdout
    assert "bandwidth (Gbit/s)" in ran.stdout
    assert "Plotly.newPlot" in picture.read_text()
    assert invoked(*CROSSINGS, "--system", "megatron", "--over", "latency", "--values", "1", "-o", table).exit_code == 0
    assert table.read_text().startswith("latency,system,iteration_s")


STRATEGIES = ("strategies", *SMALL)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*STRATEGIES, "--system", "megatorn"), "no system named 'megatorn'; did you mean 'megatron'?"),
        (
            (*STRATEGIES, "--assume", "megatron"),
            "--assume is 'megatron'; wanted NAME=VALUE, such as megatron.transport",
        ),
        ((*STRATEGIES, "--assume", "megatron.transprt=x"), "no assumption of megatron named 'transprt'; did you mean"),
        ((*STRATEGIES, "--assume", "gossip.every=2"), "no system named 'gossip'"),
        (
            (*STRATEGIES, "--assume", "megatron.order=a", "--assume", "megatron.order=b"),
            "megatron.order is given twice",
        ),
        ((*STRATEGIES, "--system", "megatron", "--why", "megtron"), "no system among those asked named 'megtron'"),
        ((*STRATEGIES, "--system", "all", "--why", "megtron"), "no system among those asked named 'megtron'; did you"),
        ((*STRATEGIES, "--seconds", "-1"), "seconds is -1.0; wanted more than 0 s"),
        ((*STRATEGIES, "-o", "systems.xyz"), "systems.xyz ends in .xyz; wanted one of .html, .md, .csv, .json, .svg"),
        ((*CROSSINGS, "--over", "speed"), "'speed'"),
        ((*CROSSINGS, "--values", "fast"), "--values is 'fast'; wanted numbers, such as 0.1,1,10 or 0.1:10:9"),
        ((*CROSSINGS, "-o", "x.txt"), "x.txt ends in .txt; wanted one of .html"),
    ],
)
def test_mistakes_are_told_in_a_line(refuses, arguments, says) -> None:
    refuses(says, *arguments)
