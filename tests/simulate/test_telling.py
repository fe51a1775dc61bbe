"""The story in virtual time, as polls, observations and a recording."""

from itertools import pairwise
from pathlib import Path

from watchtower import wire
from watchtower.model import RankSource
from watchtower.recording.jsonl import RecordedPoll, Recording
from watchtower.simulate.story import Story
from watchtower.simulate.telling import observations, polls, write_recording

STORY = Story()


def replies(story: Story, *, until_s: float) -> list[tuple[RecordedPoll, wire.Snapshot]]:
    return [(poll, poll.reply) for poll in polls(story, until_s=until_s) if poll.reply is not None]


def test_every_node_is_asked_at_every_interval_and_polls_come_in_order_of_time() -> None:
    told = list(polls(STORY, until_s=60, interval_s=5))
    assert [poll.t for poll in told] == sorted(poll.t for poll in told)
    for node in STORY.nodes:
        asked = [poll.t for poll in told if poll.node == node]
        assert len(asked) in {11, 12}
        assert {round(b - a, 3) for a, b in pairwise(asked)} == {5.0}


def test_no_sample_is_lost_or_told_twice_between_polls() -> None:
    taken = [
        round(reply.taken_at - sample[0], 1)
        for poll, reply in replies(STORY, until_s=40)
        if poll.node == "gpu-a"
        for sample in reply.gpus[3].samples
    ]
    assert taken == [taken[0] + second for second in range(len(taken))]
    assert len(taken) == 40


def test_each_step_is_told_once_and_only_by_the_node_of_rank_0() -> None:
    told = replies(STORY, until_s=120)
    steps = [progress.step for _, reply in told for progress in reply.progress]
    assert steps == list(range(3791, 3851))
    assert all(not reply.progress for poll, reply in told if poll.node == "gpu-b")


def test_sixteen_ranks_are_seen_eight_to_a_node_each_on_its_own_board() -> None:
    seen = {(rank.rank, rank.gpu_uuids) for _, reply in replies(STORY, until_s=9) for rank in reply.ranks}
    assert sorted(rank for rank, _ in seen if rank is not None) == list(range(16))
    assert len({uuids for _, uuids in seen}) == 16


def test_observations_are_what_the_poller_would_hand_to_the_judge() -> None:
    first = next(observations(STORY, until_s=10))
    assert first.node == "gpu-a"
    assert first.failed is None
    assert first.reading is not None
    assert first.reading.ranks[3].rank == 3
    assert first.reading.ranks[3].rank_source is RankSource.ENVIRON


def test_a_recording_holds_a_head_and_one_line_a_poll(tmp_path: Path) -> None:
    path = tmp_path / "story.jsonl"
    written = write_recording(STORY, path, until_s=30)
    recording = Recording(path)
    read = list(recording.polls())
    assert recording.note == "simulated: the founding incident"
    assert read == list(polls(STORY, until_s=30))
    assert len(read) == written
