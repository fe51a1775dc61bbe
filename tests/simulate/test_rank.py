"""A simulated rank: a real process with a real log."""

import os
import subprocess
import sys
from pathlib import Path

from watchtower.simulate import rank as rank_program
from watchtower.simulate.rank import bar


def run_rank(rank: int, orders: str, log: Path) -> int:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-S", "-I", "-X", "utf8", rank_program.__file__],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={"RANK": str(rank)},
        )
        process.communicate(orders.encode(), timeout=20)
    return process.returncode


def test_a_bar_reads_as_tqdm_prints_it() -> None:
    assert bar(3850, 3857, 40006.2, 10.39) == "\r100%|█████████ | 3850/3857 [11:06:46<01:12, 10.39s/it]"
    assert bar(440, 1000, 440, 0.5) == "\r 44%|████      | 440/1000 [07:20<04:40,  2.00it/s]"


def test_rank_0_keeps_the_trainers_log(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    assert run_rank(0, "step 5 10 5.0 1.0\nlog {'loss': 1.2}\nstep 6 10 6.0 1.0\n", log) == 0
    text = log.read_bytes().decode()
    assert text.index("5/10") < text.index("{'loss': 1.2}\n") < text.index("\r 60%|")


def test_the_other_ranks_say_nothing_of_the_training(tmp_path: Path) -> None:
    log = tmp_path / "rank_3.log"
    run_rank(3, "step 5 10 5.0 1.0\nlog {'loss': 1.2}\n", log)
    assert log.read_text().count("\n") == 1
    assert "5/10" not in log.read_text()


def test_a_rank_leaves_with_the_status_it_is_told_and_when_its_teller_is_gone(tmp_path: Path) -> None:
    assert run_rank(1, "exit 7\n", tmp_path / "a.log") == 7
    assert run_rank(1, "", tmp_path / "b.log") == 0


def test_a_rank_is_small_enough_for_sixteen_of_them(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-S", "-I", "-X", "utf8", rank_program.__file__],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={"RANK": "1"},
        )
        try:
            assert process.stdin is not None
            while (tmp_path / "log").stat().st_size == 0 and process.poll() is None:
                os.sched_yield()
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            assert pages * os.sysconf("SC_PAGE_SIZE") < 20 * 2**20
        finally:
            process.communicate(timeout=20)
