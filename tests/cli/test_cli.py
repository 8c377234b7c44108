"""The story from the shell; what a user gets wrong is one line on standard error and exit status 2."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

import dtfm_lab as lab
from dtfm_lab import cli
from dtfm_lab.cli import plans
from dtfm_lab.cli.terminal import print_json, search_progress, waiting
from dtfm_lab.domain.units import format_s
from dtfm_lab.lab import runs
from dtfm_lab.lab.arguments import PlanOptions

Shell = Callable[..., tuple[int, str, str]]
Said, Told = Callable[..., str], Callable[..., Any]


PLAN_KEYS = {
    *("cost_s", "data_parallel_s", "pipeline_s", "lower_bound_s", "gap", "stages", "pipelines", "rank_map"),
    *("idle_devices", "planner", "seed", "evaluations", "seconds"),
}


def test_plan_json_holds_the_contract_and_nothing_else_is_printed(tells: Told) -> None:
    plan = tells("plan", "worldwide", "--job", "dtfm-gpt3-xl", "--steps", "3", "--seed", "1")
    assert plan.keys() >= PLAN_KEYS
    assert plan["cost_s"] == pytest.approx(plan["data_parallel_s"] + plan["pipeline_s"])
    assert plan["gap"] == pytest.approx((plan["cost_s"] - plan["lower_bound_s"]) / plan["cost_s"])
    devices = [name for stage in plan["stages"] for name in stage]
    assert len(set(devices)) == 64
    names = [f"{city}-{i}" for city in CITIES for i in range(8)]
    for rank, name in zip(plan["rank_map"], names, strict=True):
        assert plan["pipelines"][rank // 8][rank % 8] == name


CITIES = ["Oregon", "Virginia", "Ohio", "Tokyo", "Seoul", "London", "Frankfurt", "Ireland"]


def test_a_job_smaller_than_the_network_leaves_devices_idle(tells: Told) -> None:
    plan = tells("plan", "raspberry-pi", "--stages", "2", "--replicas", "2", "--steps", "3")
    assert "raspberry" in plan["idle_devices"]
    assert plan["rank_map"].count(None) == len(plan["idle_devices"]) == 4


def test_the_whole_story(prints: Said, tells: Told) -> None:
    pytest.importorskip("torch")
    prints("plan", "lecture-hall", "--stages", "2", "--replicas", "1", "--steps", "2", "-o", "plan.json")
    prints("simulate", "plan.json", "--schedule", "1f1b", "-o", "predicted.json")
    run = tells("run", "plan.json", "--schedule", "1f1b", "--iterations", "2", "-o", "measured.json")
    assert len(run["losses"]) == 2
    prints("simulate", "plan.json", "--like", "measured.json", "-o", "predicted.json")
    comparison = tells("compare", "predicted.json", "measured.json")
    ratio = comparison["measured_iteration_s"] / comparison["predicted_iteration_s"]
    assert comparison["iteration_error"] == pytest.approx(ratio - 1)
    assert {"iterations", "kinds", "stages", "devices", "links"} <= comparison.keys()
    assert "virtual clock, 1f1b" in prints("compare", "predicted.json", "measured.json")


def test_evaluate_prices_what_plan_found(tells: Told) -> None:
    plan = tells("plan", "regional", "--steps", "2")
    for key in ("stages", "rank_map"):
        Path("own.json").write_text(json.dumps({key: plan[key]}))
        priced = tells("evaluate", "regional", "--placement", "own.json")
        assert priced["cost_s"] == pytest.approx(plan["cost_s"], rel=1e-12)


def test_topologies_tell_their_gpus(prints: Said, tells: Told) -> None:
    gpus = {network["name"]: network["gpus"] for network in tells("topologies")["topologies"]}
    assert gpus["worldwide"] == {"V100": 64}
    assert sum(gpus["raspberry-pi"].values()) == 8
    assert "64 V100" in prints("topologies")


def test_network_lists_what_topologies_lists(shell: Shell, refuses: Said) -> None:
    assert shell("network") == shell("topologies")
    refuses("unexpected extra argument", "network", "of")


def test_show_explains_a_plan(shell: Shell, prints: Said) -> None:
    shell("plan", "lecture-hall", "--steps", "2", "-o", "plan.json")
    assert lab.explain(lab.load_plan("plan.json")).text in prints("show", "plan.json")


def test_explain_tells_a_plan_and_a_device(shell: Shell, prints: Said, tells: Told, refuses: Said) -> None:
    shell("plan", "lecture-hall", "--objective", "communication", "--steps", "2", "-o", "plan.json")
    explanation = tells("explain", "plan.json")
    assert explanation["cost_s"] == pytest.approx(explanation["latency_s"] + explanation["bandwidth_s"])
    assert len(explanation["devices"]) == 8
    out = prints("explain", "plan.json")
    assert "sets the data-parallel cost" in out
    assert "katherine" in out
    assert tells("explain", "plan.json", "--device", "ada")["device"] == "ada"
    assert "ada serves stage" in prints("explain", "plan.json", "--device", "ada")
    refuses("no device named 'adda'; did you mean 'ada'?", "explain", "plan.json", "--device", "adda")


def test_diff_tells_what_moved(shell: Shell, prints: Said, tells: Told) -> None:
    shell("plan", "lecture-hall", "--stages", "4", "--replicas", "2", "--steps", "2", "-o", "a.json")
    plan = lab.load_plan("a.json")
    stages = plan.stages
    stages[0][0], stages[3][0] = stages[3][0], stages[0][0]
    lab.save(lab.evaluate(plan.topology, plan.job, stages=stages), "b.json")
    difference = tells("compare", "a.json", "b.json")
    assert sorted(difference["changes"]["moved"]) == sorted([stages[0][0], stages[3][0]])
    assert "2 devices changed stage" in prints("compare", "a.json", "b.json")
    assert shell("compare", "a.json", "none.json")[0] == 2


def test_a_search_may_start_from_a_plan_and_takes_its_job(shell: Shell, refuses: Said) -> None:
    arguments = ("plan", "lecture-hall", "--stages", "2", "--replicas", "4", "--steps", "8", "--json", "-o", "a.json")
    first = json.loads(shell(*arguments)[1])
    again = json.loads(shell("plan", "lecture-hall", "--start", "a.json", "--steps", "1", "--json")[1])
    assert (again["n_stages"], again["n_replicas"]) == (2, 4)
    assert again["cost_s"] <= first["cost_s"] * (1 + 1e-12)
    other = ("--stages", "4", "--replicas", "2")
    refuses("start is a placement of 2 x 4; the job wants 4 x 2", "plan", "lecture-hall", "--start", "a.json", *other)
    assert shell("plan", "lecture-hall", "--start", "none.json")[0] == 2


def test_what_would_be_if_all_were_open_takes_a_quarter_of_the_search_and_may_be_left_out(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def interrupted(plan, planner, **options):
        given.append((options["steps"], options["seconds"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(plans, "freed", interrupted)
    status, out, err = shell("plan", "lecture-hall", "--job", "tiny", "--steps", "5")
    assert (status, "tiny on lecture-hall" in out) == (0, True)
    assert err == "stopped; no report of what unpinning the job's fields would gain\n"
    shell("plan", "lecture-hall", "--job", "tiny", "--seconds", "0.2")
    assert given == [(2, None), (None, 0.05)]


def test_what_the_job_names_is_said_with_what_a_shorter_search_finds(shell: Shell) -> None:
    _, out, _ = shell("plan", "lecture-hall", "--job", "tiny", "--steps", "4")
    assert " left open (auto), " in out


def test_a_terminal_watches_the_search(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("dtfm_lab.cli.terminal.err", Console(file=terminal, force_terminal=True, width=140))
    status, out, _ = shell(
        "plan", "lecture-hall", "--steps", "3", "--planner", "random", "--objective", "communication", "--json"
    )
    plan, shown = json.loads(out), terminal.getvalue()
    assert status == 0
    assert all(word in shown for word in ("random", "generation 3 of 3", "cost ", "bound ", "gap "))
    assert format_s(plan["cost_s"]) in shown


def test_a_terminal_says_what_it_waits_for_before_the_first_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("dtfm_lab.cli.terminal.err", Console(file=terminal, force_terminal=True, width=140))
    with search_progress(PlanOptions(seconds=5)):
        assert "looking for a first plan  0.0 s" in terminal.getvalue()
    with waiting("hall.yaml", "reading the network"):
        assert "hall.yaml" in terminal.getvalue()
        assert "reading the network" in terminal.getvalue()


def test_an_interrupt_while_the_plan_is_simulated_keeps_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(plan: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("dtfm_lab.cli.plans.planning.simulated", interrupted)
    status, _, _ = shell("plan", "lecture-hall", "--job", "tiny", "--steps", "1", "-o", "kept.json")
    assert status == 0
    assert Path("kept.json").exists()


def test_a_reader_who_has_seen_enough_ends_it_quietly() -> None:
    """In the midst of a long text, and before the end of a short one."""
    read, write = os.pipe()
    os.close(read)
    code = "from dtfm_lab.cli import main; main()"
    commands = [[sys.executable, "-c", code, *words] for words in (["show", "worldwide", "--json"], ["topologies"])]
    begun = [subprocess.Popen(each, stdout=write, stderr=subprocess.PIPE, text=True) for each in commands]
    os.close(write)
    assert [(each.communicate()[1], each.returncode) for each in begun] == [("", 0)] * 2


def test_json_has_null_where_there_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"losses": [5.5, float("nan")], "of": ({"time_s": float("inf")},), "n": 3})
    assert capsys.readouterr().out == '{"losses": [5.5, null], "of": [{"time_s": null}], "n": 3}\n'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_an_output_may_be_a_pipe(shell: Shell) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert shell("plan", "lecture-hall", "--steps", "1", "-o", "pipe")[0] == 0
    with os.fdopen(reader) as written:
        assert json.load(written)["dtfm_plan"] == 1
    assert Path("pipe").is_fifo()


def test_run_says_so_where_torch_is_missing(shell: Shell, refuses: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("plan", "lecture-hall", "--steps", "1", "-o", "plan.json")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refuses("pip install 'dtfm_lab[train]'", "run", "plan.json")


def test_a_failed_run_is_one_line_and_exit_status_1(shell: Shell, tells: Told) -> None:
    pytest.importorskip("torch")
    shape = ("--job", "tiny", "--stages", "2", "--replicas", "1")
    device = tells("plan", "lecture-hall", *shape, "--steps", "1", "-o", "plan.json")["stages"][1][0]
    status, _, err = shell("run", "plan.json", "--iterations", "10000", "--fault", f"kill {device} at 2")
    assert status == 1
    assert "was killed by SIGKILL" in err.splitlines()[-1]


def test_the_kernel_side_never_loads_torch_and_figures_no_widgets() -> None:
    code = (
        "import sys, dtfm_lab.figures\n"
        "assert not {'torch', 'cupy', 'ipywidgets', 'anywidget'} & set(sys.modules)\n"
        "import dtfm_lab.cli, dtfm_lab.cli.doctor, dtfm_lab.widgets\n"
        "import dtfm_lab as lab; lab.plan('lecture-hall', steps=1)\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_nobody_searches_for_an_output_that_cannot_be_written(refuses: Said) -> None:
    refuses("nowhere/plan.json: cannot be written", "plan", "worldwide", "--seconds", "3600", "-o", "nowhere/plan.json")


def test_names_may_look_like_markup_or_numbers(prints: Said) -> None:
    Path("net.yaml").write_text(
        "dtfm_topology: 1\nname: '[/red] net'\ndefault: {latency_ms: 1, bandwidth_gbps: 1}\n"
        "devices: [{name: 'gpu[a]'}, {name: 1}, {name: 'né'}, {name: 'a b'}]\n"
    )
    out = prints("plan", "net.yaml", "--stages", "2", "--replicas", "2", "--steps", "1")
    assert all(name in out for name in ("gpu[a]", "né", "a b"))
    prints("show", "net.yaml")


@pytest.fixture(scope="module")
def kept_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny on the lecture hall, 4 stages x 2 replicas."""
    plan = lab.plan("lecture-hall", "tiny", objective="communication", steps=2)
    return lab.save(plan, tmp_path_factory.mktemp("plans") / "plan.json")


@pytest.fixture
def plan_file(shell: Shell, kept_plan: Path) -> str:
    """Its file in the folder of this test."""
    return shutil.copy(kept_plan, "plan.json")


def test_simulate_tells_what_an_iteration_comes_to(shell: Shell, plan_file: str) -> None:
    status, out, err = shell("simulate", plan_file, "--schedule", "1f1b", "--chrome", "chrome.json")
    assert (status, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith("simulated 1f1b, model clock, links specified: iteration ")
    told = "\n".join(rest)
    for what in ("tokens/s", "of the devices' peak", "PFLOPS", "idle ", "bandwidth ", "largest pieces", "memory: "):
        assert what in told
    assert json.loads(Path("chrome.json").read_text())["traceEvents"]


def test_simulate_json_holds_all_of_it(tells: Told, plan_file: str) -> None:
    told, trace = tells("simulate", plan_file, "--schedule", "zb-h1"), lab.simulate(plan_file, "zb-h1")
    assert told["iteration_s"] == trace.iteration_s
    assert {what: told[what] for what in trace.metrics} == trace.metrics
    assert sum(told["bubble"].values()) == pytest.approx(told["iteration_s"])
    by_what = [row["seconds"] for row in told["critical_path"] if row["by"] == "what"]
    assert sum(by_what) == pytest.approx(told["iteration_s"])
    assert (told["memory"]["fits"], told["memory"]["over_bytes"], told["memory"]["advice"]) == (True, 0, "")
    assert {"source", "clock", "schedule", "links", "compute_share", "rows", "losses", "overruns"} <= told.keys()


def test_fields_of_the_job_may_be_overridden(tells: Told, plan_file: str) -> None:
    options = {"synchronisation": "ring", "synchronise_every": 2, "compression": "int8", "codec_bytes_per_s": 1e6}
    words = [f"{name}={value}" for name, value in options.items()]
    arguments = ("--queueing", "nics", "--efficiency", "0.2", "--batch", "32", "--microbatch", "1")
    told = tells("simulate", plan_file, "--set", *words, "recompute=true", *arguments)
    options |= {"microbatch": 1}
    plan = lab.with_job(plan_file, **options, global_batch=32, recompute=True)
    assert told["iteration_s"] == lab.simulate(plan, queueing="nics", efficiency=0.2).iteration_s
    assert (told["synchronisation"], told["synchronise_every"], told["queueing"]) == ("ring", 2, "nics")


def test_out_of_memory_is_said_first(shell: Shell, prints: Said, tells: Told) -> None:
    shell("plan", "worldwide", "--steps", "1", "-o", "plan.json")
    out = prints("simulate", "plan.json", "--schedule", "gpipe")
    assert out.startswith("out of memory: ")
    assert "64 of 64 devices do not fit); with recomputation" in out.splitlines()[0]
    told = tells("simulate", "plan.json", "--schedule", "gpipe")
    assert (told["memory"]["fits"], told["memory"]["devices_over"]) == (False, 64)
    assert told["memory"]["over_bytes"] == told["memory"]["peak_bytes"] - told["memory"]["limit_bytes"]
    assert told["memory"]["advice"] in out


def test_sweep_tells_every_combination(prints: Said, tells: Told, plan_file: str) -> None:
    vary = ("--vary", "schedule=gpipe,1f1b", "--vary", "microbatch=1,3", "--vary", "recompute=true")
    told = tells("simulate", "--sweep", plan_file, *vary, "--csv", "rows.csv")
    assert told["settings"] == ["schedule", "microbatch", "recompute"]
    assert [point["microbatch"] for point in told["points"]] == [1, 3, 1, 3]
    assert [point["error"] == "" for point in told["points"]] == [True, False, True, False]
    assert told["points"][1]["iteration_s"] is None
    lines = Path("rows.csv").read_text().splitlines()
    assert (len(lines), lines[0].split(",")[:4]) == (5, ["schedule", "microbatch", "recompute", "iteration_s"])
    out = prints("simulate", "--sweep", plan_file, *vary)
    assert format_s(told["points"][0]["iteration_s"]) in out
    assert "2 points cannot be computed, such as schedule gpipe, microbatch 3, recompute True: job tiny: global" in out
    both = tells("simulate", "--sweep", plan_file, "--vary", "recompute=yes,no", "--vary", "microbatch=1")
    assert [point["recompute"] for point in both["points"]] == [True, False]
    out = prints("simulate", "--sweep", plan_file, "--vary", "microbatch=3")
    assert "1 point cannot be computed: microbatch 3: job tiny" in out


def test_what_goes_to_a_pipe_is_folded_nowhere(shell: Shell, plan_file: str) -> None:
    every = [f"{setting}={value}" for setting, value in (("schedule", "interleaved-1f1b"), ("queueing", "pairs"))]
    every += ["synchronisation=sharded-at-once", "gradient_compression=int8", "codec_bytes_per_s=1e9"]
    out = shell("simulate", "--sweep", plan_file, *(word for setting in every for word in ("--vary", setting)))[1]
    heading, row, *_ = out.splitlines()  # the last line says what the rows rest on
    assert "synchronisation  gradient compression  codec bytes per s" in heading
    assert {"interleaved-1f1b", "sharded-at-once"} <= set(row.split())


def test_an_interrupted_sweep_keeps_its_rows(shell: Shell, plan_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points_of = runs.sweep_points

    def interrupted(*arguments, **settings):
        yield next(points_of(*arguments, **settings))
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "sweep_points", interrupted)
    status, out, err = shell("simulate", "--sweep", plan_file, "--vary", "bandwidth=1,2,4", "--json")
    assert (status, len(json.loads(out)["points"]), err) == (0, 1, "stopped; 1 of 3 points are shown\n")


def test_sensitivity_is_told_in_sentences(prints: Said, tells: Told, plan_file: str) -> None:
    asked = ("explain", "--sensitivity", plan_file, "--what", "bandwidth", "--factor", "2")
    gains, out = tells(*asked)["gains"], prints(*asked)
    assert [gain["change_s"] for gain in gains] == sorted(gain["change_s"] for gain in gains)
    assert out.splitlines()[0] == gains[0]["sentence"]
    assert gains[0]["sentence"].startswith("100 % more bandwidth on ")
    idle = sum(gain["sentence"].endswith("no change") for gain in gains)
    assert "no change" not in out
    assert out.splitlines()[-1] == f"{idle} of {len(gains)} improvements would change nothing"


def test_schedules_are_printed_saved_and_simulated(prints: Said, tells: Told, plan_file: str) -> None:
    sizes = ("--stages", "4", "--microbatches", "4")
    built = lab.schedules["zb-h1"](4, 4)
    assert tells("show", "--schedule", "zb-h1", *sizes, "-o", "own.csv")["orders"] == list(built.orders)
    assert prints("show", "--schedule", "own.csv") == prints("show", "--schedule", "zb-h1", *sizes)
    told = tells("simulate", plan_file, "--schedule", "own.csv")
    assert (told["schedule"], told["iteration_s"]) == ("own", lab.simulate(plan_file, "zb-h1").iteration_s)
    deep = tells("show", "--schedule", "adaptive-1f1b", *sizes, "--warmups", "3,3,2,0")
    assert deep["peak_activations"] == [4, 4, 3, 1]
    assert f"device 3 holds at most 1 activation: {built.orders[3].split()[0]} " in prints(
        "show", "--schedule", "1f1b", *sizes
    )


PLAN = ["plan", "lecture-hall", "--job", "tiny", "--steps", "1"]
SWEEP = ["simulate", "--sweep", "plan.json", "--vary"]
SHOW = ["show", "--schedule"]
SIZES = ["--stages", "2", "--microbatches", "2"]
WRONG = [
    (["plan", "broken.yaml"], "broken.yaml: line 2, column 1: broken YAML"),
    (["plan", "nowhere.yaml"], "nowhere.yaml: no such file"),
    (["plan", "lecture-hall", "--planner", "evolution"], "no planner named 'evolution'; did you mean"),
    (["plan", "lecture-hall", "--planer", "random"], "No such option '--planer'"),
    (["plan"], "Missing argument 'TOPOLOGY'"),
    (["plon"], "No such command 'plon'"),
    (["simulate", "other.json"], "no key 'dtfm_plan'; wanted a plan file (it holds a trace)"),
    *((["evaluate", "lecture-hall", "--placement", f"own-{i}.json"], "") for i in range(4)),
    (["evaluate", "lecture-hall", "--placement", "other.json"], "wanted one of the keys stages, rank_map, groups"),
    ([*SWEEP, "schedule"], "--vary is 'schedule'; wanted NAME=VALUE, such as schedule=gpipe,1f1b"),
    ([*SWEEP, "latency=1", "--vary", "latency=2"], "latency is given twice; wanted it once"),
    ([*SWEEP, "bandwidth=1", "--csv", "no/rows.csv"], "no is not a folder you can write to"),
    (["simulate", "plan.json", "--schedule", "none.csv"], "none.csv: no such file"),
    (["simulate", "plan.json", "--chrome", "no/trace.json"], "no is not a folder you can write to"),
    (["simulate", "plan.json", "--like", "t.json", "--set", "recompute=true"], "wanted it without recompute"),
    ([*SHOW, "gpipe"], "wanted --stages and --microbatches"),
    ([*SHOW, "plan.json"], "no pipeline schedule named 'plan.json'"),
    ([*SHOW, "own.txt", "--stages", "2"], "own.txt is a file, which has its sizes; wanted it without such"),
    ([*SHOW, "gpipe", *SIZES, "--warmups", "1,0"], "no --warmups to choose"),
    ([*SHOW, "adaptive-1f1b", *SIZES, "--warmups", "a,b"], "is 'a'; wanted"),
    ([*PLAN, "--set", "microbach=2"], "no job field named 'microbach'; did you mean 'microbatch'"),
    ([*PLAN, "--set", "microbatch"], "--set is 'microbatch'; wanted NAME=VALUE, such as recompute=true"),
    ([*PLAN, "--microbatch", "1", "--set", "microbatch=2"], "microbatch is given twice; wanted it once"),
    ([*PLAN, "--recompute"], "no option --recompute; wanted --set recompute=VALUE"),
    ([*PLAN, "--stages", "two"], "n_stages is 'two'; wanted a whole number from 1"),
    (["compare", "plan.json", "plan.json", "--refit", "plan.json"], "--refit and -o are for traces; wanted two plans"),
    (["open", "https://example.org"], "the link holds no lab"),
    (["open", "#dtfm-lab=eJw"], "damaged or cut off"),
]
PLACEMENTS = ('{"stages": 3}', '{"stages": [0, 1]}', '{"rank_map": 3}', '{"summary": null}')


@pytest.mark.parametrize(
    ("arguments", "says"), WRONG, ids=lambda each: " ".join(each) if isinstance(each, list) else ""
)
def test_wrong_input_is_one_line_and_exit_status_2(
    refuses: Said, plan_file: str, arguments: list[str], says: str
) -> None:
    Path("broken.yaml").write_text("regions: [1")
    Path("other.json").write_text('{"dtfm_trace": 1}')
    for number, placement in enumerate(PLACEMENTS):
        Path(f"own-{number}.json").write_text(placement)
    refuses(says, *arguments)


def test_the_help_fits_a_terminal_of_24_lines_and_cuts_no_sentence(shell: Shell, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shell("--help")[1].splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith("...") and "COMMAND" not in line] == []


def test_the_list_of_commands_is_the_same_before_and_after_they_are_imported(shell: Shell) -> None:
    before = shell("--help")[1]
    for name in cli.cli.known:
        cli.cli.imported(name)
    assert shell("--help")[1] == before


SUBJECTS = sorted(name for name in cli.cli.known if " " in name)


def test_help_says_one_default_where_a_command_has_its_own(shell: Shell) -> None:
    worth = " ".join(shell("explain", "--worth", "--help")[1].split())
    assert "4 steps of search by default" in worth
    assert "by default 2 s" not in worth


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_has_a_help_of_its_own_and_its_word_alone_is_refused(subject: str, shell: Shell) -> None:
    status, out, err = shell(*subject.split(), "--help")
    assert (status, err) == (0, "")
    assert f"dtfm-lab {subject} [" in out.splitlines()[0]
    assert subject not in cli.cli.list_commands(click.Context(cli.cli))
    word = subject.split()[1].removeprefix("--")
    if word not in cli.cli.known:
        assert shell(word)[2] == f"dtfm-lab: no command {word}; wanted dtfm-lab {subject}\n"


def test_set_takes_several_words_and_lists(shell: Shell) -> None:
    fields = ["--set", "n_stages=4", "n_replicas=2", "blocks_per_stage=1,3,2,2", "--set", "recompute=true"]
    placed = json.loads(shell("plan", "lecture-hall", *fields, "--job", "tiny", "--steps", "1", "--json")[1])
    assert (placed["n_stages"], placed["blocks_per_stage"]) == (4, [1, 3, 2, 2])


def test_what_is_left_to_the_planner_is_open(shell: Shell) -> None:
    left = ("--stages", "auto", "--set", "tensor_parallel=auto", "checkpointing=auto")
    placed = json.loads(shell("plan", "lecture-hall", "--job", "tiny", *left, "--steps", "1", "--json")[1])
    assert placed["n_stages"] * placed["n_replicas"] <= 8
    assert placed["tensor_parallel"] == 1


def test_what_follows_two_dashes_chooses_no_subject() -> None:
    top = click.Context(cli.cli)
    assert cli.cli.resolve_command(top, ["lab", "--", "--app"])[2] == ["--", "--app"]
    assert cli.cli.resolve_command(top, ["lab", "--app", "--", "--app"])[2] == ["--", "--app"]


@pytest.mark.parametrize("subject", sorted(name for name in cli.cli.known if " " in name))
def test_a_command_lists_its_subjects_below_its_options(subject: str) -> None:
    command = cli.cli.imported(subject.partition(" ")[0])
    options, _, more = command.get_help(click.Context(command)).partition("More, each with its own options")
    assert f"dtfm-lab {subject} " in " ".join(more.split())
    assert f"  {subject.partition(' ')[2]} " not in options
