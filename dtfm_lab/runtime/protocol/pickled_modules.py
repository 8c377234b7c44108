"""Where modules of one's own lie that a notebook has handed over: the only pickles that a process of a run reads."""

from pathlib import Path

from platformdirs import user_state_path

SUFFIX = ".pickle"


def modules_folder() -> Path:
    """Readable and writable by its owner alone."""
    return Path(user_state_path("dtfm_lab")) / "modules"
