"""Lessons, missions with hints and worked answers, a reader's progress, and the exam."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="course",
    needs=("systems", "elasticity"),
    api={
        "missions": "dtfm_lab.extensions.course.missions",
        "guess": "dtfm_lab.extensions.course.missions:guess",
        "reveal": "dtfm_lab.extensions.course.missions:reveal",
    },
    figures={
        "gain": "dtfm_lab.extensions.course.figures:gain",
        "guesses": "dtfm_lab.extensions.course.figures:guesses",
    },
    commands={
        "export --slides": (
            "dtfm_lab.extensions.course.commands:slides_command",
            "Make slides of LESSON, such as 02_network, or of any notebook: one file, nothing from a network.",
        ),
        "lab --copy": (
            "dtfm_lab.extensions.course.commands:copy_notebooks",
            "Copy the lessons to FOLDER, and the pages that they link to FOLDER/docs.",
        ),
        "missions": ("dtfm_lab.extensions.course.commands:missions_group", ""),
        "show missions": (
            "dtfm_lab.extensions.course.commands:show_missions",
            "Show the board of the course: every mission, and what you have done.",
        ),
    },
    panes={"course": "dtfm_lab.extensions.course.pane:course_step"},
    views={"GuessView": "dtfm_lab.extensions.course.views.guess:GuessView"},
    formats={"progress": "dtfm_lab.extensions.course.formats:PROGRESS"},
)
