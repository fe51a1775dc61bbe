"""Tells a story in virtual time: the polls, observations and recording that a watcher of it would have had. Starts no process and waits for nothing."""

from collections.abc import Iterator
from pathlib import Path

from watchtower.model import Observation, Sample
from watchtower.poller.translate import observe
from watchtower.recording.jsonl import RecordedPoll, Recorder
from watchtower.simulate.story import (
    DRIVER_VERSION,
    MEMORY_TOTAL_MIB,
    MODEL,
    POWER_LIMIT_W,
    Story,
    gpu_uuid,
    pci_bus_id,
    showing,
)
from watchtower.wire import WIRE_VERSION, AgentInfo, Event, Gpu, Nvml, Progress, Rank, Snapshot

_BEGAN_AT = 1_764_540_000.0  # any moment will do; this is the one of the formats' examples
_POLL_DELAY_S = 0.06  # between the node's stamp and the watcher's
_RAN_BEFORE_S = 5 * 3600.0  # the run is hours old when the story begins
_FIRST_PID = 41_270


def polls(
    story: Story, *, until_s: float, interval_s: float = 5.0, began_at: float = _BEGAN_AT
) -> Iterator[RecordedPoll]:
    """Every answer that a watcher polling each node at `interval_s` would have got, in order of time.

    Args:
        story: what happens.
        until_s: seconds into the story after which nobody asks any more.
        interval_s: between two polls of one node; the nodes are asked at different moments.
        began_at: the Unix time at which the story begins.
    """
    lag_s = interval_s / len(story.nodes)
    turn = 0
    while (
        asked_s := interval_s + turn // len(story.nodes) * interval_s + turn % len(story.nodes) * lag_s
    ) <= until_s:
        node = turn % len(story.nodes)
        since_s = asked_s - interval_s
        reply = snapshot(story, node, since_s=since_s, taken_s=asked_s, began_at=began_at)
        yield RecordedPoll(round(began_at + asked_s + _POLL_DELAY_S, 3), story.nodes[node], reply)
        turn += 1


def observations(
    story: Story, *, until_s: float, interval_s: float = 5.0, began_at: float = _BEGAN_AT
) -> Iterator[Observation]:
    """The same polls as `polls`, translated as the poller does it: ready for the judge."""
    for poll in polls(story, until_s=until_s, interval_s=interval_s, began_at=began_at):
        if poll.reply is not None:
            yield observe(poll.reply, at=poll.t, node=poll.node)


def write_recording(story: Story, path: Path, *, until_s: float, interval_s: float = 5.0) -> int:
    """Write the story as an uncompressed recording (docs/formats.md section 2).

    Returns:
        The number of polls written.
    """
    written = 0
    with path.open("wb") as file:
        recorder = Recorder(file, "simulated: the founding incident")
        for poll in polls(story, until_s=until_s, interval_s=interval_s):
            recorder.write(poll)
            written += 1
    return written


def snapshot(story: Story, node: int, *, since_s: float, taken_s: float, began_at: float) -> Snapshot:
    """What the agent of one node says at `taken_s` to somebody who has heard everything up to `since_s`."""
    local_ranks = range(story.gpus_per_node)
    return Snapshot(
        wire=WIRE_VERSION,
        node=story.nodes[node],
        taken_at=began_at + taken_s,
        agent=AgentInfo("simulated", began_at - _RAN_BEFORE_S, f"simulated-{story.nodes[node]}"),
        cursor=str(int(taken_s)),
        nvml=Nvml("ok", DRIVER_VERSION),
        gpus=tuple(_gpu(story, node, local, since_s=since_s, taken_s=taken_s) for local in local_ranks),
        ranks=tuple(_rank(story, node, local, taken_s=taken_s, began_at=began_at) for local in local_ranks),
        progress=_progress(story, since_s, taken_s, began_at) if node == 0 else (),
        events=_events(story, since_s, taken_s, began_at) if node == 0 else (),
    )


def _gpu(story: Story, node: int, local_rank: int, *, since_s: float, taken_s: float) -> Gpu:
    rank = node * story.gpus_per_node + local_rank
    samples: list[Sample] = []
    for second in range(int(since_s) + 1, int(taken_s) + 1):
        # Each board is read a little later than the one before it, and never exactly on the second.
        shows = showing(story, rank, second - 0.03 * local_rank)
        samples.append(
            (
                round(taken_s - second, 2),
                shows.board_power_w,
                shows.util_pct,
                shows.mem_util_pct,
                shows.sm_clock_mhz,
                shows.memory_used_mib,
            )
        )
    return Gpu(
        uuid=gpu_uuid(node, local_rank),
        index=local_rank,
        pci_bus_id=pci_bus_id(local_rank),
        model=MODEL,
        power_limit_w=POWER_LIMIT_W,
        memory_total_mib=MEMORY_TOTAL_MIB,
        temperature_c=showing(story, rank, taken_s).temperature_c,
        samples=samples,
    )


def _rank(story: Story, node: int, local_rank: int, *, taken_s: float, began_at: float) -> Rank:
    rank = node * story.gpus_per_node + local_rank
    return Rank(
        run_id=story.run_id,
        pid=_FIRST_PID + rank,
        run_name=story.run_name,
        rank=rank,
        local_rank=local_rank,
        world_size=story.world_size,
        rank_source="environ",
        attempt=0,
        started_at=began_at - _RAN_BEFORE_S,
        gpu_uuids=(gpu_uuid(node, local_rank),),
        gpu_memory_mib=231_000 - 800 + 17 * rank,
        proc_state="R",
        cpu_s=round(
            1.02 * (_RAN_BEFORE_S + taken_s), 2
        ),  # a rank that waits for its GPU burns its core all the same
        read_bytes=43_000_000_000.0,
        write_bytes=4_300_000.0,
    )


def _progress(story: Story, since_s: float, taken_s: float, began_at: float) -> tuple[Progress, ...]:
    news: list[Progress] = []
    for step in range(story.step_at(since_s), story.step_at(taken_s) + 1):
        done_s = story.step_done_at(step)
        if since_s < done_s <= taken_s:
            news.append(
                Progress(
                    story.run_id,
                    began_at + done_s,
                    rank=0,
                    step=step,
                    total_steps=story.total_steps,
                    throughput=round(story.tokens_per_step / story.step_s),
                    throughput_unit="tokens/s",
                    throughput_scope="run",
                    phase="checkpoint" if step == story.save_step else "train",
                )
            )
    return tuple(news)


def _events(story: Story, since_s: float, taken_s: float, began_at: float) -> tuple[Event, ...]:
    saved_s = story.step_done_at(story.save_step) + story.save_s
    if not since_s < saved_s <= taken_s:
        return ()
    return (Event(began_at + saved_s, "checkpoint_saved", run_id=story.run_id, rank=0, code=story.save_step),)
