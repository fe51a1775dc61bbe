"""Progress bars in tqdm's form: which of several bars is the training one, and how far it is. Believes neither percent nor rate.

A bar that is printed again (tqdm's monitor does so for a stuck loop) or reads 100 % is not progress, and the rate is an
average that stays when everything stops; only a larger n of the same bar counts.
"""

import re

import msgspec

from watchtower.trainlog.marks import Mark, Phase

_NUMBER = r"\d[\d.]{0,14}[kMGT]?"
_BAR = re.compile(
    rf"(?P<pct>\d{{1,3}})%\|[^|]{{0,400}}\|\s{{0,4}}(?P<n>{_NUMBER})/(?P<total>{_NUMBER})\s{{0,4}}"
    r"\[(?P<elapsed>[\d:]{1,14})<(?:\?|[\d:]{1,14}|\d{1,4} days?, [\d:]{1,8}),\s{0,4}"
    r"(?:(?:\?|[\d.]{1,14}[kMGT]?)\s{0,4}(?P<unit>[^\W\d]{1,20})/s|[\d.]{1,14}s/\s{0,4}(?P<unit2>[^\W\d]{1,20}))"
    r"(?:,[^\]]{0,2000})?\]"
)
_DESCRIPTION = re.compile(r"([^|%\r\n\]]{0,120}):\s{0,4}$")
_UNITS = frozenset({"it", "step", "steps", "batch", "ba", "sample", "iter"})
_OTHER_PHASES: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (
        re.compile(
            r"\b(?:eval\w*|val|valid\w*|sanity|test\w*|predict\w*|generat\w+|rollout)\b", re.IGNORECASE
        ),
        "eval",
    ),
    (re.compile(r"\b(?:writing|saving|save)\b", re.IGNORECASE), "checkpoint"),
    (
        re.compile(
            r"\b(?:loading|map|filter|tokeni[sz]\w*|packing|pre-?process\w*|download\w*|fetching|shards?|skipping)\b",
            re.IGNORECASE,
        ),
        "init",
    ),
)
_EPOCH = re.compile(r"\bepoch\W{1,4}(\d{1,6})", re.IGNORECASE)
_TRAIN = re.compile(r"\btrain", re.IGNORECASE)
_NUMBERS = re.compile(r"[-+]?\d[\d.e+-]{0,20}")
_SI = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DESCRIPTION_WINDOW = 124


class Bar(msgspec.Struct, frozen=True):
    """One printed bar."""

    n: float
    total: float
    exact: bool  # False where n or total are rounded to 1.2M: equal values then say nothing
    description: str
    unit: str
    fresh: bool  # no time has passed since it was made
    epoch: int | None  # epochs finished before this bar, for bars that are made anew every epoch


class TrainingBar:
    """Picks the training bar out of all the bars of one log and follows it.

    The first bar that may be training holds the place. A larger one takes it once the holder is full, any other while the
    holder has not begun; and the bar beside which a training loss is printed takes it for good (`confirm`).
    """

    def __init__(self) -> None:
        self._key: tuple[int, str] | None = None
        self._step = 0
        self._full = False
        self._confirmed = False
        self._candidate: Bar | None = None

    def confirm(self) -> None:
        """The trainer has printed a training loss beside the newest bar: that one is the training bar."""
        if self._candidate is not None and not self._confirmed:
            self._confirmed = True
            if _key(self._candidate) != self._key:
                self._key, self._step = _key(self._candidate), 0

    def read(self, text: str) -> Mark | None:
        """Read the newest bar of one record.

        Returns:
            A mark with a step when the training bar rose (or was made anew and begins lower: a restart), a mark with only a
            phase for a bar that is something else, None when the record has no bar or the bar says nothing new.
        """
        bar = newest_bar(text)
        if bar is None:
            return None
        if phase := _other_phase(bar):
            return Mark(phase=phase)
        if bar.unit not in _UNITS or not bar.exact:
            return None
        self._candidate = bar
        step = _step(bar)
        if _key(bar) != self._key:
            if not self._gives_way(bar):
                return None
        elif step <= self._step and not (bar.fresh and step < self._step):
            return None  # printed again, or the slower of several ranks that share one file
        self._key, self._step, self._full = _key(bar), step, bar.n == bar.total
        return Mark(
            step=step,
            total=None if bar.epoch is not None else int(bar.total),
            phase="train" if step else "init",
        )

    def _gives_way(self, bar: Bar) -> bool:
        if self._key is None or (self._step == 0 and not self._confirmed):
            return True
        return self._full and not self._confirmed and bar.total > self._key[0]


def _key(bar: Bar) -> tuple[int, str]:
    # A description that carries a loss changes with every print; only its words tell bars apart.
    return int(bar.total), "epoch" if bar.epoch is not None else _NUMBERS.sub("", bar.description)


def _step(bar: Bar) -> int:
    return int(bar.n) + (bar.epoch or 0) * int(bar.total)


def _other_phase(bar: Bar) -> Phase | None:
    for words, phase in _OTHER_PHASES:
        if words.search(bar.description):
            named_train = phase == "eval" and bar.unit in _UNITS and _TRAIN.search(bar.description)
            return None if named_train else phase
    return None


def newest_bar(text: str) -> Bar | None:
    """The last complete bar in a record, or None; a bar whose percent contradicts its numbers was spliced and is dropped."""
    if "%|" not in text:
        return None
    found = None
    for match in _BAR.finditer(text):
        found = match
    if found is None:
        return None
    n, total = _count(found.group("n")), _count(found.group("total"))
    if not total or n > total or abs(100 * n / total - int(found.group("pct"))) > 1:
        return None
    before = _DESCRIPTION.search(text[max(0, found.start() - _DESCRIPTION_WINDOW) : found.start()])
    description = before.group(1).strip() if before else ""
    return Bar(
        n=n,
        total=total,
        exact=found.group("n").isdigit() and found.group("total").isdigit(),
        description=description,
        unit=(found.group("unit") or found.group("unit2")).lower(),
        fresh=not found.group("elapsed").strip("0:"),
        epoch=_epochs_before(description, found.group(0)),
    )


def _epochs_before(description: str, printed: str) -> int | None:
    found = _EPOCH.search(description)
    if found is None:
        return None
    # Lightning, known by its version number, counts epochs from zero; everybody else from one.
    return int(found.group(1)) if "v_num=" in printed else max(0, int(found.group(1)) - 1)


def _count(text: str) -> float:
    scale = _SI.get(text[-1], 1.0)
    try:
        return float(text.rstrip("kMGT")) * scale
    except ValueError:  # 1.2.3
        return 0.0
