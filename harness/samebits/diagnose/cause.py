"""From the pattern of checks that failed to the likely defect, and what to do about it.

The rules are tried in order, the most specific first: what does not even repeat cannot be blamed on the batch
size, and what depends on the neighbours' values need not depend on M. The order is that of
docs/explanation/causes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samebits.engine.result import CaseResult, CheckResult, Finding, Status

POSITIONAL = frozenset({"batch-size", "solo", "replay", "permutation", "duplicates", "prefix"})
"""Checks in which a row meets other positions, sizes and company: their findings share causes."""

POSITION = frozenset({"duplicates", "permutation", "replay"})
"""Checks that keep M and move rows."""


@dataclass(frozen=True)
class Pattern:
    """What the rules look at."""

    finding: Finding
    failed: frozenset[str]
    """Ids of the checks that found something."""
    passed: frozenset[str]
    flaky: bool
    """Whether any launch failed to repeat."""
    edges: tuple[int, ...] = ()
    """Batch sizes at which the bits of one row at one position change."""
    written: bool = False
    """Whether a launch changed its own row inputs."""
    elementwise: bool = False
    """No sum to reorder: then M matters only by where it puts the end of the last vector."""

    @property
    def check(self) -> str:
        """The check of the finding that is being explained."""
        return self.finding.check


@dataclass(frozen=True)
class Cause:
    """A kind of defect."""

    id: str
    when: Callable[[Pattern], bool]
    says: str
    """What it is, in one clause."""
    do: str
    """What to look at."""


def _poisoned(p: Pattern, *words: str) -> bool:
    region = str(p.finding.details.get("poisoned", ""))
    return p.check == "padding" and any(w in region for w in words)


def _only(p: Pattern, *ids: str) -> bool:
    return p.check in ids and not p.failed - set(ids)


CAUSES = (
    Cause(
        "uninitialised",
        lambda p: _poisoned(p, "torch.empty", "allocator"),
        "memory is read before it is written",
        "initialise the workspace or accumulator, or write every element of it before the first read",
    ),
    Cause(
        "arrival-order",
        lambda p: p.flaky and (p.check in POSITIONAL or p.check in {"repeat", "neighbours", "history"}),
        "the same launch does not repeat: addends meet in the order in which they arrive, or a barrier is missing",
        "look for floating-point atomics, a last-block reduction without fixed order, a race (compute-sanitizer)",
    ),
    Cause(
        "padding-read",
        lambda p: p.check == "padding",
        "bytes that belong to no row reach a row's result",
        "mask loads by the real row count; zero scale padding and workspaces",
    ),
    Cause(
        "cached-flag",
        lambda p: p.check == "flag",
        "the kernel library runs under another flag than this process's environment",
        "read VLLM_BATCH_INVARIANT after it is set, in one place, and do not cache it across changes",
    ),
    Cause(
        "out-contract",
        lambda p: p.check == "out-contract",
        "the supplied output or the inputs are not treated as promised",
        "write through `out` itself: no rebinding to a view or a copy, no in-place work on inputs",
    ),
    Cause(
        "stale-state",
        lambda p: p.check == "history",
        "what ran before shows: a workspace or cache keeps the last batch",
        "size and clear workspaces by the batch at hand",
    ),
    Cause(
        "autotune-per-process",
        lambda p: _only(p, "processes"),
        "the configuration is chosen once per process, by timing or by history",
        "pin the configuration in batch-invariant mode: no autotuning by time",
    ),
    Cause(
        "layout-path",
        lambda p: p.check == "layout",
        "strides or alignment choose the path",
        "copy to one layout at the door, or use a path whose order of additions does not depend on it",
    ),
    Cause(
        "cross-row",
        lambda p: "neighbours" in p.failed and (p.check in POSITIONAL or p.check == "neighbours"),
        "a row's result depends on its neighbours' values",
        "look for a scale, maximum, routing count or capacity taken over the batch; for 0 * NaN in masked rows",
    ),
    Cause(
        "dispatch-by-M",
        lambda p: (
            p.check in {"batch-size", "solo", "prefix"}
            and (not POSITION & p.failed or (bool(p.edges) and not p.elementwise))
        ),
        "the batch size chooses a kernel or configuration that adds in another order",
        "one configuration class for all M: split-K, stream-K and tile of K fixed by (N, K)",
    ),
    Cause(
        "position",
        lambda p: p.check in POSITIONAL,
        "equal rows differ by where they sit in one launch: a tail, a tile or a thread has another loop",
        "give the tail the same loop as the body: mask instead of branching",
    ),
)
"""In the order in which they are tried."""

WRITTEN = Cause(
    "out-contract",
    lambda p: p.written and p.check in POSITIONAL | {"repeat", "neighbours", "history", "layout", "out-contract"},
    "the kernel writes to its row inputs: whatever is launched on them again starts from other values",
    "write to a buffer of its own; until then the other findings may have no other cause",
)
"""Tried before all others: it imitates most of them, down to launches that do not repeat."""

UNKNOWN = Cause(
    "unknown", lambda _: True, "no rule matches this pattern of checks", "compare the failing launches"
)


def cause(result: CaseResult, outcome: CheckResult) -> str:
    """The cause of a check's first finding: "id: what it is; do: what to look at".

    Args:
        result: all checks of the case that have ended.
        outcome: the check with the finding.
    """
    if not outcome.findings:
        return ""
    failed = frozenset(c.check for c in result.checks if c.findings) | {outcome.check}
    passed = frozenset(c.check for c in result.checks if c.status is Status.PASSED)
    flaky = any(c.status is Status.FLAKY for c in result.checks)
    elementwise = outcome.power is not None and outcome.power.how.startswith("element-wise")
    pattern = Pattern(outcome.findings[0], failed, passed, flaky, _edges(result), _written(result), elementwise)
    found = next((c for c in (WRITTEN, *CAUSES) if c.when(pattern)), UNKNOWN)
    where = ""
    if found.id == "dispatch-by-M" and pattern.edges:
        shown = ", ".join(map(str, pattern.edges[:8])) + (", ..." if len(pattern.edges) > 8 else "")
        where = f" (edges at M = {shown})"
    return f"{found.id}: {found.says}{where}; do: {found.do}"


def _written(result: CaseResult) -> bool:
    """Whether out-contract saw a row input change."""
    said = [f.message for c in result.checks if c.check == "out-contract" for f in c.findings]
    return any(m.startswith("row input") and "was written to" in m for m in said)


def _edges(result: CaseResult) -> tuple[int, ...]:
    """Of the invariance map, where the sweep drew one."""
    maps = (f.details.get("edges") for c in result.checks if c.check == "batch-size" for f in c.findings)
    return tuple(next((m for m in maps if m), ()))
