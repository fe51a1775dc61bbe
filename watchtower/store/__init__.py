"""Keeps runs, incidents, owed messages and tracker state in SQLite. The only room that knows SQL."""
