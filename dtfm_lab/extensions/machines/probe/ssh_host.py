"""One host of a probe over ssh: the output of nvidia-smi, then answers of the program sent to its python3."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import LONGEST_NAME
from dtfm_lab.extensions.machines.driver import read_smi, read_topo
from dtfm_lab.extensions.machines.probe import messages
from dtfm_lab.extensions.machines.seen import ReportedHost
from dtfm_lab.runtime.protocol.channels import ConnectionLost, values_of

ENDS_S = 900.0
"""Seconds after which the program on a host ends by itself, in case it does not notice the end of ssh."""
SMI_S = 20
"""Maximum seconds for nvidia-smi. Without persistence mode it first initialises every GPU."""
LONGEST_LINE = 2**16
"""Maximum bytes of one line of a host's output."""
MOST_BYTES = 2**24
"""Maximum bytes of all of a host's output."""
LONGEST_REMARK = 120
"""Maximum characters shown of a host's own messages."""
OPTIONS = (
    *("-T", "-x", "-a"),
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    # a shared connection would stay after the probe, and a forwarded port may be in use
    *("-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes"),
)


class HostLost(Exception):
    """A host failed. The message completes a sentence that starts with the host's name: what was found, and what is
    wanted.

    It is one line without a semicolon.
    """


class SshHost:
    """An ssh connection to a host, which the constructor opens. ``hang_up`` and ``end`` close it. Raises LabError if
    ssh is not installed."""

    def __init__(self, given: str, config: Path | None, token: str, mark: str) -> None:
        """``given`` is the host as ssh knows it. ``mark`` starts each line that is not from nvidia-smi or a login
        message."""
        self._given, self._config, self._mark = given, config, mark
        self._printed: dict[str, list[str]] = {"": [], "smi": [], "topo": [], "python": []}
        self._remarks: deque[bytes] = deque(maxlen=4)
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        program = Path(messages.__file__).read_text(encoding="ascii") + "\n\nserve()\n"
        parts = [
            f'echo; echo "{mark}{what}"; timeout {SMI_S} nvidia-smi {how} </dev/null 2>/dev/null; '
            for what, how in (("smi", "-q -x"), ("topo", "topo -m"))
        ]
        python = f'exec python3 -c "import sys;exec(sys.stdin.read({len(program)}))"'
        command = f"sh -c '{''.join(parts)}echo; echo \"{mark}python\"; {python}'"
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        try:
            self._process = subprocess.Popen(
                ["ssh", *OPTIONS, *_config_option(config), "--", given, command], start_new_session=True, **pipes
            )
        except OSError as error:
            raise LabError(f"ssh cannot be started ({error.strerror}); wanted OpenSSH's ssh on this machine") from None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        self._reading_remarks = threading.Thread(target=self._read_remarks, args=(self._process.stderr,), daemon=True)
        self._reading_remarks.start()
        self._write(program + json.dumps({"token": token, "mark": mark, "ends_s": ENDS_S}))

    def order(self, **order: Any) -> None:
        self._write(json.dumps(order))

    def answer(self, within_s: float) -> dict[str, Any]:
        """Return the next answer of the program on the host. Raises HostLost if none comes within ``within_s``, if the
        program has ended, or if the answer cannot be read."""
        try:
            line = self._answers.get(timeout=max(within_s, 1e-3))
        except queue.Empty:
            raise HostLost(f"did not answer in time, wanted ssh {self._given} to answer at once") from None
        if line is None:
            raise HostLost(self._why_it_ended())
        try:
            return values_of(line.encode())
        except ConnectionLost:
            raise HostLost(f"sent {plain(line)}, wanted an answer of the probe's program") from None

    def gpus(self, name: str) -> tuple[ReportedHost, str]:
        """Return the host with the GPUs that nvidia-smi reported, and a sentence about them. Without a report, the host
        has no GPUs. Raises HostLost if the report cannot be read."""
        smi, topo = ("".join(self._printed[what]).strip("\r\n") for what in ("smi", "topo"))
        if "<nvidia_smi_log" not in smi:
            return ReportedHost(name=name), f"nvidia-smi says {plain(smi)}" if smi else "there is no nvidia-smi"
        try:
            found = replace(read_smi(smi, Path("nvidia-smi")).hosts[0], name=name)
            if len(found.gpus) > 1 and "GPU1" in topo:
                found = replace(found, between=read_topo(topo, Path("nvidia-smi")).hosts[0].between)
        except FileError as error:
            raise HostLost(f"has no readable {error}".replace("; ", ", ")) from None
        return found, f"{len(found.gpus)} x {found.gpus[0].name}"

    def address(self) -> str:
        """Return the address that ssh uses. If the host's own addresses are behind a router, others may reach it
        there."""
        command = ["ssh", *_config_option(self._config), "-G", "--", self._given]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=10).stdout
            if (found := re.search(rb"^hostname (\S+)$", said, re.MULTILINE)) and len(found[1]) <= LONGEST_NAME:
                return found[1].decode(errors="replace")
        return self._given.rpartition("@")[2]

    def hang_up(self) -> None:
        """Close the standard input of the program on the host, which ends the program."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]  # it is a pipe

    def end(self, deadline_s: float) -> None:
        """Wait until ssh ends, at most until ``deadline_s`` on the monotonic clock. Then kill it and its
        ProxyCommand."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(deadline_s - time.monotonic(), 0.01))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the program has ended; waiting for its answer reports that
            self._process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _read(self, stream: IO[bytes]) -> None:
        section, left = "", MOST_BYTES
        while left > 0 and (line := stream.readline(LONGEST_LINE)):
            left -= len(line)
            text = line.decode(errors="replace")
            if not text.startswith(self._mark):
                self._printed[section].append(text)
            elif (what := text.removeprefix(self._mark).strip()) in self._printed:
                section = what
            else:
                self._answers.put(what)
        if left <= 0:
            self._answers.put(f"more than {MOST_BYTES >> 20} MiB")
        self._answers.put(None)

    def _read_remarks(self, stream: IO[bytes]) -> None:
        while text := stream.read1(4096):  # type: ignore[attr-defined]  # it is buffered
            self._remarks.append(text)

    def _why_it_ended(self) -> str:
        self._reading_remarks.join(1.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        lines = b"".join(self._remarks).decode(errors="replace").strip().splitlines()
        said = f"says {plain(lines[-1])}" if lines else "says nothing"
        if self._process.returncode == 255:  # ssh's own status
            return f"is not reached: ssh {said}, wanted ssh {self._given} to answer without a question"
        return f"does not run the probe's program: it {said}, wanted python3, 3.7 or newer, and a shell"


def plain(said: object) -> str:
    """Return a host's message in quotes, shortened, without terminal control characters and semicolons."""
    text = " ".join(str(said).split()).replace(";", ",")
    return ascii(text if len(text) <= LONGEST_REMARK else text[: LONGEST_REMARK - 3] + "...")


def _config_option(config: Path | None) -> list[str]:
    """Return ssh's option ``-F`` with the config file; nothing for the user's own config.

    ssh reads the user's own config anyway, and ``-F`` would make it skip the system's.
    """
    is_own = config is not None and config.resolve() == Path("~/.ssh/config").expanduser().resolve()
    return [] if config is None or is_own else ["-F", str(config)]
