"""What a training script imports to say how far it is. Standard library only; imports nothing else of watchtower and never torch."""

from watchtower.train.heartbeat import beat

__all__ = ["beat"]
