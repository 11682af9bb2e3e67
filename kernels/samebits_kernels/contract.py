"""What a backend declares about an operator, and what the native library has read from its environment."""

from __future__ import annotations

from samebits_kernels.backends.registry import resolve
from samebits_kernels.errors import UsageError
from samebits_kernels.flag import FLAG, batch_invariant

OPS = (
    "quantise", "activation_and_mul", "activation_quantise", "scaled_mm", "route", "permute", "experts_quantise",
    "grouped_mm", "combine", "moe", "batched_moe",
)  # fmt: skip


def contract(op: str, backend: str = "", *, device: str = "cpu") -> dict[str, object]:
    """The declaration that checks hold a kernel to.

    Returns:
        supports_batch_invariance (under the flag), batch_invariant (as the library runs now), backend, op, sources
        (digest), tree (the accumulation tree class, in words) and flag (what the environment asks for).

    Raises:
        UsageError: unknown operator or backend.
    """
    if op not in OPS:
        raise UsageError("the contract of an operator", found=repr(op), allowed=", ".join(OPS))
    chosen = resolve(backend, device)
    return {
        "op": op,
        "backend": chosen.name,
        "supports_batch_invariance": chosen.supports_batch_invariance(),
        "batch_invariant": chosen.supports_batch_invariance() and chosen.probe().get("schedule") != "free",
        "sources": chosen.source_hash(),
        "tree": chosen.tree(op),
        "flag": batch_invariant(),
    }


def probe(backend: str = "", *, device: str = "cpu") -> dict[str, object]:
    """What the kernel library itself has read: `{"VLLM_BATCH_INVARIANT": 0 or 1, ...}`.

    A native library reads its environment once, at its first use, and keeps it; `python` is what a reader of
    `os.environ` gets now. When they differ, the variable was changed too late.
    """
    chosen = resolve(backend, device)
    return {
        FLAG: int(batch_invariant()),
        "backend": chosen.name,
        "python": int(batch_invariant()),
        **chosen.probe(),
    }
