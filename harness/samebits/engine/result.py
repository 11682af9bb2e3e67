"""What a check, a case and a suite say when they are done: plain data that survives JSON and processes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The verdict of one check. Order of severity: see `SEVERITY`."""

    PASSED = "passed"
    """Every compared bit agreed, and the check measured that it could have seen a difference."""
    DIVERGED = "diverged"
    """Bits changed with the batch."""
    FLAKY = "flaky"
    """The same launch, repeated, gave other bits."""
    NO_POWER = "no power"
    """Nothing differed, but on this data nothing could have: proves nothing, never green."""
    SKIPPED = "skipped"
    """The check does not apply to this subject or machine; `reason` says why."""
    CRASHED = "crashed"
    """The process died or hung in this check; `reason` says how."""
    ERROR = "error"
    """The subject raised; `reason` has the exception."""


@dataclass(frozen=True)
class Power:
    """What a check measured about its own ability to fail on the data at hand."""

    sees: bool
    """False: the verdict is "no power"."""
    elements: int = 0
    """Output elements compared per row; below 256 the report says how many."""
    sensitive: float | None = None
    """Measured share of output elements whose bits change when the accumulation order does, or None."""
    how: str = ""
    """How `sensitive` was measured, or why the check sees nothing."""


@dataclass(frozen=True)
class Element:
    """One output element on both sides."""

    index: tuple[int, ...]
    """Index inside the row (dimension 0 removed)."""
    expected: str
    """Bits, as hex of the element's width: "0x3f80"."""
    found: str
    expected_value: str
    found_value: str
    ulp: int | None
    """Distance in units in the last place, or None where it has no meaning (NaN, integers of codes)."""


@dataclass(frozen=True)
class Finding:
    """A divergence, with all that is needed to understand and replay it."""

    check: str
    kind: str
    """One of: value, signed zero, nan payload, finite, shape, dtype, stride, contract."""
    message: str
    """One sentence: which row, at which batch sizes and positions, against what."""
    output: int = 0
    row: int | None = None
    """Index of the row in the pool."""
    position: int | None = None
    """Where the row sat in the failing launch."""
    batch: int | None = None
    """M of the failing launch."""
    against: int | None = None
    """M of the launch that gave the expected bits."""
    mismatched: int = 0
    total: int = 0
    """Differing and compared elements of that row."""
    first: Element | None = None
    greatest: Element | None = None
    cause: str = ""
    """The diagnosis: a sentence that starts with its cause id, such as "dispatch-by-M: ..."."""
    details: dict[str, Any] = field(default_factory=dict)
    """JSON-able extras: invariance map, tree, failing batch sizes, dtype, shape."""
    replay: str = ""
    """One command that shows this finding again."""


@dataclass
class CheckResult:
    """One check on one case."""

    check: str
    status: Status
    reason: str = ""
    """Why it was skipped, has no power, crashed or raised."""
    coverage: str = ""
    """In words, exactly what was covered: "all 32,896 (M, position) pairs for M = 1..256"."""
    power: Power | None = None
    launches: int = 0
    pairs: int = 0
    """(M, position) pairs compared."""
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only."""
        return {**dataclasses.asdict(self), "status": str(self.status)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CheckResult:
        """Inverse of `to_json`."""
        power = Power(**data["power"]) if data.get("power") else None
        findings = [_finding(f) for f in data.get("findings", [])]
        rest = {k: v for k, v in data.items() if k not in ("power", "findings", "status")}
        return cls(status=Status(data["status"]), power=power, findings=findings, **rest)


def _finding(data: dict[str, Any]) -> Finding:
    def element(e: dict[str, Any] | None) -> Element | None:
        return Element(**{**e, "index": tuple(e["index"])}) if e else None

    return Finding(**{**data, "first": element(data.get("first")), "greatest": element(data.get("greatest"))})


SEVERITY = (
    Status.FLAKY,
    Status.DIVERGED,
    Status.CRASHED,
    Status.ERROR,
    Status.NO_POWER,
    Status.PASSED,
    Status.SKIPPED,
)
"""Worst first: a case is as bad as its worst check, and skipped only if every check was."""

ESSENTIAL = "batch-size"
"""The check whose lack of power no other check makes up for."""


@dataclass
class CaseResult:
    """All checks of one case in one process."""

    case: str
    expect: str = "invariant"
    """What the case must do: see `samebits.engine.suite.Expect`."""
    seed: int = 0
    checks: list[CheckResult] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """Subject name, shapes, dtypes, device, contract, source hash, probe values."""

    @property
    def status(self) -> Status:
        """The worst status of its checks; SKIPPED where there is none."""
        found = {c.status for c in self.checks}
        # A check that had nothing to look at does not spoil a case that others looked at and passed, unless it
        # is the sweep over the batch sizes: without that one, nothing is known of batch invariance.
        blind = {c.check for c in self.checks if c.status is Status.NO_POWER}
        if Status.PASSED in found and ESSENTIAL not in blind:
            found.discard(Status.NO_POWER)
        return next((s for s in SEVERITY if s in found), Status.SKIPPED)

    @property
    def findings(self) -> list[Finding]:
        """Every finding of every check, in the order the checks ran."""
        return [f for c in self.checks for f in c.findings]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only."""
        return {
            "case": self.case,
            "expect": self.expect,
            "seed": self.seed,
            "status": str(self.status),
            "facts": self.facts,
            "checks": [c.to_json() for c in self.checks],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaseResult:
        """Inverse of `to_json`."""
        checks = [CheckResult.from_json(c) for c in data["checks"]]
        return cls(data["case"], data["expect"], data["seed"], checks, data.get("facts", {}))
