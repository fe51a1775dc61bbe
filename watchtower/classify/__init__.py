"""Turns observations into a verdict per run, one file per question. Pure: no I/O, no clock, no logging."""
