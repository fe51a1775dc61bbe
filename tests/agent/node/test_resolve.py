"""Runs and ranks of a whole node: who is inferred, who is believed, who gets none."""

import pytest

from tests.agent.node.fake_proc import torchrun
from watchtower.agent.node.identity import claim
from watchtower.agent.node.proc import ProcessKey
from watchtower.agent.node.resolve import Candidate, Registration, Resolved, resolve


def process(
    pid: int,
    environ: dict[str, str] | None = None,
    *,
    parent: int = 50,
    uid: int = 1000,
    registration: Registration | None = None,
    cgroup: str = "",
) -> Candidate:
    return Candidate(
        key=ProcessKey(pid, 1),
        parent_pid=parent,
        uid=uid,
        claim=claim(environ or {}, cgroup, "h"),
        registration=registration,
    )


def ranks(resolved: Resolved) -> dict[int, int | None]:
    return {key.pid: identity.rank for key, identity in resolved.identities.items()}


def test_spawned_siblings_are_ranked_in_gpu_order_and_marked_inferred() -> None:
    found = resolve([process(103), process(101), process(102)], {}, "h")
    assert ranks(found) == {103: 0, 101: 1, 102: 2}
    assert {(i.source, i.run_id, i.world_size) for i in found.identities.values()} == {
        ("inferred", "proc-h-50", None)
    }


def test_a_lone_process_without_any_mark_is_not_called_training() -> None:
    found = resolve([process(101)], {}, "h")
    assert (found.identities, found.unmarked) == ({}, 1)


def test_two_of_the_same_rank_have_none() -> None:
    found = resolve(
        [process(101, torchrun(3)), process(102, torchrun(3)), process(103, torchrun(4))], {}, "h"
    )
    assert ranks(found) == {101: None, 102: None, 103: 4}


def test_a_rank_beyond_the_world_is_none() -> None:
    assert ranks(resolve([process(101, torchrun(16, world=16))], {}, "h")) == {101: None}


def test_a_childs_inherited_rank_does_not_count() -> None:
    found = resolve([process(101, torchrun(3)), process(102, torchrun(3), parent=101)], {}, "h")
    assert ranks(found) == {101: 3}


def test_a_pods_index_is_a_rank_only_while_one_process_has_it() -> None:
    pod = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
    assert ranks(resolve([process(101, pod)], {}, "h")) == {101: 1}
    several = resolve([process(101, pod), process(102, pod)], {}, "h")
    assert ranks(several) == {101: 2, 102: 3}
    assert {(i.source, i.world_size) for i in several.identities.values()} == {("inferred", None)}


def test_lightnings_main_process_is_local_rank_zero() -> None:
    child = {"NODE_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n", "MASTER_PORT": "1"}
    found = resolve(
        [
            process(102, child | {"LOCAL_RANK": "1"}, parent=101),
            process(101, {"MASTER_ADDR": "n", "MASTER_PORT": "1", "NODE_RANK": "1"}),
        ],
        {},
        "h",
    )
    assert ranks(found) == {102: 3, 101: 2}


def test_on_one_of_several_nodes_nothing_is_inferred_without_the_nodes_index() -> None:
    job = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "SLURM_NNODES": "2"}
    assert ranks(resolve([process(101, job), process(102, job)], {}, "h")) == {101: None, 102: None}
    there = job | {"SLURM_NODEID": "1"}
    assert ranks(resolve([process(101, there), process(102, there)], {}, "h")) == {101: 2, 102: 3}


def test_a_registration_names_a_rank_that_nothing_else_does() -> None:
    found = resolve(
        [process(101, registration=Registration(run_id="ray-7", rank=5, world_size=8)), process(102)], {}, "h"
    )
    first = found.identities[ProcessKey(101, 1)]
    assert (first.run_id, first.rank, first.world_size, first.source) == ("ray-7", 5, 8, "registered")
    assert found.identities[ProcessKey(102, 1)].run_id == "ray-7"  # its brother, who has not registered yet
    assert found.identities[ProcessKey(102, 1)].rank is None


def test_a_run_of_another_user_cannot_be_joined() -> None:
    mine, theirs = torchrun(0, run="x"), torchrun(1, run="x")
    found = resolve([process(101, theirs, uid=2000), process(102, mine)], {"torchrun-x": 1000}, "h")
    assert (ranks(found), found.foreign) == ({102: 0}, 1)


def test_a_registration_cannot_speak_for_another_users_run() -> None:
    liar = process(101, uid=2000, registration=Registration(run_id="torchrun-x", rank=1))
    found = resolve([process(102, torchrun(0, run="x")), liar], {}, "h")
    assert (ranks(found), found.foreign) == ({102: 0}, 1)


SRUN = {"SLURM_JOB_ID": "4411", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(
    "cgroup",
    [
        "5:memory:/slurm/uid_1000/job_4411/step_0/task_3",
        "0::/system.slice/slurmstepd.scope/job_4411/step_0/user/task_3",
        "0::/system.slice/gpu-a_slurmstepd.scope/job_4411/step_0/user/task_3",
    ],
)
def test_a_run_that_the_schedulers_cgroup_vouches_for_cannot_be_squatted(cgroup: str) -> None:
    squatter = process(101, SRUN, uid=2000)
    also = process(102, {"WATCHTOWER_RUN_ID": "slurm-4411"}, uid=2000, cgroup=cgroup.replace("4411", "5555"))
    mine = process(103, SRUN, cgroup=cgroup)
    found = resolve([squatter, also, mine], {"slurm-4411": 2000}, "h")
    assert (ranks(found), found.foreign) == ({103: 0}, 2)


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-2000.slice/user@2000.service/slurm/job_4411",
        "0::/user.slice/user-2000.slice/user@2000.service/system.slice/slurmstepd.scope/job_4411/step_0",
        "0::/system.slice/slurmstepd.scope/job_5555/step_0/user/task_0/slurm/job_4411",
    ],
)
def test_a_cgroup_of_the_users_own_making_vouches_for_nothing(cgroup: str) -> None:
    liar = process(101, SRUN, uid=2000, cgroup=cgroup)
    found = resolve([liar, process(102, SRUN)], {"slurm-4411": 1000}, "h")
    assert (ranks(found), found.foreign) == ({102: 0}, 1)
