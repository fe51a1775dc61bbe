"""The words of a page, in the order in which a person needs them at 3 a.m. Knows no provider and no limits but its own."""

import math
from datetime import UTC, datetime

import msgspec

from watchtower.model import Notice, NoticeAction, Owed, RunState, RunView, Suspect

_STUCK = {RunState.DEADLOCKED, RunState.HUNG}
_FAULTS = {*_STUCK, RunState.CRASHED, RunState.SLOW, RunState.LINGERING, RunState.UNKNOWN}
_FEW = 4  # names in one line; a page about 64 nodes must still fit a phone
_LEAST_PART = 24
NO_CULPRIT = "no culprit visible yet"

# One sentence each: docs/alerts.md has the whole runbook under the same heading.
FIRST_THING: dict[RunState, str] = {
    RunState.DEADLOCKED: (
        "before you kill it, take stacks of the suspects (py-spy dump --nonblocking --pid PID) and the NCCL flight recorder;"
        " then restart from the last checkpoint"
    ),
    RunState.HUNG: (
        "look at the suspects' stacks (py-spy dump --nonblocking --pid PID) and at the storage it reads from; then decide on a restart"
    ),
    RunState.CRASHED: "read the last lines of the log of the rank that left first, and check its node before you restart",
    RunState.SLOW: "compare clocks, temperature and power of the suspects with the other ranks; look for a busy file system",
    RunState.LINGERING: "its work is done: check that the last checkpoint is complete, then end the processes that hold GPUs",
    # Only where it is a warning: steps go on although something is amiss.
    RunState.PROGRESSING: "steps go on: read the evidence, and check the nodes of the ranks that are gone before they are needed",
    RunState.UNKNOWN: "check that the nodes are up and reachable from the watcher, and that watchtower-agent runs on them",
}


class Fact(msgspec.Struct, frozen=True):
    """One labelled line of a page, on one line; `brief` is what a headline has room for, label included."""

    label: str
    text: str
    brief: str | None = None


class Page(msgspec.Struct, frozen=True):
    """A page in words.

    Args:
        title: what, which run, whose.
        facts: in reading order; the title's own facts are not repeated.
        short: the least that helps: state, run, since.
        reference: names the incident, the same in all its messages.
        runbook_url: None where no link is set.
    """

    title: str
    facts: tuple[Fact, ...]
    short: str
    reference: str
    runbook_url: str | None

    def summary(self, limit: int) -> str:
        """The same in one line of at most `limit` characters, in the same order.

        What is too long is taken from the longest parts, so that the last one, what to do first, is not what is cut off.
        """
        return _fitted([self.title, *(_labelled(fact) for fact in self.facts)], limit)

    def headline(self, limit: int) -> str:
        """The same order in few words, for a list or a phone that shows the beginning alone; it holds the reference."""
        title = f"{self.title} [{self.reference}]"
        return _fitted([title, *(fact.brief or _labelled(fact) for fact in self.facts)], limit)


def write_page(owed: Owed, *, now: float, may_repeat: bool = False, runbook_url: str | None = None) -> Page:
    """Say what is owed.

    Args:
        owed: complete in itself.
        now: when it is sent; ages are counted to here, and a message that waited says so.
        may_repeat: an earlier try may have arrived.
        runbook_url: of docs/alerts.md, without a fragment; the state is appended as one.

    Returns:
        A page with no control characters or lone surrogates in it, whatever the notice holds.
    """
    notice = owed.notice
    over = notice.action is NoticeAction.RESOLVE
    view = notice.view
    title = _title(owed)
    facts = [_length(notice) if over else _since(notice, now)]
    if view is not None:
        facts.append(_step(view, now))
        facts.append(_ranks(view))
    if not over:
        facts.append(Fact("suspects", _suspects(notice)))
    facts.append(Fact("now" if over else "evidence", _evidence(notice), _clip(notice.reason, 160)))
    if view is not None and not over:
        facts.extend(_cost(notice, view, now))
    if not over and notice.state in FIRST_THING:
        facts.append(Fact("first", _first_thing(notice)))
    note = _note(notice, now, may_repeat)
    if note:
        facts.append(Fact("note", note))
    facts = [Fact(fact.label, clean(fact.text), clean(fact.brief or "") or None) for fact in facts]
    reference = clean(notice.incident_uid)[:8]
    return Page(
        title=title,
        facts=tuple(facts),
        short=clean(f"{title}, since {utc(notice.since)}, incident {reference}"),
        reference=reference,
        runbook_url=f"{runbook_url}#{notice.state}" if runbook_url and not over else None,
    )


def clean(text: str) -> str:
    """One line of text that any encoder takes: no control characters, no lone surrogates."""
    safe = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() else " " for c in safe).split())


def utc(moment: float) -> str:
    """A moment as `2025-11-30 22:00:05 UTC`; "an unknown time" where it is none."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def span(seconds: float) -> str:
    """A length of time as people say it: `94 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if not math.isfinite(seconds):
        return "an unknown time"
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def _title(owed: Owed) -> str:
    notice = owed.notice
    view = notice.view
    if notice.run_id is None:
        who = "the watcher" if notice.subject == "watcher" else notice.subject.replace(":", " ", 1)
    else:
        name = view.run_name if view is not None and view.run_name else None
        who = (
            f"run {_clip(name, 80)} ({_clip(notice.run_id, 80)})"
            if name
            else f"run {_clip(notice.run_id, 80)}"
        )
        if view is not None and view.user:
            who += f" of {_clip(view.user, 40)}"
    if owed.action is NoticeAction.RESOLVE:
        # Closed without being seen well, for instance because the run was forgotten: do not call that a recovery.
        how = f"CLOSED, last {notice.state}" if notice.state in _FAULTS else f"RESOLVED, now {notice.state}"
        return clean(f"{how}: {who}")
    now = "now " if owed.action is NoticeAction.UPDATE else ""
    return clean(f"{notice.severity.upper()} {now}{notice.state}: {who}")


def _length(notice: Notice) -> Fact:
    lasted = span(notice.at - notice.since)
    return Fact("lasted", f"{lasted}, from {utc(notice.since)} to {utc(notice.at)}", f"lasted {lasted}")


def _since(notice: Notice, now: float) -> Fact:
    ago = f"({span(now - notice.since)} ago)"
    # Else the age of the last step beside it, which is a little more, looks like a contradiction.
    what = ", when the last rank stopped working" if notice.state is RunState.DEADLOCKED else ""
    moment = utc(notice.since)
    # The age says which day it was.
    return Fact("since", f"{moment} {ago}{what}", f"since {moment.partition(' ')[2]} {ago}")


def _step(view: RunView, now: float) -> Fact:
    if view.step is None:
        seen = "no step seen yet" if view.progress_source else "not known: no trainer progress is seen"
        return Fact("step", seen)
    of = f" of {view.total_steps}" if view.total_steps is not None else ""
    when = f", last step {span(now - view.step_at)} ago" if view.step_at is not None else ""
    return Fact("step", f"{view.step}{of}{when}", f"step {view.step}{of}")


def _ranks(view: RunView) -> Fact:
    total = view.world_size if view.world_size is not None else len(view.ranks)
    doing = ", ".join(f"{count} {activity}" for activity, count in view.activity.items() if count)
    unseen = f"; not seen: {_some(view.nodes_unseen)}" if view.nodes_unseen else ""
    nodes = f"{len(view.nodes)} node{'s' if len(view.nodes) != 1 else ''}"
    text = f"{total} on {nodes} ({_some(view.nodes)}){': ' + doing if doing else ''}{unseen}"
    brief = f"ranks {total} on {nodes}"
    return Fact("ranks", text, f"{brief}, {len(view.nodes_unseen)} not seen" if view.nodes_unseen else brief)


def _suspects(notice: Notice) -> str:
    if not notice.suspects:
        return NO_CULPRIT
    pids = _pids(notice)
    return _some(tuple(_suspect(s, pids.get((s.rank, s.node))) for s in notice.suspects), "; ")


def _suspect(suspect: Suspect, pid: int | None) -> str:
    where = suspect.node if suspect.rank is None else f"rank {suspect.rank} on {suspect.node}"
    gpu = f" GPU {suspect.gpu_index}" if suspect.gpu_index is not None else ""
    process = f" pid {pid}" if pid is not None else ""
    return f"{_clip(where, 100)}{gpu}{process}: {_clip(suspect.why, 120)}"


def _evidence(notice: Notice) -> str:
    numbers = [f"{_clip(e.name, 40)} {_clip(e.value, 80)}" for e in notice.evidence[:8]]
    return "; ".join([_clip(notice.reason, 300), *numbers])


def _first_thing(notice: Notice) -> str:
    words = FIRST_THING[notice.state]
    for suspect in notice.suspects:
        pid = _pids(notice).get((suspect.rank, suspect.node))
        if pid is not None:
            return words.replace(
                "py-spy dump --nonblocking --pid PID",
                f"on {_clip(suspect.node, 100)}: py-spy dump --nonblocking --pid {pid}",
            )
    return words


def _pids(notice: Notice) -> dict[tuple[int | None, str], int | None]:
    return {} if notice.view is None else {(r.rank, r.node): r.pid for r in notice.view.ranks}


def _cost(notice: Notice, view: RunView, now: float) -> list[Fact]:
    facts = []
    held_h = max(0.0, now - notice.since) / 3600
    if view.gpus and notice.state in {*_STUCK, RunState.LINGERING}:
        held = f"{view.gpus} GPUs, {view.gpus * held_h:.1f} GPU-hours so far"
        facts.append(Fact("burning", f"{held}, {view.gpus} more each hour", f"burning {held}"))
    if notice.state in {*_STUCK, RunState.CRASHED}:
        facts.append(Fact("checkpoint", _checkpoint(notice, view, now)))
    if view.collective_timeout_s is not None and view.step_at is not None and notice.state in _STUCK:
        strikes = view.step_at + view.collective_timeout_s
        left = f"in {span(strikes - now)}" if strikes > now else f"was due {span(now - strikes)} ago"
        facts.append(Fact("NCCL timeout", f"{left}, about {utc(strikes)}", f"NCCL timeout {left}"))
    return facts


def _checkpoint(notice: Notice, view: RunView, now: float) -> str:
    if view.last_checkpoint_at is None:
        return "none seen: find out what a restart loses before you kill"
    age = f"{span(now - view.last_checkpoint_at)} old"
    if view.last_checkpoint_step is not None:
        age += f", at step {view.last_checkpoint_step}"
    lost = max(0.0, min(notice.since, now) - view.last_checkpoint_at)
    cost = f"{span(lost)} of work"
    if (
        view.last_checkpoint_step is not None
        and view.step is not None
        and view.step >= view.last_checkpoint_step
    ):
        cost = f"{view.step - view.last_checkpoint_step} steps, {cost}"
    if view.gpus:
        cost += f", {view.gpus * lost / 3600:.1f} GPU-hours"
    return f"{age}; {'a restart' if notice.state is RunState.CRASHED else 'a kill'} costs {cost}"


def _note(notice: Notice, now: float, may_repeat: bool) -> str:
    notes = []
    if now - notice.at >= 60:
        notes.append(f"this message waited for {span(now - notice.at)}")
    if may_repeat:
        notes.append("may be a repeat: an earlier try was not confirmed")
    return "; ".join(notes)


def _fitted(parts: list[str], limit: int) -> str:
    while len(line := "; ".join(parts)) > limit:
        longest = max(range(len(parts)), key=lambda number: len(parts[number]))
        if len(parts[longest]) <= _LEAST_PART:
            return _clip(line, limit)
        parts[longest] = _clip(parts[longest], max(_LEAST_PART, len(parts[longest]) * 9 // 10))
    return line


def _labelled(fact: Fact) -> str:
    if fact.label in ("evidence", "now"):
        return fact.text
    return f"{fact.label}{':' if fact.label in ('first', 'note') else ''} {fact.text}"


def _some(names: tuple[str, ...], between: str = ", ") -> str:
    shown = between.join(_clip(name, 240) for name in names[:_FEW])
    return f"{shown} and {len(names) - _FEW} more" if len(names) > _FEW else shown


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
