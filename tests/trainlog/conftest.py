"""Finds the real logs that lie beside the checkout; tests that want them skip, named, where they are absent."""

from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def traces() -> Path:
    if not _SHARED.is_dir():
        pytest.skip("../shared/traces is absent")
    return _SHARED
