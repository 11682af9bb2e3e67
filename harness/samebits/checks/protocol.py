"""What a check is, and the bench it works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from samebits.engine.result import CheckResult
from samebits.engine.subject import Subject

if TYPE_CHECKING:
    from samebits.engine.bench import Bench


class Check(Protocol):
    """One metamorphic relation that must hold bit for bit.

    A check is a module-level object named `CHECK` in a file named after its id. `run` never raises for a
    divergence; it returns a result with findings.
    """

    id: str
    """Stable, lower case with dashes, as in reports, `--check` and docs/checks/<id>.md."""
    title: str
    """"A row has the same bits at every batch size and position": the relation, in one sentence."""

    def applies(self, bench: Bench) -> str | None:
        """Why the check cannot be made on this subject, or None."""

    def run(self, bench: Bench) -> CheckResult:
        """Make the check."""

    def control(self) -> Subject:
        """A small CPU subject that this check must fail: the proof that it can."""


Checks = Sequence[Check]
