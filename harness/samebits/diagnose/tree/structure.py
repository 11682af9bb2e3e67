"""What a tree is: which partial sums are added to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from samebits.errors import SamebitsError


class NoTreeError(SamebitsError):
    """The sums have no tree that is the same from launch to launch and from column to column.

    Common causes: floating-point atomics (the order of arrival), a tile of columns that splits K in its own way,
    a kernel that is no plain sum of products.
    """


@dataclass(frozen=True)
class Proof:
    """Random operands, added along the tree in float32, against what the kernel gave."""

    multiply_add: int
    """Outputs whose bits agree if each product is rounded before it is added."""
    fma: int
    """Outputs whose bits agree with fused multiply-adds."""
    of: int
    """Outputs compared."""

    @property
    def holds(self) -> bool:
        """Every bit of every output agrees with one of the two."""
        return self.of > 0 and self.of in (self.multiply_add, self.fma)

    @property
    def words(self) -> str:
        """ "proven by replay, with fused multiply-adds"."""
        if not self.holds:
            best = max(self.fma, self.multiply_add)
            return f"not proven: replay gives {best} of {self.of} outputs"
        if self.fma == self.multiply_add:
            return "proven by replay"
        return f"proven by replay, {'with' if self.fma == self.of else 'without'} fused multiply-adds"


@dataclass(frozen=True)
class Tree:
    """Leaves 0..leaves-1 are addends; node i has the number leaves + i and comes after its children."""

    leaves: int
    nodes: tuple[tuple[int, ...], ...]
    """Children of each node; more than two are added at once. The last node is the root."""
    unit: int = 1
    """Products in a leaf: 16 where blocks are the leaves."""
    proof: Proof | None = None
    launches: int = 0
    """What it cost to find."""

    def same_as(self, other: Tree) -> bool:
        """Whether the same partial sums are formed. a + b = b + a bit for bit, so sides do not count."""
        known: dict[tuple[int, ...], int] = {}
        return self.leaves == other.leaves and self._class(known) == other._class(known)

    def _class(self, known: dict[tuple[int, ...], int]) -> int:
        """A number that equal trees share, given the same `known`."""
        numbers = list(range(self.leaves))
        for children in self.nodes:
            key = tuple(sorted(numbers[c] for c in children))
            numbers.append(known.setdefault(key, self.leaves + len(known)))
        return numbers[-1] if numbers else 0

    def words(self) -> str:
        """ "sequential", "4 lanes of stride 4", "split-K 2 at 512", ...: what a kernel author calls it."""
        from samebits.diagnose.tree.words import words

        return words(self)

    def depth(self) -> int:
        """Additions on the longest way from an addend to the sum."""
        below = [0] * self.leaves
        for children in self.nodes:
            below.append(1 + max(below[c] for c in children))
        return below[-1] if below else 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only."""
        proof = None if self.proof is None else {**vars(self.proof), "holds": self.proof.holds}
        return {
            "leaves": self.leaves,
            "unit": self.unit,
            "nodes": [list(c) for c in self.nodes],
            "words": self.words(),
            "proof": proof,
        }

    @classmethod
    def nested(cls, tree: Any) -> Tree:
        """From nested tuples of leaf numbers: ((0, 1), (2, 3))."""
        nodes: list[tuple[int, ...]] = []
        leaves = 0
        found: list[int] = []
        # Post-order without recursion: chains are thousands deep.
        work, order = [tree], []
        while work:
            item = work.pop()
            order.append(item)
            if isinstance(item, tuple):
                work.extend(item)
            else:
                leaves += 1
        for item in reversed(order):
            if isinstance(item, tuple):
                children = tuple(found.pop() for _ in item)
                nodes.append(children)
                found.append(leaves + len(nodes) - 1)
            else:
                found.append(item)
        return cls(leaves, tuple(nodes))


def chain(addends: Sequence[int]) -> Any:
    """Nested tuples of a sum that starts with the first addend and takes one after another."""
    total: Any = addends[0]
    for a in addends[1:]:
        total = (total, a)
    return total
