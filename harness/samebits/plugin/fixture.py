"""The fixture: `def test_moe(batch_invariant): batch_invariant(moe, hidden, logits)`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from samebits.plugin.ledger import FACTS, brief
from samebits.plugin.options import SETTINGS

if TYPE_CHECKING:
    from samebits.engine.result import CaseResult


@pytest.fixture
def batch_invariant(request: pytest.FixtureRequest) -> Callable[..., CaseResult]:
    """`samebits.assert_batch_invariant`, with the seed of the run and results on the test's report.

    `batch_invariant(fn, *row_inputs, **options)` fails unless `fn` gives each row the same bits, whatever
    the batch around it. A test that asks for this fixture runs in a fresh process.
    """
    item = request.node
    settings = item.config.stash[SETTINGS]
    seed = f" --samebits-seed={settings.seed}" if settings.seed else ""
    options = {
        "seed": settings.seed,
        "max_batch": settings.max_batch,
        "budget": settings.budget,
        "replay": f"pytest {shlex.quote(item.nodeid)}{seed}",
        "name": item.name,
    }

    def check(fn: Any, *row_inputs: Any, **more: Any) -> CaseResult:
        __tracebackhide__ = True
        from samebits.errors import SamebitsError
        from samebits.session.assertion import assert_batch_invariant

        try:
            result = assert_batch_invariant(fn, *row_inputs, **{**options, **more})
        except SamebitsError as error:
            found = getattr(error, "result", None)
            if found is not None:
                _keep(item, found)
            raise error.with_traceback(None) from None
        _keep(item, result)
        return result

    return check


def _keep(item: pytest.Item, result: CaseResult) -> None:
    from samebits.engine.verdict import judge
    from samebits.report.junit import properties

    item.user_properties.extend(properties(result))
    said = [c for c in result.checks if str(c.status) != "skipped"]
    now = judge(result)
    before: dict[str, Any] = item.stash.get(
        FACTS, {"pairs": 0, "launches": 0, "seconds": 0.0, "checks": [], "ok": True}
    )
    told = (
        before if not before["ok"] else {"label": now.label, "detail": now.detail, "exit_code": int(now.exit_code)}
    )
    item.stash[FACTS] = {
        "suite": str(item.path), "case": item.name, "expect": "invariant", "ok": before["ok"] and now.ok,
        **{k: told[k] for k in ("label", "detail", "exit_code")},
        "pairs": before["pairs"] + sum(c.pairs for c in said),
        "launches": before["launches"] + sum(c.launches for c in said),
        "seconds": before["seconds"] + sum(c.seconds for c in said),
        "checks": [*before["checks"], *map(brief, said)],
    }  # fmt: skip
