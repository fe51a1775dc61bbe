"""Every Prometheus series of the daemon, in one place, in the registry it is handed. Measures nothing itself.

Rules of this file: prefix `watchtower_`, base units, `_total` for counters, no error text in labels, runs as labels only in
the collector below (so that a run that has left leaves no stale series), ranks not at all. docs/metrics.md lists every name.
"""

import platform
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from watchtower.model import RunState, RunView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_POLL_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROUND_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """The daemon's series; whoever does a thing counts it here.

    Args:
        registry: where the series live; never the global one, so that tests and reloads start from nothing.
        version: of watchtower, for the build series.
        instance: this watcher's name in the settings.
    """

    def __init__(self, registry: CollectorRegistry, *, version: str, instance: str) -> None:
        self._registry = registry
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        build = Gauge(
            "watchtower_build_info",
            "Which watchtower this is; always 1.",
            ["version", "python", "instance"],
            registry=registry,
        )
        build.labels(version, platform.python_version(), instance).set(1)
        self.polls = Counter(
            "watchtower_polls",
            "Questions to agents, by what became of them: ok, or why there is no answer.",
            ["outcome"],
            registry=registry,
        )
        self.poll_seconds = Histogram(
            "watchtower_poll_seconds",
            "Time from asking an agent to its whole answer, or to giving up.",
            buckets=_POLL_BUCKETS_S,
            registry=registry,
        )
        self.rounds = Counter("watchtower_rounds", "Rounds judged and recorded.", registry=registry)
        self.round_seconds = Histogram(
            "watchtower_round_seconds",
            "Time to judge and record one round.",
            buckets=_ROUND_BUCKETS_S,
            registry=registry,
        )
        self.last_round = Gauge(
            "watchtower_last_round_timestamp_seconds",
            "When the newest round was recorded; older than three intervals means that nobody is looking.",
            registry=registry,
        )
        self.rounds_late = Counter(
            "watchtower_rounds_late",
            "Rounds that came more than three intervals after the one before: a suspended or overloaded machine.",
            registry=registry,
        )
        self.judge_troubles = Counter(
            "watchtower_judge_troubles",
            "Judgements of one run that failed inside watchtower (our bug; the log has the traceback).",
            registry=registry,
        )
        self.notices = Counter(
            "watchtower_notices",
            "Things that had to be told, by what they do to their incident and how severe it is.",
            ["action", "severity"],
            registry=registry,
        )
        self.deliveries = Counter(
            "watchtower_deliveries",
            "Tries to hand a message to a sink, by what became of them.",
            ["sink", "outcome"],
            registry=registry,
        )
        self.outbox_oldest = Gauge(
            "watchtower_outbox_oldest_age_seconds",
            "Age of the oldest message that no provider has taken yet; 0 when nothing is owed.",
            registry=registry,
        )
        self.outbox_stranded = Gauge(
            "watchtower_outbox_stranded_messages",
            "Messages owed to sinks that the settings no longer name; they wait until such a sink is back.",
            registry=registry,
        )
        self.job_errors = Counter(
            "watchtower_job_errors",
            "Periodic jobs that failed, were skipped or came late, by job.",
            ["job", "outcome"],
            registry=registry,
        )
        self.reloads = Counter(
            "watchtower_reloads", "Reloads of the settings, by outcome.", ["outcome"], registry=registry
        )
        self.config_ok = Gauge(
            "watchtower_config_last_reload_successful",
            "1 when the settings in use are those on disk at the newest start or reload, 0 when that reload failed.",
            registry=registry,
        )
        self.config_ok.set(1)
        self.targets_broken = Gauge(
            "watchtower_target_files_broken",
            "Target files that cannot be read now and of which older contents are used.",
            registry=registry,
        )

    def on_poll(self, outcome: str, seconds: float) -> None:
        """Count one poll."""
        self.polls.labels(outcome).inc()
        self.poll_seconds.observe(seconds)

    def show(self, runs: Callable[[], Sequence[RunView]], agents: Callable[[], tuple[int, int]]) -> None:
        """Add the series that are read at scrape time.

        Args:
            runs: the newest round's views.
            agents: how many agents are asked, and how many of them answered lately.
        """
        self._registry.register(_Live(runs, agents))

    def expose(self) -> bytes:
        """Write all series in Prometheus text format."""
        return generate_latest(self._registry)


class _Live(Collector):
    """What is true now, written at each scrape."""

    def __init__(self, runs: Callable[[], Sequence[RunView]], agents: Callable[[], tuple[int, int]]) -> None:
        self._runs = runs
        self._agents = agents

    def describe(self) -> Iterator[Metric]:
        """Name no series ahead: they are known only at a scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Write agents, runs by state, and a few aggregates of each run."""
        asked, fresh = self._agents()
        yield GaugeMetricFamily("watchtower_agents", "Agents that are asked.", value=asked)
        yield GaugeMetricFamily(
            "watchtower_agents_fresh", "Agents that answered within three intervals.", value=fresh
        )
        runs = self._runs()
        by_state = GaugeMetricFamily("watchtower_runs", "Runs by state.", labels=["state"])
        for state in RunState:
            by_state.add_metric([state.value], sum(run.state is state for run in runs))
        yield by_state
        for name, text, value in _PER_RUN:
            family = GaugeMetricFamily(name, text, labels=["run"])
            for run in runs:
                known = value(run)
                if known is not None:
                    family.add_metric([run.run_id], known)
            yield family
        states = GaugeMetricFamily(
            "watchtower_run_state", "1 for the state that a run is in.", labels=["run", "state"]
        )
        for run in runs:
            states.add_metric([run.run_id, run.state.value], 1)
        yield states


_PER_RUN: tuple[tuple[str, str, Callable[[RunView], float | None]], ...] = (
    ("watchtower_run_step", "Completed optimizer steps.", lambda run: run.step),
    ("watchtower_run_total_steps", "Steps that the run wants to do.", lambda run: run.total_steps),
    (
        "watchtower_run_last_step_timestamp_seconds",
        "When the newest step was completed.",
        lambda run: run.step_at,
    ),
    (
        "watchtower_run_step_time_seconds",
        "The run's usual time between two steps.",
        lambda run: run.step_time_s,
    ),
    (
        "watchtower_run_power_share_ratio",
        "Mean board power of the ranks over their own working power.",
        lambda run: run.power_share,
    ),
    (
        "watchtower_run_state_since_timestamp_seconds",
        "When the state that the run is in began, as far as can be told.",
        lambda run: run.since,
    ),
    (
        "watchtower_run_last_checkpoint_timestamp_seconds",
        "When the newest checkpoint was saved.",
        lambda run: run.last_checkpoint_at,
    ),
    ("watchtower_run_ranks", "Ranks that the run has.", lambda run: run.world_size),
    (
        "watchtower_run_nodes_unseen",
        "Nodes of the run that nothing fresh is known of.",
        lambda run: len(run.nodes_unseen),
    ),
)
