"""In which order does a kernel add? The accumulation tree, found by numbers alone, and proven by replaying it.

| function | for |
| --- | --- |
| `accumulation_tree(fn, k, n, dtype=, m=, row=)` | y = fn(x, w), a matrix product of x [m, k] and w [n, k] |
| `sum_tree(fn, k, dtype=, m=, row=)` | y = fn(x), a sum over the last axis of x [m, k] |
| `nvfp4_tree(fn, k, n)` | an NVFP4 matrix product over packed operands; leaves are blocks of 16 |

After FPRev (Xie et al., "FPRev: Revealing floating-point summation orders", USENIX ATC 2025): among units, +L at i
and -L at j swallow exactly the units that are added before i and j meet. New here: one launch asks a question per
column of the weights, and all questions of one level of the recursion go out together.
"""

from samebits.diagnose.tree.nvfp4 import nvfp4_tree
from samebits.diagnose.tree.probe import accumulation_tree, sum_tree
from samebits.diagnose.tree.structure import NoTreeError, Proof, Tree

__all__ = ["NoTreeError", "Proof", "Tree", "accumulation_tree", "nvfp4_tree", "sum_tree"]
