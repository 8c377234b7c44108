"""The proxies of the runtime's tests are those of the probe, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime"))
