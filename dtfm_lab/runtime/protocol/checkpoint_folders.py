"""Folders of checkpoints as the kernel sees them, without torch: which are whole, what they are of, which may go.

``parent/iteration-000010/`` holds the stages' tensors (``checkpoint`` writes those) and ``checkpoint.json``, which is
written last: a folder without it, or with a file that is not as long as it says, is no checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, require_version, write_text
from dtfm_lab.runtime.protocol.corpus import Corpus

META = "checkpoint.json"
TENSORS = "stage-*.safetensors"
KEPT = 2
"""of those that a run writes by itself; the older one, in case that the newer turns out broken"""
_FOLDER = re.compile(r"iteration-(\d{6,})")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a folder of parameters and optimiser states is of."""

    folder: Path
    iteration: int
    """iterations done"""
    job: Job
    """what was trained: with the stand-in where one stood in"""
    seed: int
    learning_rate: float
    text: str
    """the file's name"""
    text_digest: str
    losses: tuple[float, ...] = ()
    """mean training loss of each iteration from the first, those before earlier checkpoints included"""
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    """name -> bytes; looked up by ``seal``"""

    @property
    def model(self) -> ModelSpec:
        return self.job.modelled()


class CheckpointFile(Section):
    dtfm_checkpoint: int
    iteration: int
    job: Job
    seed: int
    learning_rate: float
    text: str
    text_digest: str
    losses: tuple[float, ...]
    versions: dict[str, str]
    files: dict[str, int]


def folder_for(parent: str | os.PathLike[str], iteration: int) -> Path:
    """Where the checkpoint after so many iterations goes."""
    return Path(parent) / f"iteration-{iteration:06d}"


def prepare(folder: Path) -> None:
    """Make the folder, and no checkpoint of it, before its first tensors are written.

    Raises FileError where that cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / META).unlink(missing_ok=True)
        for old in folder.glob(TENSORS):
            old.unlink()
    except (OSError, ValueError) as error:
        raise FileError(f"checkpoint {folder}: cannot be written: {_reason(error)}") from None


def seal(checkpoint: Checkpoint) -> Path:
    """Once every stage's file is there: make the folder a checkpoint."""
    files = {path.name: path.stat().st_size for path in sorted(checkpoint.folder.glob(TENSORS))}
    sealed = replace(checkpoint, files=files)
    known = {f.name: getattr(sealed, f.name) for f in fields(sealed) if f.name != "folder"}
    data = dump(CheckpointFile(dtfm_checkpoint=1, **known))
    return write_text(checkpoint.folder / META, json.dumps(data, indent=1) + "\n")


def describe(folder: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint in this folder, or the newest whole one of those below it.

    Raises FileError where there is none.
    """
    folder = Path(folder)
    if (folder / META).is_file():
        return _read(folder)
    if not folder.is_dir():
        raise FileError(f"checkpoint {folder}: {'is a file' if folder.exists() else 'no such folder'}")
    if (newest := latest(folder)) is None:
        raise FileError(
            f"checkpoint {folder}: holds no whole checkpoint; wanted a {META}, or folders iteration-... that have one"
        )
    return newest


def latest(parent: str | os.PathLike[str]) -> Checkpoint | None:
    """The whole checkpoint of most iterations among a folder's; broken ones are passed over."""
    for folder in reversed(_sorted(Path(parent))):
        with contextlib.suppress(FileError):
            return _read(folder)
    return None


def prune(written: Sequence[Path], keep: int = KEPT) -> list[Path]:
    """Remove all but the last of the checkpoints that a run has written, oldest first; those that stay.

    Only files that checkpoints are made of: a folder with other things in it stays, with them. What cannot be
    removed stays.
    """
    cut = max(len(written) - keep, 0)
    for folder in written[:cut]:
        with contextlib.suppress(OSError):
            (folder / META).unlink(missing_ok=True)
            for file in folder.glob(TENSORS):
                file.unlink()
            folder.rmdir()
    return list(written[cut:])


def check_free(parent: str | os.PathLike[str], first_iteration: int) -> None:
    """Whether a run that begins after so many iterations may leave its checkpoints here.

    Raises FileError where later ones lie already, which would be taken for its own, or where this is no folder.
    """
    parent = Path(parent)
    if parent.exists() and not parent.is_dir():
        raise FileError(f"checkpoint_folder {parent}: is a file; wanted a folder, or a name that is free")
    later = [folder for folder in _sorted(parent) if int(folder.name.partition("-")[2]) > first_iteration]
    if later and (parent / later[-1] / META).is_file():
        wanted = "another folder, or to resume from it" if not first_iteration else "another folder"
        raise FileError(
            f"checkpoint_folder {parent}: holds {later[-1].name} of another run, this one begins after iteration "
            f"{first_iteration}; wanted {wanted}"
        )


def resumable(checkpoint: Checkpoint, job: Job, *, seed: int, learning_rate: float, corpus: Corpus) -> tuple[str, ...]:
    """What differs from the run that left the checkpoint, a sentence each; none: it goes on as if never interrupted.

    Another text, seed, batch, precision or rate is allowed, as people go on with a text of their own; another model
    is not, and raises LabError. The cut, placement and schedule are free: tensors are named by the whole model's
    layers. (To the bit, it goes on under the same cut and schedule only: those order the sums.)
    """
    found, wanted = checkpoint.model, job.modelled()
    if (found.layers, found.n_heads, found.tied) != (wanted.layers, wanted.n_heads, wanted.tied):
        raise LabError(
            f"checkpoint {checkpoint.folder}: is of model {_sizes(found)}; wanted that of this run, {_sizes(wanted)}"
        )
    was = checkpoint.job
    notes = [] if checkpoint.text_digest == corpus.digest else [f"text {checkpoint.text}, now {corpus.path}"]
    compared = {
        "seed": (checkpoint.seed, seed),
        "learning_rate": (checkpoint.learning_rate, learning_rate),
        "global_batch": (was.global_batch, job.global_batch),
        "dtype": (was.dtype, job.dtype),
        "synchronise_every": (was.synchronise_every, job.synchronise_every),
    }
    if was.synchronise_every > 1:
        compared["n_replicas"] = (was.n_replicas, job.n_replicas)
    notes += [f"{what} {before}, now {now}" for what, (before, now) in compared.items() if before != now]
    return tuple(f"checkpoint {checkpoint.folder} was trained with {note}" for note in notes)


def _sorted(parent: Path) -> list[Path]:
    """Folders that are named as checkpoints, by iteration; none where there is no such folder."""
    if not parent.exists():
        return []
    try:
        named = [(int(match[1]), path) for path in parent.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    except OSError as error:
        raise FileError(f"checkpoint {parent}: cannot be read: {_reason(error)}") from None
    return [path for _, path in sorted(named)]


def _read(folder: Path) -> Checkpoint:
    path = folder / META
    data = read_mapping(path)
    require_version(data, "dtfm_checkpoint", str(path))
    try:
        file = parse(CheckpointFile, data, str(path))
    except FileError:
        raise
    except LabError as error:
        raise FileError(f"{path}: {error}") from None
    if not file.files:
        raise FileError(f"checkpoint {folder}: names no files; wanted at least {TENSORS.replace('*', '0')}")
    for name, size in file.files.items():
        there = folder / name
        if Path(name).name != name or not there.is_file() or there.stat().st_size != size:
            found = f"has {there.stat().st_size} bytes" if there.is_file() else "is not there"
            raise FileError(f"checkpoint {folder}: {name} {found}; wanted {size} bytes")
    values = {name: getattr(file, name) for name in CheckpointFile.model_fields if name != "dtfm_checkpoint"}
    return Checkpoint(folder=folder, **values)


def _sizes(model: ModelSpec) -> str:
    tied = ", tied" if model.tied else ""
    return (
        f"{model.name} ({model.n_blocks} blocks, d_model {model.d_model}, {model.n_heads} heads, seq_len "
        f"{model.seq_len}, vocab_size {model.vocab_size}{tied})"
    )


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
