"""What the store keeps, and that two processes never share it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.alerts.test_lifecycle import opened, step, verdict
from tests.fakes.sinks import T0, a_view
from watchtower.model import IncidentPhase, RunState
from watchtower.store.database import FILE_NAME, StoreError
from watchtower.store.records import RoundRecord, Transition
from watchtower.store.store import Store

INCIDENT = opened(RunState.DEADLOCKED)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path)
    yield made
    made.close()


def reopened(store: Store, directory: Path) -> Store:
    store.close()
    return Store.open(directory)


def test_a_fresh_process_gets_everything_it_needs_to_go_on(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    view = a_view()
    store.record(
        RoundRecord(
            at=T0,
            views=(view,),
            memories=((view.run_id, b"tracker"), ("no-view-yet", b"young")),
            cursors=(("gpu-a", "81243"),),
            incidents=(INCIDENT,),
            judge_memory=b"judge",
        )
    )
    store = reopened(store, tmp_path)
    loaded = store.load()
    store.close()
    assert loaded.views == (view,)
    assert loaded.memories == {view.run_id: b"tracker", "no-view-yet": b"young"}
    assert loaded.cursors == {"gpu-a": "81243"}
    assert loaded.incidents == (INCIDENT,)
    assert loaded.judge_memory == b"judge"


def test_a_round_without_judge_memory_leaves_it_as_it_was(store: Store) -> None:
    store.record(RoundRecord(at=T0, judge_memory=b"one"))
    store.record(RoundRecord(at=T0 + 5))
    assert store.load().judge_memory == b"one"


def test_a_forgotten_run_is_watched_no_more_and_can_still_be_read(store: Store) -> None:
    view = a_view()
    store.record(RoundRecord(at=T0, views=(view,), memories=((view.run_id, b"m"),)))
    store.record(RoundRecord(at=T0 + 5, forgotten=(view.run_id,)))
    assert store.runs() == ()
    assert store.run(view.run_id) == view
    assert store.load().memories == {}


def test_a_run_that_comes_back_after_it_was_forgotten_is_watched_again(store: Store) -> None:
    view = a_view()
    store.record(RoundRecord(at=T0, views=(view,), forgotten=(view.run_id,)))
    store.record(RoundRecord(at=T0 + 5, views=(view,)))
    assert store.runs() == (view,)


def test_transitions_come_newest_first_and_a_repeated_round_adds_none(store: Store) -> None:
    first = Transition(run_id="r1", at=T0, previous=None, verdict=verdict(RunState.PROGRESSING, T0))
    second = Transition(
        run_id="r1", at=T0 + 5, previous=RunState.PROGRESSING, verdict=verdict(RunState.HUNG, T0 + 5)
    )
    for record in (first, second, second):
        store.record(RoundRecord(at=record.at, transitions=(record,)))
    assert store.transitions("r1") == (second, first)
    assert store.transitions("r1", limit=1) == (second,)
    assert store.transitions("other") == ()


def test_incidents_have_small_numbers_and_close_in_place(store: Store) -> None:
    store.record(RoundRecord(at=T0, incidents=(INCIDENT,)))
    closed = step(INCIDENT, RunState.COMPLETED, T0 + 60).incident
    assert closed is not None
    store.record(RoundRecord(at=T0 + 60, incidents=(closed,)))
    (numbered,) = store.incidents()
    assert numbered.id == 1
    assert numbered.incident == closed
    assert store.incident(1) == numbered
    assert store.incident_of_uid(INCIDENT.uid) == numbered
    assert store.incident(2) is None
    assert store.incidents(open_only=True) == ()
    assert store.load().incidents == ()


def test_the_end_of_one_incident_and_the_next_of_the_same_run_fit_in_one_round(store: Store) -> None:
    store.record(RoundRecord(at=T0, incidents=(INCIDENT,)))
    closed = step(INCIDENT, RunState.COMPLETED, T0 + 60).incident
    following = opened(RunState.CRASHED, T0 + 60)
    assert closed is not None
    store.record(RoundRecord(at=T0 + 60, incidents=(following, closed)))
    assert [n.incident.phase for n in store.incidents()] == [IncidentPhase.FIRING, IncidentPhase.RESOLVED]


def test_two_open_incidents_of_one_run_are_refused_and_nothing_of_the_round_is_kept(store: Store) -> None:
    store.record(RoundRecord(at=T0, incidents=(INCIDENT,)))
    with pytest.raises(StoreError):
        store.record(
            RoundRecord(at=T0 + 5, cursors=(("gpu-a", "1"),), incidents=(opened(RunState.HUNG, T0 + 5),))
        )
    assert store.load().cursors == {}


def test_an_acknowledgement_is_kept_and_handed_back(store: Store) -> None:
    store.record(RoundRecord(at=T0, incidents=(INCIDENT,)))
    acked = store.ack(1, by="jlee", at=T0 + 5)
    assert acked == replace(INCIDENT, acked_by="jlee", acked_at=T0 + 5)
    assert store.load().incidents == (acked,)
    assert store.ack(99, by="jlee", at=T0) is None


def test_samples_are_kept_on_a_grid_of_ten_seconds(store: Store) -> None:
    for seconds in range(0, 30, 5):
        store.record(RoundRecord(at=T0 + seconds, views=(a_view(step=3800 + seconds),)))
    points = store.samples("slurm-4411", since=T0)
    assert [(p.at - T0, p.step) for p in points] == [(0, 3805), (10, 3815), (20, 3825)]
    assert store.samples("slurm-4411", since=T0 + 20) == points[2:]


def test_pruning_forgets_the_old_and_keeps_what_is_open_or_waits(store: Store) -> None:
    day = 86_400.0
    closed = step(opened(RunState.SLOW, T0 - 50), RunState.COMPLETED, T0).incident
    assert closed is not None
    view = a_view()
    change = Transition(run_id="r1", at=T0, previous=None, verdict=verdict(RunState.HUNG, T0))
    store.record(
        RoundRecord(
            at=T0,
            views=(view, replace(view, run_id="old")),
            forgotten=("old",),
            incidents=(closed, INCIDENT),
            transitions=(change,),
        )
    )
    assert store.prune(T0 + 6 * day) == 0
    assert store.prune(T0 + 8 * day) == 2
    assert store.prune(T0 + 31 * day) == 3
    assert [n.incident for n in store.incidents()] == [INCIDENT]
    assert store.runs() == (view,)
    assert store.transitions("r1") == ()


def test_a_second_process_on_the_same_directory_gets_one_clear_sentence(store: Store, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from watchtower.store.store import Store\n"
        "from watchtower.store.database import StoreError\n"
        "try: Store.open(Path(sys.argv[1]))\n"
        "except StoreError as error: sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"in use by another watchtower (pid {os.getpid()})" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr
    store.record(RoundRecord(at=T0))


def test_a_directory_is_free_again_after_close(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    Store.open(tmp_path).close()


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(StoreError, match=str(file)):
        Store.open(tmp_path)
    assert file.read_bytes().startswith(b"not a database")
    file.unlink()
    Store.open(tmp_path).close()


def test_a_file_of_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(StoreError, match="newer watchtower"):
        Store.open(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use data directory"):
        Store.open(tmp_path / "file" / "below")


def test_nobody_else_can_read_the_data_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    Store.open(directory).close()
    assert directory.stat().st_mode & 0o077 == 0


def test_every_commit_is_on_disk_before_it_counts(store: Store) -> None:
    (row,) = store._db.rows("PRAGMA synchronous")
    assert row[0] == 2
    (row,) = store._db.rows("PRAGMA journal_mode")
    assert row[0] == "wal"


def test_a_full_disk_is_one_sentence_and_costs_only_that_round(store: Store) -> None:
    store.record(RoundRecord(at=T0, memories=(("r1", b"kept"),)))
    (pages,) = store._db.rows("PRAGMA page_count")
    store._db.rows(f"PRAGMA max_page_count = {pages[0] + 2}")
    with pytest.raises(StoreError, match="full"):
        store.record(RoundRecord(at=T0 + 5, memories=(("r1", b"x" * 1_000_000),), incidents=(INCIDENT,)))
    store._db.rows("PRAGMA max_page_count = 1000000")
    assert store.load().memories == {"r1": b"kept"}
    store.record(RoundRecord(at=T0 + 10, incidents=(INCIDENT,)))
    assert store.load().incidents == (INCIDENT,)
