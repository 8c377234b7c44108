"""``dtfm-lab doctor --probe`` and ``dtfm-lab export``: what they deliver, and one line for what a user gets wrong."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.runtime.probe import address_for_others, join, listening

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    return str(lab.save(plan, tmp_path_factory.mktemp("plans") / "plan.json"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def test_listener_and_hosts_meet_and_the_token_may_come_from_the_environment(shell, monkeypatch):
    monkeypatch.setattr(listening, "FACTS_S", 0.02)
    monkeypatch.setenv("DTFM_PROBE_TOKEN", "known to both")
    port = free_port()
    options = {"token": "known to both", "name": "ada"}
    other = threading.Thread(target=join, args=("127.0.0.1", port), kwargs=options, daemon=True)
    other.start()
    third = threading.Thread(target=join, args=("127.0.0.1", port), kwargs=options | {"name": "barbara"}, daemon=True)
    third.start()
    status, _, err = shell(
        "doctor", "--probe", "--listen", str(port), "--hosts", "2", "--seconds", "0.2", "-o", "network.json"
    )
    assert status == 0, err
    assert f"dtfm-lab doctor --probe --join 127.0.0.1:{port} --name NAME" in err
    assert "known to both" not in err
    assert lab.load_topology("network.json").names == ("ada", "barbara")


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "::"])
def test_a_listener_at_every_address_tells_others_one_that_they_can_join(shell, anywhere):
    """Nobody can join 0.0.0.0: it is every address of the machine that says it."""
    listen = f"[{anywhere}]:0" if ":" in anywhere else f"{anywhere}:0"
    status, _, err = shell("doctor", "--probe", "--listen", listen, "--hosts", "2", "--wait", "0.2")
    [joined] = re.findall(r"--join (\S+):\d+", err)
    assert joined.strip("[]") not in ("0.0.0.0", "::", "")
    assert status == 1


def test_an_address_that_was_given_is_the_one_that_others_join(monkeypatch):
    assert address_for_others("192.0.2.7") == "192.0.2.7"
    monkeypatch.setattr(socket.socket, "connect", refused)
    assert address_for_others("0.0.0.0") == socket.gethostname()


def refused(*_: object) -> None:
    raise OSError("there is no route")


def test_a_host_joins_from_the_shell_under_the_machines_name(shell, monkeypatch):
    monkeypatch.setattr(listening, "FACTS_S", 0.02)
    listener = listening.ProbeListener(token="t")

    def hold() -> None:
        with listener:
            listener.probe(2, seconds=0.2)

    threading.Thread(target=hold, daemon=True).start()
    options = {"token": "t", "name": "ada"}
    threading.Thread(target=join, args=("127.0.0.1", listener.port), kwargs=options, daemon=True).start()
    monkeypatch.setenv("DTFM_PROBE_TOKEN", "t")
    status, out, err = shell("doctor", "--probe", "--join", f"127.0.0.1:{listener.port}")
    assert (status, out) == (0, "")
    assert f"joined as {socket.gethostname()}" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "wanted one of --listen and --join"),
        (("--listen", "4711"), "--listen wants --hosts, the number to wait for"),
        (("--listen", "here", "--hosts", "2"), "'here' is no address; wanted PORT or ADDRESS:PORT"),
        (("--listen", "192.0.2.1:4711", "--hosts", "2"), "192.0.2.1 is no address of this machine"),
        (("--join", "127.0.0.1:4711"), "--join wants the token that the listener printed, in DTFM_PROBE_TOKEN"),
        (("--join", "4711"), "'4711' is no address; wanted HOST:PORT"),
    ],
)
def test_mistakes_of_a_probe_are_one_line(refuses, monkeypatch, arguments, complaint):
    monkeypatch.delenv("DTFM_PROBE_TOKEN", raising=False)
    refuses(complaint, "doctor", "--probe", *arguments)


def test_hosts_that_do_not_come_are_a_failure_and_not_a_mistake(shell):
    status, _, err = shell("doctor", "--probe", "--listen", "0", "--hosts", "2", "--wait", "0.2")
    assert status == 1
    assert "0 of 2 hosts came within 0.2 s: nobody" in err.splitlines()[-1]


def test_export_tells_each_hosts_line(prints, tells, refuses, plan_file):
    told = tells("export", plan_file, "-o", "run", "--schedule", "1f1b", "--per-host", "4")
    assert told["folder"] == "run"
    assert len(told["commands"]) == 2
    assert all(line.endswith(f"dtfm_lab.runtime.hosted run --host {name}") for name, line in told["commands"].items())
    refuses("an earlier run folder is there; wanted a new folder, or --force", "export", plan_file, "-o", "run")
    out = prints("export", plan_file, "-o", "run", "--force")
    assert "8 workers on 8 hosts; what to do is in run/README.md" in out
    assert Path("run/README.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--hosts", "none.yaml", "--per-host", "2"), "--hosts says which host runs what; wanted it without"),
        (("--per-host", "0"), "workers per host is 0; wanted 1 or more"),
    ],
)
def test_mistakes_of_an_export_are_one_line(refuses, plan_file, arguments, complaint):
    refuses(complaint, "export", plan_file, "-o", "run", *arguments)
    assert not Path("run").exists()


def test_a_plan_is_exported_as_a_page_by_its_ending(tells, refuses, plan_file):
    said = tells("export", plan_file, "-o", "plan.html", "--schedule", "1f1b")
    assert said == {"page": "plan.html", "bytes": Path("plan.html").stat().st_size}
    says = "--per-host is of a run folder; wanted other.html without it"
    refuses(says, "export", plan_file, "-o", "other.html", "--per-host", "2")
    assert not Path("other.html").exists()


def test_a_folder_of_something_else_is_left_alone(refuses, plan_file):
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("mine")
    refuses("mine: is a folder of something else; wanted a new one", "export", plan_file, "-o", "mine")
