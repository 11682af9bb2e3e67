"""The kernel under test, with what its author may tell about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Kernel = Callable[..., "Tensor | Sequence[Tensor]"]
"""Row inputs in, row outputs out: dimension 0 of each is the batch. Everything else is closed over."""


@dataclass(frozen=True)
class Subject:
    """A kernel and the rows to feed it.

    Only `fn` and `rows` are needed. The rest lets checks see more; a check that lacks what it needs says so
    and is skipped, never passed.
    """

    fn: Kernel
    rows: tuple[Tensor, ...]
    """The pool: row inputs [R, ...] sharing dimension 0. Batches of any size are drawn from it."""
    name: str = ""
    out: Callable[..., Any] | None = None
    """`out(*rows, out=tensor_or_tuple)`: the form that writes into a supplied output. None: not offered."""
    reordered: tuple[Kernel, tuple[Tensor, ...]] | None = None
    """The same function with its reduction axis permuted (weights and rows alike). The engine runs it once to
    measure which output elements are order-sensitive on this data and this machine."""
    addends: int | None = None
    """Length of the reduction behind one output element (K of a GEMM). Below 3 no order can show."""
    poisons: Mapping[str, Callable[[int], Kernel]] = field(default_factory=dict)
    """Named regions that must not matter (scale padding, workspace): byte -> the kernel with it filled."""
    probe: Callable[[], Mapping[str, Any]] | None = None
    """Native probe: what the kernel library itself has read, such as {"VLLM_BATCH_INVARIANT": 1}."""
    reset: Callable[[], None] | None = None
    """Called before each check: forget state that is not the subject's (workspaces shared between tests)."""
    position_free: bool = True
    """False: outputs legitimately depend on where a row sits (causal attention over the batch). Rare."""
    derive: bool = True
    """Whether checks may also run rows derived from the pool (wide-range, null-space, NaN, Inf, huge)."""
    contract: Mapping[str, Any] = field(default_factory=dict)
    """What the kernel declares: {"batch_invariant": True, "backend": "cpu", "sources": hash, ...}."""
