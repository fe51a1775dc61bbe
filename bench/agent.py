"""What an agent costs its node: memory of parent and child, CPU at 1 Hz with 8 GPUs, on the stand-in NVML library.

    python bench/agent.py [seconds]

The library answers in microseconds, so the CPU is ours and the binding's; what a real driver adds is not measured here.
"""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from watchtower.simulate.nvml_library import SimulatedGpu, build, environment, write_state

BAR_MIB, BAR_CPU_PERCENT = 60.0, 1.0
POLLS = 60
GPUS = 8
BARE = "import pynvml, sys; print('up', flush=True); sys.stdin.read()"
AGENT = "from watchtower.cli.agent import agent; import typer; typer.run(agent)"


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no resident memory")


def cpu_s(pid: int) -> float:
    """Of the whole process, threads that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += [int(child) for child in (thread / "children").read_text().split()]
        except FileNotFoundError:  # a thread that has just ended
            continue
    return found


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def wait_until_up(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if b'"state":"ok"' in get(port, "/v1/snapshot"):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the agent did not come up in 20 s")


def bare_mib() -> float:
    with subprocess.Popen(
        [sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        mib = resident_mib(process.pid)
        process.communicate(b"")
    return mib


def start_ranks() -> list[subprocess.Popen[bytes]]:
    """Eight processes that look like ranks of one run."""
    common = {
        "WORLD_SIZE": "8",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "bench",
    }
    return [
        subprocess.Popen(["sleep", "600"], env={**os.environ, **common, "RANK": f"{n}", "LOCAL_RANK": f"{n}"})
        for n in range(GPUS)
    ]


def main() -> int:
    window_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as cleanup:
        folder = Path(scratch)
        ranks = start_ranks()
        for rank in ranks:
            cleanup.callback(rank.wait)
            cleanup.callback(rank.kill)
        write_state(
            folder / "state",
            [
                SimulatedGpu(
                    uuid=f"GPU-{n}", power_w=900.0 + n, utilization_pct=99, procs=[(ranks[n].pid, 1000)]
                )
                for n in range(GPUS)
            ],
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--listen", f"127.0.0.1:{port}", "--log-level", "error"],
            env={**os.environ, **environment(build(folder), folder / "state")},
        )
        try:
            wait_until_up(port)
            get(port, "/metrics")
            for _ in range(POLLS):
                get(port, "/v1/snapshot")
            pids = [agent.pid, *children(agent.pid)]
            before = [cpu_s(pid) for pid in pids]
            began = time.monotonic()
            cursor, body = "", b""
            while (left_s := window_s - (time.monotonic() - began)) > 0:
                time.sleep(min(5.0, left_s))
                body = get(port, f"/v1/snapshot?after={cursor}")
                cursor = body.split(b'"cursor":"')[1].split(b'"')[0].decode()
            took_s = time.monotonic() - began
            shares = [100 * (cpu_s(pid) - old) / took_s for pid, old in zip(pids, before, strict=True)]
            seen = body.count(b'"rank_source"')
            memory = [resident_mib(pid) for pid in pids]
        finally:
            agent.terminate()
            agent.wait()
    bare = bare_mib()
    print(f"resident: parent {memory[0]:.1f} MiB + child {sum(memory[1:]):.1f} MiB = {sum(memory):.1f} MiB")
    print(
        f"          {sum(memory) / bare:.2f} times a bare python with pynvml ({bare:.1f} MiB); bar {BAR_MIB:.0f} MiB"
    )
    print(
        f"CPU:      parent {shares[0]:.2f} % + child {sum(shares[1:]):.2f} % = {sum(shares):.2f} % of a core"
    )
    print(
        f"          over {took_s:.0f} s at 1 Hz, {GPUS} GPUs and {seen} ranks, one poll per 5 s; bar {BAR_CPU_PERCENT:.0f} %"
    )
    return 0 if sum(memory) < BAR_MIB and sum(shares) < BAR_CPU_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
