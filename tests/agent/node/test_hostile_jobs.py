"""A made-up node on which one job means harm: what it does must cost no other user anything."""

import json
import os

from tests.agent.node.fake_node import UID, Node
from tests.agent.node.fake_proc import torchrun


def test_a_run_of_another_user_cannot_be_joined_or_spoken_for(node: Node) -> None:
    node.rank(101, torchrun(0, run="qwen"))
    node.look()
    node.rank(102, torchrun(1, run="qwen"), uid=UID + 1)
    report = node.look()
    assert [r.pid for r in report.ranks] == [101]
    assert any("belongs to another user" in sentence for sentence in report.blind)


def test_a_run_that_crashed_cannot_be_taken_over_and_finished_by_another_user(node: Node) -> None:
    node.rank(101, torchrun(0, run="qwen"))
    node.look()
    node.proc.end(101)
    node.rank(102, torchrun(0, run="qwen"), uid=UID + 1)
    assert node.look().ranks == ()
    assert node.look(298.0).ranks == ()
    # After that the name is free: ids such as host:port are everybody's in turn.
    assert [r.pid for r in node.look(3.0).ranks] == [102]


def test_an_environment_that_cannot_be_read_to_its_end_stops_nobody_else(node: Node) -> None:
    # As with pages that lie on a dead file system, or on one of the user's own making: the read does not return.
    for pid in (101, 102, 103, 104):
        node.rank(pid, torchrun(0, run="evil"), uid=UID + 1)
        (node.proc.root / str(pid) / "environ").unlink()
        os.mkfifo(node.proc.root / str(pid) / "environ")
    node.look()
    node.rank(201, torchrun(3, run="qwen"))
    report = node.look()
    assert [(r.run_id, r.rank) for r in report.ranks] == [("torchrun-qwen", 3)]
    assert "the environment of 4 GPU processes does not come: reading it has not returned" in report.blind
    for pid in (101, 102):  # its reads are bounded: two were begun
        os.close(os.open(node.proc.root / str(pid) / "environ", os.O_WRONLY | os.O_NONBLOCK))


def test_one_users_many_files_do_not_take_the_place_of_anothers_log(node: Node) -> None:
    for pid in (101, 102):
        node.rank(pid, torchrun(pid - 101, run="evil"), uid=UID + 1)
        for number in range(3, 400):
            node.proc.opens(pid, number, node.folder / f"{pid}-{number}.log")
    log = node.folder / "mine.log"
    log.write_text("")
    node.rank(201, torchrun(0, run="qwen"))
    node.proc.opens(201, 1, log)
    node.look()
    with log.open("a") as file:
        file.write("step 41/100 loss 2.0\n")
    assert [p.step for p in node.look().progress] == [41]


def test_a_log_that_shouts_does_not_drown_anothers_failure(node: Node) -> None:
    logs = []
    for pid, run in ((101, "loud"), (201, "qwen")):
        logs.append(node.folder / f"{run}.log")
        logs[-1].write_text("")
        node.rank(pid, torchrun(0, run=run))
        node.proc.opens(pid, 1, logs[-1])
    node.look()
    with logs[0].open("a") as file:
        file.writelines(f"x failed (exitcode: 1) local_rank: {n} (pid: {n})\n" for n in range(500))
    with logs[1].open("a") as file:
        file.write("x failed (exitcode: 7) local_rank: 0 (pid: 201)\n")
    events = node.look().events
    assert [e.code for e in events if e.run_id == "torchrun-qwen"] == [7]
    assert len([e for e in events if e.run_id == "torchrun-loud"]) == 16


def test_a_job_directory_that_ranks_share_is_read_once_for_all_of_them(node: Node) -> None:
    beats = node.folder / "beats"
    (beats / "run-a").mkdir(parents=True)
    for rank, pid in enumerate((101, 102)):
        node.rank(pid, {"WATCHTOWER_DIR": str(beats)})
        (node.proc.root / str(pid) / "ns").mkdir()
        (node.proc.root / str(pid) / "ns" / "mnt").symlink_to("mnt:[4026531841]")
        said = {"run_id": "run-a", "rank": rank, "pid": pid, "step": 5}
        (beats / "run-a" / f"rank_{rank}.json").write_text(json.dumps(said))
    report = node.look()
    assert sorted(r.rank for r in report.ranks if r.rank is not None) == [0, 1]
    assert not any("job files" in sentence for sentence in report.blind)
