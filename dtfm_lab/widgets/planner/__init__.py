"""The step Plan: the job, searches, races between planners, and replanning after an edit."""
