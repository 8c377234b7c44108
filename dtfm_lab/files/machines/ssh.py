"""``~/.ssh/config``: the names by which one knows one's hosts, and the addresses behind them."""

import re
from pathlib import Path

from dtfm_lab.domain.errors import FileError
from dtfm_lab.files.machines.seen import Host, Seen


def is_ssh(text: str) -> bool:
    return re.search(r"^\s*Host[ \t=]+\S", text, re.MULTILINE | re.IGNORECASE) is not None


def read_ssh(text: str, path: Path) -> Seen:
    """Each host under its first name that is no pattern; ``Include`` and ``Match`` are not followed (ssh_config(5))."""
    hosts: list[Host] = []
    current: list[str] = []
    for line in text.splitlines():
        found = re.match(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)", line)
        key, value = (found[1].casefold(), found[2].strip('"')) if found else ("", "")
        if key in ("host", "match"):
            current = [name for name in value.split() if not set(name) & set("*?!")] if key == "host" else []
            if current:
                hosts.append(Host(name=current[0], addresses=frozenset(current[1:])))
        elif key == "hostname" and current:
            hosts[-1] = Host(name=current[0], addresses=frozenset([*current[1:], value]) - {current[0]})
    if not hosts:
        raise FileError(f"{path.name}: names no host but patterns; wanted Host lines with a name")
    return Seen(hosts=tuple(hosts))
