"""HF Trainer's logged dicts (v4 with numbers, v5 with quoted numbers), and what is built on it: TRL, ms-swift, axolotl, LLaMA-Factory. Reads no bars."""

import re

from watchtower.trainlog.marks import Mark

_PAIR = re.compile(r"""['"]([\w/() .-]{1,60})['"]:\s?['"]?([-+\d.e/]{1,32}|nan|inf)['"]?(?=[,}])""")
_START = re.compile(r"""\{['"][\w/() .-]{1,60}['"]:\s""")
_OF = re.compile(r"(\d{1,12})/(\d{1,12})")


def pairs(text: str) -> dict[str, str]:
    """The numeric entries of a logged dict in this record, as printed; empty when there is no complete dict."""
    found = _START.search(text)
    if not found or "}" not in text[found.start() :]:
        return {}
    return dict(_PAIR.findall(text, found.start()))


def read(logged: dict[str, str]) -> Mark | None:
    """Step, total and rate where the dict itself has them (ms-swift, LLaMA-Factory), else rate and phase, else None.

    Plain HF dicts have no step: that comes from the bar. `train_runtime` alone does not mean that training ended: it is in
    every dict when input tokens are counted.
    """
    if "train_samples_per_second" in logged and "train_loss" in logged:
        return Mark(kind="training_completed", phase="finishing", text="HF Trainer printed its final metrics")
    if "eval_runtime" in logged:
        return Mark(phase="train")
    if found := _OF.fullmatch(logged.get("global_step/max_steps", "")):
        pace = number(logged.get("train_speed(s/it)"))
        rate = round(1 / pace, 6) if pace else None
        return Mark(
            step=int(found.group(1)),
            total=int(found.group(2)),
            throughput=rate,
            unit="steps/s" if rate else None,
            scope="run" if rate else None,
            phase="train",
        )
    step, total = logged.get("current_steps", ""), logged.get("total_steps", "")
    if step.isdigit() and total.isdigit():
        rate = number(logged.get("throughput"))
        return Mark(
            step=int(step),
            total=int(total),
            throughput=rate,
            unit="tokens/s" if rate else None,
            scope="run" if rate else None,
            phase="train",
        )
    rate = number(logged.get("tokens/train_per_sec_per_gpu"))
    return Mark(throughput=rate, unit="tokens/s", scope="gpu", phase="train") if rate else None


def number(text: str | None) -> float | None:
    """A finite positive number, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e15 else None
