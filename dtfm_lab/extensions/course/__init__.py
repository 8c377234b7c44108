"""Lessons, missions with hints and worked answers, a reader's progress, and the exam."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="course",
    panes={"course": "dtfm_lab.widgets.course:course_step"},
)
