"""Turns what trainers print into progress, phases, and completion and failure marks. Pure: no files, no clock."""

from watchtower.trainlog.marks import Mark
from watchtower.trainlog.reader import LogReader

__all__ = ["LogReader", "Mark"]
