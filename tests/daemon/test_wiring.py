"""The whole daemon in one process, on a store that can be made to fail: what must not end ends it, and says what."""

import asyncio
from pathlib import Path

import pytest

from tests.daemon.test_round import BreakingStore
from tests.fakes.agent import running_agent
from watchtower.clock import SystemClock
from watchtower.config import load
from watchtower.daemon.parts import build
from watchtower.daemon.wiring import Daemon
from watchtower.store.database import StoreError
from watchtower.store.store import Store
from watchtower.web.port import bind


async def test_a_store_that_cannot_write_ends_the_daemon(tmp_path: Path) -> None:
    with running_agent() as agent:
        path = tmp_path / "watchtower.toml"
        path.write_text(
            f'[web]\nlisten = "127.0.0.1:0"\n[poll]\ninterval_s = 1\ntimeout_s = 0.5\ntargets = ["gpu-a={agent.target}"]\n'
        )
        parts = await build(load(path))
        store = BreakingStore(Store.open(tmp_path / "store")._db)
        ended: asyncio.Queue[tuple[str, BaseException | None]] = asyncio.Queue()
        daemon = Daemon(
            parts, store, clock=SystemClock(), fatal=lambda name, error: ended.put_nowait((name, error))
        )
        await daemon.start(bind(parts.config.web))
        store.broken = True
        async with asyncio.timeout(20):
            name, error = await ended.get()
        assert name == "round"
        assert isinstance(error, StoreError)
        with pytest.raises(StoreError):
            await daemon.stop()
        store.broken = False
        await daemon.stop()
