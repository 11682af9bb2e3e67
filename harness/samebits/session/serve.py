"""What a worker runs: the cases of one suite, each written down before the next one starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samebits.engine.locate import Ref, load_suite
from samebits.engine.result import CaseResult, CheckResult, Status
from samebits.engine.suite import Case
from samebits.errors import UsageError
from samebits.isolate.protocol import Channel
from samebits.session.case import run_case, run_subject


def run_suite(payload: Mapping[str, Any], channel: Channel) -> None:
    """Entry of a worker: run `channel.remaining`, cases of `payload["suite"]` (a module).

    Messages per case: `{"type": "check", "result": ...}` as each check ends, then one of
    `{"type": "case", "result": ...}`, `{"type": "skip", "reason": ...}` or `{"type": "usage", "message": ...}`.
    """
    suite = load_suite(payload["suite"])
    for case_id in channel.remaining:
        channel.start(case_id)
        channel.result(case_id, _guarded(lambda case_id=case_id: _one(suite[case_id], payload, channel)))
        channel.end(case_id)


def run_reference(payload: Mapping[str, Any], channel: Channel) -> None:
    """Entry of a worker: one subject named `MODULE:NAME` (`payload["ref"]`), as case `channel.remaining[0]`."""
    ref = Ref.from_json(payload["ref"])
    for case_id in channel.remaining:
        channel.start(case_id)

        def one(case_id: str = case_id) -> dict[str, Any]:
            result = run_subject(
                ref.subject(),
                case=case_id,
                seed=ref.seed,
                max_batch=payload.get("max_batch"),
                budget=payload.get("budget", 5.0),
                checks=payload.get("checks"),
                ref=ref,
                replay=lambda check: _replay(ref, check, payload.get("max_batch")),
                on_check=lambda check: channel.result(case_id, {"type": "check", "result": check.to_json()}),
            )
            return {"type": "case", "result": result.to_json()}

        channel.result(case_id, _guarded(one))
        channel.end(case_id)


def _replay(ref: Ref, check: CheckResult, max_batch: int | None) -> str:
    rows = "".join(f" --rows {r}" for r in ref.rows)
    most = f" --max-batch {max_batch}" if max_batch is not None else ""
    return f"samebits check {ref.module}:{ref.name}{rows} --check {check.check} --seed {ref.seed}{most}"


def _one(case: Case, payload: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    reason = case.needs() if case.needs is not None else None
    if reason is not None:
        return {"type": "skip", "reason": reason}

    result = run_case(
        case,
        module=payload["suite"],
        seed=payload.get("seed", 0),
        max_batch=payload.get("max_batch"),
        budget=payload.get("budget", 5.0),
        checks=payload.get("checks"),
        on_check=lambda check: channel.result(case.id, {"type": "check", "result": check.to_json()}),
    )
    return {"type": "case", "result": result.to_json()}


def _guarded(run: Any) -> dict[str, Any]:
    """A case that cannot even be built is one message, not the end of the suite."""
    try:
        done: dict[str, Any] = run()
        return done
    except UsageError as error:
        return {"type": "usage", "message": str(error)}
    except Exception as error:
        failed = CheckResult("build", Status.ERROR, f"{type(error).__name__}: {error}")
        return {"type": "case", "result": CaseResult("", checks=[failed]).to_json()}
