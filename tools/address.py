"""Where the repository is published, in every file that says so: badges, the citation, the notebook for Colab.

python -m tools.address               # print it; fails where the files do not agree
python -m tools.address owner/name    # write another one to all of them
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("README.md", "CITATION.cff", "pyproject.toml", "docs/where-it-runs.md", "tools/colab/tour.ipynb")
"""Files that name the address; nothing else of theirs is changed."""
NAMED = re.compile(
    r"(?<=github\.com/)[\w.-]+/dtfm[-_]lab\b|(?<=mybinder\.org/v2/gh/)[\w.-]+/[\w.-]+?(?=/HEAD)"
    r"|(?<=colab\.research\.google\.com/github/)[\w.-]+/[\w.-]+?(?=/blob)"
)


def addresses(root: Path = ROOT) -> dict[str, set[str]]:
    """By file, the addresses ("owner/name") that it names."""
    return {
        name: set(NAMED.findall((root / name).read_text(encoding="utf-8"))) for name in FILES if (root / name).exists()
    }


def write(address: str, root: Path = ROOT) -> None:
    """Name another address in all files. Raises ValueError where it is none."""
    if not re.fullmatch(r"[\w.-]+/dtfm[-_]lab", address):
        raise ValueError(f"{address!r} is no address; wanted OWNER/dtfm_lab or OWNER/dtfm-lab")
    for name in FILES:
        path = root / name
        path.write_text(NAMED.sub(address, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1])
    found = addresses()
    named = set().union(*found.values())
    if len(named) != 1 or not all(found.values()):
        sys.exit("\n".join(f"{name}: {', '.join(sorted(where)) or 'no address'}" for name, where in found.items()))
    print(*named)
