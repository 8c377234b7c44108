"""Folders of checkpoints, without their tensors: which are complete, what they hold, which may be removed.

``parent/iteration-000010/`` holds the stages' tensors (written by ``worker.checkpoint_tensors``) and
``checkpoint.json``, which is written last. A folder without it is not a complete checkpoint. Neither is one whose files
differ from it in length or SHA-256 digest.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import create_model

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.domain.units import counted
from dtfm_lab.files.reading import (
    UNREADABLE,
    Section,
    dump,
    explained,
    parse,
    read_mapping,
    require_version,
    write_text,
)
from dtfm_lab.runtime.protocol.run_options import RUN_DTYPES, RunSpec

META = "checkpoint.json"
TENSORS = "stage-*.safetensors"
KEPT = 2
"""Number of a run's checkpoints that are kept: the newest, and the one before it in case the newest is broken."""
_FOLDER = re.compile(r"iteration-(\d{6,})")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The content of a folder of parameters and optimizer states. All fields except the folder are in its file."""

    folder: Path
    iteration: int
    """Number of iterations done."""
    job: Job
    """The job that was trained. If the run used a smaller substitute model (``stand_in``), the job has that model and
    its precision."""
    seed: int
    learning_rate: float
    text: str
    """Name of the training text file."""
    text_digest: str
    losses: tuple[float, ...] = ()
    """Mean training loss of each iteration from the first, including those before a resumed checkpoint."""
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    """File name -> length in bytes. ``seal`` fills it in."""
    sha256: dict[str, str] = field(default_factory=dict, compare=False)
    """File name -> SHA-256 of its content in hexadecimal. The entry of ``checkpoint.json`` covers all its other values.
    ``seal`` fills it in. Earlier versions wrote none."""

    @property
    def model(self) -> ModelSpec:
        return self.job.modelled()


class CheckpointHead(Section):
    """The keys of ``checkpoint.json`` that are checked when it is read. The others are the fields of Checkpoint."""

    dtfm_checkpoint: int
    files: dict[str, int]


_FIELDS: dict[str, Any] = {name: (kind, ...) for name, kind in get_type_hints(Checkpoint).items() if name != "folder"}
_FIELDS["sha256"] = (dict[str, str], {})
CheckpointFile = create_model("CheckpointFile", __base__=CheckpointHead, **_FIELDS)


def folder_for(parent: str | os.PathLike[str], iteration: int) -> Path:
    """Return the folder of the checkpoint after ``iteration`` iterations."""
    return Path(parent) / f"iteration-{iteration:06d}"


def prepare(folder: Path) -> None:
    """Create the folder, and remove any earlier checkpoint in it, before its first tensors are written. Raises
    FileError."""
    with explained(f"checkpoint {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        # the description first: without it, the other files are not a checkpoint
        (folder / META).unlink(missing_ok=True)
        for old in folder.glob(TENSORS):
            old.unlink()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(checkpoint: Checkpoint, digests: Mapping[str, str] | None = None) -> Path:
    """Make the folder a checkpoint, once every stage's file is there. Return the path of its description.

    ``digests``: file name -> SHA-256, for files whose writer computed it. Other files are read here. Raises
    FileError.
    """
    known = digests or {}
    with explained(f"checkpoint {checkpoint.folder}"):
        paths = sorted(checkpoint.folder.glob(TENSORS))
        files = {path.name: path.stat().st_size for path in paths}
        sha256 = {path.name: known.get(path.name) or digest_of(path) for path in paths}
    if not files:
        # A folder that was deleted during the run.
        raise FileError(f"checkpoint {checkpoint.folder}: cannot be written: its files are gone")
    sealed = replace(checkpoint, files=files, sha256=sha256)
    data = dump(CheckpointFile(dtfm_checkpoint=1, **{name: getattr(sealed, name) for name in _FIELDS}))
    # The description is checked by its own digest, which cannot be part of what it covers.
    data["sha256"][META] = _digest_of_values(data)
    return write_text(checkpoint.folder / META, json.dumps(data, indent=1) + "\n")


def describe(folder: str | os.PathLike[str]) -> Checkpoint:
    """Return the checkpoint in this folder, or the newest complete one below it whose contents are unchanged. Raises
    FileError."""
    return newest_whole(folder)[0]


def newest_whole(folder: str | os.PathLike[str]) -> tuple[Checkpoint, list[str]]:
    """Return what ``describe`` returns, and a sentence for each newer checkpoint below the folder that is damaged.

    Raises FileError.
    """
    folder = Path(folder)
    if (folder / META).is_file():
        return read(folder), []
    if not folder.is_dir():
        raise FileError(f"checkpoint {folder}: {'is a file' if folder.exists() else 'no such folder'}")
    damaged: list[str] = []
    newest = latest(folder, damaged.append)
    if newest is None:
        found = f" ({damaged[0]})" if damaged else ""
        raise FileError(
            f"checkpoint {folder}: holds no whole checkpoint{found}; wanted a {META}, or folders iteration-... that "
            "have one"
        )
    return newest, [f"{why}; {newest.folder.name} is used instead" for why in damaged]


def latest(parent: str | os.PathLike[str], on_damaged: Callable[[str], object] = lambda why: None) -> Checkpoint | None:
    """Return the complete checkpoint with the most iterations below a folder; None without one.

    ``on_damaged`` is called with the reason why each newer one is skipped. Folders without a description were never
    finished and are skipped silently.
    """
    folders: list[Path] = []
    # A run that writes here meanwhile may finish a newer checkpoint and remove the last whole one of this list.
    while folders != (folders := _sorted(Path(parent))):
        for folder in reversed(folders):
            try:
                return read(folder)
            except FileError as error:
                if (folder / META).exists():
                    on_damaged(str(error))
    return None


def prune(written: Sequence[Path], keep: int = KEPT) -> list[Path]:
    """Remove all except the last ``keep`` of a run's checkpoints, which are given oldest first. Return these last ones.

    Only checkpoint files are removed. A folder that holds other files is kept with them, and so is what cannot be
    removed.
    """
    cut = max(len(written) - keep, 0)
    for folder in written[:cut]:
        with contextlib.suppress(OSError):
            # the description first, so that a half-removed checkpoint is not mistaken for a whole one
            (folder / META).unlink(missing_ok=True)
            for file in folder.glob(TENSORS):
                file.unlink()
            folder.rmdir()
    return list(written[cut:])


def check_free(parent: str | os.PathLike[str], first_iteration: int) -> None:
    """Raise FileError if a run that begins after ``first_iteration`` iterations must not write its checkpoints here.

    The folder must not hold later checkpoints, which would be mistaken for the run's own.
    """
    parent = Path(parent)
    later = [folder for folder in _sorted(parent) if int(folder.name.partition("-")[2]) > first_iteration]
    if later and (parent / later[-1] / META).is_file():
        wanted = "another folder, or to resume from it" if not first_iteration else "another folder"
        raise FileError(
            f"checkpoint_folder {parent}: holds {later[-1].name} of another run, this one begins after iteration "
            f"{first_iteration}; wanted {wanted}"
        )


COMPARED = ("global_batch", "dtype", "synchronise_every", "fragments", "fragment_delay")
"""Fields of a job that may differ when a run is continued. The user gets a warning for each that does."""


def resumable(checkpoint: Checkpoint, spec: RunSpec) -> tuple[str, ...]:
    """Return how a run differs from the one that wrote the checkpoint, one sentence each; empty if it does not.

    Another text, seed, batch, precision or rate is allowed, so that users can continue with their own text. Another
    model is not, and raises LabError. The division into stages, the placement and the schedule may differ, because
    tensors are named by the whole model's layers. Only the same stages and schedule, which order the sums, continue bit
    for bit.
    """
    job = spec.trained
    found, wanted = checkpoint.model, job.modelled()
    if (found.layers, found.n_heads, found.tied) != (wanted.layers, wanted.n_heads, wanted.tied):
        raise LabError(
            f"checkpoint {checkpoint.folder}: is of model {_sizes(found)}; wanted that of this run, {_sizes(wanted)}"
        )
    was = checkpoint.job
    notes = [] if checkpoint.text_digest == spec.corpus.digest else [f"text {checkpoint.text}, now {spec.corpus.path}"]
    compared = {
        "seed": (checkpoint.seed, spec.seed),
        "learning_rate": (checkpoint.learning_rate, spec.learning_rate),
        **{name: (getattr(was, name), getattr(job, name)) for name in COMPARED},
    }
    if was.synchronise_every > 1:
        compared["n_replicas"] = (was.n_replicas, job.n_replicas)
        if was.n_replicas == job.n_replicas:  # averages are weighted by the shares
            compared["sequences per replica"] = _shares(was), _shares(job)
    notes += [f"{what} {before}, now {now}" for what, (before, now) in compared.items() if before != now]
    return tuple(f"checkpoint {checkpoint.folder} was trained with {note}" for note in notes)


def _sorted(parent: Path) -> list[Path]:
    """Return the folders that are named like checkpoints, by iteration; empty if the parent does not exist."""
    if not parent.exists():
        return []
    with explained(f"checkpoint {parent}", UNREADABLE):
        named = [(int(match[1]), path) for path in parent.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    return [path for _, path in sorted(named)]


def read(folder: Path, *, contents: bool = True) -> Checkpoint:
    """Return the checkpoint in a folder. Raises FileError if it is missing or damaged, or if workers cannot train in
    its precision.

    The contents of its files are compared with their digests. ``contents=False`` skips that for the tensors, which
    saves reading them.
    """
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
        # a name with a folder in it would lead outside
        if Path(name).name != name or not there.is_file() or there.stat().st_size != size:
            found = f"has {there.stat().st_size} bytes" if there.is_file() else "is not there"
            raise FileError(f"checkpoint {folder}: {name} {found}; wanted {size} bytes")
    checkpoint = Checkpoint(folder=folder, **{name: getattr(file, name) for name in _FIELDS})
    if (dtype := checkpoint.job.dtype) not in RUN_DTYPES:
        wanted = " or ".join(RUN_DTYPES)
        raise FileError(f"checkpoint {folder}: was trained in {dtype}, which workers do not; wanted {wanted}")
    digests = {name: digest for name, digest in checkpoint.sha256.items() if contents or name == META}
    for name, digest in digests.items():
        with explained(f"checkpoint {folder}", UNREADABLE):
            found = _digest_of_values(data) if name == META else digest_of(folder / Path(name).name)
        if found != digest:
            raise FileError(f"checkpoint {folder}: {name} is damaged: its SHA-256 is not the one that was written")
    return checkpoint


def _digest_of_values(data: dict[str, Any]) -> str:
    """Return the SHA-256 of all values of a description except this digest, independent of order and layout."""
    others = data | {"sha256": {name: digest for name, digest in data["sha256"].items() if name != META}}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def _shares(job: Job) -> list[int]:
    return [count * (job.microbatch or 1) for count in job.microbatch_counts]


def _sizes(model: ModelSpec) -> str:
    tied = ", tied" if model.tied else ""
    return (
        f"{model.name} ({counted(model.n_blocks, 'block')}, d_model {model.d_model}, "
        f"{counted(model.n_heads, 'head')}, seq_len {model.seq_len}, vocab_size {model.vocab_size}{tied})"
    )


def resumed(spec: RunSpec) -> RunSpec:
    """Return the spec that continues after the newest checkpoint in the run's own checkpoint folder.

    Without such a checkpoint, the spec is unchanged, except for notes on damaged ones. Raises LabError if the
    checkpoint is of another run, or if no iteration is left.
    """
    if spec.checkpoint_folder is None:
        return spec
    folder = Path(spec.checkpoint_folder)
    with explained(f"checkpoint_folder {folder}", "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    damaged: list[str] = []
    newest = latest(folder, damaged.append)
    spec = replace(spec, notes=(*spec.notes, *(f"{why}; an earlier state is used instead" for why in damaged)))
    # The run begins later than that, so there is nothing to resume.
    if newest is None or newest.iteration <= spec.first_iteration:
        return spec
    if notes := resumable(newest, spec):
        raise LabError(f"checkpoint_folder {folder} is of another run: {notes[0]}; wanted another folder")
    last = spec.first_iteration + spec.iterations
    if newest.iteration >= last:
        raise LabError(
            f"checkpoint_folder {folder} holds iteration {newest.iteration}, and the run ends with {last}; wanted more "
            f"iterations, or another folder"
        )
    left = last - newest.iteration
    return replace(spec, resume_from=os.fspath(newest.folder), first_iteration=newest.iteration, iterations=left)
