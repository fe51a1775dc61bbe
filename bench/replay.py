"""What replaying a recording costs, as a ratio to only unpacking and decoding the same recording, in one run.

`python bench/replay.py [RECORDING ...]`; without one, two hours of a simulated sixteen-GPU run are written and used.
"""

import sys
import tempfile
import time
from pathlib import Path

from watchtower.judge.settings import JudgeSettings
from watchtower.recording.jsonl import Recording
from watchtower.replay.play import play
from watchtower.simulate.story import Story
from watchtower.simulate.telling import write_recording

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


def _simulated(folder: Path) -> Path:
    path = folder / "two-hours.jsonl"
    write_recording(Story(step_s=4.7, first_step=2500, save_step=3000), path, until_s=7200)
    return path


def main() -> None:
    """Print one line per recording and the ratio over all of them."""
    with tempfile.TemporaryDirectory() as folder:
        decoding = replaying = 0.0
        for path in [Path(name) for name in sys.argv[1:]] or [_simulated(Path(folder))]:
            bare, whole = _cpu(_decode, path), _cpu(_replay, path)
            decoding, replaying = decoding + bare, replaying + whole
            print(f"{path.name}: decode {bare:.2f} s, replay {whole:.2f} s, ratio {whole / bare:.2f}")
    print(
        f"all: ratio {replaying / decoding:.2f} (CPU seconds, best of {ROUNDS}; bar: two hours in under 10 s)"
    )


if __name__ == "__main__":
    main()
