"""The monitoring box: wiring, the round (ask, judge, decide, record), the sender, lifecycle."""
