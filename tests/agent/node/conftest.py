"""A made-up node for each test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.node.fake_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.side.close()
