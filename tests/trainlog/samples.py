"""Small logs of our own in the trainers' forms, with the steps that they hold."""

from watchtower.trainlog import LogReader, Mark


def read(text: str | bytes, chunk: int = 0) -> list[Mark]:
    """All marks of one log, fed whole or in chunks."""
    data = text.encode() if isinstance(text, str) else text
    reader = LogReader()
    if not chunk:
        return reader.feed(data)
    return [mark for at in range(0, len(data), chunk) for mark in reader.feed(data[at : at + chunk])]


def steps(marks: list[Mark]) -> list[int]:
    return [mark.step for mark in marks if mark.step is not None]


def bar(n: int, total: int, *, description: str = "", elapsed: str = "10:00", unit: str = "it") -> str:
    head = f"{description}: " if description else ""
    return f"\r{head}{round(100 * n / total):3d}%|#####     | {n}/{total} [{elapsed}<01:12, 10.39s/{unit}]"


def megatron(step: int, total: int = 9000) -> str:
    return (
        f" [2031-02-03 04:05:06] iteration {step:8d}/{total:8d} | consumed samples: {step * 256:12d} |"
        " elapsed time per iteration (ms): 800.0 | learning rate: 1.000000E-05 | global batch size:   256 |"
        " lm loss: 3.012345E+00 | loss scale: 1.0 |\n"
    )
