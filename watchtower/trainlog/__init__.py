"""Turns what trainers print into progress, phases, and completion and failure marks. Pure: no files, no clock."""
