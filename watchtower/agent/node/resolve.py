"""Decides run and rank of all of a node's GPU processes together: inference, ownership, validation. Pure: reads nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from watchtower.agent.node.identity import Claim
from watchtower.agent.node.proc import ProcessKey


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a process's own job file says it is."""

    run_id: str
    rank: int
    run_name: str | None = None
    local_rank: int | None = None
    world_size: int | None = None
    attempt: int | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One process on a GPU of this node; sequences of these are in the order of their GPUs."""

    key: ProcessKey
    parent_pid: int
    uid: int
    claim: Claim
    registration: Registration | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a process is, as published."""

    run_id: str
    run_name: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    source: str  # environ | registered | inferred
    attempt: int | None


class Resolved(msgspec.Struct, frozen=True):
    """All identities of a node, and how many processes were left out for which reason."""

    identities: dict[ProcessKey, Identity]
    unmarked: int  # nothing says that they train
    foreign: int  # named a run that belongs to another user


def resolve(candidates: Sequence[Candidate], owners: Mapping[str, int], host: str) -> Resolved:
    """Give every process its run and, where that is safe, its rank.

    Args:
        candidates: all processes on this node's GPUs, in GPU order.
        owners: run id -> user id, for runs seen before. Whoever came first speaks for a run, except that one for whose name
            the scheduler's cgroup vouches comes before all who only say so.
        host: this node's name, part of the ids of runs that nobody named.

    Returns:
        Identities; a rank is None where two processes of a run claim the same one or it is not below the world size:
        no rank is better than a wrong one. Helpers (children that inherited their rank's environment) have none.
    """
    by_pid = {candidate.key.pid: candidate for candidate in candidates}
    groups: dict[str, list[Candidate]] = {}
    named = [
        (candidate, _run_id(candidate, candidates, by_pid, host))
        for candidate in candidates
        if not _is_helper(candidate, by_pid)
    ]
    vouched: dict[str, int] = {}
    for candidate, run_id in named:
        if run_id is not None and candidate.claim.vouched and run_id == candidate.claim.run_id:
            vouched.setdefault(run_id, candidate.uid)
    taken = {**owners, **vouched}
    unmarked = foreign = 0
    for candidate, run_id in named:
        if run_id is None:
            unmarked += 1
        elif taken.setdefault(run_id, candidate.uid) != candidate.uid:
            foreign += 1
        else:
            groups.setdefault(run_id, []).append(candidate)
    identities: dict[ProcessKey, Identity] = {}
    for run_id, members in groups.items():
        identities.update(_validated(_group(run_id, members)))
    return Resolved(identities, unmarked, foreign)


def _is_helper(candidate: Candidate, by_pid: Mapping[int, Candidate]) -> bool:
    parent = by_pid.get(candidate.parent_pid)
    if parent is None or candidate.registration is not None:
        return False
    claim = candidate.claim
    return claim.rank is not None and claim.local_rank is not None and claim.rank == parent.claim.rank


def _run_id(
    candidate: Candidate, candidates: Sequence[Candidate], by_pid: Mapping[int, Candidate], host: str
) -> str | None:
    if candidate.registration is not None:
        return candidate.registration.run_id
    claim = candidate.claim
    parent = by_pid.get(candidate.parent_pid)
    if parent is not None and parent.registration is not None and claim.run_id == parent.claim.run_id:
        return parent.registration.run_id
    siblings = [c for c in candidates if c.parent_pid == candidate.parent_pid and c.uid == candidate.uid]
    named = {c.registration.run_id for c in siblings if c.registration and c.claim.run_id == claim.run_id}
    if len(named) == 1:
        return named.pop()  # its brothers have registered and it has not yet
    if claim.run_id is not None and (not _is_pod(claim) or claim.rank is not None or len(siblings) > 1):
        return claim.run_id
    if parent is not None:
        return f"proc-{host}-{parent.key.pid}"
    children = any(c.parent_pid == candidate.key.pid for c in candidates)
    if children:
        return f"proc-{host}-{candidate.key.pid}"
    if candidate.parent_pid > 1 and (len(siblings) > 1 or claim.rank is not None):
        return f"proc-{host}-{candidate.parent_pid}"
    return None


def _is_pod(claim: Claim) -> bool:
    # A lone process in a pod may be an inference server: being in a pod is no sign of training.
    return claim.run_id is not None and len(claim.run_id) == 36 and claim.run_id.count("-") == 4


def _group(run_id: str, members: Sequence[Candidate]) -> dict[ProcessKey, Identity]:
    shared = Counter(m.claim.rank for m in members if m.claim.local_rank is None and m.claim.rank is not None)
    known: dict[ProcessKey, Identity] = {}
    unknown: list[Candidate] = []
    for member in members:
        claim, registration = member.claim, member.registration
        if registration is not None:
            known[member.key] = _identity(
                run_id, member, registration.rank, registration.local_rank, "registered"
            )
        elif claim.rank is not None and not (claim.local_rank is None and shared[claim.rank] > 1):
            known[member.key] = _identity(run_id, member, claim.rank, claim.local_rank, "environ")
        else:
            unknown.append(member)
    if known:
        return known | {m.key: _identity(run_id, m, None, m.claim.local_rank, "inferred") for m in unknown}
    return _inferred(run_id, unknown)


def _inferred(run_id: str, members: Sequence[Candidate]) -> dict[ProcessKey, Identity]:
    """Ranks by GPU order, the parent of the others first: how mp.spawn and Lightning's own launcher place them."""
    free = sorted(
        set(range(len(members))) - {m.claim.local_rank for m in members if m.claim.local_rank is not None}
    )
    parents = {m.parent_pid for m in members}
    unplaced = [m for m in members if m.claim.local_rank is None]
    unplaced.sort(key=lambda m: m.key.pid not in parents)  # stable: keeps the GPU order
    places = dict(zip((m.key for m in unplaced), free, strict=False))
    found = {}
    node = next((m.claim.node_index for m in members if m.claim.node_index is not None), None)
    several = any(m.claim.several_nodes for m in members)
    if node is None and not several:
        node = 0
    for member in members:
        local = member.claim.local_rank if member.claim.local_rank is not None else places.get(member.key)
        rank = None if node is None or local is None else node * len(members) + local
        found[member.key] = _identity(run_id, member, rank, local, "inferred")
    return found


def _identity(run_id: str, member: Candidate, rank: int | None, local: int | None, source: str) -> Identity:
    claim, registration = member.claim, member.registration
    world = (
        registration.world_size if registration and registration.world_size is not None else claim.world_size
    )
    if source == "inferred" and claim.local_rank is None:
        world = None  # where a rank had to be guessed, WORLD_SIZE may count pods
    return Identity(
        run_id=run_id,
        run_name=(registration.run_name if registration else None) or claim.run_name,
        rank=rank,
        local_rank=local if local is not None else claim.local_rank,
        world_size=world,
        source=source,
        attempt=registration.attempt if registration and registration.attempt is not None else claim.attempt,
    )


def _validated(group: dict[ProcessKey, Identity]) -> dict[ProcessKey, Identity]:
    times = Counter(identity.rank for identity in group.values())
    return {
        key: msgspec.structs.replace(identity, rank=None)
        if identity.rank is not None
        and (
            times[identity.rank] > 1
            or (identity.world_size is not None and identity.rank >= identity.world_size)
        )
        else identity
        for key, identity in group.items()
    }
