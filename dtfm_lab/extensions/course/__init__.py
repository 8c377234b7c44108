"""Lessons, missions with hints and worked answers, a reader's progress, and the exam."""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(
    name="course",
    needs=("systems", "elasticity"),
    api={"missions": "dtfm_lab.lab.missions", "guess": "dtfm_lab.lab.missions:guess"},
    figures={"guesses": "dtfm_lab.figures.results.guesses:guesses"},
    commands={
        "export --slides": (
            "dtfm_lab.cli.course:slides_command",
            "Make slides of LESSON, such as 02_network, or of any notebook: a slide a heading, guesses before answers.",
        ),
        "lab --copy": (
            "dtfm_lab.cli.course:copy_notebooks",
            "Copy the lessons to FOLDER, and the pages that they link to FOLDER/docs.",
        ),
        "missions": ("dtfm_lab.cli.course:missions_group", ""),
        "show missions": (
            "dtfm_lab.cli.course:show_missions",
            "Show the board of the course: every mission, and what you have done.",
        ),
    },
    panes={"course": "dtfm_lab.widgets.course:course_step"},
    views={"GuessView": "dtfm_lab.widgets.views.guess:GuessView"},
    formats={"progress": "dtfm_lab.extensions.course.formats:PROGRESS"},
)
