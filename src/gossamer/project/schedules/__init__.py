"""Schedules: written, listed, run by hand; what the scheduler does with them is in schedule/."""
