"""The stand-in NVML library, built once a session; and a node of eight boards on it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from watchtower.simulate.nvml_library import NoCompilerError, SimulatedGpu, build, environment, write_state


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except NoCompilerError as error:
        pytest.skip(str(error))


class SimulatedNode:
    """Eight boards that a test changes while they are read."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.gpus = [
            SimulatedGpu(
                uuid=f"GPU-{n}",
                pci_bus_id=f"00000000:{0x1B + n:02X}:00.0",
                power_w=900.0 + n,
                utilization_pct=100,
                memory_used_mib=231_000,
            )
            for n in range(8)
        ]
        self.options: dict[str, object] = {}
        self.write()

    def write(self) -> None:
        write_state(self.state, self.gpus, **self.options)  # type: ignore[arg-type]

    def set(self, **options: object) -> None:
        """Change what is not of one board: init, count, events, extra."""
        self.options |= options
        self.write()

    def order(self, index: int, **changes: object) -> None:
        """Change one board's readings."""
        import msgspec

        self.gpus[index] = msgspec.structs.replace(self.gpus[index], **changes)
        self.write()

    def break_(self, index: int, keys: Mapping[str, str | int]) -> None:
        """Set raw keys of one board, in place of those set before."""
        self.order(index, extra=dict(keys))


@pytest.fixture
def node(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedNode:
    state = tmp_path / "state"
    for name, value in environment(nvml_library, state).items():
        monkeypatch.setenv(name, value)
    return SimulatedNode(state)
