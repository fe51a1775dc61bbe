"""What `watchtower status` says to a tired person and to a program, and with which exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.fakes.agent import closed_port
from tests.fakes.daemon import running_daemon
from tests.fakes.reads import FakeReads, agent_status, other_incident, run_entry, watcher_status
from tests.fakes.views import NOW, deadlocked_view, run_view
from watchtower.cli.status_ask import Daemon, NoAnswerError
from watchtower.cli.status_detail import detail
from watchtower.cli.status_table import table
from watchtower.cli.status_words import Style, blindness, moment, pace, power, span, urgency, watcher_urgency
from watchtower.model import RunState, Throughput

PLAIN = Style(colour=False, unicode=True, width=None)


def status(*runs: Any, agents: Any = None, incidents: Any = (), **watcher: Any) -> dict[str, Any]:
    return {
        "watcher": _plain(watcher_status(**watcher)),
        "agents": [_plain(agent) for agent in agents or (agent_status("gpu-a"), agent_status("gpu-b"))],
        "runs": [_plain(run) for run in runs],
        "incidents": [_plain(incident) for incident in incidents],
    }


def _plain(value: Any) -> Any:
    import msgspec

    return json.loads(msgspec.json.encode(value))


def test_the_founding_incident_reads_in_one_look() -> None:
    lines = table(status(run_entry(run_view(run_id="slurm-5000")), run_entry(deadlocked_view(), id=7)), PLAIN)
    text = "\n".join(lines)
    assert lines[0].split() == [
        "RUN",
        "OWNER",
        "STATE",
        "SINCE",
        "STEP",
        "PACE",
        "POWER",
        "CHECKPOINT",
        "RANKS",
    ]
    worst = lines[1]
    for part in (
        "slurm-4411 qwen3-32b-sft",
        "jlee",
        "DEADLOCKED",
        "(94 s)",
        "3850/3857",
        "11.8k tokens/s",
        "23 %",
        "25 min ago (step 3800)",
        "16 spinning",
    ):
        assert part in worst
    assert "no step for 94 s" in lines[2]
    assert "rank 3 on gpu-a GPU 3 (stopped working 4 s before the others)" in lines[3]
    assert "told: slack, pagerduty (incident 7, 01J00000)" in lines[4]
    assert lines[-1] == "2 of 2 agents fresh; the watcher is well, last round 2 s ago"
    assert text.index("DEADLOCKED") < text.index("progressing")


def test_the_sparkline_shows_the_fall_and_a_gap() -> None:
    run = _plain(run_entry(deadlocked_view()))
    assert power(run, PLAIN, bars=5) == " 23 % █▂▂ ▂"
    assert power(run, Style(colour=False, unicode=False, width=None)) == "23 %"


def test_one_run_says_what_its_page_says_of_the_cost_and_of_what_to_do_first() -> None:
    page = [
        {"label": "burning", "text": "16 GPUs, 0.4 GPU-hours so far, 16 more each hour"},
        {"label": "checkpoint", "text": "25 min old, at step 3800; a kill costs 50 steps"},
        {"label": "NCCL timeout", "text": "in 28 min, about 22:28"},
        {"label": "first", "text": "take stacks"},
    ]
    lines = detail({"run": _plain(deadlocked_view()), "incident": None, "page": page}, [], NOW, PLAIN)
    said = {line[:15].strip(): line[15:] for line in lines}
    assert {line["label"]: line["text"] for line in page}.items() <= said.items()


def test_nobody_to_blame_and_nobody_told_is_said() -> None:
    text = "\n".join(table(status(run_entry(deadlocked_view(suspects=()))), PLAIN))
    assert "no culprit visible yet" in text
    assert "nobody told yet" in text


def test_who_has_taken_it_on_is_said() -> None:
    entry = run_entry(deadlocked_view(), id=7, acked_by="mira", acked_at=NOW - 180)
    assert "acknowledged by mira 3 min ago" in "\n".join(table(status(entry), PLAIN))


def test_silent_agents_and_waiting_messages_are_named() -> None:
    silent = agent_status(
        "gpu-b",
        fresh=False,
        failed="timeout",
        failed_detail="no answer within 4 s",
        failing_since=NOW - 240,
    )
    text = "\n".join(
        table(
            status(agents=(agent_status("gpu-a"), silent), agents_fresh=1, outbox_oldest_age_s=400.0), PLAIN
        )
    )
    assert "gpu-b: timeout: no answer within 4 s (for 4 min)" in text
    assert "a message has waited for 7 min" in text
    assert "1 of 2 agents fresh" in text


def test_an_agent_that_answers_but_cannot_read_its_gpus_is_not_called_well() -> None:
    blind = agent_status("gpu-b", nvml_state="absent", nvml_detail="libnvidia-ml.so.1 not found")
    said = status(agents=(agent_status("gpu-a"), blind))
    text = "\n".join(table(said, PLAIN))
    assert "gpu-b: GPUs cannot be read (absent: libnvidia-ml.so.1 not found)" in text
    assert watcher_urgency(said) == 1
    assert watcher_urgency(status()) == 0
    assert "the watcher is well" not in text
    assert "2 of 2 agents fresh; 1 of them cannot read GPUs" in text
    released = agent_status("gpu-b", nvml_state="released")
    assert "the watcher is well" in "\n".join(table(status(agents=(agent_status("gpu-a"), released)), PLAIN))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132])
def test_every_line_fits_the_terminal(width: int) -> None:
    style = Style(colour=False, unicode=True, width=width)
    long = deadlocked_view(
        run_id="slurm-4411-with-a-very-long-name-that-nobody-needed", user="someone.with.a.name"
    )
    lines = table(status(run_entry(long, id=7), run_entry(run_view())), style)
    assert max(map(len, lines)) <= width
    assert any("DEADLOCKED" in line for line in lines)
    assert any("rank 3" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_every_line_of_one_run_fits_the_terminal_and_names_who_does_what(width: int) -> None:
    style = Style(colour=False, unicode=True, width=width)
    page = [{"label": "first", "text": "before you kill it, take stacks of the suspects " * 3}]
    answer = {"run": _plain(deadlocked_view()), "incident": None, "page": page}
    change = {"t": NOW, "state": "deadlocked", "reason": "16 of 16 ranks at 100 % utilization, " * 3}
    lines = detail(answer, [change], NOW, style)
    assert max(map(len, lines)) <= width
    ranks = [line.split() for line in lines if line[:2].strip().isdigit()]
    assert ranks[3][:2] == ["3", "gpu-a"]
    assert ranks[3][-2:] == ["<", "suspect"]
    assert "spinning" in ranks[3]


def test_times_say_their_zone() -> None:
    text = "\n".join(table(status(run_entry(run_view(since=NOW - 94))), PLAIN))
    assert "21:58Z (94 s)" in text
    assert moment(NOW - 3 * 86400, NOW) == "Nov 27 22:00Z"


def test_an_agent_that_refuses_our_token_is_not_called_silent() -> None:
    refusing = agent_status(
        "gpu-b", fresh=False, failed="unauthorized", failed_detail="HTTP 401: set poll.token_file"
    )
    lines = table(status(agents=(agent_status("gpu-a"), refusing), agents_fresh=1), PLAIN)
    assert "gpu-b: refuses our token: HTTP 401: set poll.token_file" in lines


def test_of_many_agents_in_trouble_the_first_are_named_and_the_others_counted() -> None:
    silent = [agent_status(f"gpu-{n}", fresh=False, failed="timeout") for n in range(9)]
    lines = table(status(agents=silent, agents_fresh=0), PLAIN)
    assert [line for line in lines if line.startswith("gpu-")][-1] == "gpu-4: timeout"
    assert "  and 4 more like that" in lines


def test_an_incident_about_no_run_is_shown_and_asks_for_a_look() -> None:
    blind = other_incident(acked_by="mira", acked_at=NOW - 60)
    said = status(incidents=(blind,))
    assert (
        "incident 9, abcdef01, about the nodes, since 21:50Z (10 min): 1 of 2 nodes cannot be watched; "
        "acknowledged by mira 60 s ago"
    ) in table(said, PLAIN)
    assert watcher_urgency(said) == 1


def test_one_of_a_kind_is_not_many() -> None:
    said = status(agents=(agent_status("gpu-a"),), agents_fresh=1, stranded={"old": 1})
    said["watcher"]["agents"] = 1
    lines = table(said, PLAIN)
    assert "1 message waits for old, which is no longer in the settings" in lines
    assert lines[-1].startswith("1 of 1 agent fresh;")


def test_colours_are_for_terminals_alone() -> None:
    entry = run_entry(deadlocked_view())
    assert "\x1b[1;31mDEADLOCKED" in "\n".join(
        table(status(entry), Style(colour=True, unicode=True, width=None))
    )
    assert "\x1b" not in "\n".join(table(status(entry), PLAIN))


def test_names_from_jobs_cannot_command_the_terminal() -> None:
    evil = deadlocked_view(run_name="\x1b]0;owned\x07", user="\x1b[2J", reason="a\r\nb")
    answer = {"run": _plain(evil), "incident": None}
    for lines in (table(status(run_entry(evil)), PLAIN), detail(answer, [], NOW, PLAIN)):
        assert not any(sign in line for line in lines for sign in "\x1b\x07\r\n")


def test_one_run_is_shown_rank_by_rank() -> None:
    answer = {"run": _plain(deadlocked_view()), "incident": None}
    lines = detail(answer, [], NOW, PLAIN)
    ranks = [line for line in lines if line[:2].strip().isdigit()]
    assert len(ranks) == 16
    assert ranks[3].endswith("< suspect")
    assert "spinning" in ranks[3]
    assert "212 W" in ranks[3]


@pytest.mark.parametrize(
    ("state", "urgent"),
    [(state, 2) for state in ("deadlocked", "hung", "crashed")]
    + [(state, 1) for state in ("slow", "unknown", "lingering")]
    + [(state, 0) for state in ("starting", "progressing", "completed", "stopped")],
)
def test_the_exit_status_follows_the_state(state: str, urgent: int) -> None:
    assert {member.value for member in RunState} >= {state}
    assert urgency({"state": state, "since": NOW - 10, "incident": None}, NOW) == urgent


def test_what_is_acknowledged_or_a_day_old_is_no_longer_urgent() -> None:
    bad = {"state": "crashed", "since": NOW - 10, "incident": None}
    assert urgency(bad | {"incident": {"acked_by": "mira"}}, NOW) == 1
    assert urgency(bad | {"since": NOW - 86399}, NOW) == 2
    assert urgency(bad | {"since": NOW - 86400}, NOW) == 0


def test_messages_for_a_sink_that_was_removed_are_named() -> None:
    lines = table(status(stranded={"old-channel": 3}), PLAIN)
    assert "3 messages wait for old-channel, which is no longer in the settings" in lines


def test_a_watcher_that_does_not_see_is_never_fine() -> None:
    said = status(unwell="none of its 2 agents answers", last_round_at=None)
    assert blindness(said) is not None
    assert "THE WATCHER IS NOT WELL" in table(said, PLAIN)[-1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (5999, "100 min"),
        (6000, "1.7 h"),
        (172800, "2.0 d"),
        (-5, "0 s"),
    ],
)
def test_spans_are_as_precise_as_it_matters(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_pace_is_throughput_or_the_time_of_a_step() -> None:
    assert pace(_plain(run_view(throughput=Throughput(0.5, "steps/s", "run"))), PLAIN) == "0.5 steps/s"
    assert (
        pace(_plain(run_view(throughput=Throughput(740.0, "tokens/s", "gpu"))), PLAIN)
        == "740 tokens/s per GPU"
    )
    assert pace(_plain(run_view(throughput=None)), PLAIN) == "9.8 s/step"


def test_the_command_asks_a_real_daemon(watchtower: Command) -> None:
    reads = FakeReads()
    with running_daemon(reads) as url:
        said = watchtower("status", "--url", url)
        assert (said.returncode, said.stderr) == (2, "")
        assert "DEADLOCKED" in said.stdout
        assert (
            json.loads(watchtower("status", "--url", url, "--json").stdout)["runs"][0]["state"]
            == "deadlocked"
        )
        one = watchtower("status", "qwen3-32b", WATCHTOWER_URL=url)
        assert (one.returncode, "rank 3 on gpu-a" in one.stdout) == (2, True)
        assert json.loads(watchtower("status", "slurm-4411", "--json", "--url", url).stdout)["run"]["run_id"]
        several = watchtower("status", "slurm", "--url", url)
        assert (several.returncode, several.stderr) == (
            3,
            "watchtower: 'slurm' could be any of slurm-4411, slurm-5000\n",
        )
        assert watchtower("status", "nope", "--url", url).stderr == "watchtower: no run 'nope' is known\n"
        reads.problem = "no round for 40 s; one is due every 5 s"
        blind = watchtower("status", "--url", url)
        assert (blind.returncode, "NOT WELL: no round for 40 s" in blind.stdout) == (3, True)


def test_a_daemon_that_wants_a_token_is_given_it(watchtower: Command, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with running_daemon(token="secret") as url:
        refused = watchtower("status", "--url", url)
        assert (refused.returncode, "refuses" in refused.stderr) == (3, True)
        assert watchtower("status", "--url", url, "--token-file", str(token)).returncode == 2
    gone = watchtower("status", "--token-file", str(tmp_path / "gone"))
    assert (gone.returncode, "cannot read secret file" in gone.stderr) == (3, True)


def test_a_daemon_that_is_not_there_is_one_plain_sentence(watchtower: Command) -> None:
    with closed_port() as port:
        said = watchtower("status", "--url", f"http://127.0.0.1:{port}")
    assert said.returncode == 3
    assert said.stdout == ""
    assert said.stderr.count("\n") == 1
    assert "is `watchtower serve` running?" in said.stderr


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://127.0.0.1:port"])
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(NoAnswerError, match="is not the URL of a daemon"):
        Daemon(url).get("/")
