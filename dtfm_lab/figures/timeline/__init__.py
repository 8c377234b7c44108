"""Traces over time: Gantt charts, idle time by cause, and memory."""
