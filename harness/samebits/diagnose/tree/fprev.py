"""From "how many addends have met when i and j meet?" to the tree."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from samebits.diagnose.tree.structure import NoTreeError, Tree

Ask = Callable[[Sequence[tuple[int, int]]], Sequence[int]]
"""Pairs (i, j) -> for each, the number of leaves under the node where i and j meet."""


class _Job:
    """The leaves of one subtree, seen from one of them."""

    def __init__(self, leaves: list[int], first: int) -> None:
        self.first, self.rest = first, [j for j in leaves if j != first]
        self.groups: list[tuple[int, _Job]] = []


def reconstruct(leaves: int, ask: Ask, *, fused_exact: bool = False) -> Tree:
    """The tree behind `ask`.

    All questions of one level go out in one call: a chain in ascending order takes one level, a balanced tree
    log2(leaves) of them.

    Args:
        leaves: number of addends.
        ask: see `Ask`.
        fused_exact: nodes that add several operands do it exactly, so that what enters together with j survives.

    Raises:
        NoTreeError: answers that no tree gives.
    """
    dice = random.Random(0)
    root = _Job(list(range(leaves)), 0)
    level, jobs = [root], [root]
    while level:
        pairs = [(job.first, j) for job in level for j in job.rest]
        if not pairs:
            break
        answers = iter(ask(pairs))
        deeper: list[_Job] = []
        for job in level:
            met: dict[int, list[int]] = {}
            for j in job.rest:
                met.setdefault(int(next(answers)), []).append(j)
            for size in sorted(met):
                group = met[size]
                # One group that holds everything: `first` joined last. From a leaf at random, a chain halves.
                stuck = len(group) == len(job.rest) > 1
                inner = _Job(group, dice.choice(group) if stuck else group[0])
                job.groups.append((size, inner))
                deeper.append(inner)
        jobs += deeper
        level = [job for job in deeper if job.rest]
    return _assemble(leaves, jobs, fused_exact)


def _assemble(leaves: int, jobs: list[_Job], fused_exact: bool) -> Tree:
    """Children were made after their parents, so from the last to the first."""
    nodes: list[tuple[int, ...]] = []
    built: dict[int, tuple[int, int, int]] = {}  # job -> (node, leaves it holds, leaves its last answer counted)

    def add(children: tuple[int, ...]) -> int:
        nodes.append(children)
        return leaves + len(nodes) - 1

    for job in reversed(jobs):
        node, size, counted = job.first, 1, 1
        for answer, inner in job.groups:
            other, count, reported = built[id(inner)]
            if answer < (2 if fused_exact else size + count) or answer > leaves:
                raise NoTreeError(
                    f"{answer} leaves under a node that holds {size + count}: no tree adds like this"
                )
            several = reported > count or (fused_exact and count > 1 and answer < size + count)
            node = add((node, *(nodes[other - leaves] if several and other >= leaves else (other,))))
            size, counted = size + count, answer
        built[id(job)] = (node, size, counted)
    node, size, _ = built[id(jobs[0])]
    if size != leaves:
        raise NoTreeError(f"{size} of {leaves} leaves are in the tree")
    return _prune(leaves, nodes, node)


def _prune(leaves: int, nodes: list[tuple[int, ...]], root: int) -> Tree:
    """Only what the root reaches: nodes that were merged into their parents are left out."""
    used = {root}
    for i in range(len(nodes) - 1, -1, -1):
        if leaves + i in used:
            used.update(nodes[i])
    names: dict[int, int] = {leaf: leaf for leaf in range(leaves)}
    kept: list[tuple[int, ...]] = []
    for i, children in enumerate(nodes):
        if leaves + i in used:
            kept.append(tuple(names[c] for c in children))
            names[leaves + i] = leaves + len(kept) - 1
    return Tree(leaves, tuple(kept))
