"""Async tests here run on asyncio, as the daemon does."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
