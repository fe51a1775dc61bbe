from watchtower import wire
from watchtower.agent.xids import XidJoiner

SIGNALLED = wire.Event(100.0, "xid", gpu_uuid="GPU-a", code=79, text="reported by NVML")
LOGGED = wire.Event(100.2, "xid", gpu_uuid="GPU-a", code=79, text="pid=7, GPU has fallen off the bus")


def test_an_xid_in_both_sources_is_told_once_in_the_kernel_s_words() -> None:
    for first_signalled in (True, False):
        joiner = XidJoiner()
        told = list(
            joiner.join(() if first_signalled else (LOGGED,), (SIGNALLED,) if first_signalled else (), 10)
        )
        told += joiner.join((LOGGED,) if first_signalled else (), () if first_signalled else (SIGNALLED,), 11)
        for now in range(12, 30):
            told += joiner.join((), (), now)
        assert told == [LOGGED]


def test_without_the_kernel_s_log_an_xid_is_told_after_three_seconds() -> None:
    joiner = XidJoiner()
    assert joiner.join((), (SIGNALLED,), 10) == ()
    assert joiner.join((), (), 12.9) == ()
    assert joiner.join((), (), 13) == (SIGNALLED,)
    assert joiner.join((), (), 14) == ()


def test_another_code_or_another_board_is_another_xid() -> None:
    joiner = XidJoiner()
    other = wire.Event(100.0, "xid", gpu_uuid="GPU-b", code=79)
    joiner.join((LOGGED,), (other,), 10)
    assert joiner.join((), (), 13) == (other,)


def test_what_is_no_xid_passes_at_once() -> None:
    oom = wire.Event(1.0, "oom_kill")
    assert XidJoiner().join((oom,), (), 10) == (oom,)
