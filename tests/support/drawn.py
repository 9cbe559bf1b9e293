"""How many examples drawn tests try: a few in every run, the same ones each time, so that a change
is judged by what it changes; INGOT_EXAMPLES times as many new ones in a long run
(`make test-peers`), which runs tests marked `long` too."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

__all__ = ["examples"]

TIMES = int(os.environ.get("INGOT_EXAMPLES", "1"))


def examples(count: int, **options: Any) -> settings:
    """Decorates a drawn test that tries so many examples in every run."""
    return settings(max_examples=count * TIMES, deadline=None, derandomize=TIMES == 1, **options)
