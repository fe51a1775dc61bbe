"""What becomes of an agent's words on their way to the judge: numbers that no store could hold are not believed."""

import msgspec
import pytest

from watchtower.model import NodeReading
from watchtower.poller.translate import observe
from watchtower.wire import Progress, Rank, Snapshot, decode, encode


def read(**fields: object) -> NodeReading:
    said = decode(encode(msgspec.structs.replace(Snapshot(wire=1, node="gpu-a", taken_at=1000.0), **fields)))
    reading = observe(said, at=5000.0, node="gpu-a").reading
    assert reading is not None
    return reading


@pytest.mark.parametrize("absurd", [2**53 + 1, 2**64 - 1, -1])
def test_a_count_that_cannot_be_one_is_not_known(absurd: int) -> None:
    """A job writes its own heartbeat: a step beyond SQLite's integers must not end the daemon for everybody."""
    reading = read(
        progress=(Progress("slurm-1", 999.0, rank=0, step=absurd, total_steps=absurd),),
        ranks=(Rank("slurm-1", 7, rank=absurd, world_size=absurd, attempt=absurd),),
    )
    assert (reading.progress[0].step, reading.progress[0].total_steps) == (None, None)
    assert (reading.ranks[0].rank, reading.ranks[0].world_size, reading.ranks[0].attempt) == (None,) * 3


@pytest.mark.parametrize("count", [0, 1, 3857, 2**53])
def test_a_count_is_believed(count: int) -> None:
    assert read(progress=(Progress("slurm-1", 999.0, step=count),)).progress[0].step == count


def test_times_are_ours_and_never_in_the_future() -> None:
    reading = read(progress=(Progress("slurm-1", 990.0, step=1), Progress("slurm-1", 1e9, step=2)))
    assert [said.at for said in reading.progress] == [4990.0, 5000.0]
