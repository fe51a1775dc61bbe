"""Sinks that do as they are told, and messages to give them. No network, no time."""

import asyncio
from collections.abc import Iterable

import msgspec

from watchtower.model import (
    Activity,
    Evidence,
    Notice,
    NoticeAction,
    Owed,
    Phase,
    RankView,
    RunState,
    RunView,
    Severity,
    Suspect,
    Throughput,
)
from watchtower.notify.sink import Form, Outcome, OutcomeKind

T0 = 1_764_540_000.0
SUSPECT = Suspect(rank=3, node="gpu-a", gpu_index=3, why="stopped working 4 s before the others")


class FakeSink:
    """Answers from a script, then `delivered` for ever, and remembers what it took.

    Args:
        script: one outcome, or an exception to raise, per try.
        hang: tries never come back while this event is given and not set.
    """

    def __init__(
        self,
        name: str = "slack",
        script: Iterable[Outcome | OutcomeKind | Exception] = (),
        *,
        spacing_s: float = 0.0,
        hang: asyncio.Event | None = None,
    ) -> None:
        self.name = name
        self.spacing_s = spacing_s
        self.taken: list[tuple[str, int, NoticeAction, Form]] = []
        self.tried: list[tuple[str, int, Form, bool]] = []
        self.tried_at: list[float] = []
        self.render_fails_at: Form | None = None
        self.always: Outcome | None = None
        self._script = list(script)
        self._hang = hang

    def render(self, owed: Owed, form: Form, *, now: float, may_repeat: bool = False) -> bytes:
        if form is self.render_fails_at:
            raise ValueError("planted")
        self.tried_at.append(now)
        return msgspec.json.encode((owed.notice.incident_uid, owed.notice.seq, owed.action, form, may_repeat))

    async def send(self, body: bytes, key: str) -> Outcome:
        uid, seq, action, form, repeat = msgspec.json.decode(
            body, type=tuple[str, int, NoticeAction, Form, bool]
        )
        self.tried.append((uid, seq, form, repeat))
        if self._hang is not None:
            await self._hang.wait()
        answer: Outcome | OutcomeKind | Exception = self.always or Outcome(OutcomeKind.DELIVERED)
        if self._script:
            answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        outcome = Outcome(answer) if isinstance(answer, OutcomeKind) else answer
        if outcome.kind is OutcomeKind.DELIVERED:
            self.taken.append((uid, seq, action, form))
        return outcome


def a_rank(rank: int, **changes: object) -> RankView:
    """Rank `rank` of a run of two nodes with eight GPUs each, spinning."""
    view = RankView(
        rank=rank,
        node="gpu-a" if rank < 8 else "gpu-b",
        gpu_index=rank % 8,
        local_rank=rank % 8,
        pid=41_000 + rank,
        activity=Activity.SPINNING,
        since=T0 - 94,
        board_power_w=212.0,
        working_power_w=921.0,
        utilization_pct=100.0,
        temperature_c=52.0,
        sm_clock_mhz=1785.0,
    )
    return msgspec.structs.replace(view, **changes)


def a_view(**changes: object) -> RunView:
    """The run of the founding incident at T0: stuck since 94 s at step 3850 of 3857."""
    view = RunView(
        run_id="slurm-4411",
        run_name="qwen3-32b-sft",
        user="jlee",
        labels={"partition": "b300"},
        state=RunState.DEADLOCKED,
        since=T0 - 94,
        reason="16 of 16 ranks at 100 % utilization, 23 % of their own working power, no step for 94 s",
        severity=Severity.CRITICAL,
        suspects=(SUSPECT,),
        evidence=(Evidence("board power", "212 W of 921 W working"),),
        first_seen_at=T0 - 18_000,
        updated_at=T0,
        attempt=0,
        restarts=0,
        world_size=16,
        nodes=("gpu-a", "gpu-b"),
        nodes_unseen=(),
        gpus=16,
        gpu_model="NVIDIA B300 SXM6 AC",
        step=3850,
        total_steps=3857,
        step_at=T0 - 94,
        step_time_s=4.6,
        throughput=Throughput(0.0, "tokens/s", "run"),
        throughput_floor=None,
        phase=Phase.TRAIN,
        power_share=0.23,
        power_history=(1.0, 1.0, 0.23),
        activity={"spinning": 16},
        ranks=tuple(a_rank(rank) for rank in range(16)),
        last_checkpoint_at=T0 - 2494,
        last_checkpoint_step=3300,
        collective_timeout_s=1800.0,
        progress_source=True,
    )
    return msgspec.structs.replace(view, **changes)


def a_notice(**changes: object) -> Notice:
    """The founding incident's trigger."""
    view = a_view()
    notice = Notice(
        incident_uid="0123456789abcdef",
        seq=1,
        action=NoticeAction.TRIGGER,
        severity=Severity.CRITICAL,
        state=RunState.DEADLOCKED,
        at=T0,
        since=T0 - 94,
        subject="run:slurm-4411",
        run_id="slurm-4411",
        dedup_key="wt1:" + "ab" * 32,
        reason=view.reason,
        suspects=view.suspects,
        evidence=view.evidence,
        view=view,
    )
    return msgspec.structs.replace(notice, **changes)


def an_owed(sink: str = "slack", action: NoticeAction = NoticeAction.TRIGGER, **changes: object) -> Owed:
    """A message owed to `sink`; `changes` are of the notice."""
    return Owed(sink=sink, action=action, notice=a_notice(action=action, **changes))
