"""The one thread that touches the store: calls run there one after the other, in the order they came. Knows nothing of what they do."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class StoreThread:
    """Await `thread(call, …)` to run one store call; what it raises comes through."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def __call__(self, call: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Run one call after all that were handed in before it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args, **kwargs))

    def close(self) -> None:
        """Finish what was handed in, then end the thread."""
        self._pool.shutdown(wait=True)
