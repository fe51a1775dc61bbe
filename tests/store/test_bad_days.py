"""What the store does when its directory, its file or its contents are not what they were."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.test_lifecycle import opened
from tests.fakes.sinks import T0, a_view, an_owed
from watchtower.model import RunState
from watchtower.store.database import FILE_NAME, LOCK_NAME, StoreError
from watchtower.store.records import RoundRecord, RowState
from watchtower.store.store import Store

UID = "0123456789abcdef"


def alter(directory: Path, sql: str) -> None:
    """Change the file behind the store's back, as another version would have written it."""
    connection = sqlite3.connect(directory / FILE_NAME)
    with connection:
        connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_round_into_a_file_that_somebody_removed_is_refused_not_lost(
    tmp_path: Path, replaced: bool
) -> None:
    store = Store.open(tmp_path / "data")
    store.record(RoundRecord(at=T0))
    shutil.rmtree(tmp_path / "data")
    other = Store.open(tmp_path / "data") if replaced else None
    with pytest.raises(StoreError, match=r"watchtower\.db was removed or replaced"):
        store.record(RoundRecord(at=T0 + 5, owed=(an_owed(),)))
    store.close()
    if other is not None:
        other.close()


def test_a_disk_without_room_for_the_pid_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).symlink_to("/dev/full")
    Store.open(tmp_path).close()


def test_a_file_that_somebody_has_locked_is_named_and_nobody_is_told_to_move_it(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    holder = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")

    class Hasty(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            return super().execute("PRAGMA busy_timeout = 0" if "busy_timeout" in sql else sql, parameters)

    with pytest.raises(StoreError, match=r"database is locked$"):
        Store.open(tmp_path, factory=Hasty)
    holder.close()


def test_a_view_of_another_versions_making_is_left_out_and_made_anew(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.record(RoundRecord(at=T0, views=(a_view(run_id="old"), a_view(run_id="new"))))
    alter(tmp_path, """UPDATE run SET view = '{"run_id": "old"}' WHERE run_id = 'old'""")
    assert [view.run_id for view in store.load().views] == ["new"]
    assert store.run("old") is None
    store.close()


def test_a_page_with_a_view_of_another_versions_making_goes_out_without_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.record(RoundRecord(at=T0, owed=(an_owed(),)))
    alter(tmp_path, "UPDATE outbox SET owed = json_set(owed, '$.notice.view', json('{\"run_id\": \"x\"}'))")
    delivery = store.claim("slack", T0)
    store.close()
    assert delivery is not None
    assert delivery.owed.notice.view is None
    assert delivery.owed.notice.reason == an_owed().notice.reason


@pytest.mark.parametrize("unreadable", ["{}", "[]", '{"notice": 1}', "no json"])
def test_a_message_that_nobody_can_read_is_given_up_and_lets_the_next_one_pass(
    tmp_path: Path, unreadable: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.open(tmp_path)
    store.record(RoundRecord(at=T0, owed=(an_owed(),)))
    alter(tmp_path, f"UPDATE outbox SET owed = '{unreadable}'")
    store.record(RoundRecord(at=T0 + 1, owed=(an_owed(incident_uid="next"),)))
    delivery = store.claim("slack", T0 + 1)
    assert delivery is not None
    assert delivery.owed.notice.incident_uid == "next"
    assert [row.state for row in store.deliveries(UID)] == [RowState.DEAD]
    store.close()
    assert "message_unreadable" in caplog.text


def test_an_open_incident_that_nobody_can_read_is_named_at_the_start(tmp_path: Path) -> None:
    """To go on without it would page anew, and leave open for ever what was told."""
    store = Store.open(tmp_path)
    store.record(RoundRecord(at=T0, incidents=(opened(RunState.DEADLOCKED),)))
    alter(tmp_path, "UPDATE incident SET incident = '{}'")
    with pytest.raises(StoreError, match="incident 1 was written by another watchtower"):
        store.load()
    store.close()
