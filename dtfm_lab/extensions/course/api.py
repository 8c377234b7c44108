"""The course: its lessons, its missions, which check the reader's own answers, and the reader's progress."""

from dtfm_lab.extensions.course import tasks
from dtfm_lab.extensions.course.mission import LESSONS, Given, Lesson, Mission, NotYet, Verdict, in_order, missions

__all__ = ["LESSONS", "Given", "Lesson", "Mission", "NotYet", "Verdict", "in_order", "missions", "tasks"]
