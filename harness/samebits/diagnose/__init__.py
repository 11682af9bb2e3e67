"""Why bits changed: causes from the pattern of failing checks, the smallest failing launch, examples to search."""

from samebits.diagnose.cause import CAUSES, Cause, cause

__all__ = ["CAUSES", "Cause", "cause"]
