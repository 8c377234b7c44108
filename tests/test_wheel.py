"""What pip installs: whole, small, and enough to work without the repository, without Node and without a network.

That the sdist holds enough to build the same wheel, ``python -m tools.try_release`` tries before a release.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

pytest.importorskip("hatchling", reason="the wheel is built by hatchling")

REPOSITORY = Path(__file__).parents[1]
STATIC = "dtfm_lab/widgets/static/"
SCRIPTS_BYTES = 950_000
"""all JavaScript together, minified"""

WORK = """
from pathlib import Path
import dtfm_lab as lab
from dtfm_lab.widgets.views.view import View

def views(widget):
    inside = [view for child in getattr(widget, "children", ()) for view in views(child)]
    return [widget] if isinstance(widget, View) else inside

here = Path(lab.__file__).parent
the_lab = lab.Lab("lecture-hall")
assert len(views(the_lab)) > 3
for view in views(the_lab):
    assert view.keys and view._esm
plan = lab.plan(the_lab.topology, the_lab.job, seconds=0.2, seed=0)
assert lab.simulate(plan).iteration_s > 0
print(here)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with an empty PATH: nothing but Python."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    pip(["wheel", *options, str(REPOSITORY)])
    (built,) = folder.glob("*.whl")
    return built


def pip(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": ""}, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_the_wheel_holds_all_that_the_repository_shows(wheel):
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    for pattern in ("dtfm_lab/**/*", "topologies/**/*", "notebooks/*.ipynb", "docs/*.md"):
        for path in REPOSITORY.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(REPOSITORY).as_posix()
                inside = name if name.startswith("dtfm_lab/") else f"dtfm_lab/{name}"
                assert inside in sizes, f"{inside} is not in the wheel"
                assert sizes[inside] == path.stat().st_size
    licences = [name for name in sizes if name.endswith(("licenses/LICENSE", f"{STATIC}LICENSES.txt"))]
    assert len(licences) == 2, licences
    assert not [name for name in sizes if name.startswith(("tests/", "benchmarks/", "tools/"))]


def test_every_canvas_is_there_built_and_all_together_are_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        scripts = {
            PurePosixPath(entry.filename).stem: entry.file_size
            for entry in archive.infolist()
            if entry.filename.startswith("dtfm_lab/") and PurePosixPath(entry.filename).match("static/*.js")
        }
    sources = [
        *(REPOSITORY / "dtfm_lab").glob("**/views/*/view.js"),
        *(REPOSITORY / "dtfm_lab").glob("**/views/*/script.js"),
    ]
    assert set(scripts) == {path.parent.name for path in sources}
    assert sum(scripts.values()) < SCRIPTS_BYTES, scripts


def test_the_lab_works_from_the_installed_files(wheel, tmp_path):
    target = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)  # what an installer does with the package's own files
    found = subprocess.run(
        [sys.executable, "-c", WORK],
        cwd=tmp_path,
        # the searches' code would be compiled anew, which takes longer than all else
        env=os.environ | {"PYTHONPATH": str(target), "HOME": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()) == target / "dtfm_lab"
