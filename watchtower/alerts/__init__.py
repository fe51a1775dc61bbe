"""Turns verdicts into incidents and into what is owed to whom. Pure: no I/O, no clock, no logging."""
