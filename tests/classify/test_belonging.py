"""Who may speak for a run, and who only claims to."""

from msgspec.structs import replace

from tests.fakes.fleet import SPIN, Fleet
from watchtower.model import ExitReading, Observation, Phase, ProgressReading, RankReading, RunState


def _stranger(fleet: Fleet, *, user: str, rank: int = 3) -> Observation:
    """What another node says on which a process of this user names the fleet's run and one of its ranks."""
    seen = fleet._observe(0, fleet.names[0])
    assert seen.reading is not None
    process: RankReading = replace(seen.reading.ranks[0], user=user, pid=66, rank=rank, gpu_uuids=("GPU-x",))
    lies = (ProgressReading(fleet.run_id, 0, fleet.now, 9999, 9999, None, None, None, Phase.FINISHED),)
    ends = tuple(ExitReading(fleet.run_id, r, 1000 + r, fleet.now, 1, None, None) for r in fleet.doing)
    board = replace(seen.reading.gpus[0], uuid="GPU-x")
    reading = replace(seen.reading, ranks=(process,), gpus=(board,), progress=lies, exits=ends)
    return Observation(at=fleet.now, node="elsewhere", reading=reading)


def _go_with_a_stranger(fleet: Fleet, seconds: float, user: str) -> None:
    for _ in range(int(seconds // 5)):
        fleet.go(5)
        fleet.steps.append(fleet.judge.step([_stranger(fleet, user=user)], fleet.now))


def test_another_users_process_elsewhere_cannot_join_end_or_speak_for_a_run() -> None:
    fleet = Fleet()
    fleet.go(300)
    _go_with_a_stranger(fleet, 120, "mallory")
    [view] = [v for v in fleet.steps[-1].views if v.run_id == fleet.run_id]
    assert (view.state, view.user, view.step) == (RunState.PROGRESSING, "jlee", fleet.step)
    assert view.nodes == ("gpu-a", "gpu-b")
    assert fleet.notices == []


def test_another_users_word_does_not_hide_a_deadlock() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    _go_with_a_stranger(fleet, 120, "mallory")
    assert ("trigger", "critical", "deadlocked") in fleet.told()


def test_two_nodes_that_claim_one_rank_do_not_wipe_each_others_memory() -> None:
    fleet = Fleet()
    fleet.go(300)
    for _ in range(30):
        fleet.go(5)
        claim = _stranger(fleet, user="jlee")
        assert claim.reading is not None
        fleet.steps.append(
            fleet.judge.step(
                [replace(claim, reading=replace(claim.reading, progress=(), exits=()))], fleet.now
            )
        )
    [view] = fleet.steps[-1].views
    assert view.restarts == 0
    assert next(r for r in view.ranks if r.rank == 3 and r.node == "gpu-a").working_power_w is not None
    assert fleet.notices == []


def test_an_exit_is_believed_only_of_the_node_it_happened_on() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.gone[6] = ExitReading(
        fleet.run_id, None, 1001, fleet.now + 1, 1, None, None
    )  # rank 1's pid, said by rank 6's node
    fleet.go(5)
    present = {r.rank for r in fleet.steps[-1].views[0].ranks if r.activity != "gone"}
    assert 1 in present
