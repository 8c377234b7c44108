"""A reader's progress has the schema that the lab shows."""

from pathlib import Path

import pytest
from test_schemas import content, mistakes

from dtfm_lab.extensions.course.progress import Guess, Progress, progress_path, save_progress


def test_progress_has_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path))
    progress = Progress("ada", {}, [Guess("slow-link-cost", "How many seconds?", 3.0, 4.0, "s")])
    progress.of("slow-link").tries = 2
    save_progress(progress)
    assert mistakes("progress", content(progress_path("ada"))) == []
