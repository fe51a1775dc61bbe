"""A step counter as home-made loops print it: `step N/M`, `step: N of M`, `step:N/T`, `s:N`, verl's and torchtune's. The weakest source: any other wins over it."""

import re

from watchtower.trainlog.marks import Mark

_OF = re.compile(
    r"(?:^|[\s\[(,|])(?:global[ _]?step|train[ _]step|step|iter|iteration)s?\s{0,2}[:=\s]\s{0,4}"
    r"(\d{1,10})\s{0,2}(?:/|of)\s{0,2}(\d{1,10})(?=[\s,;:|)\]]|$)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"^(?:(?:step|s|iter):\s?(\d{1,10})(?: -)? {1,4}[A-Za-z_/]{1,40}[:=]|Step (\d{1,10}) \| [a-z_]{1,24}:)"
)
_NOT_TRAINING = re.compile(
    r"\b(?:eval\w{0,8}|val|validation|test\w{0,3}|predict\w{0,4}|warm-?up|load\w{0,3}|tokeni[sz]\w{0,6})\b",
    re.IGNORECASE,
)


def read(text: str) -> Mark | None:
    """One line that names a step in words, or None; a line that also speaks of evaluation or loading says no step."""
    found = _OF.search(text)
    if found:
        step, total = int(found.group(1)), int(found.group(2))
        if step > total or _NOT_TRAINING.search(text[max(0, found.start() - 60) : found.start()]):
            return None
        return Mark(step=step, total=total, phase="train")
    if found := _ALONE.search(text):
        return Mark(step=int(found.group(1) or found.group(2)), phase="train")
    return None
