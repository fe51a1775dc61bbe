"""What replaying a recording costs, as a ratio to only unpacking and decoding the same recording, in one run.

    python bench/replay.py RECORDING [RECORDING ...]
"""

import sys
import time
from pathlib import Path

from watchtower.judge.settings import JudgeSettings
from watchtower.recording.jsonl import Recording
from watchtower.replay.play import play

ROUNDS = 3


def _decode(path: Path) -> int:
    return sum(1 for _ in Recording(path).polls())


def _replay(path: Path) -> int:
    return sum(len(step.changes) for step in play(Recording(path), JudgeSettings()))


def _cpu(work, path: Path) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work(path)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Print one line per recording and the ratio over all of them."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    decoding = replaying = 0.0
    for name in sys.argv[1:]:
        path = Path(name)
        bare, whole = _cpu(_decode, path), _cpu(_replay, path)
        decoding, replaying = decoding + bare, replaying + whole
        print(f"{path}: decode {bare:.2f} s, replay {whole:.2f} s, ratio {whole / bare:.2f}")
    print(f"all: ratio {replaying / decoding:.2f} (CPU seconds, best of {ROUNDS}; decode includes unpacking)")


if __name__ == "__main__":
    main()
