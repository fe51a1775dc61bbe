"""Following one log, and doing it on threads of which one may never come back."""

import os
import threading
from pathlib import Path

import pytest

from watchtower.agent.node.follow import READ_BACK_BYTES, FollowedFile, open_log
from watchtower.agent.node.lanes import MAX_LANES, Lanes

UID = os.getuid()


def follow(path: Path, *, late: bool = True) -> FollowedFile:
    descriptor = open_log(str(path), UID, follow_links=False)
    assert descriptor is not None
    return FollowedFile(descriptor, late=late)


def steps(file: FollowedFile) -> list[int]:
    return [mark.step for mark in file.read().marks if mark.step is not None]


def test_only_what_was_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step 1/9\n")
    file = follow(path)
    first = file.read()
    assert ([m.step for m in first.marks], first.history) == ([1], True)
    with path.open("a") as out:
        out.write("step 2/9\n")
    second = file.read()
    assert ([m.step for m in second.marks], second.history) == ([2], False)
    assert file.read().marks == ()
    file.close()


def test_a_truncated_file_is_a_new_log(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step 1/9\nstep 2/9 and some more\n")
    file = follow(path)
    assert steps(file) == [1, 2]
    path.write_text("step 1/9\n")
    assert steps(file) == [1]
    file.close()


def test_of_a_big_file_only_the_end_is_read_and_never_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step 111/999\n" * (READ_BACK_BYTES // 10) + "step 222/999\n")
    file = follow(path)
    found = steps(file)
    assert found == [111, 222]
    file.close()


def test_who_falls_far_behind_skips_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step 1/9\n")
    file = follow(path)
    file.read()
    with path.open("a") as out:
        out.write("noise without meaning\n" * 300_000 + "step 8/9\n")
    assert [step for _ in range(3) for step in steps(file)] == [8]
    file.close()


def test_a_log_of_another_owner_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    assert open_log(str(tmp_path / "a.log"), UID + 1, follow_links=False) is None


def test_a_named_log_may_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "b.log").symlink_to(tmp_path / "a.log")
    assert open_log(str(tmp_path / "b.log"), UID, follow_links=False) is None


@pytest.mark.parametrize("follow_links", [True, False])
def test_devices_and_pipes_are_not_opened(tmp_path: Path, *, follow_links: bool) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    assert open_log(str(tmp_path / "pipe.log"), UID, follow_links=follow_links) is None
    assert open_log("/dev/zero", 0, follow_links=follow_links) is None
    assert open_log(str(tmp_path), UID, follow_links=follow_links) is None


def test_a_read_that_never_returns_holds_only_its_own_lane() -> None:
    lanes: Lanes[str] = Lanes()
    never = threading.Event()
    assert lanes.submit("dead", lambda: str(never.wait()))
    assert lanes.collect(0.01) == []
    for _ in range(3):
        assert lanes.submit("alive", lambda: "read")
        assert lanes.collect(5.0) == ["read"]  # and at once: what is overdue is not waited for again
        assert not lanes.submit("dead", lambda: "again")
    assert lanes.busy == {"dead"}
    never.set()
    assert lanes.collect(5.0) in (["True"], [])
    lanes.close()


def test_threads_are_few_however_many_file_systems_die() -> None:
    lanes: Lanes[str] = Lanes()
    never = threading.Event()
    taken = [lanes.submit(f"dead {n}", lambda: str(never.wait())) for n in range(50)]
    assert (sum(taken), lanes._threads) == (MAX_LANES, MAX_LANES)
    never.set()
    lanes.collect(5.0)
    lanes.close()


def test_a_job_that_fails_frees_its_lane() -> None:
    lanes: Lanes[str] = Lanes()

    def fails() -> str:
        raise OSError(5, "Input/output error")

    lanes.submit("a", fails)
    assert lanes.collect(5.0) == []
    assert lanes.submit("a", lambda: "well again")
    assert lanes.collect(5.0) == ["well again"]
    lanes.close()
