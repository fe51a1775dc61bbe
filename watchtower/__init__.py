"""watchtower watches distributed training runs from outside; this file holds its version and imports nothing."""

__version__ = "0.1.0"
