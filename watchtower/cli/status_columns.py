"""Makes columns and sentences fit a terminal: which columns go first, where a line breaks. Knows nothing of runs."""

from collections.abc import Sequence

GAP = "  "


def fit(widths: Sequence[int], sacrifices: Sequence[int], width: int | None) -> list[int]:
    """Choose the columns that there is room for.

    Args:
        widths: of each column.
        sacrifices: of each column, how early it is given up; 0: never.
        width: of the terminal; None: as wide as needed.

    Returns:
        The numbers of those kept; they may still be too wide when all that is left is never given up.
    """
    kept = list(range(len(widths)))
    while width is not None and total(widths, kept) > width:
        candidates = [n for n in kept if sacrifices[n]]
        if not candidates:
            break
        kept.remove(max(candidates, key=lambda n: sacrifices[n]))
    return kept


def total(widths: Sequence[int], kept: Sequence[int]) -> int:
    """How wide a line of these columns is."""
    return sum(widths[n] for n in kept) + len(GAP) * (len(kept) - 1)


def wrap(text: str, width: int | None, first: str, rest: str) -> list[str]:
    """Break a sentence into lines that fit, at spaces."""
    if width is None or len(first) + len(text) <= width:
        return [first + text]
    lines, line = [], first
    for word in text.split():
        gap = "" if line in {first, rest} else " "
        if len(line) + len(gap) + len(word) > width and line not in {first, rest}:
            lines.append(line)
            line, gap = rest, ""
        line += gap + word
    return [*lines, line]
