"""The course: its lessons, missions whose winning condition is evaluated on the reader's own answer, and progress."""

from dtfm_lab.extensions.course import tasks
from dtfm_lab.extensions.course.mission import LESSONS, Given, Lesson, Mission, NotYet, Verdict, in_order, missions

__all__ = ["LESSONS", "Given", "Lesson", "Mission", "NotYet", "Verdict", "in_order", "missions", "tasks"]
