"""What of the kernel log matters, and that yesterday's is no news."""

import os
from pathlib import Path

import pytest

from watchtower.agent.node.kernel import KernelLog, gpu_of, parse, parse_pci

XID = "3,1234,5678901,-;NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("line", "code", "pid", "pci"),
    [
        (XID.strip(), 79, None, (0, 0x5D, 0)),
        ("NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained: x", 94, 1234, (0, 0x9B, 0)),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000010", 14, None, (0, 3, 0)),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::Worker, a, RLW_RXPIPE Link 13 (0x1)",
            145,
            876767,
            (0x18, 1, 0),
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None)",
            154,
            None,
            (0, 0x18, 0),
        ),
        ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", 79, None, (0, 0x18, 0)),
        (
            "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2901) has fallen off the bus",
            79,
            None,
            (0, 0x18, 0),
        ),
    ],
)
def test_every_form_of_an_xid(line: str, code: int, pid: int | None, pci: tuple[int, int, int]) -> None:
    found = parse(line)
    assert found is not None
    assert (found.kind, found.code, found.pid, found.pci) == ("xid", code, pid, pci)
    assert "python3" not in found.text


@pytest.mark.parametrize(
    ("line", "kind", "pid"),
    [
        ("Out of memory: Killed process 52100 (python3) total-vm:1kB, anon-rss:2kB", "oom_kill", 52100),
        ("Memory cgroup out of memory: Killed process 52100 (python3) total-vm:1kB", "oom_kill", 52100),
        ("INFO: task python3:52100 blocked for more than 122 seconds.", "blocked_task", 52100),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 x", "sxid", None),
    ],
)
def test_other_lines_that_matter(line: str, kind: str, pid: int | None) -> None:
    found = parse(line)
    assert found is not None
    assert (found.kind, found.pid) == (kind, pid)


@pytest.mark.parametrize(
    "said",
    [
        "Out of memory: Killed process 4242 (python3) total-vm:1kB",
        "Killed process 4242 (x",
        "NVRM: Xid (PCI:0000:5d:00): 79, x",
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Fatal, x",
        "INFO: task python3:4242 blocked for more than 122 seconds.",
    ],
)
def test_what_a_user_can_make_the_kernel_or_syslog_say_is_not_believed(said: str) -> None:
    assert parse(f"6,1,2,-;{said}") is not None
    assert parse(f"6,1,2,-,caller=T77;[   12.345678] {said}") is not None
    # The name of a program that crashed, and of a cgroup: any user's choice.
    assert parse(f"6,1,2,-;a.out[77]: segfault at 0 ip 0 sp 0 error 4 in {said}[400000+1000]") is None
    assert parse(f"6,1,2,-;cgroup: fork rejected by pids controller in /user.slice/{said}") is None
    # A program wrote it (logger, forwarded by syslog): facility 1.
    assert parse(f"14,1,2,-;{said}") is None


def test_a_process_named_like_a_field_is_not_taken_for_one() -> None:
    found = parse(
        "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=pid=4242, GPU has fallen off the bus."
    )
    assert found is not None
    assert found.pid is None


def test_an_address_is_the_same_in_every_spelling() -> None:
    assert parse_pci("0000:5d:00") == parse_pci("00000000:5D:00.0") == parse_pci("5d:00.0")
    assert (
        gpu_of(parse_pci("0000:5d:00"), {"GPU-a": "00000000:5D:00.0", "GPU-b": "00000000:5E:00.0"}) == "GPU-a"
    )
    assert gpu_of(parse_pci("0000:5f:00"), {"GPU-a": "00000000:5D:00.0"}) is None


def test_what_was_said_before_the_agent_started_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(XID)
    log = KernelLog(str(path))
    assert log.read(0.0) == []
    with path.open("a") as file:
        file.write("6,1235,1,-;usb 1-1: new device\n SUBSYSTEM=usb\n" + XID.replace("79", "119"))
    assert [line.code for line in log.read(1.0)] == [119]
    assert log.read(2.0) == []
    log.close()


def test_the_same_complaint_within_five_seconds_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.touch()
    log = KernelLog(str(path))
    codes = []
    for second in (0.0, 1.0, 2.0, 20.0):
        with path.open("a") as file:
            file.write(XID)
        codes.append(len(log.read(second)))
    log.close()
    assert codes == [1, 0, 0, 1]


def test_a_pipe_that_says_nothing_does_not_hold_us_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    log = KernelLog(str(path))
    assert log.read(0.0) == []
    writer = os.open(path, os.O_WRONLY)
    os.write(writer, XID[:40].encode())
    assert log.read(1.0) == []
    os.write(writer, XID[40:].encode())
    assert [line.code for line in log.read(2.0)] == [79]
    os.close(writer)
    log.close()


def test_a_kernel_log_that_may_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "absent"))
    assert log.read(0.0) == []
    assert log.blind is not None
    assert "absent" in log.blind
