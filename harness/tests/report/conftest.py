from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from samebits.engine.result import CaseResult, CheckResult, Element, Finding, Power, Status


def _finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "check": "batch-size",
        "kind": "value",
        "message": "row 3 at position 5 of M=17 differs from its bits at M=1",
        "row": 3,
        "position": 5,
        "batch": 17,
        "against": 1,
        "mismatched": 76,
        "total": 4096,
        "first": Element((12,), "0x3f800001", "0x3f800000", "1.0000001", "1.0", 1),
        "greatest": Element((40,), "0x40490fdb", "0x40490fe0", "3.1415927", "3.141594", 5),
        "cause": "dispatch-by-M: the configuration changes at M = 2 and 4",
        "details": {"dtype": "float32", "shape": [4096], "map": [[1, 1, 0], [2, 3, 1], [4, 256, 2]]},
        "replay": "samebits replay 'torch_ops::linear-dtype=float32::batch-size@0'",
    }
    return Finding(**{**values, **changes})


def _check(status: Status | str = Status.PASSED, check: str = "batch-size", **changes: Any) -> CheckResult:
    values: dict[str, Any] = {
        "coverage": "all 32,896 (M, position) pairs, M = 1..256",
        "power": Power(True, 4096, 0.982, "accumulation order reversed"),
        "launches": 256,
        "pairs": 32896,
        "seconds": 1.25,
    }
    if status in (Status.DIVERGED, Status.FLAKY):
        values["findings"] = [_finding(check=check)]
    return CheckResult(check, Status(status), **{**values, **changes})


@pytest.fixture
def finding() -> Callable[..., Finding]:
    return _finding


@pytest.fixture
def check() -> Callable[..., CheckResult]:
    return _check


@pytest.fixture
def result() -> Callable[..., CaseResult]:
    """`result(status, ..., expect=..., case=...)`: one check of each status."""

    def make(*statuses: Status | str, expect: str = "invariant", case: str = "linear-dtype=float32") -> CaseResult:
        ids = ("batch-size", "solo", "permutation", "duplicates", "repeat")
        checks = [_check(s, ids[i]) for i, s in enumerate(statuses)]
        facts = {
            "subject": "torch.nn.functional:linear", "rows": ["float32[M, 4096]"], "outputs": ["float32[M, 4096]"],
            "device": "cpu", "probes": 32, "max_batch": 256, "torch": "2.13.0", "threads": 2, "contract": {},
        }  # fmt: skip
        return CaseResult(case, expect, 0, checks, facts)

    return make
