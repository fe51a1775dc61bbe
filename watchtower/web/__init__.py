"""Serves the JSON API, /metrics and /healthz. Reads through a protocol that it declares itself."""
