"""Where things are unless told otherwise. Opens none of them."""

from pathlib import Path

DEFAULT_CONFIG = Path("/etc/watchtower/watchtower.toml")
DEFAULT_URL = "http://127.0.0.1:9478"
