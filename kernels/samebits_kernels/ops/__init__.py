"""torch.library operators in the namespace `samebits`, and the Python functions in front of them.

They are defined with `Library.define/impl` and `register_fake`: `custom_op` costs 25 to 38 us a call, this 4.
Every operator checks its arguments before it touches memory; the fake implementation runs the same checks.
"""
