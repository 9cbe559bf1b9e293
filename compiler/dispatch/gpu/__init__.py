"""Schedules for work-groups: classes whose kernels differ on GPUs in more than numbers."""
