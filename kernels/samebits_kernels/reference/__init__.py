"""Two readable definitions of the kernels.

`oracle`: float64, written from the format's definition with its own tables; tests measure every backend by it.
`fp32`: the same steps as the fast backends in plain torch, same bits; it needs no compiler.
"""
