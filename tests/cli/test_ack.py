"""Taking an incident on from the command line."""

import ssl
from pathlib import Path

import trustme

from tests.cli.conftest import Command
from tests.fakes.daemon import behind_tls, running_daemon
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
    said = "incident 7, cffa9d50 (run:slurm-4411, deadlocked) is acknowledged by "
    assert by_number.stdout.startswith(said)
    assert by_reference.stdout.startswith(said)


def test_the_name_is_that_of_the_user(watchtower: Command) -> None:
    reads = FakeReads()
    with running_daemon(reads) as url:
        assert watchtower("ack", "7", "--url", url, USER="mira").stdout.endswith("acknowledged by mira\n")
        watchtower("ack", "7", "--url", url, USER="jürgen\r\nX-Evil: 1")
    assert [name for _, name in reads.acked] == ["mira", "j?rgen??X-Evil: 1"]


def test_what_is_over_cannot_be_taken_on(watchtower: Command) -> None:
    with running_daemon() as url:
        over = watchtower("ack", "3", "--url", url)
    assert over.returncode == 2
    assert over.stderr.startswith("watchtower: incident 3 is over already")


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


def test_a_daemon_behind_https_with_a_private_ca_is_asked_with_ca_file(
    watchtower: Command, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / "empty.crt").touch()
    with running_daemon() as plain, behind_tls(plain, context) as url:
        trusted = ("--url", url, "--ca-file", str(tmp_path / "ca.crt"))
        assert watchtower("status", *trusted).returncode == 2
        assert watchtower("ack", "7", *trusted).returncode == 0
        for command in (("status",), ("ack", "7")):
            stranger = watchtower(*command, "--url", url)
            assert (stranger.returncode, stranger.stderr.count("\n")) == (3, 1)
            assert "not to be trusted" in stranger.stderr
            assert "--ca-file" in stranger.stderr
        for name, why in (("empty.crt", "holds no PEM certificate"), ("gone.crt", "cannot read")):
            wrong = watchtower("status", "--url", url, "--ca-file", str(tmp_path / name))
            assert (wrong.returncode, why in wrong.stderr) == (3, True), wrong.stderr
