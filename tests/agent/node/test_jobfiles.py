"""Files that jobs write are hostile: which are believed, and about whom."""

import json
import os
import tempfile
import threading
from pathlib import Path

import pytest

from watchtower.agent.node.jobfiles import JobFiles, JobFolder, read_job_folder

UID = os.getuid()


def write(folder: Path, run_id: str = "run-a", rank: int = 3, **said: object) -> Path:
    below = folder / run_id
    below.mkdir(parents=True, exist_ok=True)
    path = below / f"rank_{rank}.json"
    path.write_text(json.dumps({"run_id": run_id, "rank": rank, "pid": 77, "step": 5} | said))
    return path


def read(folder: Path, uid: int = UID) -> JobFiles:
    return read_job_folder(JobFolder("/", str(folder), uid))


def test_a_heartbeat_is_read_with_fields_we_do_not_know(tmp_path: Path) -> None:
    write(tmp_path, step=41, total_steps=100, phase="train", loss=2.5, something_new=[1])
    (found,) = read(tmp_path).heartbeats
    assert (found.run_id, found.rank, found.pid, found.step, found.total_steps) == ("run-a", 3, 77, 41, 100)


def test_a_file_of_another_owner_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    assert read(tmp_path, UID + 1) == JobFiles(JobFolder("/", str(tmp_path), UID + 1), (), 1)


def test_links_are_not_followed_anywhere_on_the_way(tmp_path: Path) -> None:
    real = write(tmp_path / "real")
    (tmp_path / "base" / "run-a").mkdir(parents=True)
    (tmp_path / "base" / "run-a" / "rank_3.json").symlink_to(real)
    assert read(tmp_path / "base") == JobFiles(JobFolder("/", str(tmp_path / "base"), UID), (), 1)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert read(tmp_path / "linked").heartbeats == ()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run-a").symlink_to(tmp_path / "real" / "run-a")
    assert read(tmp_path / "runs") == JobFiles(JobFolder("/", str(tmp_path / "runs"), UID), (), 1)


def test_a_folder_outside_the_jobs_root_is_not_reached(tmp_path: Path) -> None:
    write(tmp_path / "outside")
    (tmp_path / "root").mkdir()
    assert read_job_folder(JobFolder(str(tmp_path / "root"), "/../outside", UID)).heartbeats == ()
    assert read_job_folder(JobFolder(str(tmp_path), "/outside", UID)).heartbeats != ()


def test_a_pipe_in_place_of_a_file_is_not_opened_not_even_for_a_moment(tmp_path: Path) -> None:
    (tmp_path / "run-a").mkdir()
    pipe = tmp_path / "run-a" / "rank_3.json"
    os.mkfifo(pipe)
    # Returns as soon as anybody opens the pipe to read: what an open does to a device is not undone by closing it.
    writer = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_WRONLY)))
    writer.start()
    assert read(tmp_path).refused == 1
    writer.join(0.2)
    assert writer.is_alive()
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    writer.join(10)


def test_a_folder_below_one_that_may_not_be_listed_is_read_by_its_owner(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        write(Path(folder) / "me")
        for path in (Path(folder) / "me", *(Path(folder) / "me").rglob("*")):
            os.chown(path, 4242, 4242)
        child = os.fork()
        if child == 0:
            found = 99
            try:
                os.setgid(4242)
                os.setuid(4242)
                found = len(read(Path(folder) / "me", 4242).heartbeats)
            finally:
                os._exit(found)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_of_very_many_files_only_a_part_is_looked_at(tmp_path: Path) -> None:
    for run in range(4):
        for rank in range(400):
            write(tmp_path, run_id=f"run-{run}", rank=rank)
    assert len(read(tmp_path).heartbeats) == 1024


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"run_id": "run-a", "rank": 3',
        '{"run_id": "run-b", "rank": 3, "pid": 1}',
        '{"run_id": "run-a", "rank": 4, "pid": 1}',
        '{"run_id": "run-a", "rank": "3", "pid": 1}',
        '{"run_id": "run-a", "rank": 3, "pid": 1, "x": ' + "[" * 7000 + "]" * 7000 + "}",
        '{"run_id": "run-a", "rank": 3, "pid": 1, "phase": "' + "x" * 20_000 + '"}',
    ],
)
def test_content_that_is_not_what_it_must_be_is_refused_and_counted(tmp_path: Path, content: str) -> None:
    write(tmp_path).write_text(content)
    found = read(tmp_path)
    assert (found.heartbeats, found.refused) == ((), 1)


def test_files_being_written_and_strange_folders_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path).rename(tmp_path / "run-a" / ".rank_3.json.77")
    write(tmp_path, run_id=".hidden")
    assert read(tmp_path) == JobFiles(JobFolder("/", str(tmp_path), UID), (), 0)


def test_no_folder_is_no_trouble(tmp_path: Path) -> None:
    assert read(tmp_path / "absent").heartbeats == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_one_file_of_another_owner_in_a_users_folder_is_refused(tmp_path: Path) -> None:
    os.chown(write(tmp_path, rank=3), UID + 1, -1)
    write(tmp_path, rank=4)
    found = read(tmp_path)
    assert ([heartbeat.rank for heartbeat in found.heartbeats], found.refused) == ([4], 1)
