"""Recordings to and from files (docs/formats.md section 2). Does not judge them."""
