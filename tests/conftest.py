"""What all tests share: the root of the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent
