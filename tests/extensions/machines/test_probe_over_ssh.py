"""A probe over ssh: the program that hosts are sent runs for real, between processes of this machine.

The ``ssh`` of these tests runs a command here. A host is a script of what happens before, and perhaps an alteration of
the program that it is sent.
"""

from __future__ import annotations

import ast
import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from run_helpers import until
from slow_proxy import Line, slow_proxy

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import LINK_SPREAD
from dtfm_lab.extensions.machines.network import ESTIMATED_SPREAD
from dtfm_lab.extensions.machines.probe import messages, over_ssh, probe_over_ssh, ssh_host

RECORDED = Path(__file__).with_name("recorded")
SSH = """#!/bin/sh
while [ "$1" != -- ]; do [ "$1" = -G ] && exit 1; shift; done
export SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" PATH="$HOSTS/$2.bin:$PATH"
[ -f "$HOSTS/$2" ] && . "$HOSTS/$2"
exec sh -c "$3"
"""
ALTERED = """#!{python}
import re, sys
exec(sys.stdin.read(int(re.search(r"[0-9]+", sys.argv[2])[0])).replace({old!r}, {new!r}))
"""
TIMED = 'time_both_ways(connection, order["seconds"], order["silence_s"])'
PORT = "listener.getsockname()[1]"
T4 = {"ada": "T4", "alan": "T4", "grace": "T4"}


class Hosts:
    """What ssh finds at hosts by name; any that is not mentioned is this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def before(self, host: str, script: str) -> None:
        (self.folder / host).write_text(script + "\n")

    def has(self, host: str, program: str, text: str) -> None:
        path = self.folder / f"{host}.bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def alters(self, host: str, old: str, new: str) -> None:
        assert old in Path(messages.__file__).read_text()
        self.has(host, "python3", ALTERED.format(python=sys.executable, old=old, new=new))

    def processes(self) -> list[psutil.Process]:
        """All that this test's ssh has started."""

        def is_of_this(process: psutil.Process) -> bool:
            try:
                return process.environ().get("HOSTS") == str(self.folder) and process.status() != "zombie"
            except psutil.Error:
                return False

        return [each for each in psutil.process_iter() if each.pid != os.getpid() and is_of_this(each)]


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    found = Hosts(tmp_path / "hosts")
    found.folder.mkdir()
    found.has("this", "ssh", SSH)
    monkeypatch.setenv("HOSTS", str(found.folder))
    monkeypatch.setenv("PATH", f"{found.folder / 'this.bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(over_ssh, "MOST_S", 0.1)
    monkeypatch.setattr(over_ssh, "LEAST_S", 0.1)
    yield found
    until(lambda: not found.processes())


def test_hosts_become_a_network_of_measured_links(hosts):
    smi = (RECORDED / "gpubox.smi.xml").read_text()
    hosts.has("ada", "nvidia-smi", f"#!/bin/sh\n[ $1 = -q ] && cat <<'END'\n{smi}\nEND\n")
    hosts.before("ada", "echo Welcome; echo '{\"port\": 1}'; echo 'All use is logged' >&2")
    lines: list[str] = []
    found = probe_over_ssh(
        ["ada", "root@alan", "grace"], gpus={"alan": "MI300X:2", "grace": "laptop"}, report=lines.append
    )
    assert [device.gpu for device in found.devices] == ["RTX A5000"] * 2 + ["MI300X"] * 2 + ["laptop"]
    assert found.names[:3] == ("ada-0", "ada-1", "alan-0")
    assert "6 links: measured by the probe" in found.description
    assert found.link_spread == LINK_SPREAD, "nothing between hosts is estimated"
    ada, grace = 0, 4
    assert found.latency_s[ada, grace] == found.latency_s[grace, ada] > 0
    assert (found.bandwidth_bytes_per_s[:2, grace] == found.bandwidth_bytes_per_s[ada, grace]).all()
    assert sum(line.startswith("pair ") for line in lines) == 3


def test_what_was_measured_of_a_known_line_is_in_the_network(hosts, monkeypatch):
    monkeypatch.setattr(over_ssh, "MOST_S", 1.5)
    there, back = Line(0.010, 4e6), Line(0.020, 2e6)  # slow enough for a proxy in Python on busy cores
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    hosts.alters("alan", 'listener.bind(("::", 0))', f"listener.bind(('::', {port}))")
    with slow_proxy(port, there, back) as reached_at:
        script = hosts.folder / "alan.bin" / "python3"
        script.write_text(script.read_text()[:-2] + f".replace({PORT!r}, '{reached_at}'))\n")
        found = probe_over_ssh(["ada", "alan"], gpus={"ada": "T4", "alan": "T4"})
    assert 0.015 <= found.latency_s[0, 1] < 0.2  # computers that have other things to do are late, never early
    for rate, line in ((found.bandwidth_bytes_per_s[0, 1], there), (found.bandwidth_bytes_per_s[1, 0], back)):
        assert line.bytes_per_s / 6 < rate < 6 * line.bytes_per_s


FAILURES: dict[str, tuple[Callable[[Hosts], None], str]] = {
    "permission": (
        lambda hosts: hosts.before("eve", "echo 'Permission denied (publickey).' >&2; exit 255"),
        "is not reached: ssh says 'Permission denied (publickey).', wanted ssh eve to answer without a question",
    ),
    "host key": (
        lambda hosts: hosts.before("eve", "printf '@@@@\\n\\033[31mHost key verification failed.\\n' >&2; exit 255"),
        r"ssh says '\x1b[31mHost key verification failed.', wanted",
    ),
    "no python": (
        lambda hosts: hosts.has("eve", "python3", "#!/bin/sh\necho 'python3: not found' >&2; exit 127"),
        "does not run the probe's program: it says 'python3: not found', wanted python3, 3.7 or newer",
    ),
    "old python": (
        lambda hosts: hosts.alters("eve", "import annotations", "import answers"),
        "future feature answers is not defined', wanted python3, 3.7 or newer",
    ),
    "noise": (
        lambda hosts: hosts.before("eve", "head -c 200000 /dev/urandom; exit 0"),
        "does not run the probe's program: it says nothing",
    ),
    "noise without end": (
        lambda hosts: hosts.before("eve", "exec cat /dev/zero"),
        "sent 'more than 16 MiB', wanted an answer",
    ),
    "silence": (lambda hosts: hosts.before("eve", "exec sleep 60"), "did not answer in time"),
    "a cut answer": (
        lambda hosts: hosts.alters("eve", "json.dumps(answer)", "json.dumps(answer)[:9]"),
        """sent '{"port":', wanted an answer of the probe's program""",
    ),
    "another answer": (lambda hosts: hosts.alters("eve", PORT, "-1"), "listens at"),
    "a broken nvidia-smi": (
        lambda hosts: hosts.has("eve", "nvidia-smi", "#!/bin/sh\necho '<nvidia_smi_log><gpu>'"),
        "has no readable nvidia-smi: broken XML",
    ),
    "no GPU": (
        lambda hosts: hosts.has("eve", "nvidia-smi", "#!/bin/sh\necho NVIDIA-SMI has failed; exit 9"),
        "has no GPU that nvidia-smi or a file reports, wanted --gpu eve=GPU to name it",
    ),
    "no times": (lambda hosts: hosts.alters("eve", TIMED, '{"least_s": -1}'), "sent no times: {'least_s': -1}"),
    "its end while it is timing": (lambda hosts: hosts.alters("eve", TIMED, "os._exit(3)"), "it says nothing"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_host_that_fails_is_named_and_the_others_make_a_network(hosts, failure, monkeypatch):
    arrange, says = FAILURES[failure]
    arrange(hosts)
    if failure == "silence":
        monkeypatch.setattr(over_ssh, "START_S", 6.0)  # enough for the others on busy cores
    monkeypatch.setattr(over_ssh, "CLOSE_S", 0.5)
    found = probe_over_ssh(
        ["eve", "ada", "alan"], gpus={"ada": "T4", "alan": "T4"} | eves_gpu(failure), at={"eve": "Oslo"}
    )
    assert found.names == ("ada", "alan")
    (note,) = (note for note in found.description.split("; ") if "eve" in note)
    assert note.startswith("left out eve: it ")
    assert says in note
    assert note.isprintable()
    with pytest.raises(RunError, match="1 of 2 hosts can be probed: eve "):
        probe_over_ssh(["eve", "ada"], gpus={"ada": "T4"} | eves_gpu(failure))


def test_a_host_that_ends_while_another_one_times_it_is_left_out(hosts):
    hosts.alters("grace", "if what == TAKE:", "if os._exit(3):")
    found = probe_over_ssh(["ada", "alan", "grace"], gpus=T4)
    assert found.names == ("ada", "alan")
    assert "left out grace: it does not run the probe's program" in found.description
    assert "ada -> alan, alan -> ada: measured by the probe" in found.description


def eves_gpu(failure: str) -> dict[str, str]:
    return {} if "nvidia" in failure or failure == "no GPU" else {"eve": "T4"}


def test_hosts_that_do_not_reach_each_other_are_estimated_where_their_places_are_known(hosts):
    for name in ("ada", "alan"):
        hosts.alters(name, PORT, "9")  # nobody listens there
    with pytest.raises(LabError, match=r"the link ada -> alan is unknown; wanted .* --at ada=CITY --at alan=CITY"):
        probe_over_ssh(["ada", "alan", "grace"], gpus=T4)
    found = probe_over_ssh(["ada", "alan", "grace"], gpus=T4, at={"ada": "Zurich", "alan": "Oslo"})
    assert "ada - alan not measured: neither reaches the other ('127.0.0.1 connection refused" in found.description
    assert "ada -> alan, alan -> ada: estimated from their distance" in found.description
    assert "4 links: measured by the probe" in found.description, "grace is reached by both"
    assert found.link_spread == ESTIMATED_SPREAD


def test_strangers_who_do_not_hold_the_token_time_nothing():
    listener = messages._listening_socket()
    port = listener.getsockname()[1]
    threading.Thread(target=messages._accept_all, args=(listener, b"token"), daemon=True).start()
    said = messages._reached({"it": (["no address", "127.0.0.1"], port)}, b"token")
    assert said == {"it": {"at": "127.0.0.1"}}
    assert "another program" in messages._reached({"it": (["127.0.0.1"], port)}, b"guessed")["it"]["why"]
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.settimeout(10)
        stranger.sendall(bytes(messages.NONCE) + bytes(messages.PROOF))
        said = stranger.makefile("rb").read()
    assert len(said) == messages.NONCE + messages.PROOF, "and is turned away"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_probe_that_is_stopped(hosts, tmp_path, stop):
    reached = tmp_path / "timing"
    hosts.alters("ada", TIMED, f"open({str(reached)!r}, 'w').close() or time.sleep(600)")
    command = ["from dtfm_lab.cli import main; main()", "network", "probe", "ada", "alan", "--gpu", "ada=T4"]
    command = [sys.executable, "-c", *command, "--gpu", "alan=T4"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    until(reached.exists)
    assert len(hosts.processes()) > 2
    process.send_signal(stop)
    said = process.communicate(timeout=120)[1].splitlines()
    assert (process.returncode, said[-1]) == (130, "dtfm-lab: stopped") or stop == signal.SIGKILL
    until(lambda: not hosts.processes())


def test_the_program_ends_by_itself_where_the_end_of_ssh_does_not_reach_it(hosts, monkeypatch):
    monkeypatch.setattr(ssh_host, "ENDS_S", 1.0)
    host = ssh_host.SshHost("ada", None, "token", "mark:")
    assert host.answer(30)["port"] > 0
    with pytest.raises(ssh_host.HostLost, match="it says nothing"):
        host.answer(30)
    host.end(time.monotonic())


@pytest.mark.parametrize(
    ("names", "told", "says"),
    [
        ([], {}, "0 hosts to probe; wanted 1 to 16"),
        (["ada", "root@ada"], {}, "host 'ada' is given twice"),
        (["-oProxyCommand=x", "ada"], {}, "host '-oProxyCommand=x' is not a name for ssh"),
        (["ada", "a b"], {}, "host 'a b' is not a name for ssh"),
        (["ada", "alan"], {"bob": "T4"}, "the GPU of 'bob' is given; wanted a host of the probe: ada, alan"),
        (["ada"], {"ada": "T5"}, "ada: 'T5' is not in the table of GPUs"),
        (["ada"], {"ada": "T4:0"}, "T4 are '0'; wanted a whole number of GPUs, 1 to 64"),
    ],
)
def test_what_is_wrong_is_refused_before_any_ssh(hosts, names, told, says, monkeypatch):
    monkeypatch.setattr(ssh_host.subprocess, "Popen", pytest.fail)
    with pytest.raises(LabError, match=re.escape(says)):
        probe_over_ssh(names, gpus=told)


def test_a_mistake_is_refused_before_the_pairs_are_timed(hosts, monkeypatch):
    monkeypatch.setattr(over_ssh._Probe, "time_pairs", pytest.fail)
    with pytest.raises(LabError, match="no host named 'bob'"):
        probe_over_ssh(["ada", "alan"], gpus={"ada": "T4", "alan": "T4"}, at={"bob": "Oslo"})


def test_the_program_is_plain_text_for_old_pythons():
    text = Path(messages.__file__).read_text(encoding="ascii")
    tree = ast.parse(text, feature_version=(3, 7))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    assert {str(name).partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_command_probes_and_writes(hosts, shell, refuses):
    told = ("--gpu", "ada=T4", "--gpu", "alan=A100:2", "--gpu", "Own=1")
    status, out, err = shell("network", "probe", "ada", "alan", *told, "-o", "mine.yaml")
    assert status == 0, err
    assert "3 devices: 1 T4, 2 A100" in out
    assert "pair 1 of 1: ada - alan: " in err
    assert lab.load_topology("mine.yaml").names == ("ada", "alan-0", "alan-1")
    refuses("Missing argument 'HOST... [from FILE...]'", "network", "probe")


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_real_sshd(tmp_path):
    sshd, keygen = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("ssh-keygen")
    if sshd is None or keygen is None:
        pytest.skip("there is no sshd")
    key, known, config, ports = tmp_path / "key", tmp_path / "known", tmp_path / "config", []
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    daemons = []
    for name in ("ada", "alan"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports.append(port := server.getsockname()[1])
        options = ["HostKey", key, "AuthorizedKeysFile", f"{key}.pub", "StrictModes", "no", "UsePAM", "no"]
        options = [f"-o{what}={value}" for what, value in zip(options[::2], options[1::2], strict=True)]
        listen = ["-p", str(port), "-oListenAddress=127.0.0.1", "-oPidFile=none", "-f", os.devnull]
        daemons.append(subprocess.Popen([sshd, "-D", *listen, *options], stderr=subprocess.DEVNULL))
        with known.open("a") as keys, config.open("a") as lines:
            keys.write(f"[127.0.0.1]:{port} {Path(f'{key}.pub').read_text()}")
            lines.write(f"Host {name}\n HostName 127.0.0.1\n Port {port}\n IdentityFile {key}\n")
            lines.write(f" User {getpass.getuser()}\n UserKnownHostsFile {known}\n")
    try:
        until(lambda: all(map(answers, ports)) or any(each.poll() is not None for each in daemons))
        if any(each.poll() is not None for each in daemons):
            pytest.skip("sshd does not start here")
        found = probe_over_ssh(["ada", "alan"], [config], gpus={"ada": "T4", "alan": "T4"})
    finally:
        for each in daemons:
            each.kill()
            each.wait()
    assert "ada -> alan, alan -> ada: measured by the probe" in found.description
