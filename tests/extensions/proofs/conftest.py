"""The small networks of the planning tests are those of the proofs, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "planning"))
