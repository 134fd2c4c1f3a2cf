"""delta as an agent of Inspect: `delta()` runs an agent directory in the sandbox of a sample."""

from delta_inspect.agent import DeltaError, DeltaRun, delta

__all__ = ["DeltaError", "DeltaRun", "delta"]
