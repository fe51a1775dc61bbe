"""What a tired person reads, in which order, and that nothing in a notice can break it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.sinks import T0, a_notice, a_view, an_owed
from watchtower.model import Evidence, NoticeAction, Owed, RunState, Severity, Suspect
from watchtower.notify.page import NO_CULPRIT, Page, span, utc, write_page

RUNBOOK = "https://wiki.example/watchtower"


def page(now: float = T0, **changes: Any) -> Page:
    return write_page(an_owed(**changes), now=now, runbook_url=RUNBOOK)


def fact(of: Page, label: str) -> str:
    return next(f.text for f in of.facts if f.label == label)


def test_the_founding_incident_reads_in_the_order_a_person_needs() -> None:
    made = page()
    assert made.title == "CRITICAL deadlocked: run qwen3-32b-sft (slurm-4411) of jlee"
    assert [f.label for f in made.facts] == [
        "since",
        "step",
        "ranks",
        "suspects",
        "evidence",
        "burning",
        "checkpoint",
        "NCCL timeout",
        "first",
    ]
    assert fact(made, "since") == "2025-11-30 21:58:26 UTC (94 s ago), when the last rank stopped working"
    assert fact(made, "step") == "3850 of 3857, last step 94 s ago"
    assert fact(made, "ranks") == "16 on 2 nodes (gpu-a, gpu-b): 16 spinning"
    assert fact(made, "suspects") == "rank 3 on gpu-a GPU 3 pid 41003: stopped working 4 s before the others"
    assert "23 % of their own working power" in fact(made, "evidence")
    assert "board power 212 W of 921 W working" in fact(made, "evidence")
    assert fact(made, "burning") == "16 GPUs, 0.4 GPU-hours so far, 16 more each hour"
    assert fact(made, "checkpoint") == (
        "41 min old, at step 3300; a kill costs 550 steps, 40 min of work, 10.7 GPU-hours"
    )
    assert fact(made, "NCCL timeout") == "in 28 min, about 2025-11-30 22:28:26 UTC"
    assert fact(made, "first").startswith("before you kill it")
    assert "on gpu-a: py-spy dump --nonblocking --pid 41003" in fact(made, "first")
    assert made.runbook_url == f"{RUNBOOK}#deadlocked"


def test_the_one_line_summary_holds_the_same_in_the_same_order() -> None:
    made = page()
    line = made.summary(1024)
    at = [line.index(f.text) for f in made.facts]
    assert line.startswith(made.title)
    assert at == sorted(at)
    assert "\n" not in line


def test_a_summary_that_is_too_long_loses_from_its_longest_parts_and_not_from_its_end() -> None:
    wordy = tuple(Suspect(rank, f"node-{rank}" * 10, 0, "silent " * 20) for rank in range(4))
    line = page(suspects=wordy, reason="numbers " * 40).summary(1024)
    assert 900 < len(line) <= 1024
    assert line.startswith("CRITICAL deadlocked: run qwen3-32b-sft (slurm-4411) of jlee; since")
    assert "step 3850 of 3857" in line
    assert "first: before you kill it" in line


def test_a_headline_names_run_reference_step_and_suspect_where_a_phone_still_shows_them() -> None:
    line = page().headline(1024)
    assert line.startswith(
        "CRITICAL deadlocked: run qwen3-32b-sft (slurm-4411) of jlee [01234567]; since 21:58:26 UTC (94 s ago);"
        " step 3850 of 3857; ranks 16 on 2 nodes; suspects rank 3 on gpu-a GPU 3 pid 41003: stopped working"
    )
    assert line.index("pid 41003") < 200
    for words in (
        "23 % of their own",
        "GPU-hours so far; checkpoint",
        "; NCCL timeout in 28 min; first: before",
    ):
        assert words in line
    assert len(line) < 700


def test_a_headline_keeps_the_order_and_its_end_however_much_there_is_to_say() -> None:
    wordy = tuple(Suspect(rank, f"node-{rank}" * 10, 0, "silent " * 20) for rank in range(4))
    view = a_view(run_name="n" * 300, nodes=tuple(f"node-{n}" for n in range(64)), nodes_unseen=("x", "y"))
    line = page(suspects=wordy, reason="numbers " * 40, view=view).headline(1024)
    marks = [
        "[01234567]",
        "since ",
        "step 3850",
        "ranks 16 on 64 nodes, 2 not seen",
        "suspects ",
        "first: before",
    ]
    places = [line.index(mark) for mark in marks]
    assert places == sorted(places)
    assert places[marks.index("suspects ")] < 300
    assert len(line) <= 1024


def test_the_headline_of_a_resolve_is_short() -> None:
    made = page(action=NoticeAction.RESOLVE, state=RunState.PROGRESSING, since=T0 - 720, reason="step 3855")
    assert made.headline(1024) == (
        "RESOLVED, now progressing: run qwen3-32b-sft (slurm-4411) of jlee [01234567]; lasted 12 min;"
        " step 3850 of 3857; ranks 16 on 2 nodes; step 3855"
    )


def test_ages_are_counted_to_when_it_is_sent_and_a_late_message_says_so() -> None:
    made = page(now=T0 + 3600)
    assert "61 min ago" in fact(made, "since")
    assert fact(made, "note") == "this message waited for 60 min"
    assert fact(made, "NCCL timeout").startswith("was due 31 min ago")


def test_a_possible_repeat_says_so() -> None:
    made = write_page(an_owed(), now=T0, may_repeat=True)
    assert "may be a repeat" in fact(made, "note")


def test_without_a_suspect_it_says_that_none_is_visible() -> None:
    assert fact(page(suspects=()), "suspects") == NO_CULPRIT


def test_many_suspects_are_counted_not_listed() -> None:
    many = tuple(Suspect(rank, f"n{rank}", 0, "silent") for rank in range(64))
    assert fact(page(suspects=many), "suspects").endswith("and 60 more")


def test_what_is_not_known_is_said_and_never_guessed() -> None:
    bare = a_view(
        run_name=None,
        user=None,
        step=None,
        total_steps=None,
        step_at=None,
        last_checkpoint_at=None,
        last_checkpoint_step=None,
        collective_timeout_s=None,
        progress_source=False,
        world_size=None,
    )
    made = page(view=bare)
    assert made.title == "CRITICAL deadlocked: run slurm-4411"
    assert fact(made, "step") == "not known: no trainer progress is seen"
    assert fact(made, "checkpoint").startswith("none seen")
    assert "NCCL timeout" not in [f.label for f in made.facts]


def test_a_resolve_says_how_long_it_lasted_and_asks_for_nothing() -> None:
    made = page(action=NoticeAction.RESOLVE, state=RunState.PROGRESSING, since=T0 - 720, reason="step 3855")
    assert made.title == "RESOLVED, now progressing: run qwen3-32b-sft (slurm-4411) of jlee"
    assert fact(made, "lasted").startswith("12 min, from")
    assert [f.label for f in made.facts] == ["lasted", "step", "ranks", "now"]
    assert made.runbook_url is None


def test_an_incident_that_is_closed_without_being_seen_well_is_not_called_resolved() -> None:
    made = page(action=NoticeAction.RESOLVE, state=RunState.CRASHED, reason="closed: forgotten")
    assert made.title.startswith("CLOSED, last crashed: run ")


def test_steps_that_go_on_without_some_ranks_are_told_as_what_they_are() -> None:
    made = page(state=RunState.PROGRESSING, severity=Severity.WARNING, reason="steps go on without rank 3")
    assert made.title.startswith("WARNING progressing: run ")
    assert fact(made, "first").startswith("steps go on")


def test_an_update_says_that_it_is_one() -> None:
    owed = Owed(sink="s", action=NoticeAction.UPDATE, notice=a_notice(state=RunState.CRASHED))
    assert write_page(owed, now=T0).title.startswith("CRITICAL now crashed: run ")


@pytest.mark.parametrize(
    ("subject", "words"), [("watcher", "the watcher"), ("node:gpu-a", "node gpu-a"), ("odd", "odd")]
)
def test_a_node_and_the_watcher_are_named_as_such(subject: str, words: str) -> None:
    made = page(subject=subject, run_id=None, view=None, state=RunState.UNKNOWN, severity=Severity.WARNING)
    assert made.title == f"WARNING unknown: {words}"


def test_a_run_that_holds_its_gpus_no_more_burns_nothing() -> None:
    assert "burning" not in [f.label for f in page(state=RunState.CRASHED).facts]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
        (float("nan"), "an unknown time"),
        (float("inf"), "an unknown time"),
    ],
)
def test_lengths_of_time_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_an_impossible_moment_is_said_to_be_unknown() -> None:
    assert utc(float("nan")) == utc(1e30) == "an unknown time"


ANY_TEXT = st.text(st.characters(), max_size=400)
ANY_NUMBER = st.floats(allow_nan=True, allow_infinity=True)


@given(
    ANY_TEXT,
    ANY_TEXT,
    ANY_NUMBER,
    ANY_NUMBER,
    st.tuples(st.sampled_from(RunState), st.sampled_from(NoticeAction)),
)
def test_whatever_stands_in_a_notice_a_page_comes_of_it(
    text: str, other: str, number: float, since: float, kind: tuple[RunState, NoticeAction]
) -> None:
    state, action = kind
    view = a_view(
        run_name=text,
        user=other,
        nodes=(text, other),
        last_checkpoint_at=number,
        step_at=since,
        collective_timeout_s=number,
    )
    suspect = Suspect(None, text, None, other)
    notice = replace(
        a_notice(run_id=text, subject=f"run:{text}", reason=other, since=since, state=state, at=number),
        suspects=(suspect,),
        evidence=(Evidence(text, other),),
        view=view,
    )
    made = write_page(Owed(sink="s", action=action, notice=notice), now=T0)
    for words in (
        made.title,
        made.summary(300),
        made.headline(300),
        made.short,
        *(f.text for f in made.facts),
    ):
        assert words.isprintable()
        words.encode()
    assert len(made.summary(300)) <= 300
    assert len(made.headline(300)) <= 300
