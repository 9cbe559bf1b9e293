"""Schedules for groups of work items that share local memory, a file per kernel class."""
