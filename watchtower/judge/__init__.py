"""The one pure step that joins classify and alerts; the daemon and replay both run it."""
