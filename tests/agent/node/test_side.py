"""One look after another at a made-up node: ranks, exits, logs, kernel, job files, and what cannot be seen."""

import os
from pathlib import Path

from tests.agent.node.fake_node import UID, Node
from tests.agent.node.fake_proc import torchrun
from watchtower import wire
from watchtower.agent.node.side import GpuProcess, NodeSettings, NodeSide


def test_a_rank_is_published_with_all_that_is_known_and_nothing_secret(node: Node) -> None:
    node.rank(101, torchrun(3, run="qwen") | {"SLURM_JOB_PARTITION": "b300"})
    node.listed.append(GpuProcess(101, "GPU-big", 9000.0))
    node.proc.state(101, cpu_ticks=250)
    node.proc.storage(101, 4096, 512)
    report = node.look()
    (rank,) = report.ranks
    assert (rank.run_id, rank.rank, rank.local_rank, rank.world_size) == ("torchrun-qwen", 3, 3, 16)
    assert (rank.rank_source, rank.attempt, rank.proc_state) == ("environ", 0, "R")
    assert (rank.gpu_uuids, rank.gpu_memory_mib) == (("GPU-big", "GPU-0"), 10_000.0)
    assert (rank.cpu_s, rank.read_bytes, rank.write_bytes) == (2.5, 4096.0, 512.0)
    assert (rank.started_at, rank.labels) == (1764530050.0, {"partition": "b300"})
    assert "hunter2" not in repr(report)


def test_a_rank_that_vanishes_is_one_exit_of_which_nothing_is_known(node: Node) -> None:
    node.rank(101, torchrun(3))
    node.look()
    node.proc.end(101)
    assert node.look().exits == ()  # a launcher may still say how it ended
    (ended,) = node.look(3.0).exits
    assert (ended.rank, ended.pid, ended.exit_code, ended.signal, ended.oom_killed) == (
        3,
        101,
        None,
        None,
        None,
    )
    assert node.look().exits == ()


def test_a_zombie_tells_its_exit_code_and_is_no_rank_any_more(node: Node) -> None:
    node.rank(101, torchrun(3))
    node.rank(102, torchrun(4))
    node.look()
    node.proc.state(101, "Z", wait_status=1 << 8)
    node.proc.state(102, "Z", wait_status=11)
    report = node.look()
    assert [(e.rank, e.exit_code, e.signal) for e in report.exits] == [(3, 1, None), (4, None, 11)]
    assert report.ranks == ()


def test_a_pid_used_again_is_an_exit_and_a_new_process(node: Node) -> None:
    node.rank(101, torchrun(3))
    node.look()
    node.proc.end(101)
    node.proc.add(101, torchrun(5), start_ticks=99_999)
    report = node.look(4.0)
    assert [r.rank for r in report.ranks] == [5]
    assert [e.rank for e in node.look(3.0).exits] == [3]


def test_an_out_of_memory_kill_is_an_event_and_explains_the_exit(node: Node) -> None:
    node.rank(101, torchrun(3, run="qwen"))
    node.look()
    node.say("Memory cgroup out of memory: Killed process 101 (python3) total-vm:1kB")
    node.proc.end(101)
    report = node.look()
    assert [(e.kind, e.run_id, e.rank) for e in report.events] == [("oom_kill", "torchrun-qwen", 3)]
    assert [(e.signal, e.oom_killed) for e in report.exits] == [(9, True)]


def test_an_xid_is_put_to_its_gpu_and_to_the_rank_it_names(node: Node) -> None:
    node.rank(101, torchrun(3, run="qwen"))
    node.look()
    node.side.pci_by_uuid = {"GPU-0": "00000000:5D:00.0"}
    node.say("NVRM: Xid (PCI:0000:5d:00): 31, pid=101, name=python3, Ch 00000001")
    node.say("NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    known, unknown = node.look().events
    assert (known.gpu_uuid, known.code, known.run_id, known.rank) == ("GPU-0", 31, "torchrun-qwen", 3)
    assert (unknown.gpu_uuid, unknown.code, unknown.text) == (
        None,
        79,
        "Xid 79: GPU has fallen off the bus (GPU at 0000:5e:00)",
    )


def test_while_nvml_does_not_answer_ranks_stay_for_a_moment_and_none_has_ended(node: Node) -> None:
    node.rank(101, torchrun(3))
    node.look()
    node.listed.clear()
    report = node.look(10.0)
    assert ([r.rank for r in report.ranks], report.exits) == ([3], ())
    report = node.look(60.0)
    assert (report.ranks, report.exits) == ((), ())


def follow_log(node: Node, content: str = "") -> Path:
    log = node.folder / "train.log"
    log.write_text(content)
    os.utime(log, (node.clock.now() - 30, node.clock.now() - 30))
    node.rank(101, torchrun(3, run="qwen"))
    node.proc.opens(101, 1, log)
    node.proc.opens(101, 2, log)
    return log


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_steps_from_the_log_that_a_rank_holds_open(node: Node) -> None:
    log = follow_log(node)
    node.look()
    append(log, "step 40/100 loss 2.0\nstep 41/100 loss 2.0\n")
    (said,) = node.look().progress
    assert said == wire.Progress(
        run_id="torchrun-qwen", at=node.clock.now(), rank=3, step=41, total_steps=100, phase="train"
    )
    assert node.look().progress == ()


def test_a_checkpoint_between_two_looks_is_not_lost(node: Node) -> None:
    log = follow_log(node)
    node.look()
    append(log, "step 40/100 loss 2.0\nsaving checkpoint to out\nstep 41/100 loss 2.0\n")
    assert [(p.step, p.phase) for p in node.look().progress] == [(None, "checkpoint"), (41, "train")]


def test_what_a_log_said_before_we_came_is_dated_by_the_file_and_its_failures_are_no_news(node: Node) -> None:
    follow_log(node, "Traceback (most recent call last):\n  x\nValueError: old\nstep 40/100\n")
    began = node.clock.now()
    report = node.look()
    assert [(p.step, p.at) for p in report.progress] == [(40, began - 30)]
    assert report.events == ()


def test_a_log_that_an_earlier_attempt_wrote_says_nothing_of_this_one(node: Node) -> None:
    log = follow_log(node, "step 90/100\n")
    os.utime(log, (1.0, 1.0))
    assert node.look().progress == ()


def test_failures_in_a_log_are_events_of_their_run_without_the_logs_words(node: Node) -> None:
    log = follow_log(node)
    node.look()
    append(log, "Traceback (most recent call last):\n  x\nLoginError: token hunter2\n")
    (event,) = node.look().events
    assert (event.kind, event.run_id, event.rank, event.text) == (
        "traceback",
        "torchrun-qwen",
        3,
        "LoginError",
    )


def test_what_the_launcher_says_of_an_inner_pid_explains_the_exit(node: Node) -> None:
    log = node.folder / "launcher.out"
    log.touch()
    node.proc.add(90)
    node.proc.opens(90, 2, log)
    node.rank(101, torchrun(3, run="qwen"), parent=90, inner_pid=12)
    node.look()
    node.proc.end(101)
    append(
        log,
        "E1 9 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -11) local_rank: 3 (pid: 12) of binary: x\n",
    )
    reports = [node.look(), node.look(0.1)]
    assert [(e.rank, e.signal) for r in reports for e in r.exits] == [(3, 11)]
    assert [(e.kind, e.rank, e.code) for r in reports for e in r.events] == [("launcher_exit", 3, -11)]


def test_a_log_shared_by_ranks_speaks_for_the_run(node: Node) -> None:
    log = follow_log(node)
    node.rank(102, torchrun(4, run="qwen"))
    node.proc.opens(102, 1, log)
    node.look()
    append(log, "step 41/100 loss 2.0\n")
    assert [(p.rank, p.step) for p in node.look().progress] == [(None, 41)]


def test_files_that_are_no_logs_are_not_read(node: Node) -> None:
    node.rank(101, torchrun(3))
    for number, name in enumerate(("model.safetensors", "data.bin"), 5):
        (node.folder / name).write_text("step 41/100\n")
        node.proc.opens(101, number, node.folder / name)
    (node.folder / "read.log").write_text("step 42/100\n")
    node.proc.opens(101, 9, node.folder / "read.log", flags="0100000")
    assert node.look().progress == ()


def test_a_log_that_the_settings_name_is_followed_for_its_run_and_rank(tmp_path: Path) -> None:
    node = Node(tmp_path, log_globs=(f"{tmp_path}/{{run_id}}/*_{{rank}}.txt",))
    (tmp_path / "torchrun-qwen").mkdir()
    log = tmp_path / "torchrun-qwen" / "out_3.txt"
    log.touch()
    node.rank(101, torchrun(3, run="qwen"))
    for _ in range(3):
        node.look(5.0)
    append(log, "step 41/100 loss 2.0\n")
    assert [(p.rank, p.step) for p in node.look().progress] == [(3, 41)]
    node.side.close()


def test_a_heartbeat_registers_and_only_a_rise_is_progress(node: Node) -> None:
    node.rank(101, {})
    node.rank(102, {})
    node.heartbeat("ray-7", 5, pid=102, step=10, total_steps=99, world_size=8, at=1.0)
    report = node.look()
    assert [(r.pid, r.run_id, r.rank, r.rank_source) for r in report.ranks if r.pid == 102] == [
        (102, "ray-7", 5, "registered")
    ]
    assert [(p.step, p.total_steps) for p in report.progress] == [(10, 99)]
    node.heartbeat("ray-7", 5, pid=102, step=10, total_steps=99, world_size=8, at=2.0)
    assert node.look().progress == ()
    node.heartbeat("ray-7", 5, pid=102, step=11, total_steps=99, world_size=8, at=3.0)
    assert [p.step for p in node.look().progress] == [11]


def test_a_heartbeat_of_a_process_that_is_not_there_is_counted_and_not_believed(node: Node) -> None:
    node.rank(101, torchrun(3))
    node.heartbeat("ray-7", 5, pid=999, step=10)
    report = node.look()
    assert [r.run_id for r in report.ranks] == ["node-a:29500"]
    assert report.progress == ()
    assert any("1 job files name no living GPU process" in sentence for sentence in report.blind)


def test_where_ranks_report_steps_themselves_the_logs_are_not_asked_about_them(node: Node) -> None:
    log = follow_log(node)
    node.heartbeat("torchrun-qwen", 3, pid=101, step=41)
    node.look()
    append(log, "step 40/100 loss 2.0\n")
    assert node.look().progress == ()


def test_containers_that_share_a_folder_and_count_from_one_are_told_apart_by_rank(node: Node) -> None:
    node.rank(101, torchrun(3, run="qwen"), inner_pid=7)
    node.rank(102, torchrun(4, run="qwen"), inner_pid=7)
    node.heartbeat("torchrun-qwen", 4, pid=7, step=10)
    node.heartbeat("torchrun-qwen", 5, pid=7, step=99)
    report = node.look()
    assert [(p.rank, p.step) for p in report.progress] == [(4, 10)]


def test_a_watchtower_dir_is_read_inside_the_jobs_own_root(node: Node) -> None:
    inside = node.folder / "container"
    (inside / "beat" / "run-a").mkdir(parents=True)
    (inside / "beat" / "run-a" / "rank_0.json").write_text(
        '{"run_id": "run-a", "rank": 0, "pid": 7, "step": 1}'
    )
    node.rank(101, {"WATCHTOWER_DIR": "/beat"}, inner_pid=7)
    (node.proc.root / "101" / "root").unlink()
    (node.proc.root / "101" / "root").symlink_to(inside)
    assert [(r.run_id, r.rank) for r in node.look().ranks] == [("run-a", 0)]


def test_with_user_only_other_users_are_left_alone_and_that_is_said(tmp_path: Path) -> None:
    node = Node(tmp_path, user_only=True)
    node.rank(101, torchrun(0))
    node.rank(102, torchrun(1), uid=UID + 1)
    report = node.look()
    assert [r.pid for r in report.ranks] == [101]
    assert any("1 processes on the GPUs belong to other users" in sentence for sentence in report.blind)
    node.side.close()


def test_processes_that_are_not_in_proc_are_said_to_be_unseen(node: Node) -> None:
    node.listed.append(GpuProcess(4_000_000, "GPU-0", 10.0))
    assert any("1 processes on the GPUs are not in /proc" in sentence for sentence in node.look().blind)


def test_a_kernel_log_that_may_not_be_read_is_said_and_everything_else_works(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.side.close()
    side = NodeSide(
        NodeSettings(
            proc_root=node.proc.root, job_directory=str(node.jobs), kmsg_path=str(tmp_path / "none")
        ),
        node.clock,
    )
    node.rank(101, torchrun(0))
    report = side.look(node.listed)
    assert len(report.ranks) == 1
    assert any("kernel log" in sentence for sentence in report.blind)
    side.close()
