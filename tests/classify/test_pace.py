"""How a floor is written, and what is refused."""

import pytest

from watchtower.classify.pace import FloorError, parse_floor
from watchtower.model import Throughput


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9000 tokens/s", Throughput(9000.0, "tokens/s", "run")),
        ("0.5 steps/s", Throughput(0.5, "steps/s", "run")),
        ("1_200 samples/s", Throughput(1200.0, "samples/s", "run")),
    ],
)
def test_a_floor_is_a_number_and_a_unit(text: str, value: Throughput) -> None:
    assert parse_floor(text) == value


@pytest.mark.parametrize(
    "text", ["fast", "9000", "9000 tokens", "-1 steps/s", "nan steps/s", "inf steps/s", "0 steps/s", ""]
)
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(FloorError, match=repr(text)[1:-1] or "''"):
        parse_floor(text)
