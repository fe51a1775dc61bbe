"""The founding incident as a function of time: what sixteen B300s and their trainer show at any second. Starts nothing, reads no clock, uses no randomness.

Two nodes fine-tune a 32B model on eight GPUs each. At step 3850 of 3857 rank 3 has run out of data and enters the barrier
of the last checkpoint, while the others still compute towards an all-reduce that it will never join. From then on every
board shows 100 % utilization and draws a quarter of its working power, for hours, and nothing says a word.

The default story runs at about one second a step, so that it can be watched. The real one took 4.7 s: `head_start_s`, the
seconds by which rank 3 stops before the others, is kept as it was and therefore spans several steps of the quick one.
"""

import math
import zlib

import msgspec

MODEL = "NVIDIA B300 SXM6 AC"
DRIVER_VERSION = "580.95.05"
POWER_LIMIT_W = 1100.0
MEMORY_TOTAL_MIB = 275_040

# Source: measured B300 training runs draw 600-970 W over one step with means near 0.8-0.95 of the limit; no public figure
# exists for a B300 that spins, so the level is scaled from the GB200's reported 232-280 W of 1200 W.
_TROUGH_W = 610.0
_PEAK_W = 965.0
_SPIN_W = 250.0
_SPIN_SPREAD_W = 17.0
_WORKING_CLOCK_MHZ = 1935
_SPIN_CLOCK_MHZ = 1950  # clocks stay high in a deadlock
_WORKING_TEMPERATURE_C = 57.0
_SPIN_TEMPERATURE_C = 42.0
_COOLING_S = 40.0


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """How one telling of the incident goes; all times are seconds since its beginning, where the run is well under way."""

    run_id: str = "torchrun-qwen3-32b-sft"
    run_name: str | None = None
    nodes: tuple[str, ...] = ("gpu-a", "gpu-b")
    gpus_per_node: int = 8
    first_step: int = 3790  # completed at the beginning
    last_step: int = 3850  # the last that is ever completed
    total_steps: int = 3857
    step_s: float = (
        1.13  # not a whole second, or reading once a second would always see the same moment of a step
    )
    tokens_per_step: int = 55_000
    save_step: int = 3810  # a checkpoint of this step is saved, healthily
    save_s: float = 4.0
    culprit: int = 3
    head_start_s: float = 6.0  # the culprit stops this long before the others
    barrier_after_s: float = 0.5  # from the last step to the culprit's arrival at the barrier

    @property
    def world_size(self) -> int:
        """Ranks of the run, one to a GPU."""
        return len(self.nodes) * self.gpus_per_node

    @property
    def last_step_at(self) -> float:
        """When the last step was completed."""
        return self.step_done_at(self.last_step)

    @property
    def onset_at(self) -> float:
        """When the culprit stops working: the deadlock cannot be escaped from here on."""
        return self.last_step_at + self.barrier_after_s

    @property
    def stuck_at(self) -> float:
        """When the last rank has stopped working."""
        return self.onset_at + self.head_start_s

    def stops_at(self, rank: int) -> float:
        """When this rank stops working and begins to spin; the others follow within a tenth of a second of each other."""
        if rank == self.culprit:
            return self.onset_at
        return self.stuck_at - 0.1 * _noise(rank, 0, 0)

    def step_done_at(self, step: int) -> float:
        """When this step was, or would have been, completed: every `step_s`, give or take 8 %, and later by a save."""
        even = (step - self.first_step) * self.step_s
        uneven = 0.08 * self.step_s * (_noise(step, 0, 1) - 0.5) if step > self.first_step else 0.0
        return even + uneven + (self.save_s if step > self.save_step else 0.0)

    def step_at(self, t: float) -> int:
        """Completed steps at `t`; never more than `last_step`."""
        guess = self.first_step + int(t / self.step_s) + 1
        while guess > self.first_step and self.step_done_at(guess) > t:
            guess -= 1
        return min(max(guess, self.first_step), self.last_step)

    def saves_at(self, t: float) -> bool:
        """Whether the healthy checkpoint is being written at `t`."""
        begins = self.step_done_at(self.save_step)
        return begins <= t < begins + self.save_s


class Showing(msgspec.Struct, frozen=True):
    """What NVML shows of one board at one moment."""

    board_power_w: float
    util_pct: int
    mem_util_pct: int
    sm_clock_mhz: int
    temperature_c: int
    memory_used_mib: int


def showing(story: Story, rank: int, t: float) -> Showing:
    """What the board of `rank` shows `t` seconds into the story.

    Returns:
        Working: 600-970 W in the saw-tooth of a step. Saving: rank 0 idles at the host's pace while the others spin for it.
        Stuck: 100 % utilization, no memory traffic, a flat 230-270 W and a board that cools.
    """
    memory_mib = 231_000 + 17 * rank
    stops = story.stops_at(rank)
    if t >= stops:
        cooling = math.exp(-(t - stops) / _COOLING_S)
        temperature = _SPIN_TEMPERATURE_C + (_WORKING_TEMPERATURE_C - _SPIN_TEMPERATURE_C) * cooling
        return Showing(_spin_w(rank, t), 100, 0, _SPIN_CLOCK_MHZ, round(temperature + rank % 3), memory_mib)
    warmth = round(_WORKING_TEMPERATURE_C + rank % 3)
    if story.saves_at(t):
        if rank == 0:
            return Showing(
                _spin_w(rank, t) - 40, 0, 0, _WORKING_CLOCK_MHZ, round(_WORKING_TEMPERATURE_C), memory_mib
            )
        return Showing(_spin_w(rank, t), 100, 0, _SPIN_CLOCK_MHZ, warmth, memory_mib)
    noise = _noise(rank, int(t * 10), 2)
    utilization = 99 if noise < 0.15 else 100
    memory_utilization = 45 + round(25 * _noise(rank, int(t * 10), 3))
    clock_mhz = _WORKING_CLOCK_MHZ + (15 if noise > 0.5 else 0)
    return Showing(_working_w(story, rank, t), utilization, memory_utilization, clock_mhz, warmth, memory_mib)


def _working_w(story: Story, rank: int, t: float) -> float:
    """A saw-tooth per step: falls to its trough while gradients are exchanged, and climbs from there."""
    done = story.step_at(t)
    begun = story.step_done_at(done) + (story.save_s if done == story.save_step else 0.0)
    into_step = max(0.0, (t - begun) / story.step_s) % 1.0
    tooth = min(1.0, into_step / 0.55) if into_step < 0.85 else (1.0 - into_step) / 0.15
    level = _TROUGH_W + (_PEAK_W - _TROUGH_W) * tooth
    return round(level + 30 * (_noise(rank, 0, 4) - 0.5) + 24 * (_noise(rank, int(t * 10), 5) - 0.5), 1)


def _spin_w(rank: int, t: float) -> float:
    own_level = _SPIN_W + 2 * _SPIN_SPREAD_W * (_noise(rank, 0, 6) - 0.5)
    return round(own_level + 2.4 * (_noise(rank, int(t * 2), 7) - 0.5), 1)


def _noise(a: int, b: int, salt: int) -> float:
    """A number in [0, 1) that is always the same for the same arguments: a story is told alike every time."""
    return zlib.crc32(b"%d/%d/%d" % (a, b, salt)) / 2**32


def gpu_uuid(node: int, local_rank: int) -> str:
    """The UUID of one simulated board."""
    return f"GPU-b3000000-{node:04x}-4000-8000-{local_rank:012x}"


def pci_bus_id(local_rank: int) -> str:
    """The bus address of one simulated board, as NVML prints it."""
    return f"00000000:{0x0A + 0x11 * local_rank:02X}:00.0"
