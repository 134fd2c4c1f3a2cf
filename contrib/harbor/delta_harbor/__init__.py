"""delta as an agent of Harbor: `--agent delta_harbor:Delta`."""

from delta_harbor.agent import Delta, DeltaOptions

__all__ = ["Delta", "DeltaOptions"]
