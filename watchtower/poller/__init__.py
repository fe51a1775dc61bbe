"""Asks agents and turns their answers into observations. Does not judge."""
