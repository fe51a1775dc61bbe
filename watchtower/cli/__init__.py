"""The command line, one file per command; imports late so that each command starts fast."""
