"""Joins the rooms: builds the daemon from its parts, starts it in order, swaps what a reload changed, stops it in reverse. Judges and sends nothing itself."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from watchtower import __version__
from watchtower.clock import Clock
from watchtower.config import Config, judge_settings
from watchtower.daemon.answers import Answers
from watchtower.daemon.jobs import Jobs
from watchtower.daemon.parts import Parts
from watchtower.daemon.round import STALE_ROUNDS, Rounds
from watchtower.daemon.sender import Sender, Sent
from watchtower.daemon.store_thread import StoreThread
from watchtower.judge.step import Judge
from watchtower.metrics import Metrics
from watchtower.poller.ask import Asker
from watchtower.poller.schedule import PollSchedule
from watchtower.store.store import Store
from watchtower.web.access import Access
from watchtower.web.app import make_app
from watchtower.web.port import Port

_PRUNE_EVERY_S = 60.0
_TARGETS_EVERY_S = 5.0
_SETTLE_S = 3.0
# A send under way may take this long to end by itself; together with the rest this stays under lifecycle's own limit.
_DRAIN_S = 3.0


class Daemon:
    """A running watcher.

    Args:
        parts: everything that could fail to build; the daemon owns it from here on.
        store: open; closed by `stop`.
        clock: for every room.
        fatal: called when something ended that must not end, with its name and what it raised.
    """

    def __init__(
        self, parts: Parts, store: Store, *, clock: Clock, fatal: Callable[[str, BaseException | None], None]
    ) -> None:
        self._clock = clock
        self._fatal = fatal
        self._store = store
        self._in_store = StoreThread()
        self._parts = parts
        config = parts.config
        self.metrics = Metrics(CollectorRegistry(), version=__version__, instance=config.instance)
        self._judge = Judge(judge_settings(config))
        loaded = store.load()
        self.unreadable = self._judge.restore(
            memories=loaded.memories,
            incidents=loaded.incidents,
            judge_memory=loaded.judge_memory,
            now=clock.now(),
        )
        store.requeue_inflight(clock.now())
        self._asker = self._new_asker(parts)
        self._polls = self._new_polls(config, loaded.cursors)
        self._sender = self._new_sender(parts)
        self._rounds = Rounds(
            judge=self._judge,
            store=store,
            in_store=self._in_store,
            metrics=self.metrics,
            clock=clock,
            polls=self._polls,
            sender=self._sender,
            interval_s=config.poll.interval_s,
            sinks=_names(parts),
        )
        self._rounds.recall(loaded.views)
        self._answers = Answers(
            rounds=self._rounds,
            polls=self._polls,
            store=store,
            in_store=self._in_store,
            judge=self._judge,
            metrics=self.metrics,
            clock=clock,
            instance=config.instance,
        )
        self.metrics.show(self._answers.runs, self._answers.fresh)
        self._access = Access(config.web, parts.web_token)
        self._jobs = Jobs(self.metrics, fatal)
        self._port: Port | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, listener: Any) -> None:
        """Start everything; returns when it runs.

        Args:
            listener: a bound socket for the web port.
        """
        await self._aim()
        self._keep_sender()
        self._keep("polls", self._polls.run())
        self._keep("guard", self._guard())
        self._schedule(self._parts.config)
        self._jobs.start()
        self._port = Port(make_app(self._answers, self._access), listener)
        self._keep("web", self._port.serve())

    async def reload(self, parts: Parts) -> tuple[str, ...]:
        """Swap to new parts, all of which are built already; nothing here can fail.

        Returns:
            One sentence per setting that only a restart can change.
        """
        old, self._parts = self._parts, parts
        config = parts.config
        await self._drain()
        await self._drop("polls")
        old_asker = self._asker
        self._asker = self._new_asker(parts)
        self._polls.adopt(self._asker, config.poll.interval_s)
        await self._in_store(self._store.requeue_inflight, self._clock.now())
        self._sender = self._new_sender(parts)
        self._judge.reconfigure(judge_settings(config))
        self._rounds.sender = self._sender
        self._rounds.interval_s, self._rounds.sinks = config.poll.interval_s, _names(parts)
        self._answers.instance = config.instance
        self._access.adopt(config.web, parts.web_token)
        await self._aim()
        self._schedule(config)
        self._keep_sender()
        self._keep("polls", self._polls.run())
        await old_asker.aclose()
        await old.aclose()
        return tuple(_needs_restart(old.config, config))

    async def stop(self) -> None:
        """Stop in reverse of the start; what is known by then is written."""
        web = self._tasks.pop("web", None)  # its end is asked for here, and may come before we wait for it
        if self._port is not None:
            self._port.stop()
        self._jobs.pause()
        try:
            async with asyncio.timeout(_SETTLE_S):
                await self._rounds.idle.wait()
        except TimeoutError:
            pass  # the store is stuck; what that round held is asked for again at the next start
        self._jobs.stop()
        for name in ("guard", "polls"):
            await self._drop(name)
        await self._drain()
        if web is not None:
            await asyncio.wait({web}, timeout=_SETTLE_S)
        await self._rounds.save()
        self._in_store.close()
        self._store.close()
        await self._asker.aclose()
        await self._parts.aclose()

    def _schedule(self, config: Config) -> None:
        self._jobs.every(config.poll.interval_s, "round", self._rounds.run, essential=True)
        self._jobs.every(_PRUNE_EVERY_S, "prune", self._prune, essential=True)
        self._jobs.every(_TARGETS_EVERY_S, "targets", self._aim, essential=False)
        if config.deadman is not None:
            self._jobs.every(config.deadman.interval_s, "deadman", self._ping, essential=False)
        else:
            self._jobs.drop("deadman")

    async def _aim(self) -> None:
        """Ask those agents that the settings and target files name now."""
        targets, polls = self._parts.targets, self._polls
        agents = await asyncio.to_thread(targets.read)
        self.metrics.targets_broken.set(len(targets.broken))
        await polls.retarget(agents)
        self._judge.expect([agent.name for agent in agents])

    async def _prune(self) -> None:
        kept = self._parts.config.store
        await self._in_store(
            self._store.prune,
            self._clock.now(),
            samples_d=kept.keep_samples_days,
            history_d=kept.keep_history_days,
        )

    async def _ping(self) -> None:
        if self._parts.deadman is not None and self._rounds.last_at is not None:
            await self._parts.deadman.ping(self._answers.trouble())

    async def _guard(self) -> None:
        """Bring the jobs back when the wall clock was set back: they are due by it, and would wait as long as it moved."""
        while True:
            await self._clock.sleep(self._rounds.interval_s * STALE_ROUNDS)
            if self._rounds.stale_s() is not None and self._rounds.idle.is_set():
                self._jobs.rearm()

    def _new_asker(self, parts: Parts) -> Asker:
        return Asker(context=parts.context, timeout_s=parts.config.poll.timeout_s, token=parts.poll_token)

    def _new_polls(self, config: Config, cursors: dict[str, str]) -> PollSchedule:
        return PollSchedule(
            asker=self._asker,
            clock=self._clock,
            interval_s=config.poll.interval_s,
            on_poll=self.metrics.on_poll,
            cursors=cursors,
        )

    def _new_sender(self, parts: Parts) -> Sender:
        return Sender(
            parts.sinks,
            self._store,
            run_in_store=self._in_store,
            clock=self._clock,
            random=random.random,
            observe=self._sent,
        )

    def _sent(self, sent: Sent) -> None:
        self.metrics.deliveries.labels(sent.sink, sent.outcome.value).inc()

    def _keep_sender(self) -> None:
        if self._parts.sinks:  # without any, it would have nothing to do and end
            self._keep("sender", self._sender.run())

    def _keep(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task

        def ended(done: asyncio.Task[None]) -> None:
            # Whoever stops a task takes it out first; one that is still here ended by itself.
            if self._tasks.get(name) is done:
                self._fatal(name, None if done.cancelled() else done.exception())

        task.add_done_callback(ended)

    async def _drop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _drain(self) -> None:
        """Let sends under way end, or they would go out again, labelled as possible repeats; no longer than a few seconds."""
        task = self._tasks.pop("sender", None)
        if task is None:
            return
        self._sender.leave()
        await asyncio.wait({task}, timeout=_DRAIN_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _names(parts: Parts) -> tuple[str, ...]:
    return tuple(sink.name for sink in parts.sinks)


def _needs_restart(old: Config, new: Config) -> list[str]:
    changed = [
        ("web.listen", old.web.listen, new.web.listen),
        ("store.directory", old.store.directory, new.store.directory),
    ]
    return [f"{key} stays {before} until a restart" for key, before, after in changed if before != after]
