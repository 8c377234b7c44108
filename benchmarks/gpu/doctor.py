"""Step 1: what the lab's doctor says of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from figures import Figure, Setting


def measure(setting: Setting) -> Iterator[Figure]:
    """What torch, CuPy and the driver see, each in a process of its own; doctor.json has all of it but the paths."""
    command = [sys.executable, "-c", "from dtfm_lab.cli import main; main()", "doctor", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    facts = json.loads(answer.stdout)
    (setting.folder / "doctor.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for name in ("torch", "cupy"):
        seen = facts.get(name) or {}
        n_gpus = seen.get("gpus") or 0
        yield Figure(
            name=f"GPUs that {name} sees",
            value=float(n_gpus),
            goal="1 or more",
            met=n_gpus > 0,
            note=f"{seen.get('version', 'not installed')}, CUDA {seen.get('cuda')}, NCCL {seen.get('nccl')}",
        )
    compiles = bool((facts.get("cupy") or {}).get("compiles"))
    yield Figure(name="CuPy compiles", value="yes" if compiles else "no", goal="yes", met=compiles, note="NVRTC")
    for advice in facts["advice"]:
        yield Figure(name="advice", value=advice)
