"""Subjects that are invariant by construction, and benches whose measured power is given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from samebits.engine.bench import Bench
from samebits.engine.subject import Subject


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Cases:
    """What the tests of the checks are made of."""

    def pool(self, m: int = 8, n: int = 24, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(m, n, generator=generator()).to(dtype)

    def subject(self, fn, *rows: torch.Tensor, **about) -> Subject:
        return Subject(fn, rows or (self.pool(),), derive=about.pop("derive", False), **about)

    def gemm(self, m: int = 12, k: int = 16, n: int = 32) -> Subject:
        """One multiply and one add per k over the whole batch: no vector tail, tile or thread can change a bit."""
        w = torch.randn(k, n, generator=generator(2))

        def fn(x):
            total = torch.zeros(x.shape[0], n)
            for i in range(k):
                total = total + x[:, i : i + 1] * w[i]
            return total

        return self.subject(fn, self.pool(m, k), addends=k)

    def bench(self, subject: Subject, *, share: float | None = None, **about) -> Bench:
        """A bench that takes `share` for the measured sensitivity, so that no test waits for its measurement."""
        bench = Bench(subject, **about)
        bench.__dict__["sensitivity"] = SimpleNamespace(
            share=share, addends=subject.addends, how="given by the test"
        )
        return bench

    def run(self, check, fn, *rows, max_batch=None, share=None, budget=5.0, seed=0, **about):
        subject = self.subject(fn, *rows, **about)
        return check.run(self.bench(subject, share=share, max_batch=max_batch, budget=budget, seed=seed))


@pytest.fixture
def case() -> Cases:
    return Cases()
