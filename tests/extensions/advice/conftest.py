"""The loops of the widgets' tests are those of the pane, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "widgets"))
