"""Two simulated GPU nodes as a watcher can see them: rank processes, what NVML shows, and one real agent each. Judges nothing, tells the watcher nothing."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from watchtower.clock import Clock
from watchtower.simulate import rank as rank_program
from watchtower.simulate.nvml_library import STATE_VARIABLE, SimulatedGpu, environment, write_state
from watchtower.simulate.processes import Processes, free_port
from watchtower.simulate.story import (
    DRIVER_VERSION,
    MEMORY_TOTAL_MIB,
    MODEL,
    POWER_LIMIT_W,
    Showing,
    Story,
    gpu_uuid,
    pci_bus_id,
    showing,
)

_TELL_EVERY_S = 0.25  # four times as often as an agent reads
_ASK_LIMIT_S = 3.0
_OVERHEAD_MIB = 800  # board memory that belongs to no process
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONWARNINGS", "TMPDIR", "VIRTUAL_ENV")


class Node(msgspec.Struct, frozen=True):
    """One node: its name, where its agent listens, and the file that its NVML reads."""

    name: str
    port: int
    state: Path
    log: Path

    @property
    def url(self) -> str:
        """Where its agent answers."""
        return f"http://127.0.0.1:{self.port}"


class Cluster:
    """The nodes of one story while it is told; close its `processes` to end it."""

    def __init__(self, story: Story, folder: Path, *, processes: Processes, clock: Clock) -> None:
        self.story = story
        self.nodes = tuple(
            Node(name, free_port(), folder / f"{name}.nvml", folder / f"{name}.agent.log")
            for name in story.nodes
        )
        self._folder = folder
        self._processes = processes
        self._clock = clock
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._told_step = story.first_step
        self._saving = False
        self._began = clock.monotonic()
        self._ended = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="teller", daemon=True)

    def start_ranks(self) -> None:
        """Start the rank processes, each with the environment that torchrun gives and a log of its own, and begin to tell."""
        for number in range(self.story.world_size):
            self._ranks.append(
                self._processes.start(
                    [sys.executable, "-S", "-I", "-X", "utf8", rank_program.__file__],
                    env=_rank_environment(self.story, number),
                    output=self._folder / f"rank_{number}.log",
                    orders=True,
                )
            )
        self._began = self._clock.monotonic()
        self._show(0.0)
        self._teller.start()

    def start_agents(self, library: Path | None) -> None:
        """Start one real agent a node.

        Args:
            library: the simulated NVML library, or None to simulate one layer higher, in place of the agent's NVML child.
        """
        for node in self.nodes:
            env = plain_environment()
            sampler: list[str] = []
            if library is None:
                env[STATE_VARIABLE] = str(node.state)
                sampler = [sys.executable, "-m", "watchtower.simulate.sampler"]
            else:
                env |= environment(library, node.state)
            settings = self._folder / f"{node.name}.agent.toml"
            settings.write_text(self._agent_settings(node, sampler))
            command = [sys.executable, "-m", "watchtower", "agent", "--config", str(settings)]
            self._processes.start(command, env=env, output=node.log)

    def _agent_settings(self, node: Node, sampler: list[str]) -> str:
        # This machine's own kernel log is no part of the story; an empty file stands for the node's.
        kernel_log = self._folder / f"{node.name}.kmsg"
        kernel_log.touch()
        jobs = self._folder / f"{node.name}.jobs"
        jobs.mkdir()
        values = {
            "listen": f"127.0.0.1:{node.port}",
            "node": node.name,
            "user": os.getuid() != 0,
            "kmsg_path": str(kernel_log),
            "job_directory": str(jobs),
            "sampler_command": sampler,
        }
        # JSON's strings, lists and booleans are TOML's.
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())

    @property
    def story_s(self) -> float:
        """Seconds since the story began."""
        return self._clock.monotonic() - self._began

    def unready(self) -> tuple[str, Path] | None:
        """A node whose agent is not healthy yet, and that agent's log; None when all are."""
        return next(
            ((node.name, node.log) for node in self.nodes if answer(node.port, "/healthz") is None), None
        )

    def rank_pid(self, number: int) -> int:
        """The process of one rank."""
        return self._ranks[number].pid

    def end(self) -> None:
        """Stop telling; what NVML shows stays as it is."""
        self._ended.set()
        if self._teller.is_alive():
            self._teller.join()

    def _tell(self) -> None:
        while not self._ended.wait(_TELL_EVERY_S):
            now_s = self.story_s
            self._show(now_s)
            self._log(now_s)

    def _show(self, story_s: float) -> None:
        """Let each node's NVML show this moment; its process lists name that node's own processes only."""
        for index, node in enumerate(self.nodes):
            first = index * self.story.gpus_per_node
            boards = [
                _board(
                    index, local, showing(self.story, first + local, story_s), self._ranks[first + local].pid
                )
                for local in range(self.story.gpus_per_node)
            ]
            write_state(node.state, boards, driver=DRIVER_VERSION)

    def _log(self, story_s: float) -> None:
        """Have rank 0 write what its trainer would have written by now."""
        story = self.story
        saving = story.saves_at(story_s)
        while self._told_step < story.step_at(story_s):
            self._told_step += 1
            elapsed_s = self._told_step * story.step_s
            self._order(f"step {self._told_step} {story.total_steps} {elapsed_s:.1f} {story.step_s}")
            if self._told_step % 10 == 0:
                epoch = self._told_step / story.total_steps
                loss = 1.9 - 0.7 * epoch
                self._order(f"log {{'loss': {loss:.4f}, 'learning_rate': 1.2e-05, 'epoch': {epoch:.2f}}}")
        if saving != self._saving:
            self._saving = saving
            where = f"outputs/checkpoint-{story.save_step}"
            self._order(
                f"log Saving model checkpoint to {where}"
                if saving
                else f"log checkpoint saved: step {story.save_step}"
            )

    def _order(self, order: str) -> None:
        pipe = self._ranks[0].stdin
        if pipe is not None:
            with contextlib.suppress(OSError, ValueError):  # it was killed, by a curious reader or at the end
                pipe.write(order.encode() + b"\n")
                pipe.flush()


def answer(port: int, path: str) -> bytes | None:
    """The body that a local server gives with status 200, or None when it is not there or says anything else."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ASK_LIMIT_S)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return body if reply.status == 200 else None


def plain_environment() -> dict[str, str]:
    """What our own programs need of this environment, and nothing that could pass for a rank's or a job's."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def _board(node: int, local_rank: int, shows: Showing, pid: int) -> SimulatedGpu:
    return SimulatedGpu(
        uuid=gpu_uuid(node, local_rank),
        model=MODEL,
        pci_bus_id=pci_bus_id(local_rank),
        power_w=shows.board_power_w,
        power_limit_w=POWER_LIMIT_W,
        max_power_limit_w=POWER_LIMIT_W,
        utilization_pct=shows.util_pct,
        mem_utilization_pct=shows.mem_util_pct,
        memory_total_mib=MEMORY_TOTAL_MIB,
        memory_used_mib=shows.memory_used_mib,
        sm_clock_mhz=shows.sm_clock_mhz,
        temperature_c=shows.temperature_c,
        procs=((pid, shows.memory_used_mib - _OVERHEAD_MIB),),
    )


def _rank_environment(story: Story, number: int) -> dict[str, str]:
    """What torchrun puts into a worker's environment at exec."""
    node, local_rank = divmod(number, story.gpus_per_node)
    return plain_environment() | {
        "RANK": str(number),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(node),
        "WORLD_SIZE": str(story.world_size),
        "LOCAL_WORLD_SIZE": str(story.gpus_per_node),
        "MASTER_ADDR": story.nodes[0],
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": story.run_id.removeprefix("torchrun-"),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
