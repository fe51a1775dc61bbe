"""Checkpoints, ends and failures: what is said about them, and what is kept to ourselves."""

import pytest

from tests.trainlog.samples import bar, read, steps


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("  successfully saved checkpoint from iteration    1250 to /ckpt [ t 1/1, p 1/1 ]", 1250),
        ("scheduled an async checkpoint save at iteration   80 to /ckpt", 80),
        ("Finished saving the checkpoint", None),
        ("checkpoint saved at step 12 to s3://somewhere", 12),
    ],
)
def test_a_checkpoint_that_is_there_is_an_event_with_its_step(line: str, code: int | None) -> None:
    (mark,) = read(line + "\n")
    assert (mark.kind, mark.code) == ("checkpoint_saved", code)
    assert "ckpt" not in (mark.text or "")


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("saving checkpoint at iteration    1250 to /ckpt in torch_dist format", "checkpoint"),
        ("Saving model checkpoint to out/checkpoint-500", "checkpoint"),
        ("***** Running Evaluation *****", "eval"),
        ("Resuming training from out", "init"),
        ("> compiling and loading fused kernels ...", "init"),
    ],
)
def test_a_pause_that_is_announced_is_a_phase(line: str, phase: str) -> None:
    assert [(m.kind, m.phase) for m in read(line + "\n")] == [(None, phase)]


@pytest.mark.parametrize(
    "line",
    [
        "{'train_runtime': 4021.4, 'train_samples_per_second': 12.61, 'train_steps_per_second': 0.4, 'train_loss': 1.79, 'epoch': 3.0}",
        "Training completed! Saving trained model to out",
        "[exiting program at iteration 500] datetime: 2031-02-03",
        "`Trainer.fit` stopped: `max_steps=1000` reached.",
    ],
)
def test_an_end_is_finishing_and_not_finished(line: str) -> None:
    (mark,) = read(line + "\n")
    assert (mark.kind, mark.phase) == ("training_completed", "finishing")


def test_train_runtime_alone_is_no_end() -> None:
    marks = read("{'loss': '1.9', 'epoch': '0.3', 'num_input_tokens_seen': 448, 'train_runtime': '0.19'}\n")
    assert [m for m in marks if m.kind] == []


def test_a_full_bar_is_no_end() -> None:
    assert [m.phase for m in read(bar(99, 100) + bar(100, 100))] == ["train", "train"]


def test_after_the_end_only_a_step_is_training_again() -> None:
    end = "Training completed! Saving trained model to out\n"
    log = end + bar(1, 2, description="Writing model shards") + "\n***** Running Evaluation *****\n"
    assert [m.phase for m in read(log)] == ["finishing"]
    assert [m.phase for m in read(bar(9, 10) + "\n" + end + bar(0, 10, elapsed="00:00") + bar(1, 10))][
        -1
    ] == "train"


def test_an_nccl_timeout_says_what_waited_for_how_long_and_on_which_rank() -> None:
    line = (
        "[rank7]:[E611 03:14:15.926 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9001, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) "
        "ran for 600042 milliseconds before timing out.\n"
    )
    (mark,) = read(line)
    assert (mark.kind, mark.rank, mark.code) == ("nccl_timeout", 7, 9001)
    assert mark.text == "NCCL timeout in ALLREDUCE, sequence 9001, limit 600 s, ran for 600 s"


def test_of_a_traceback_only_the_exceptions_name_is_told() -> None:
    log = (
        "Traceback (most recent call last):\n  File 'train.py', line 3, in <module>\n    connect('token=hunter2')\n"
        "mylib.errors.LoginError: bad token hunter2\n"
    )
    (mark,) = read(log)
    assert (mark.kind, mark.text) == ("traceback", "LoginError")
    assert read("mylib.errors.LoginError: nothing open\n") == []


def test_tracebacks_of_two_ranks_that_run_into_each_other_are_two() -> None:
    log = "".join(
        f"[rank{rank}]: {line}\n"
        for line in ("Traceback (most recent call last):", "  File 'x.py'", "KeyError: 'a'")
        for rank in (1, 2)
    )
    assert [(m.rank, m.text) for m in read(log)] == [(1, "KeyError"), (2, "KeyError")]


REPORT = """\
E0304 10:11:12.350000 29566 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 36459) of binary: python3
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
Failures:
[1]:
  time      : 2031-11-30_21:34:14
  rank      : 4 (local_rank: 0)
  exitcode  : -15 (pid: 9093)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2031-11-30_21:34:14
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 36459)  (SIGKILL)
============================================================
"""


def test_torchrun_blames_the_root_cause_and_victims_are_only_remembered() -> None:
    marks = read(REPORT)
    assert [(m.kind, m.rank, m.pid, m.exit_code) for m in marks] == [
        ("launcher_exit", None, 36459, -9),
        ("rank_exit", 4, 9093, -15),
        ("launcher_exit", 5, 36459, -9),
    ]


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.", "cuda_oom", None),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error", None),
        ("srun: error: node017: tasks 8-15: Exited with exit code 1", "launcher_exit", 1),
        (
            "slurmstepd: error: *** JOB 81233 ON node017 CANCELLED AT 2031-03-04T10:11:12 DUE TO TIME LIMIT ***",
            "signal",
            15,
        ),
        ("slurmstepd: error: *** STEP 81233.0 ON node017 CANCELLED AT 2031-03-04T10:11:12 ***", "signal", 15),
        (
            "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2031-03-04T10:11:12 DUE TO NODE FAILURE ***",
            "launcher_exit",
            None,
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=81233.0.", "oom_kill", 9),
        ("exiting program after receiving SIGTERM.", "signal", 15),
    ],
)
def test_ends_that_launchers_and_schedulers_announce(line: str, kind: str, code: int | None) -> None:
    (mark,) = read(line + "\n")
    assert (mark.kind, mark.code) == (kind, code)


def test_a_step_that_slurm_cancels_after_a_task_failed_was_nobodys_wish() -> None:
    log = (
        "srun: error: node017: task 3: Exited with exit code 1\n"
        "slurmstepd: error: *** STEP 81233.0 ON node017 CANCELLED AT 2031-03-04T10:11:12 ***\n"
    )
    assert [m.kind for m in read(log)] == ["launcher_exit"]


def test_a_process_that_ends_well_is_remembered_with_zero() -> None:
    (mark,) = read(
        "[2031-04-18 03:20:47,466] [INFO] [launch.py:460:main] Process 73591 exits successfully.\n"
    )
    assert (mark.kind, mark.pid, mark.exit_code) == ("rank_exit", 73591, 0)
    assert steps([mark]) == []


def test_the_collectives_own_timeout_is_read_where_it_is_logged() -> None:
    line = (
        "[rank0]:[I304 10:11:12.345 ProcessGroupNCCL.cpp:905] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL initialization"
        " options: size: 16, global rank: 0, TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0\n"
    )
    (mark,) = read(line)
    assert (mark.kind, mark.code) == ("collective_timeout", 600)
