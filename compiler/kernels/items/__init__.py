"""Schedules for groups of work items that share local memory, a file per kernel class.

No time was measured on a GPU for the numbers of this folder. Sizes of groups and tiles follow from
counts: flops a byte, registers that compilers for two GPUs report, bytes of local memory, banks,
loads under way (docs/design/0004-schedules-for-gpus.md has them). PoCL checks what they compute,
and says nothing of their speed: its items are iterations of loops of a CPU.
"""
