"""One cause is one incident: a watcher that cannot see does not accuse its runs one by one."""

from msgspec.structs import replace

from tests.fakes.fleet import T0, Fleet
from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Judge
from watchtower.model import NodeReading, Notice, NvmlState, Observation, PollFailure


def _two_runs() -> tuple[Judge, list[Observation]]:
    judge = Judge(JudgeSettings())
    first, second = Fleet(nodes=2, run_id="slurm-1"), Fleet(nodes=2, run_id="slurm-2")
    second.names = ["gpu-x", "gpu-y"]
    observations: list[Observation] = []
    for _ in range(40):
        observations = []
        for fleet in (first, second):
            fleet.now += 5
            fleet._make_steps()
            observations += [fleet._observe(n, name) for n, name in enumerate(fleet.names)]
            fleet._said.clear()
        judge.step(observations, first.now)
    return judge, observations


def test_all_agents_silent_with_several_runs_is_one_incident_about_the_watcher() -> None:
    judge, _ = _two_runs()
    now = T0 + 200
    notices: list[Notice] = []
    for _ in range(200):
        now += 5
        failed = [
            Observation(at=now, node=n, failed=PollFailure.UNREACHABLE)
            for n in ("gpu-a", "gpu-b", "gpu-x", "gpu-y")
        ]
        notices += judge.step(failed, now).notices
    [notice] = notices
    assert (notice.subject, notice.run_id, str(notice.severity)) == ("watcher", None, "warning")
    assert "4 of 4 agents" in notice.reason


def test_it_is_resolved_when_agents_answer_again() -> None:
    judge, observations = _two_runs()
    now = T0 + 200
    notices: list[Notice] = []
    for number in range(300):
        now += 5
        if number < 100:
            seen = [Observation(at=now, node=o.node, failed=PollFailure.UNREACHABLE) for o in observations]
        else:
            seen = [Observation(at=now, node=o.node, reading=o.reading) for o in observations]
        notices += [n for n in judge.step(seen, now).notices if n.subject == "watcher"]
    assert [str(n.action) for n in notices] == ["trigger", "resolve"]


def test_agents_that_never_answer_are_told_although_no_run_is_known() -> None:
    judge = Judge(JudgeSettings())
    judge.expect(["gpu-a", "gpu-b"])
    notices: list[Notice] = []
    for second in range(0, 900, 5):
        failed = [Observation(at=T0 + second, node=n, failed=PollFailure.REFUSED) for n in ("gpu-a", "gpu-b")]
        notices += judge.step(failed, T0 + second).notices
    [notice] = notices
    assert (notice.subject, str(notice.action)) == ("watcher", "trigger")
    assert "2 of 2 agents" in notice.reason
    assert notice.at - T0 <= 400


def test_a_node_whose_gpus_cannot_be_read_is_told_after_five_minutes_and_resolved() -> None:
    fleet = Fleet(nodes=3)
    fleet.go(100)
    quiet = Observation(at=fleet.now, node="gpu-z", reading=_without_nvml(fleet))
    for second in range(5, 500, 5):
        fleet.go(5)
        fleet.steps.append(fleet.judge.step([replace(quiet, at=fleet.now)], fleet.now))
        if second == 250:
            assert fleet.notices == []
    [notice] = fleet.notices
    assert (notice.subject, str(notice.severity)) == ("nodes", "warning")
    assert "gpu-z cannot read its GPUs, NVML absent: no libnvidia-ml.so.1" in notice.reason
    well = replace(quiet, reading=replace(_without_nvml(fleet), nvml_state=NvmlState.OK))
    for _ in range(40):
        fleet.go(5)
        fleet.steps.append(fleet.judge.step([replace(well, at=fleet.now)], fleet.now))
    assert [(n.subject, str(n.action)) for n in fleet.notices] == [("nodes", "trigger"), ("nodes", "resolve")]


def test_silent_nodes_are_one_incident_however_many_they_are() -> None:
    fleet = Fleet(nodes=8)
    fleet.go(300)
    fleet.silent = {"gpu-b", "gpu-c", "gpu-d"}
    fleet.go(1200)
    [notice] = [n for n in fleet.notices if n.action == "trigger"]
    assert notice.subject == "nodes"
    assert {s.node for s in notice.suspects} == {"gpu-b", "gpu-c", "gpu-d"}


def _without_nvml(fleet: Fleet) -> NodeReading:
    seen = fleet._observe(0, fleet.names[0]).reading
    assert seen is not None
    return replace(
        seen,
        nvml_state=NvmlState.ABSENT,
        nvml_detail="no libnvidia-ml.so.1",
        ranks=(),
        gpus=(),
        progress=(),
        exits=(),
    )
