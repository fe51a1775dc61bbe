"""Simulated GPUs and runs, for the demo and the tests."""
