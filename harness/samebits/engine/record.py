"""Keeps the book of one check: launches, time, findings, and the verdict they add up to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from samebits.engine import bits
from samebits.engine.result import CheckResult, Finding, Power, Status

if TYPE_CHECKING:
    from torch import Tensor

    from samebits.engine.bench import Bench

MAX_FINDINGS = 4
"""Findings kept per check: the first says it all, a few more show the pattern."""
ENOUGH_ELEMENTS = 256
"""Elements per row below which the report says how many there were."""


class Record:
    """Made by `Bench.open`; ended by `close` or `skip`."""

    def __init__(self, bench: Bench, check: str) -> None:
        self.bench, self.check = bench, check
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.flaky = False
        self._launches, self._start = bench.launches, time.perf_counter()

    def compare(
        self,
        found: Sequence[Tensor],
        expected: Sequence[Tensor],
        message: str | Callable[[int], str],
        *,
        rows: Sequence[int] | Tensor | None = None,
        batch: int | None = None,
        against: int | None = None,
        again: Callable[[], Sequence[Tensor]] | None = None,
        details: dict[str, Any] | None = None,
    ) -> bool:
        """Compare two launches row by row; True where every bit agrees. Synchronises.

        Args:
            found, expected: outputs [M, ...] of the launch under test and what they must be.
            message: the sentence of a finding, or a function of the position that makes it.
            rows: pool index of each position.
            batch, against: M of the launch, and of the launch that gave `expected`.
            again: repeats the launch under test. Where its bits differ from `found`, the finding is flaky: the
                same launch does not even agree with itself.
            details: JSON-able extras for the finding.
        """
        for i, (f, e) in enumerate(zip(found, expected, strict=True)):
            if f.shape != e.shape or f.dtype != e.dtype:
                kind = "shape" if f.shape != e.shape else "dtype"
                said = message if isinstance(message, str) else message(0)
                wrong = f"{said}: {tuple(f.shape)} {f.dtype} instead of {tuple(e.shape)} {e.dtype}"
                self.findings.append(Finding(self.check, kind, wrong, output=i, batch=batch, against=against))
                return False
        counts = [bits.differing_rows(f, e) for f, e in zip(found, expected, strict=True)]
        places = [c.nonzero().reshape(-1).tolist() for c in counts]
        if not any(places):
            return True
        if again is not None:
            found = tuple(f.clone() for f in found)  # the repeat may be written over it
            repeat = again()
            if not all(bits.same(a, b) for a, b in zip(repeat, found, strict=True)):
                self.flaky = True
        for i, positions in enumerate(places):
            for position in positions:
                if len(self.findings) >= MAX_FINDINGS:
                    break
                e, f = expected[i][position], found[i][position]
                first, greatest = bits.first_and_greatest(e, f)
                said = message if isinstance(message, str) else message(position)
                self.findings.append(
                    Finding(
                        check=self.check,
                        kind=bits.kind_of(e, f),
                        message=said
                        + (" (and the same launch repeated gives other bits again)" if self.flaky else ""),
                        output=i,
                        row=None if rows is None else int(rows[position]),
                        position=position,
                        batch=batch,
                        against=against,
                        mismatched=int(counts[i][position]),
                        total=e.numel(),
                        first=first,
                        greatest=greatest,
                        details={
                            "dtype": str(e.dtype).removeprefix("torch."),
                            "shape": list(e.shape),
                            "rows differing": len(positions),
                            "rows compared": found[i].shape[0],
                            **(details or {}),
                        },
                    )
                )
        return False

    def contract(self, message: str, **details: Any) -> None:
        """A finding that is no difference of bits: an output not written, an input changed, a stale flag."""
        self.findings.append(Finding(self.check, "contract", message, details=details))

    def order_power(self) -> Power:
        """Power of a check that looks for changes of the accumulation order."""
        bench, s = self.bench, self.bench.sensitivity
        elements = bench.elements
        if s.addends is not None and s.addends < 3:
            return Power(False, elements, s.share, f"{s.addends} addends: no order of a sum of two can show")
        if s.share == 0:
            return Power(False, elements, 0.0, f"no output element is order-sensitive on this data ({s.how})")
        return Power(True, elements, s.share, s.how)

    def close(self, *, coverage: str, pairs: int = 0, power: Power | None = None) -> CheckResult:
        """The result: findings decide, and without findings the power to have had some."""
        if self.flaky:
            status = Status.FLAKY
        elif self.findings:
            status = Status.DIVERGED
        elif power is not None and not power.sees:
            status = Status.NO_POWER
        else:
            status = Status.PASSED
        if power is not None and power.sees and power.elements < ENOUGH_ELEMENTS:
            self.notes.append(f"only {power.elements} output elements per row")
        reason = power.how if status is Status.NO_POWER and power is not None else ""
        return self._result(status, reason=reason, coverage=coverage, pairs=pairs, power=power)

    def skip(self, reason: str) -> CheckResult:
        """The check turned out not to apply."""
        return self._result(Status.SKIPPED, reason=reason)

    def _result(self, status: Status, **fields: Any) -> CheckResult:
        self.bench.synchronise()
        return CheckResult(
            check=self.check,
            status=status,
            launches=self.bench.launches - self._launches,
            seconds=time.perf_counter() - self._start,
            findings=self.findings,
            notes=self.notes,
            **fields,
        )
