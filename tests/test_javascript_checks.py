"""``make lint`` passes on a machine without Node or without its packages, and says that it has not checked."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import javascript

NPM = "#!/bin/sh\n{}\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder in which programs are found; nothing is in it yet."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(javascript, "JS", tmp_path)
    monkeypatch.setattr(javascript, "INSTALLED", tmp_path / "installed")
    return programs


def put(programs: Path, npm: str) -> None:
    for name, script in (("npm", NPM.format(npm)), ("node", NPM.format("exit 0"))):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)


def test_without_node_one_line_says_so_and_nothing_fails(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert javascript.main() == 0
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="programs are shell scripts here")
def test_without_its_packages_one_line_says_why(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(machine, "echo 'npm error code ENOTFOUND'; echo 'npm error network request to a registry failed' >&2; exit 1")
    assert javascript.main() == 0
    assert capsys.readouterr().out == (
        "The views' JavaScript was not checked: npm ci failed: npm error network request to a registry failed\n"
    )


@pytest.mark.skipif(os.name == "nt", reason="programs are shell scripts here")
def test_what_the_checks_find_fails(machine: Path) -> None:
    put(machine, "exit 3")
    javascript.INSTALLED.touch()
    assert javascript.main() == 3
