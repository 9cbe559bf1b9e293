"""Schedules for one thread with vector registers, a file per kernel class."""
