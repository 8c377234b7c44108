"""Run a benchmark: ``python benchmarks NAME [its options]``. Without a name, list all of them."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
MAIN = 'if __name__ == "__main__"'


def benchmarks() -> dict[str, Path]:
    """Every benchmark by name: a script, or a folder with a ``__main__.py``."""
    files = [path for path in sorted(ROOT.glob("*/*.py")) if path.stem == "__main__" or not path.stem.startswith("_")]
    scripts = [path for path in files if MAIN in path.read_text(encoding="utf-8")]
    folders = {path.parent.name: path for path in scripts if path.name == "__main__.py"}
    return folders | {path.stem: path for path in scripts if path.parent.name not in folders}


def first_line(path: Path) -> str:
    """Return the first line of a script's docstring, which says what it measures."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return said.split("\n\n")[0].replace("\n", " ").split("``python")[0].rstrip(" :")


def main() -> None:
    found, (name, *options) = benchmarks(), sys.argv[1:] or [""]
    if name in ("", "-h", "--help"):
        lines = [f"  {each:15} {first_line(path)}" for each, path in sorted(found.items(), key=lambda item: item[1])]
        print(__doc__, *lines, sep="\n")
        return
    if name not in found:
        sys.exit(f"python benchmarks: there is no benchmark {name!r}; known are {', '.join(sorted(found))}")
    # Scripts share benchmarks/machine.py, and so do the processes that they start.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    script = found[name].parent if found[name].name == "__main__.py" else found[name]
    os.execve(sys.executable, [sys.executable, str(script), *options], {**os.environ, "PYTHONPATH": path})


if __name__ == "__main__":
    main()
