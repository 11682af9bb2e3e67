"""A tree in the words of whoever wrote the kernel."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from samebits.diagnose.tree.structure import Tree


@dataclass(frozen=True)
class Run:
    """Addends taken one step after another: a loop."""

    steps: tuple[tuple[int, ...], ...]
    """The addends of each step, in order."""

    @property
    def leaves(self) -> list[int]:
        """All addends, in order."""
        return [leaf for step in self.steps for leaf in step]

    @property
    def stride(self) -> int | None:
        """Distance of neighbours, if it is one distance; 1 for a run of one."""
        flat = sorted(self.leaves)
        found = {b - a for a, b in itertools.pairwise(flat)}
        return found.pop() if len(found) == 1 else (1 if not found else None)

    @property
    def width(self) -> int:
        """Addends per step; the first step of a loop may hold one more."""
        return Counter(len(s) for s in self.steps[1:] or self.steps).most_common(1)[0][0]

    @property
    def ascending(self) -> bool:
        """Whether steps go up."""
        heads = [min(s) for s in self.steps]
        return heads == sorted(heads)


def words(tree: Tree) -> str:
    """One line, such as "sequential", "pairwise", "8 lanes of stride 8 + tail of 3", "split-K 2 at 512"."""
    if tree.leaves < 2 or not tree.nodes:
        return "one addend"
    if _is_pairwise(tree):
        return "pairwise"
    runs, shape = _runs(tree)
    wide = max(len(c) for c in tree.nodes)
    steps = f", {runs[0].width} at a time" if wide > 2 else ""
    runs, ends = _without_ends(runs, tree.leaves)
    blocks = f" (leaves are blocks of {tree.unit})" if tree.unit > 1 else ""
    end = f"{steps}{f', {shape}' if shape else ''}{ends}{blocks}"
    if len(runs) == 1:
        return _loop(runs[0]) + end
    lengths = [len(r.leaves) * tree.unit for r in runs]
    strides = {r.stride for r in runs if len(r.leaves) > 1}
    if strides == {len(runs)}:
        return f"{len(runs)} lanes of stride {len(runs)}{end}"
    if strides <= {1} and _contiguous(runs):
        if len(set(lengths)) == 1:
            return f"split-K {len(runs)} at {lengths[0]}{end}"
        shown = ", ".join(map(str, lengths[:8])) + (", ..." if len(lengths) > 8 else "")
        return f"K blocks {shown}{end}"
    common = Counter((r.stride, len(r.leaves)) for r in runs).most_common(2)
    kinds = " and ".join(f"{c} of {n} (stride {s or 'mixed'})" for (s, n), c in common)
    return f"{len(runs)} loops: {kinds}{end}, {tree.depth()} additions deep"


def _loop(run: Run) -> str:
    flat = run.leaves
    if run.ascending:
        return "sequential"
    # The two addends that start a sum have no order.
    if flat[2:] == sorted(flat, reverse=True)[2:]:
        return "sequential, last first"
    return "one after another, in another order"


def _without_ends(runs: list[Run], leaves: int) -> tuple[list[Run], str]:
    """Lanes without the first or last addends, which one lane or a loop of its own takes; and what those are."""
    for lanes in {len(runs), len(runs) - 1} - {0, 1}:
        over = leaves - lanes * min(len(r.leaves) for r in runs[:lanes])
        if not 0 < over < max(2 * lanes, 32):
            continue
        for name, inside in (("tail", range(leaves - over)), ("head", range(over, leaves))):
            whole = [Run(tuple(s for s in r.steps if all(leaf in inside for leaf in s))) for r in runs]
            whole = [r for r in whole if r.steps]
            if len(whole) == lanes and {r.stride for r in whole} == {lanes}:
                return whole, f" + {name} of {over}"
    return runs, ""


def _contiguous(runs: list[Run]) -> bool:
    spans = sorted((min(r.leaves), len(r.leaves)) for r in runs)
    return all(a + n == b for (a, n), (b, _) in itertools.pairwise(spans))


def _is_pairwise(tree: Tree) -> bool:
    """Every node halves a stretch of addends that lie side by side."""
    if tree.leaves < 4:
        return False
    spans: list[tuple[int, int]] = [(leaf, 1) for leaf in range(tree.leaves)]
    for children in tree.nodes:
        if len(children) != 2:
            return False
        (a, n), (b, o) = sorted(spans[c] for c in children)
        if a + n != b or abs(n - o) > max(1, (n + o) // 4):
            return False
        spans.append((a, n + o))
    return True


def _runs(tree: Tree) -> tuple[list[Run], str]:
    """The loops, and how their results are added."""
    leaf = tree.leaves
    ends: dict[int, list[tuple[int, ...]]] = {}  # node that ends a loop so far -> its steps
    runs: list[Run] = []
    tails: list[Run] = []
    joins: list[tuple[int, ...]] = []  # nodes that add results of loops
    consumed: dict[int, int] = {}
    for i, children in enumerate(tree.nodes):
        inner = [c for c in children if c >= leaf]
        own = tuple(sorted(c for c in children if c < leaf))
        node = leaf + i
        if not inner:
            ends[node] = [own] if len(own) > 2 else [own[:1], own[1:]]
        elif len(inner) == 1:
            ends[node] = [*ends.pop(inner[0], []), own] if inner[0] in ends else [own]
            if inner[0] in consumed:
                consumed[node] = consumed.pop(inner[0])
        else:
            for c in inner:
                if c in ends:
                    (tails if c in consumed else runs).append(Run(tuple(ends.pop(c))))
            runs += [Run(((c,),)) for c in own]
            joins.append(tuple(inner) + own)
            consumed[node] = len(joins)
    for node, steps in ends.items():
        (tails if node in consumed else runs).append(Run(tuple(steps)))
    runs.sort(key=lambda r: min(r.leaves))
    return runs + tails, _shape(tree, joins)


def _shape(tree: Tree, joins: list[tuple[int, ...]]) -> str:
    """Of the additions that combine loops: "added one after another", "added pairwise"; "" for one addition."""
    joined = {tree.leaves + i for i, c in enumerate(tree.nodes) if sum(x >= tree.leaves for x in c) > 1}
    chained = sum(sum(c in joined for c in children) == 1 for children in joins)
    if len(joins) <= 1:
        return ""
    if chained >= len(joins) - 1:
        return "added one after another"
    return "added pairwise" if chained == 0 or len(joins) > 2 else "added in a tree"
