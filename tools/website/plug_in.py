"""The page of the example package, which brings one of each kind of plug-in."""

from __future__ import annotations

from pathlib import Path

from tools.website.notebooks import fenced

LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml"}


def page(folder: Path) -> str:
    """The files of the package as they are."""
    parts = [
        "# A package of plug-ins",
        "`examples/plugin` has one of each kind of plug-in, each in a few lines. [Extend it](../docs/extend.md) says "
        "how the lab finds them.",
    ]
    for path in sorted(folder.iterdir()):
        if path.suffix in LANGUAGES:
            parts += [f"## {path.name}", fenced(path.read_text(encoding="utf-8"), LANGUAGES[path.suffix])]
    return "\n\n".join(parts) + "\n"
