"""What only a card can show: CUDA starts in forked workers, and its sticky errors cost one case."""

from __future__ import annotations

import uuid

import pytest

from samebits.isolate import device, environment
from samebits.isolate.protocol import CaseData, CaseDied, CaseEnded, Job
from samebits.isolate.supervisor import Supervisor

pytestmark = pytest.mark.skipif(device.card_count() == 0, reason="no card, or nvidia-ml-py is not installed")

ENTRY = """
import torch


def run(payload, channel):
    for case in channel.remaining:
        channel.start(case)
        x = torch.arange(8, device="cuda")
        if case == "sticky":
            try:
                x[torch.tensor([1 << 20], device="cuda")].sum().item()  # a device-side assertion
            except Exception as error:
                channel.result(case, {"error": str(error)})
        channel.result(case, {"sum": int(x.sum()), "card": torch.cuda.get_device_name()})
        channel.end(case)
"""


@pytest.mark.parametrize("dump", ["0", "1"])
@pytest.mark.parametrize("start", ["template", "spawn"])
def test_a_sticky_error_costs_one_case(tmp_path, monkeypatch, start, dump):
    name = f"entry_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(ENTRY)
    monkeypatch.syspath_prepend(str(tmp_path))
    job = Job(
        "mine",
        f"{name}:run",
        {},
        ("a", "sticky", "b"),
        env={"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": dump},
        start=start,
    )
    with Supervisor(tmp_path / "run") as supervisor:
        events = list(supervisor.run(job))
    assert [e.case for e in events if isinstance(e, CaseEnded)] == ["a", "b"], events
    assert {e.case for e in events if isinstance(e, CaseData) and e.data.get("sum") == 28} == {"a", "b"}
    (death,) = [e.death for e in events if isinstance(e, CaseDied)]
    assert death.case == "sticky"
    assert death.kind == "device", death
    assert "CUDA" in death.message, death
    assert (death.core is not None) == (dump == "1"), death
    assert not environment.cuda_started()
