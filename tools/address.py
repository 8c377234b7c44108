"""Where the repository is published. While no address is set, no page has a badge or a link that needs one.

python -m tools.address               # print it; fails if a file does not agree
python -m tools.address owner/name    # set it: badges, clone lines, citation, project page, notebook for Colab

``CITATION.cff`` is the one place that keeps it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADDRESS = re.compile(r'^repository-code: "https://github\.com/([\w.-]+/dtfm[-_]lab)"\n', re.MULTILINE)
COLAB = "tools/colab/tour.ipynb"
BADGES = """[![Open in Binder](https://mybinder.org/badge_logo.svg)]\
(https://mybinder.org/v2/gh/{address}/HEAD?urlpath=lab/tree/notebooks/00_tour.ipynb)
[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{address}/blob/HEAD/tools/colab/tour.ipynb)
"""
ELSEWHERE = """- **Colab**: open [the first lesson]\
(https://colab.research.google.com/github/{address}/blob/HEAD/tools/colab/tour.ipynb). Its first cell installs the lab.
- **Binder**: open [the lessons]\
(https://mybinder.org/v2/gh/{address}/HEAD?urlpath=lab/tree/notebooks/00_tour.ipynb). It has 1 to 2 GB of memory.
"""
CLONE = "```sh\ngit clone https://github.com/{address}\n```\n"
CLONE_SOMETHING = "```sh\ngit clone URL dtfm_lab    # URL: the address of this repository\n```\n"


def address(root: Path = ROOT) -> str:
    """The address ("owner/name"), or nothing while none is set."""
    found = ADDRESS.search((root / "CITATION.cff").read_text(encoding="utf-8"))
    return found[1] if found else ""


def between(name: str, text: str, contents: str) -> str:
    """The text of a page with other contents between two comments."""
    return re.sub(
        rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)",
        lambda found: found[1] + contents + found[2],
        text,
        flags=re.DOTALL,
    )


def readme(text: str, named: str) -> str:
    text = between("badges", text, BADGES.format(address=named) if named else "")
    return between("clone", text, CLONE.format(address=named) if named else CLONE_SOMETHING)


def start(text: str, named: str) -> str:
    text = between("elsewhere", text, ELSEWHERE.format(address=named) if named else "")
    return between("clone", text, CLONE.format(address=named) if named else CLONE_SOMETHING)


def citation(text: str, named: str) -> str:
    line = f'repository-code: "https://github.com/{named}"\n' if named else ""
    return re.sub(
        r"^(license: .*\n)", lambda found: found[1] + line, ADDRESS.sub("", text), count=1, flags=re.MULTILINE
    )


def project(text: str, named: str) -> str:
    text = re.sub(r'^\[project\.urls\]\n(?:\w+ = ".*"\n)*\n', "", text, flags=re.MULTILINE)
    owner, _, name = named.partition("/")
    site = f"https://{owner.lower()}.github.io/{name}/"  # where .github/workflows/site.yml puts it
    urls = f'Repository = "https://github.com/{named}"\nDocumentation = "{site}"\n'
    table = f"[project.urls]\n{urls}\n" if named else ""
    return text.replace("[project.scripts]\n", f"{table}[project.scripts]\n", 1)


WRITTEN: Mapping[str, Callable[[str, str], str]] = {
    "README.md": readme,
    "docs/start.md": start,
    "CITATION.cff": citation,
    "pyproject.toml": project,
}
"""Files that name the address, and what each becomes with another one."""


def disagreeing(root: Path = ROOT) -> list[str]:
    """The files that are not what they would be with the address that is set."""
    named = address(root)
    texts = {name: (root / name).read_text(encoding="utf-8") for name in WRITTEN}
    return [name for name, become in WRITTEN.items() if become(texts[name], named) != texts[name]]


def write(named: str, root: Path = ROOT) -> None:
    """Set the address in all files. Raises ValueError if it is none."""
    if named and not re.fullmatch(r"[\w.-]+/dtfm[-_]lab", named):
        raise ValueError(f"{named!r} is not an address; wanted OWNER/dtfm_lab or OWNER/dtfm-lab")
    for name, become in WRITTEN.items():
        path = root / name
        path.write_text(become(path.read_text(encoding="utf-8"), named), encoding="utf-8")


def main(arguments: list[str]) -> int:
    if arguments:
        from tools.colab_tour import write_colab

        write(arguments[0])
        write_colab(arguments[0], ROOT / COLAB)
    for name in disagreeing():
        print(f"{name} does not name the address of CITATION.cff; python -m tools.address OWNER/dtfm_lab writes it")
    print(address() or "no address is set")
    return bool(disagreeing())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
