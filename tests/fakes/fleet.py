"""A run on simulated nodes, told in stretches, seen by the real judge in virtual time. Speaks in observations; no process, no clock."""

from collections.abc import Callable

from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Change, Judge, JudgeStep
from watchtower.model import (
    EventReading,
    ExitReading,
    GpuReading,
    GpuState,
    NodeReading,
    Notice,
    NvmlState,
    Observation,
    Phase,
    PollFailure,
    ProgressReading,
    RankReading,
    RankSource,
    RunState,
)

# (board power W, utilization %, memory utilization %) of a board with a 700 W limit.
WORK = (600.0, 99.0, 45.0)
SPIN = (120.0, 100.0, 0.0)
IDLE = (115.0, 0.0, 0.0)
Doing = tuple[float, float, float]

T0 = 1_700_000_000.0
ROUND_S = 5.0


class Fleet:
    """One run of `nodes` x `gpus` ranks and the judge that watches it; `go` lets time pass."""

    def __init__(
        self,
        *,
        nodes: int = 2,
        gpus: int = 4,
        settings: JudgeSettings | None = None,
        run_id: str = "slurm-1",
        step_s: float = 5.0,
        total_steps: int | None = 10_000,
        feed: bool = True,
    ) -> None:
        self.settings = settings if settings is not None else JudgeSettings()
        self.judge = Judge(self.settings)
        self.run_id, self.gpus = run_id, gpus
        self.names = [f"gpu-{chr(97 + n)}" for n in range(nodes)]
        self.now = T0
        self.doing: dict[int, Doing] = dict.fromkeys(range(nodes * gpus), WORK)
        self.gone: dict[int, ExitReading] = {}
        self.silent: set[str] = set()
        self.lost: set[int] = set()
        self.limit_w = 700.0
        self.scale = 1.0
        self.proc_state = "R"
        self.world_size: int | None = None  # None: as many as there are
        self.cpu_cores: dict[int, float] = {}
        self.write_mb_s: dict[int, float] = {}
        self.clock_mhz: dict[int, float] = {}
        self.pid_base = 1000
        self.pids: dict[int, int] = {}
        self.feed = feed
        self.step, self.step_s, self.total_steps = 100, step_s, total_steps
        self.next_step_at = T0 + step_s
        self.stepping = True
        self.phase: Phase | None = Phase.TRAIN
        self.throughput: float | None = None
        self._said: list[ProgressReading] = []
        self._events: list[EventReading] = []
        self._cpu: dict[int, float] = {}
        self._written: dict[int, float] = {}
        self.steps: list[JudgeStep] = []
        self.nvml = NvmlState.OK

    # -- what happens ------------------------------------------------------------------------------------------

    def all(self, doing: Doing) -> None:
        """Every rank does this from now on."""
        self.doing = dict.fromkeys(self.doing, doing)

    def freeze(self, doing: Doing = SPIN, *, but: dict[int, Doing] | None = None) -> float:
        """Steps stop now and every rank does this; returns the moment."""
        self.stepping = False
        self.all(doing)
        self.doing.update(but or {})
        return self.now

    def work(self) -> None:
        """Everybody works and steps go on from now."""
        self.stepping = True
        self.next_step_at = self.now + self.step_s
        self.all(WORK)

    def kill(
        self, rank: int, *, signal: int | None = None, code: int | None = None, oom: bool = False
    ) -> None:
        """One rank's process leaves now."""
        self.gone[rank] = ExitReading(self.run_id, rank, self.pid_base + rank, self.now, code, signal, oom)

    def relaunch(self, *, step: int) -> None:
        """Every process comes back under new pids and resumes at a step."""
        self.gone.clear()
        self.pid_base += 100
        self._cpu.clear()
        self.step = step
        self.work()

    def happen(self, kind: str, *, rank: int | None = None, code: int | None = None) -> None:
        """An event on the rank's node."""
        uuid = f"GPU-{rank}" if rank is not None else None
        self._events.append(
            EventReading(self.now, kind, None if uuid else self.run_id, rank, uuid, code, None)
        )

    def say(self, *, step: int | None = None, phase: Phase | None = None) -> None:
        """The trainer says something now."""
        self._said.append(self._progress(step, self.now, phase))

    # -- time ------------------------------------------------------------------------------------------------

    def go(self, seconds: float, *, each: Callable[["Fleet"], None] | None = None) -> list[JudgeStep]:
        """Let time pass, a judged round every 5 s; returns the rounds."""
        out = []
        end = self.now + seconds
        while self.now < end - 1e-6:
            self.now += ROUND_S
            if each is not None:
                each(self)
            self._make_steps()
            out.append(
                self.judge.step([self._observe(n, name) for n, name in enumerate(self.names)], self.now)
            )
            self._said.clear()
            self._events.clear()
        self.steps += out
        return out

    def restart_watcher(self) -> None:
        """The watcher is killed and starts again from what it had saved."""
        memories, memory = dict(self.judge.memories()), self.judge.judge_memory()
        incidents = {}
        for step in self.steps:
            for incident in step.incidents:
                incidents[incident.uid] = incident
        self.judge = Judge(self.settings)
        assert (
            self.judge.restore(
                memories=memories, incidents=tuple(incidents.values()), judge_memory=memory, now=self.now
            )
            == ()
        )

    # -- what was said ---------------------------------------------------------------------------------------

    def judged(self) -> RunState:
        """The run's state after the newest round."""
        return next(v.state for v in self.steps[-1].views if v.run_id == self.run_id)

    @property
    def reason(self) -> str:
        return next(v.reason for v in self.steps[-1].views if v.run_id == self.run_id)

    @property
    def suspects(self) -> list[int | None]:
        return [s.rank for v in self.steps[-1].views if v.run_id == self.run_id for s in v.suspects]

    @property
    def notices(self) -> list[Notice]:
        return [notice for step in self.steps for notice in step.notices]

    @property
    def changes(self) -> list[Change]:
        return [change for step in self.steps for change in step.changes]

    def told(self) -> list[tuple[str, str, str]]:
        """(action, severity, state) of every notice so far."""
        return [(str(n.action), str(n.severity), str(n.state)) for n in self.notices]

    # -- inside --------------------------------------------------------------------------------------------------

    def _make_steps(self) -> None:
        while self.stepping and self.next_step_at <= self.now:
            self.step += 1
            if self.feed:
                self._said.append(self._progress(self.step, self.next_step_at, self.phase))
            self.next_step_at += self.step_s

    def _progress(self, step: int | None, at: float, phase: Phase | None) -> ProgressReading:
        unit = "tokens/s" if self.throughput is not None else None
        return ProgressReading(
            self.run_id, 0, at, step, self.total_steps, self.throughput, unit, "run", phase
        )

    def _observe(self, number: int, name: str) -> Observation:
        if name in self.silent:
            return Observation(at=self.now, node=name, failed=PollFailure.TIMEOUT)
        ranks = range(number * self.gpus, (number + 1) * self.gpus)
        for rank in ranks:
            self._cpu[rank] = self._cpu.get(rank, 0.0) + ROUND_S * self.cpu_cores.get(rank, 1.0)
            self._written[rank] = self._written.get(rank, 0.0) + ROUND_S * 1e6 * self.write_mb_s.get(
                rank, 0.0
            )
        exits = tuple(
            self.gone[rank]
            for rank in ranks
            if rank in self.gone and self.gone[rank].at > self.now - ROUND_S - 1
        )
        return Observation(
            at=self.now,
            node=name,
            reading=NodeReading(
                agent_version="0",
                agent_started_at=T0 - 1e5,
                boot_id=None,
                nvml_state=self.nvml,
                nvml_detail=None,
                gpus=tuple(self._gpu(rank) for rank in ranks),
                ranks=tuple(self._rank(rank) for rank in ranks if rank not in self.gone),
                exits=exits,
                progress=tuple(self._said) if number == 0 else (),
                events=tuple(e for e in self._events if e.rank is None or e.rank in ranks),
            ),
        )

    def _gpu(self, rank: int) -> GpuReading:
        watts, util, mem = self.doing[rank] if rank not in self.gone else (70.0, 0.0, 0.0)
        clock = self.clock_mhz.get(rank, 1900.0)
        # A little unlike from board to board and second to second, as real boards are.
        samples = [
            (age, (watts + (rank % 3) + age % 2) * self.scale, util, mem, clock, 40_000.0)
            for age in (4.2, 3.2, 2.2, 1.2, 0.2)
        ]
        state = GpuState.LOST if rank in self.lost else GpuState.OK
        return GpuReading(
            f"GPU-{rank}",
            rank % self.gpus,
            "H100",
            state,
            self.limit_w * self.scale,
            81_920.0,
            60.0,
            (),
            samples,  # type: ignore[arg-type]
        )

    def _rank(self, rank: int) -> RankReading:
        return RankReading(
            self.run_id,
            "llm",
            rank,
            rank % self.gpus,
            self.world_size or len(self.doing),
            RankSource.ENVIRON,
            0,
            "jlee",
            {},
            self.pids.get(rank, self.pid_base + rank),
            T0,
            (f"GPU-{rank}",),
            40_000.0,
            self.proc_state,
            self._cpu[rank],
            0.0,
            self._written[rank],
        )
