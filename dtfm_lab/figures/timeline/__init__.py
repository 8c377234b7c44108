"""Traces over time: Gantt charts, schedules under each other, idle time by cause, and memory."""
