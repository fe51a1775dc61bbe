"""Following one log, and doing it on threads of which one may never come back."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watchtower.agent.node.follow import READ_BACK_BYTES, FollowedFile, open_held_log, open_named_log
from watchtower.agent.node.lanes import MAX_LANES, MAX_STUCK_PER_OWNER, Lanes

UID = os.getuid()


def follow(path: Path, *, late: bool = True) -> FollowedFile:
    descriptor = open_named_log(str(path), UID)
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
    assert open_named_log(str(tmp_path / "a.log"), UID + 1) is None


def test_a_named_log_may_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "b.log").symlink_to(tmp_path / "a.log")
    assert open_named_log(str(tmp_path / "b.log"), UID) is None


@pytest.mark.parametrize("open_log", [open_held_log, open_named_log])
def test_devices_and_pipes_are_not_opened(tmp_path: Path, open_log: Callable[[str, int], int | None]) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    assert open_log(str(tmp_path / "pipe.log"), UID) is None
    assert open_log("/dev/zero", 0) is None
    assert open_log(str(tmp_path), UID) is None


def test_what_is_swapped_for_a_pipe_after_the_look_is_not_opened_either(tmp_path: Path) -> None:
    plain, pipe, held = tmp_path / "a.log", tmp_path / "pipe", tmp_path / "held"
    plain.touch()
    os.mkfifo(pipe)
    held.symlink_to(plain)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in (pipe, plain):
                (tmp_path / "next").symlink_to(target)
                (tmp_path / "next").replace(held)

    def write() -> None:
        os.close(os.open(pipe, os.O_WRONLY))  # returns when somebody opens the pipe to read
        opened.set()

    opened = threading.Event()
    threads = [threading.Thread(target=target) for target in (swap, write)]
    for thread in threads:
        thread.start()
    found = [open_held_log(str(held), UID) for _ in range(3000)]
    for descriptor in found:
        if descriptor is not None:
            os.close(descriptor)
    was_opened = opened.is_set()
    done.set()
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    for thread in threads:
        thread.join(10)
    assert not was_opened
    assert set(map(type, found)) == {int, type(None)}  # both were met


def test_a_log_is_found_below_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    (tmp_path / "home" / "me").mkdir(parents=True)
    (tmp_path / "home" / "me" / "a.log").write_text("x")
    (tmp_path / "home").chmod(0o311)
    descriptor = open_named_log(str(tmp_path / "home" / "me" / "a.log"), UID)
    assert descriptor is not None
    os.close(descriptor)


@pytest.fixture
def roots_folder() -> Iterator[Path]:
    """A folder that root alone can have placed, as /var/log is."""
    if os.geteuid() != 0 or Path.home().stat().st_mode & 0o022:
        pytest.skip("needs root, with a home directory of its own")
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        yield Path(folder)


@pytest.mark.parametrize(("way", "believed"), [("pods/mine", True), ("users/run-a", False), ("data", False)])
def test_a_log_of_root_is_believed_only_where_root_alone_leads_to_it(
    roots_folder: Path, way: str, *, believed: bool
) -> None:
    (roots_folder / "pods" / "mine").mkdir(parents=True)
    (roots_folder / "pods" / "mine" / "0.log").write_text("step 1/9\n")
    users = roots_folder / "users"
    users.mkdir()
    os.chown(users, 4242, 4242)
    (users / "run-a").symlink_to(roots_folder / "pods" / "mine")
    (roots_folder / "data").symlink_to(users / "run-a")  # root's own link, but whose is what it leads to?
    descriptor = open_named_log(str(roots_folder / way / "0.log"), 4242)
    assert (descriptor is not None) is believed
    if descriptor is not None:
        os.close(descriptor)


def test_a_folder_of_root_that_others_can_write_vouches_for_nothing(roots_folder: Path) -> None:
    (roots_folder / "open").mkdir()
    (roots_folder / "open").chmod(0o1777)
    (roots_folder / "open" / "a.log").touch()
    assert open_named_log(str(roots_folder / "open" / "a.log"), 4242) is None


def test_a_users_own_link_on_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run-a").mkdir()
    (tmp_path / "run-a" / "a.log").touch()
    (tmp_path / "users").mkdir()
    (tmp_path / "users").chmod(0o777)
    (tmp_path / "users" / "run-b").symlink_to(tmp_path / "run-a")
    assert open_named_log(str(tmp_path / "users" / "run-b" / "a.log"), UID) is None


def test_links_that_root_alone_could_place_lead_to_a_users_own_logs(roots_folder: Path) -> None:
    (roots_folder / "disk").mkdir()
    (roots_folder / "disk" / "a.log").touch()
    os.chown(roots_folder / "disk" / "a.log", 4242, 4242)
    (roots_folder / "data").symlink_to(roots_folder / "disk")
    descriptor = open_named_log(str(roots_folder / "data" / "a.log"), 4242)
    assert descriptor is not None
    os.close(descriptor)


def test_a_read_that_never_returns_holds_only_its_own_lane() -> None:
    lanes: Lanes[str] = Lanes()
    never = threading.Event()
    assert lanes.submit("dead", lambda: str(never.wait()), owner=1000)
    assert lanes.collect(0.01) == []
    for _ in range(3):
        assert lanes.submit("alive", lambda: "read", owner=1000)
        assert lanes.collect(5.0) == ["read"]  # and at once: what is overdue is not waited for again
        assert not lanes.submit("dead", lambda: "again", owner=1000)
    assert lanes.busy == {"dead"}
    never.set()
    assert lanes.collect(5.0) in (["True"], [])
    lanes.close()


def test_who_makes_reads_hang_holds_up_his_own_and_nobody_elses() -> None:
    lanes: Lanes[str] = Lanes()
    never = threading.Event()
    taken = 0
    for n in range(50):
        taken += lanes.submit(f"dead {n}", lambda: str(never.wait()), owner=1000)
        lanes.collect(0.01)
    assert (taken, lanes._threads) == (MAX_STUCK_PER_OWNER, MAX_STUCK_PER_OWNER)
    assert lanes.submit("alive", lambda: "read", owner=1001)
    assert lanes.collect(5.0) == ["read"]
    never.set()
    lanes.close()


def test_threads_are_few_and_yet_everybody_is_read() -> None:
    lanes: Lanes[str] = Lanes()
    for n in range(50):
        assert lanes.submit(str(n), lambda n=n: str(n), owner=n % 3)  # type: ignore[misc]
    assert sorted(lanes.collect(5.0), key=int) == [str(n) for n in range(50)]
    assert lanes._threads == MAX_LANES
    lanes.close()


@pytest.mark.parametrize(
    "trouble", [OSError(5, "Input/output error"), RecursionError(), ValueError("hunter2")]
)
def test_a_job_that_fails_frees_its_lane_and_its_words_go_nowhere(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    lanes: Lanes[str] = Lanes()

    def fails() -> str:
        raise trouble

    for _ in range(MAX_LANES + 1):
        assert lanes.submit("a", fails, owner=1000)
        assert lanes.collect(5.0) == []
    assert lanes.submit("a", lambda: "well again", owner=1000)
    assert lanes.collect(5.0) == ["well again"]
    assert "hunter2" not in caplog.text
    lanes.close()
