from __future__ import annotations

import torch

from samebits.checks.prefix import CHECK
from samebits.engine.result import Status


def test_catches_its_control(case):
    result = CHECK.run(case.bench(CHECK.control()))
    assert result.status is Status.DIVERGED
    assert "of M=" in result.findings[0].message


def test_a_clean_gemm_passes(case):
    result = CHECK.run(case.bench(case.gemm()))
    assert result.status is Status.PASSED
    assert "m in {1, 3, 16, 17, 64, 256}" in result.coverage


def test_a_path_by_batch_size(case):
    result = case.run(CHECK, lambda x: x + (len(x) == 17))
    assert result.findings[0].batch == 17
    assert result.findings[0].against == 257


def test_rows_behind_that_leak_forwards(case):
    result = case.run(CHECK, lambda x: x + x[-1] * 0.1)
    assert result.status is Status.DIVERGED


def test_causal_kernels_pass(case):
    def causal(x):
        total, out = torch.zeros(x.shape[1]), []
        for row in x:
            total = total + row
            out.append(total)
        return torch.stack(out)

    assert CHECK.applies(case.bench(case.subject(causal, position_free=False))) is None
    assert case.run(CHECK, causal, max_batch=40, position_free=False).status is Status.PASSED


def test_garbage_without_effect_has_no_power(case):
    assert case.run(CHECK, lambda x: x * 2, torch.ones(8, 24)).status is Status.NO_POWER


def test_a_batch_of_two(case):
    result = case.run(CHECK, lambda x: x.clone(), max_batch=2)
    assert result.coverage.startswith("the first m rows of M=2")
    assert "max_batch" in CHECK.applies(case.bench(case.gemm(), max_batch=1))
