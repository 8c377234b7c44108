"""Generates text in a new process, because this one never loads torch."""

import importlib.util
import json
import os
import subprocess
import sys

from dtfm_lab.domain.errors import LabError, MissingExtra, RunError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import Option
from dtfm_lab.runtime.protocol.checkpoint_folders import describe

N_BYTES = Option(name="n_bytes", help="Length of the text.", unit="bytes", type=int, least=1, most=100_000)
SEED = Option(name="seed", help="Seed of the random bytes.", type=int, most=2**63 - 1)
TEMPERATURE = Option(name="temperature", help="0 takes the likeliest byte.", type=float, least=0)


def write(
    checkpoint: str | os.PathLike[str], prompt: str = "", n_bytes: int = 200, *, seed: int = 0, temperature: float = 0.8
) -> str:
    """Return text that a checkpoint's model generates after a prompt; of several checkpoints, that of most iterations.

    Parameters
    ----------
    temperature
        1 draws each byte with the model's probability, less prefers the likelier bytes, 0 takes the likeliest.

    Raises
    ------
    FileError
        No whole checkpoint is there.
    LabError
        A count, seed or temperature is out of range.
    MissingExtra
        torch is not installed.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        raise LabError(f"checkpoint is {shortened(checkpoint)}; wanted a folder's path")
    describe(checkpoint)
    if not isinstance(prompt, str):
        raise LabError(f"prompt is {shortened(prompt)}; wanted text")
    order = {
        "folder": os.fspath(checkpoint),
        "prompt": prompt,
        "n_bytes": N_BYTES.checked(n_bytes),
        "seed": SEED.checked(seed),
        "temperature": TEMPERATURE.checked(temperature),
    }
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("writing needs torch, which is not installed: pip install 'dtfm_lab[train]'")
    command = [sys.executable, "-m", "dtfm_lab.runtime.worker.generation"]
    done = subprocess.run(command, input=json.dumps(order) + "\n", capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        raise RunError(f"the writing process ended with status {done.returncode}: {last}") from None
    if "error" in answer:
        raise LabError(answer["error"])
    return str(answer["text"])
