"""The bench a check works on: one subject, a pool of probe rows, and everything that is measured once.

Vocabulary: the *pool* is P probe rows; a *batch* is rows drawn from it by index; `solo` holds the bits of each
probe at M = 1, the expectation wherever that row appears again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from samebits.engine.record import Record
from samebits.engine.subject import Kernel, Subject
from samebits.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from samebits.engine.locate import Ref
    from samebits.inputs import Sensitivity

MAX_PROBES = 64
"""Probes beyond this would cost launches at M = 1 without seeing more."""
TAPE_BYTES = {"cpu": 1 << 30, "cuda": 8 << 30}
"""Most memory that the rows of the largest batch may take."""
DEFAULT_MAX_BATCH = {"cpu": 1024, "cuda": 4096}
ALIGNMENT = 256
"""Bytes; each batch starts where a fresh allocation could, so that alignment stays out of the comparison."""


class Bench:
    """One subject under test.

    Args:
        subject: the kernel and its rows.
        seed: decides every random choice.
        max_batch: largest M; None: a default by device, covered as far as `budget` allows.
        budget: seconds that a check may spend on launches beyond its fixed plan.
        ref: how a fresh process finds the same subject, or None if it cannot.

    Raises:
        UsageError: rows that are no tensors, differ in dimension 0 or device, or an output that is not [M, ...].
    """

    def __init__(
        self,
        subject: Subject,
        *,
        seed: int = 0,
        max_batch: int | None = None,
        budget: float = 5.0,
        ref: Ref | None = None,
    ) -> None:
        _validate(subject, max_batch)
        self.subject, self.seed, self.budget, self.ref = subject, seed, budget, ref
        self.device: torch.device = subject.rows[0].device
        self.launches = 0
        self.first: tuple[Tensor, ...] | None = None
        """Row 0 alone as this process launched it first, where a session kept it: `history` compares with it."""
        self.pool = self._pool()
        self.probes = self.pool[0].shape[0]
        self.exhaustive = max_batch is not None
        wanted = max_batch or DEFAULT_MAX_BATCH.get(self.device.type, 1024)
        row_bytes = max(1, sum(t[0].numel() * t.element_size() for t in self.pool))
        fits = TAPE_BYTES.get(self.device.type, 1 << 30) // row_bytes
        if max_batch is not None and fits < max_batch:
            raise UsageError(
                f"max_batch={max_batch}",
                found=f"{row_bytes:,} bytes a row: such a batch takes {row_bytes * max_batch / 2**30:.1f} GiB",
                allowed=f"max_batch <= {fits} for these rows on {self.device.type}",
                fix="use smaller rows or a smaller max_batch",
            )
        self.max_batch = max(1, min(wanted, fits))

    def _pool(self) -> tuple[Tensor, ...]:
        import torch

        rows = tuple(t[:MAX_PROBES] for t in self.subject.rows)
        if self.subject.derive:
            from samebits import inputs

            extra = inputs.derive(rows, seed=self.seed, fn=self.subject.fn)
            room = MAX_PROBES - rows[0].shape[0]
            keep = max(room, min(16, extra[0].shape[0])) if extra else 0
            if keep > 0:
                start = MAX_PROBES - min(keep, extra[0].shape[0])
                rows = tuple(
                    torch.cat([t[:start], e[:keep].to(t.device)]) for t, e in zip(rows, extra, strict=True)
                )
        return tuple(t.contiguous() for t in rows)

    # -- launches ---------------------------------------------------------------------------------

    def run(self, rows: Sequence[Tensor], fn: Kernel | None = None) -> tuple[Tensor, ...]:
        """One launch on `rows` (each [M, ...]); outputs as a tuple, each [M, ...]."""
        import torch

        self.launches += 1
        with torch.no_grad():
            result = (fn or self.subject.fn)(*rows)
        outputs = (result,) if isinstance(result, torch.Tensor) else tuple(result)
        m = rows[0].shape[0]
        for i, y in enumerate(outputs):
            if not isinstance(y, torch.Tensor) or y.dim() == 0 or y.shape[0] != m:
                shape = tuple(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
                raise UsageError(
                    f"output {i} of {self.name} must have one row per input row",
                    found=f"{shape} for a batch of {m}",
                    allowed=f"tensors of shape ({m}, ...)",
                    fix="wrap the kernel so that it returns its per-row outputs only",
                )
        return tuple(y.view(torch.uint8) if "float4" in str(y.dtype) else y for y in outputs)

    def synchronise(self) -> None:
        """Wait for the device, so that wall-clock times mean something."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def rows_at(self, index: Sequence[int] | Tensor) -> tuple[Tensor, ...]:
        """A fresh, contiguous batch of pool rows."""
        import torch

        at = torch.as_tensor(index, dtype=torch.int64, device=self.device)
        return tuple(t.index_select(0, at) for t in self.pool)

    def batch(self, m: int, shift: int = 0) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(index [m], rows): probe (i + shift) mod P at position i."""
        import torch

        index = (torch.arange(m) + shift) % self.probes
        return index, self.rows_at(index)

    def sweep(self, m: int) -> tuple[int, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(shift, rows, expected) of the batch of size m: slices, nothing is copied.

        Probe (shift + i) mod P sits at position i; the shift moves with m, so every probe visits every residue.
        """
        tape, expected, step = self._tape
        shift = (m % self.probes) * step
        return shift, tuple(t[shift : shift + m] for t in tape), tuple(e[shift : shift + m] for e in expected)

    @cached_property
    def _tape(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], int]:
        import torch

        step = 1
        for t in (*self.pool, *self.solo):
            row = max(1, t[0].numel() * t.element_size())
            step = math.lcm(step, ALIGNMENT // math.gcd(ALIGNMENT, row))
        length = self.max_batch + (self.probes - 1) * step
        index = torch.arange(length, device=self.device) % self.probes
        return (
            tuple(t.index_select(0, index) for t in self.pool),
            tuple(e.index_select(0, index) for e in self.solo),
            step,
        )

    # -- what is measured once ---------------------------------------------------------------------

    @cached_property
    def solo(self) -> tuple[Tensor, ...]:
        """Each probe alone: outputs at M = 1, [P, ...]."""
        import torch

        # Cloned: a kernel may return the same memory again.
        alone = [tuple(y.clone() for y in self.run(self.rows_at([p]))) for p in range(self.probes)]
        return tuple(torch.cat(ys) for ys in zip(*alone, strict=True))

    @cached_property
    def full(self) -> tuple[Tensor, ...]:
        """All P probes in one launch, in order: outputs [P, ...]."""
        return tuple(y.clone() for y in self.run(self.rows_at(range(self.probes))))

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Which share of the output elements shows a change of the accumulation order, on this data."""
        from samebits import inputs

        # The twin knows the author's rows only: the pool may hold derived ones, too, or fewer.
        rows = self.subject.rows if self.subject.reordered is not None else self.pool
        return inputs.sensitivity(
            self.subject.fn, rows, reordered=self.subject.reordered, addends=self.subject.addends
        )

    @cached_property
    def distinct(self) -> int:
        """Number of probes whose output bits differ from every other probe's."""
        from samebits.engine.bits import digest_rows

        digests = [digest_rows(y).tolist() for y in self.full]
        return len(set(zip(*digests, strict=True)))

    @cached_property
    def elements(self) -> int:
        """Output elements per row, over all outputs."""
        return sum(y[0].numel() for y in self.full)

    @property
    def name(self) -> str:
        """The subject's name for messages."""
        return self.subject.name or getattr(self.subject.fn, "__name__", "kernel")

    def facts(self) -> dict[str, Any]:
        """What ran, for the evidence: JSON-able."""
        import torch

        def words(ts: Sequence[Tensor]) -> list[str]:
            return [
                f"{str(t.dtype).removeprefix('torch.')}[M{''.join(f', {n}' for n in t.shape[1:])}]" for t in ts
            ]

        facts: dict[str, Any] = {
            "subject": self.name,
            "rows": words(self.pool),
            "outputs": words(self.full),
            "device": str(self.device),
            "device_name": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "",
            "probes": self.probes,
            "max_batch": self.max_batch,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "contract": dict(self.subject.contract),
        }
        if self.subject.probe is not None:
            facts["probe"] = dict(self.subject.probe())
        return facts

    def open(self, check: str) -> Record:
        """Start recording a check: counts launches and seconds, collects findings, gives the verdict."""
        if self.subject.reset is not None:
            self.subject.reset()
        return Record(self, check)

    def spent(self, since: float, share: float = 1.0) -> bool:
        """Whether `share` of the budget is used up since `time.perf_counter()` gave `since`."""
        return time.perf_counter() - since > self.budget * share


def _validate(subject: Subject, max_batch: int | None) -> None:
    import torch

    if not callable(subject.fn):
        raise UsageError("a subject needs a callable", found=repr(subject.fn), allowed="fn(*rows) -> tensor(s)")
    if not subject.rows:
        raise UsageError(
            "no row inputs were given", allowed="at least one tensor whose dimension 0 is the batch",
            fix="pass the rows: assert_batch_invariant(fn, x)",
        )  # fmt: skip
    for i, t in enumerate(subject.rows):
        if not isinstance(t, torch.Tensor):
            raise UsageError(
                f"row input {i} must be a tensor", found=type(t).__name__,
                fix="close over everything that is not a row: lambda x: fn(x, weights)",
            )  # fmt: skip
        if t.dim() == 0 or t.shape[0] == 0:
            raise UsageError(
                f"row input {i} has no rows", found=f"shape {tuple(t.shape)}", allowed="(R, ...), R >= 1"
            )
    lengths = {t.shape[0] for t in subject.rows}
    if len(lengths) > 1:
        raise UsageError(
            "row inputs must have the same number of rows",
            found=", ".join(str(tuple(t.shape)) for t in subject.rows),
            fix="close over tensors that are not per row (weights, scales): lambda x: fn(x, weights)",
        )
    devices = {str(t.device) for t in subject.rows}
    if len(devices) > 1:
        raise UsageError("row inputs must be on one device", found=", ".join(sorted(devices)))
    if max_batch is not None and max_batch < 1:
        raise UsageError("max_batch must be positive", found=str(max_batch), allowed=">= 1")
