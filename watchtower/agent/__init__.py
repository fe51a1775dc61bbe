"""The node side: reads GPUs, finds ranks, follows logs, serves one snapshot. Imports nothing of the watcher."""
