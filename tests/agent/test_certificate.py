"""What the agent says of its own certificate's dates."""

import datetime as dt
from pathlib import Path

import pytest
import trustme

from watchtower.agent.certificate import date_trouble
from watchtower.clock import SystemClock

DAY = dt.timedelta(days=1)


@pytest.mark.parametrize(
    ("begins", "ends", "words"),
    [(-2, -1, "has expired"), (1, 2, "is not valid yet"), (-1, 1, None)],
)
def test_a_certificate_out_of_its_dates_is_known_as_such(
    tmp_path: Path, begins: int, ends: int, words: str | None
) -> None:
    now = dt.datetime.fromtimestamp(SystemClock().now(), dt.UTC)
    made = trustme.CA().issue_cert("gpu-a", not_before=now + begins * DAY, not_after=now + ends * DAY)
    certificate, key = tmp_path / "node.crt", tmp_path / "node.key"
    made.cert_chain_pems[0].write_to_path(str(certificate))
    made.private_key_pem.write_to_path(str(key))
    said = date_trouble(certificate, key)
    assert said is None if words is None else said is not None and said.startswith(words)
