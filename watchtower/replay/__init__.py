"""Plays recordings through the judge in virtual time."""
