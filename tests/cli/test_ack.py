"""Taking an incident on from the command line."""

from tests.cli.conftest import Command
from tests.fakes.daemon import running_daemon
from tests.fakes.reads import FakeReads, incident

REFERENCE = "cffa9d50708d27b7"


def test_an_incident_is_taken_on_by_number_or_by_the_reference_of_its_pages(watchtower: Command) -> None:
    reads = FakeReads()
    reads.incident_by_number[7] = incident(uid=REFERENCE)
    with running_daemon(reads) as url:
        by_number = watchtower("ack", "7", "--url", url)
        by_reference = watchtower("ack", REFERENCE[:8], "--url", url)
    assert (by_number.returncode, by_reference.returncode) == (0, 0), by_number.stderr + by_reference.stderr
    assert [number for number, _ in reads.acked] == [7, 7]
    assert by_number.stdout.startswith("incident 7 (run:slurm-4411, deadlocked) is taken on by ")


def test_a_wrong_incident_is_one_sentence_and_exit_2(watchtower: Command) -> None:
    with running_daemon() as url:
        for wrong in ("99", "abcdef12", "nonsense"):
            said = watchtower("ack", wrong, "--url", url)
            assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1), said.stderr


def test_without_a_daemon_it_exits_3_and_a_token_is_needed_where_one_is_set(watchtower: Command) -> None:
    with running_daemon(token="secret") as url:
        refused = watchtower("ack", "7", "--url", url)
    assert (refused.returncode, "refuses" in refused.stderr) == (3, True)
    gone = watchtower("ack", "7", "--url", url)
    assert (gone.returncode, gone.stderr.count("\n")) == (3, 1)
