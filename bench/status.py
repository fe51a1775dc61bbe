"""Prints what `watchtower status` costs beside a bare typer command of the same version: CPU time, as a ratio. Starts its own stand-in daemon."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

BAR = 1.3
ROUNDS = 15
BARE = """
import typer
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
@app.command()
def one(number: int = 1) -> None:
    print(number)
@app.command()
def two(number: int = 1) -> None:
    print(number)
app()
"""


def cpu_ms(command: list[str]) -> float:
    """CPU milliseconds of one start, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    from tests.fakes.daemon import running_daemon

    with running_daemon() as url, tempfile.NamedTemporaryFile("w", suffix=".py") as bare:
        bare.write(BARE)
        bare.flush()
        commands = {
            "bare typer command": [sys.executable, bare.name, "one"],
            "watchtower status": [sys.executable, "-m", "watchtower", "status", "--url", url],
            "watchtower status --json": [
                sys.executable,
                "-m",
                "watchtower",
                "status",
                "--url",
                url,
                "--json",
            ],
        }
        best = {name: float("inf") for name in commands}
        for _ in range(ROUNDS):  # taken in turns, so that a busy moment falls on all of them
            for name, command in commands.items():
                best[name] = min(best[name], cpu_ms(command))
    bare_ms = best["bare typer command"]
    for name, spent_ms in best.items():
        print(f"{name:<26} {spent_ms:6.1f} ms CPU   x{spent_ms / bare_ms:.2f}   (bar: at most x{BAR})")


if __name__ == "__main__":
    main()
