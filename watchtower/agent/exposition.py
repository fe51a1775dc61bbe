"""Says in Prometheus' words how the agent and its node are: few series, none per board or process. Loaded only when asked.

Own registry, own collector: the values are taken from memory at the moment of the question.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from watchtower import wire
from watchtower.model import GpuState, NvmlState


class Figures(Protocol):
    """Where the numbers come from."""

    @property
    def version(self) -> str:
        """Of the agent."""
        ...

    def nvml(self) -> wire.Nvml:
        """How NVML is."""
        ...

    def gpus(self) -> tuple[wire.Gpu, ...]:
        """Every board, without samples."""
        ...

    def ranks(self) -> int:
        """Training processes seen."""
        ...

    def sample_age_s(self) -> float | None:
        """Seconds since the last sweep."""
        ...

    def sampler_starts(self) -> int:
        """How often a sampling process was started."""
        ...

    def samplers_stuck(self) -> int:
        """Sampling processes that no signal ends."""
        ...


class Exposition:
    """Everything at /metrics."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """The series as Prometheus reads them."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at every scrape."""
        figures = self._figures
        nvml = figures.nvml()
        info = {"version": figures.version, "driver_version": nvml.driver_version or ""}
        yield InfoMetricFamily("watchtower_agent", "What runs here.", value=info)

        states = Counter(gpu.state for gpu in figures.gpus())
        gpus = GaugeMetricFamily("watchtower_agent_gpus", "GPUs by state.", labels=["state"])
        for state in GpuState:
            gpus.add_metric([state.value], states[state.value])
        yield gpus

        how = GaugeMetricFamily("watchtower_agent_nvml_state", "1 for how NVML is now.", labels=["state"])
        for word in NvmlState:
            how.add_metric([word.value], float(word == nvml.state))
        yield how

        age_s = figures.sample_age_s()
        if age_s is not None:
            yield GaugeMetricFamily(
                "watchtower_agent_sample_age_seconds", "Time since the GPUs were last read.", value=age_s
            )
        yield GaugeMetricFamily(
            "watchtower_agent_ranks", "Training processes seen on this node.", value=figures.ranks()
        )
        yield CounterMetricFamily(
            "watchtower_agent_nvml_child_starts",
            "Sampling processes started; more than one means that NVML had to be taken up anew.",
            value=figures.sampler_starts(),
        )
        yield GaugeMetricFamily(
            "watchtower_agent_nvml_children_stuck",
            "Sampling processes that no signal ends.",
            value=figures.samplers_stuck(),
        )
