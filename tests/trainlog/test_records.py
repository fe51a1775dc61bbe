"""What stands in front of a line, and what happens when it is cut anywhere."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainlog.samples import bar, megatron, read, steps
from watchtower.trainlog.lines import MAX_RECORD_CHARS, RecordSplitter

LINE = "step 5/100 loss 2.0"
LOG = (
    bar(0, 5000, elapsed="00:00")
    + "".join(
        bar(n, 5000) + f"\r{{'loss': '3.{n}', 'grad_norm': '0.5', 'epoch': '0.{n}'}}\n"
        for n in range(3101, 3108)
    )
    + "Map: 100%|██████████| 44/44 [00:01<00:00, 40.0 examples/s]\n"
    + "".join(megatron(n, 5000) for n in range(3108, 3112))
    + "Traceback (most recent call last):\n  File 'x.py', line 1\nValueError: loss is not finite\n"
    + "[rank3]:[E304 10:11:12.345 ProcessGroupNCCL.cpp:688] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds\n"
)
TRUE_STEPS = {0, *range(3101, 3112)}


@pytest.mark.parametrize(
    "prefix",
    [
        "15: ",
        "[1,3]<stdout>:",
        "[default0]:",
        "[rank0]:",
        "(TaskRunner pid=19143) ",
        "(Worker pid=7, ip=10.0.0.4) ",
        "2031-03-04T10:11:12.123456789Z stderr F ",
        "2031-03-04T10:11:12.123456789Z stdout F [default0]:(Worker pid=7) ",
        "\x1b[32m",
    ],
)
def test_what_launchers_put_in_front_is_taken_off(prefix: str) -> None:
    assert steps(read(prefix + LINE + "\n")) == [5]


@pytest.mark.parametrize(
    ("prefix", "rank"), [("[rank3]:", 3), ("[1,3]<stderr>:", 3), ("[default3]:", None), ("3: ", None)]
)
def test_only_prefixes_that_print_the_global_rank_name_one(prefix: str, rank: int | None) -> None:
    record = RecordSplitter().feed((prefix + LINE + "\n").encode())[0]
    assert (record.text, record.rank) == (LINE, rank)


def test_a_line_that_a_container_runtime_split_is_joined() -> None:
    head = "2031-03-04T10:11:12.123456789Z stdout "
    assert steps(read(f"{head}P step 5/1\n{head}F 00 loss 2.0\n")) == [5]


def test_records_glued_by_torchrun_are_parted() -> None:
    assert steps(
        read(
            "[default0]: 44%|####  | 440/1000 [07:20<09:21,  1.00s/it][default0]:{'loss': '3.9', 'epoch': '1'}\n"
        )
    ) == [440]


def test_every_kind_of_line_end_ends_a_line() -> None:
    assert steps(read("step 1/9\rstep 2/9\nstep 3/9\r\nstep 4/9\n")) == [1, 2, 3, 4]


def test_of_an_endless_line_the_end_counts_and_nothing_piles_up() -> None:
    splitter = RecordSplitter()
    for _ in range(100):
        splitter.feed(b"x" * 10_000)
    kept = splitter.unfinished()
    assert kept is not None
    assert len(kept.text) <= MAX_RECORD_CHARS
    assert steps(read("x" * 100_000 + bar(7, 10))) == [7]


def test_a_torn_character_does_not_lose_the_bar() -> None:
    data = "\r 44%|████▍     | 440/1000 [07:20<09:21,  1.00s/it]".encode()
    assert steps(read(data[:9] + data[10:])) == [440]


def test_a_plain_counter_whose_line_is_not_finished_is_not_read_yet() -> None:
    assert read("step 5/10") == []


@given(st.integers(1, 400))
def test_chunks_change_nothing(chunk: int) -> None:
    assert set(steps(read(LOG, chunk))) == set(steps(read(LOG)))
    assert [m for m in read(LOG, chunk) if m.kind] == [m for m in read(LOG) if m.kind]


@given(st.binary(max_size=2000))
def test_no_bytes_whatever_raise(data: bytes) -> None:
    read(data, 7)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 300)), max_size=12))
def test_lines_cut_and_spliced_anywhere_invent_no_step(pieces: list[tuple[int, int]]) -> None:
    lines = "\n".join(LOG[at : at + length] for at, length in pieces)
    assert set(steps(read(lines))) <= TRUE_STEPS


@given(st.permutations(LOG.splitlines(keepends=True)))
def test_shuffled_lines_invent_no_step(lines: list[str]) -> None:
    assert set(steps(read("".join(lines)))) <= TRUE_STEPS


@pytest.mark.parametrize(
    "hostile",
    [
        "1" * 16_384,
        "1." * 8192,
        "[" * 16_384,
        "a: " * 5000,
        "%|" * 8000,
        "100%|" + "#" * 16_000,
        "0%|#| " + "1" * 8000 + "/" + "1" * 8000 + " [",
        "{'a': " * 2700,
        "iteration " * 1600,
        "iteration 1/2 |" + " elapsed time per iteration (ms): " * 400,
        "step " * 3200,
        "step: 1  loss: " * 1000,
        "saving checkpoint " * 900,
        "Training epoch 0, iteration 1/2 | " * 480,
        "Watchdog caught collective operation timeout: WorkNCCL(" * 290,
        "Async checkpoint save for step 1 " * 490,
        "\x1b[" * 8000,
        "\x08" * 16_000,
        "[default0]:" * 1400,
        "skipping first " * 1000,
        "A." * 8000,
    ],
)
def test_no_hostile_line_holds_the_agent(hostile: str) -> None:
    began = time.process_time()
    read("Traceback (most recent call last):\n" + hostile + "\n")
    assert time.process_time() - began < 0.25
