"""Where a run on hosts begins: at the newest checkpoint in its folder, if it was there before."""

import os
from dataclasses import replace
from pathlib import Path

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.run_spec import RunSpec


def resumed(spec: RunSpec) -> RunSpec:
    """Return the spec of the iterations that are left. Raises LabError for a checkpoint of another run."""
    if spec.checkpoint_folder is None:
        return spec
    folder = Path(spec.checkpoint_folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"checkpoint_folder {folder}: cannot be made: {error.strerror or error}") from None
    if (newest := checkpoint_folders.latest(folder)) is None or newest.iteration <= spec.first_iteration:
        return spec
    corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len)
    notes = checkpoint_folders.resumable(
        newest, spec.trained, seed=spec.seed, learning_rate=spec.learning_rate, corpus=corpus
    )
    if notes:
        raise LabError(f"checkpoint_folder {folder} is of another run: {notes[0]}; wanted another folder")
    last = spec.first_iteration + spec.iterations
    if newest.iteration >= last:
        raise LabError(
            f"checkpoint_folder {folder} holds iteration {newest.iteration}, and the run ends with {last}; wanted more "
            f"iterations, or another folder"
        )
    left = last - newest.iteration
    return replace(spec, resume_from=os.fspath(newest.folder), first_iteration=newest.iteration, iterations=left)
