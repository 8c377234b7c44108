"""``make notebooks``: run the lessons and write their notebooks, with light still pictures for readers on GitHub.

The source of a lesson is tools/lessons/NN_name.py. This runs it from top to bottom in the folder notebooks/ and writes
notebooks/NN_name.ipynb: figures become PNG, widgets become the picture they show before anybody touches them, tables
and texts stay as they are. A lesson whose code equals that of its notebook is not run again, unless ``--force`` is
given: its new texts are written next to the old outputs. Your own progress, guesses and saved workspaces do not
change.

    python -m tools.notebooks [--force] [--check] [NAME ...]
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tools import colab_tour
from tools.still_pictures import Draughtsman, draughtsman, picture_png

ROOT = Path(__file__).parents[1]
LESSONS = ROOT / "tools" / "lessons"
"""Sources, which people edit."""
NOTEBOOKS = ROOT / "notebooks"
"""What is made of them."""
MOST_BYTES = 290_000
"""of a notebook with its pictures"""
QUALITIES = [(1.5, 96), (1.25, 64), (1.0, 64), (0.8, 48), (0.6, 32)]
"""Dots a pixel and colours of pictures, the best first."""
CELL_TIMEOUT_S = 300
READER = "reader"
"""Whose missions a kept notebook shows."""
KEY = "dtfm_lab"
"""of the notebook's metadata, which holds the digest of the cells that were run"""
PLOTLY, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
PLAYED, PLAYED_LAB = ROOT / "tools" / "pictures" / "tour.png", "dtfm_lab.Lab on lecture-hall"
"""A moment of the lab's first iteration, which ``make pictures`` takes, and how the text of that lab begins."""
KEPT = {"text/plain", "text/html", "text/markdown", "image/png"}
"""What a page without scripts shows; a reader's tries are no part of a kept notebook."""
REVEALS = re.compile(r"^lab\.reveal\(([^)]*)\)", re.MULTILINE)
"""How a cell begins that shows an answer. Its outputs are kept in its metadata, where no reader sees them before a
guess. The site shows them folded."""
TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def main() -> int:
    """Returns 0 when every lesson is kept as it is now, 1 when one failed or is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="such as 00_tour; all lessons where none is given")
    parser.add_argument("--force", action="store_true", help="run lessons again that have not changed")
    parser.add_argument("--check", action="store_true", help="run nothing; say which lessons are out of date")
    asked = parser.parse_args()
    sources = [path for path in sorted(LESSONS.glob("[0-9]*.py")) if not asked.names or path.stem in asked.names]
    if unknown := set(asked.names) - {path.stem for path in sources}:
        parser.error(f"there is no lesson {', '.join(sorted(unknown))} in {LESSONS.relative_to(ROOT)}/")
    wanted = [path for path in sources if asked.force or not is_current(path)]
    if asked.check:
        for path in wanted:
            print(f"{path.stem} has changed since its pictures were made: make notebooks")
        return 1 if wanted else 0
    failed = []
    if not asked.force:
        reworded = [path for path in wanted if reword(path)]
        print(f"{len(reworded)} lessons have new texts and the code they had: their outputs are kept")
        wanted = [path for path in wanted if path not in reworded]
    with ExitStack() as stack:
        artist = stack.enter_context(draughtsman()) if wanted else None
        for path in wanted:
            began_s = time.monotonic()
            try:
                n_bytes = keep(path, artist)
            except (CellExecutionError, ValueError) as error:
                failed.append(path.stem)
                print(f"{path.stem} failed:\n{TERMINAL_CODES.sub('', str(error))[-1500:]}", flush=True)
            else:
                print(f"{path.stem}: {time.monotonic() - began_s:.0f} s, {n_bytes / 1000:.0f} KB", flush=True)
    colab_tour.main()
    print(f"{len(wanted) - len(failed)} lessons run, {len(sources) - len(wanted)} were up to date", end="")
    print(f", failed: {', '.join(failed)}" if failed else "")
    return 1 if failed else 0


def digest_of(book: nbformat.NotebookNode) -> str:
    """Digest of the cells as they are written, without what they print."""
    cells = [(cell.cell_type, cell.source) for cell in book.cells]
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]


def notebook_of(source: Path) -> Path:
    """The notebook that is made of a lesson's source."""
    return NOTEBOOKS / f"{source.stem}.ipynb"


def is_current(source: Path) -> bool:
    """Whether the notebook of a lesson holds its cells, and what they showed when they ran."""
    kept = notebook_of(source)
    if not kept.exists():
        return False
    book = nbformat.read(kept, nbformat.NO_CONVERT)
    digest = digest_of(jupytext.read(source))
    return book.metadata.get(KEY, {}).get("source") == digest == digest_of(book)


def reword(source: Path) -> bool:
    """Write a lesson's notebook with its old outputs; False, and nothing is written, if its code has changed."""
    kept = notebook_of(source)
    if not kept.exists():
        return False
    old = [cell for cell in nbformat.read(kept, nbformat.NO_CONVERT).cells if cell.cell_type == "code"]
    new = [cell for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    if [code_of(cell.source) for cell in old] != [code_of(cell.source) for cell in new]:
        return False
    outputs = [cell.metadata.get(KEY, {}).get("revealed", cell.outputs) for cell in old]
    kept.write_text(written(source, outputs, [cell.execution_count for cell in old]), encoding="utf-8")
    return True


def code_of(cell: str) -> str:
    """Return what a cell does, without its comments; the cell itself if it is more than Python, such as a magic."""
    try:
        return ast.dump(ast.parse(cell))
    except SyntaxError:
        return cell


def keep(source: Path, artist: Draughtsman) -> int:
    """Run a lesson and write its notebook; returns the bytes of the file. Raises CellExecutionError."""
    book = jupytext.read(source)
    with tempfile.TemporaryDirectory(prefix="dtfm-notebooks-") as folder, own_state(Path(folder)):
        client = NotebookClient(
            book,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            store_widget_state=False,
            record_timing=False,
            resources={"metadata": {"path": str(NOTEBOOKS)}},
        )
        client.execute()
        hidden = {folder: "...", str(ROOT) + "/": "", str(ROOT): ".", str(Path.home()): "~"}
        text = light(book, source, artist, hidden)
    notebook_of(source).write_text(text, encoding="utf-8")
    return len(text.encode())


@contextmanager
def own_state(folder: Path) -> Iterator[None]:
    """Kernels that are started meanwhile keep progress, workspaces and temporary files in this folder."""
    folders = {"DTFM_LAB_PROGRESS": "progress", "XDG_STATE_HOME": "state", "IPYTHONDIR": "ipython", "TMPDIR": "tmp"}
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    changed = {name: str(folder / where) for name, where in folders.items()}
    changed |= {
        "DTFM_LAB_REVEAL": "1",
        "DTFM_LAB_READER": READER,
        "PYTHONPATH": paths,
        "PYTHONWARNINGS": "ignore",
        "NO_COLOR": "1",
    }
    for where in folders.values():
        (folder / where).mkdir()
    before = dict(os.environ)
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def light(book: nbformat.NotebookNode, source: Path, artist: Draughtsman, hidden: dict[str, str]) -> str:
    """The notebook as text, its outputs made light, its pictures as good as there is room for."""
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    drawings: list[Drawing] = []
    outputs = [lightened(cell.outputs, hidden, artist, drawings) for cell in code]
    counts = [cell.execution_count for cell in code]
    room = MOST_BYTES - len(written(source, outputs, counts).encode())
    for drawing, picture in zip(drawings, drawn(drawings, 3 * room // 4, source.stem), strict=True):
        drawing.into["image/png"] = base64.b64encode(picture).decode()
    return written(source, outputs, counts)


@dataclass
class Drawing:
    """A picture to be made in some quality, and the output that shows it."""

    draw: Callable[..., bytes]
    into: dict[str, Any]


def drawn(drawings: Sequence[Drawing], room: int, name: str) -> list[bytes]:
    """The pictures, the heaviest made worse until all have room. Raises ValueError where there is none."""
    levels = [0] * len(drawings)
    pictures = [drawing.draw(*QUALITIES[0]) for drawing in drawings]
    while sum(map(len, pictures)) > room:
        able = [which for which, level in enumerate(levels) if level + 1 < len(QUALITIES)]
        if not able:
            n_kb = sum(map(len, pictures)) / 1000
            raise ValueError(f"the {len(pictures)} pictures of {name} have {n_kb:.0f} KB; wanted {room / 1000:.0f}")
        heaviest = max(able, key=lambda which: len(pictures[which]))
        levels[heaviest] += 1
        pictures[heaviest] = drawings[heaviest].draw(*QUALITIES[levels[heaviest]])
    return pictures


def written(source: Path, outputs: list[list[Any]], counts: list[int | None]) -> str:
    """The .ipynb of a lesson with these outputs, one list for each code cell; names of cells are their numbers."""
    book = jupytext.read(source)
    code = iter(zip(outputs, counts, strict=True))
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number:02}"
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = next(code)
            if names := revealed_by(cell.source):
                cell.metadata[KEY] = {"revealed": cell.outputs}
                cell.outputs = [nbformat.v4.new_output("stream", text=f"Guess first: {', '.join(names)}\n")]
    book.metadata[KEY] = {"source": digest_of(book)}
    return nbformat.writes(book, version=nbformat.NO_CONVERT) + "\n"


def revealed_by(source: str) -> list[str]:
    """Names of the questions that a reader has to guess before a cell shows anything."""
    found = REVEALS.search(source)
    return re.findall(r'"([\w-]+)"', found[1]) if found else []


def lightened(outputs: list[Any], hidden: dict[str, str], artist: Draughtsman, drawings: list[Drawing]) -> list[Any]:
    """Outputs without scripts, state and paths of this machine; what is to be drawn is added to ``drawings``."""
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            text = without(plain(output.text), hidden)
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += text
            elif text.strip():
                kept.append(nbformat.v4.new_output("stream", name=output.name, text=text))
            continue
        data, draw = still(output.get("data", {}), artist)
        if data:
            data = {kind: without(value, hidden) if isinstance(value, str) else value for kind, value in data.items()}
            count = {"execution_count": output.execution_count} if output.output_type == "execute_result" else {}
            kept.append(nbformat.v4.new_output(output.output_type, data, **count))
            if draw is not None:
                drawings.append(Drawing(draw, kept[-1].data))
    return kept


def still(data: dict[str, Any], artist: Draughtsman) -> tuple[dict[str, Any], Callable[..., bytes] | None]:
    """What a page without scripts can show of an output, and how to draw its picture where it has one."""
    words = {"text/plain": data["text/plain"]} if "text/plain" in data else {}
    if PLOTLY in data:
        title = data[PLOTLY].get("layout", {}).get("title", {}).get("text", "")
        return {"text/plain": re.sub("<[^>]+>", " ", title) or "figure"}, partial(artist.plotly_png, data[PLOTLY])
    if WIDGET in data and words.get("text/plain", "").startswith(PLAYED_LAB):
        return words, partial(picture_png, PLAYED.read_bytes())
    if "image/svg+xml" in data:
        return words or {"text/plain": "picture"}, partial(artist.svg_png, "".join(data["image/svg+xml"]))
    if WIDGET in data:
        return words | {kind: data[kind] for kind in ("text/markdown",) if kind in data}, None
    shown = {kind: value for kind, value in data.items() if kind in KEPT}
    return {kind: value for kind, value in shown.items() if not (kind == "text/html" and "<script" in value)}, None


def plain(text: str) -> str:
    """What a terminal shows in the end: no colours, and of a line that was written over only the last state."""
    return "".join(
        line.rsplit("\r", 1)[-1] if not line.endswith("\r\n") else line
        for line in TERMINAL_CODES.sub("", text).splitlines(keepends=True)
    )


def without(text: str, hidden: dict[str, str]) -> str:
    for path, instead in hidden.items():
        text = text.replace(path, instead)
    return text


if __name__ == "__main__":
    sys.exit(main())
