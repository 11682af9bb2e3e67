"""JUnit properties of a case: what survives in a CI system that keeps nothing else."""

from __future__ import annotations

from samebits.engine.result import CaseResult


def properties(result: CaseResult) -> list[tuple[str, str]]:
    """Name and value pairs, all strings, for pytest's `user_properties`."""
    checks = [c for c in result.checks if str(c.status) != "skipped"]
    found: list[tuple[str, str]] = [
        ("samebits.status", str(result.status)),
        ("samebits.expect", result.expect),
        ("samebits.seed", str(result.seed)),
        ("samebits.checks", ", ".join(c.check for c in checks)),
        ("samebits.pairs", str(sum(c.pairs for c in checks))),
        ("samebits.launches", str(sum(c.launches for c in checks))),
    ]
    for name in ("subject", "device", "torch"):
        if result.facts.get(name):
            found.append((f"samebits.{name}", str(result.facts[name])))
    contract = result.facts.get("contract") or {}
    found += [(f"samebits.contract.{k}", str(v)) for k, v in contract.items()]
    for check in checks:
        if check.coverage:
            found.append((f"samebits.coverage.{check.check}", check.coverage))
    for finding in result.findings[:1]:
        found += [("samebits.finding", finding.message), ("samebits.cause", finding.cause)]
        found += [("samebits.replay", finding.replay)]
    return [(k, v) for k, v in found if v]
