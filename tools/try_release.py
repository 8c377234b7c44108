"""Build the sdist and the wheel, and try both in empty environments, as a stranger would install them.

python -m tools.try_release [--quick]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import tomllib
import zipfile
from pathlib import Path

from tools.environments import Environment

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"
PLAN = """
import importlib.util, dtfm_lab as lab
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("plotly") is None
plan = lab.plan("lecture-hall", "tiny", seed=0, steps=20)
print(f"{plan.iteration_s:.3f} s planned, {lab.simulate(plan, '1f1b').iteration_s:.3f} s with 1f1b")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="build and compare, and install without dependencies")
    quick = parser.parse_args().quick
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with tempfile.TemporaryDirectory(prefix="dtfm-release-") as name:
        folder = Path(name)
        builder = Environment(folder / "builder")
        builder.pip("install", "hatchling>=1.25", cwd=folder)
        shutil.rmtree(DIST, ignore_errors=True)
        sdist = build(builder, "sdist", ROOT, DIST)
        wheel = build(builder, "wheel", ROOT, DIST)
        shutil.unpack_archive(sdist, folder)
        again = build(builder, "wheel", folder / sdist.name.removesuffix(".tar.gz"), folder / "again")
        assert files_of(wheel) == files_of(again), files_of(wheel) ^ files_of(again)
        print(f"{sdist.name} {sdist.stat().st_size / 1e6:.1f} MB, {wheel.name} {wheel.stat().st_size / 1e6:.1f} MB:")
        print(f"the wheel built from the sdist holds the same {len(files_of(wheel))} files")
        for archive in (wheel, sdist):
            plain = Environment(folder / f"plain-{archive.suffix[1:]}")
            if quick:
                plain.pip("install", "--no-deps", archive, cwd=folder)
                continue
            plain.pip("install", archive, cwd=folder)
            print(f"{archive.name} in an empty environment: {plain.python(PLAN, folder).strip()}")
            print(
                plain.run([plain.binaries / "dtfm-lab", "lab", "--copy", folder / archive.suffix[1:]], folder).strip()
            )
            if archive is wheel:
                for extra in project["optional-dependencies"]:
                    plain.pip("install", "--dry-run", f"{archive}[{extra}]", cwd=folder)
                    print(f"[{extra}] resolves")


def build(builder: Environment, kind: str, source: Path, target: Path) -> Path:
    """Build an sdist or a wheel of a folder; returns the file."""
    target.mkdir(exist_ok=True)
    said = builder.run([builder.binaries / "python", "-c", BUILD, kind, str(target)], source)
    return target / said.split()[-1]


def files_of(wheel: Path) -> set[tuple[str, int]]:
    """Names and checksums of a wheel's files, without its own list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {(entry.filename, entry.CRC) for entry in archive.infolist() if not entry.filename.endswith("/RECORD")}


if __name__ == "__main__":
    main()
