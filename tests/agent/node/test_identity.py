"""Which run and rank a start environment and a cgroup name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.node.fake_proc import torchrun
from watchtower.agent.node.identity import ALLOWED_VARIABLES, claim, safe_id

POD = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b1c2d3e_4f50_6172_8394_a5b6c7d8e9f0.slice/cri-containerd-1.scope"
SLURM_V1 = "5:memory:/slurm/uid_1000/job_4411/step_0/task_3"
SLURM_V2 = "0::/system.slice/slurmstepd.scope/job_4411/step_0/user/task_3"
SRUN = {"SLURM_JOB_ID": "4411", "SLURM_PROCID": "11", "SLURM_LOCALID": "3", "SLURM_NTASKS": "16"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param(torchrun(11), (11, 3, 16), id="torchrun"),
        pytest.param(
            torchrun(11) | SRUN | {"SLURM_PROCID": "1"},
            (11, 3, 16),
            id="torchrun under srun inherits the node's task",
        ),
        pytest.param(torchrun(11, local=0), (11, 0, 16), id="torchrun with virtual local ranks"),
        pytest.param(SRUN, (11, 3, 16), id="srun"),
        pytest.param(
            SRUN | {"SLURM_NTASKS": "1"}, (None, None, None), id="a batch script's only task is no rank"
        ),
        pytest.param(
            {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"}
            | SRUN,
            (5, 1, 8),
            id="Open MPI in a Slurm job",
        ),
        pytest.param(
            {"TORCHELASTIC_RUN_ID": "x"} | SRUN,
            (None, None, None),
            id="a task number under torchrun is no rank",
        ),
        pytest.param({"PMI_RANK": "5", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8"}, (5, 1, 8), id="Hydra"),
        pytest.param(
            {"HOROVOD_RANK": "5", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_SIZE": "8"}, (5, 1, 8), id="Horovod"
        ),
        pytest.param(
            {"MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_LOCAL_RANK": "1"}, (5, 1, None), id="MVAPICH2"
        ),
        pytest.param({"PALS_RANKID": "5"}, (5, None, None), id="PALS"),
        pytest.param({"FLUX_TASK_RANK": "5", "FLUX_JOB_SIZE": "8"}, (5, None, 8), id="Flux"),
        pytest.param(
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0"}, (1, None, 2), id="PyTorchJob"
        ),
        pytest.param(
            {"NODE_RANK": "1", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "16"},
            (11, 3, 16),
            id="by node",
        ),
        pytest.param(
            {"NODE_RANK": "1", "LOCAL_RANK": "3", "WORLD_SIZE": "16"}, (None, 3, 16), id="Lightning child"
        ),
        pytest.param({"JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "4"}, (2, None, 4), id="JAX"),
        pytest.param({}, (None, None, None), id="nothing"),
        pytest.param({"RANK": "-1", "LOCAL_RANK": "0"}, (None, 0, None), id="not a number"),
    ],
)
def test_every_launchers_rank(
    environ: dict[str, str], expected: tuple[int | None, int | None, int | None]
) -> None:
    found = claim(environ, "", "node-a")
    assert (found.rank, found.local_rank, found.world_size) == expected


@pytest.mark.parametrize(
    ("environ", "cgroup", "run_id"),
    [
        (torchrun(0) | SRUN, "", "slurm-4411"),
        (SRUN | {"SLURM_ARRAY_JOB_ID": "4400", "SLURM_ARRAY_TASK_ID": "7"}, "", "slurm-4400_7"),
        (SRUN | {"SLURM_HET_JOB_ID": "4400", "SLURM_HET_JOB_OFFSET": "1"}, "", "slurm-4400+1"),
        (SRUN, SLURM_V2.replace("4411", "99"), "slurm-4411"),
        ({}, SLURM_V1, "slurm-4411"),
        ({}, SLURM_V2, "slurm-4411"),
        ({}, POD, "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"),
        ({"POD_GROUP_UID": "group-7"} | torchrun(0), POD, "group-7"),
        (torchrun(0, run="qwen"), POD, "torchrun-qwen"),
        (torchrun(0, run="none"), "", "node-a:29500"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, "", "here:29500"),
        ({"WATCHTOWER_RUN_ID": "my-run"} | SRUN, "", "my-run"),
        ({"WATCHTOWER_RUN_ID": "../../etc"} | SRUN, "", "slurm-4411"),
        ({}, "0::/user.slice", None),
    ],
)
def test_what_a_run_is_called(environ: dict[str, str], cgroup: str, run_id: str | None) -> None:
    assert claim(environ, cgroup, "here").run_id == run_id


def test_attempts_share_the_runs_name_and_are_counted() -> None:
    first, second = (claim(torchrun(0, run="x", restarts=n), "", "h") for n in (0, 1))
    assert first.run_id == second.run_id
    assert (first.attempt, second.attempt) == (0, 1)


def test_labels_say_partition_account_and_namespace_only() -> None:
    environ = SRUN | {"SLURM_JOB_PARTITION": "b300", "POD_NAMESPACE": "ml", "SLURM_JOB_NAME": "qwen-sft"}
    found = claim(environ, "", "h")
    assert (found.labels, found.run_name) == ({"partition": "b300", "namespace": "ml"}, "qwen-sft")


def test_no_variable_that_may_hold_a_secret_is_kept() -> None:
    assert not [
        name
        for name in ALLOWED_VARIABLES
        if any(word in name for word in (b"KEY", b"TOKEN", b"SECRET", b"PASS"))
    ]


@given(
    st.dictionaries(
        st.sampled_from(sorted(n.decode() for n in ALLOWED_VARIABLES)), st.text(max_size=20), max_size=9
    )
)
def test_whatever_the_environment_holds_a_claim_is_publishable(environ: dict[str, str]) -> None:
    found = claim(environ, "", "h")
    assert found.run_id is None or safe_id(found.run_id)
    assert found.rank is None or found.rank >= 0
