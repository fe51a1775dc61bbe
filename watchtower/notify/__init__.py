"""Tells people: one file per sink behind one contract. Does not decide what to tell, or remember what was told."""
