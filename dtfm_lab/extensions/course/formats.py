"""The file of a reader's progress, as a format with a JSON Schema."""

from dtfm_lab.extensions.course.progress import Progress
from dtfm_lab.lab.schemas import JSON, Format, schema_of

PROGRESS = Format(
    "What a reader of the course has done: tries, hints, answers, guesses.",
    JSON,
    "`lab.missions`",
    lambda: schema_of(Progress),
)
