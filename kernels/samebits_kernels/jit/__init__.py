"""Compile at first use, cache, load. `cache` knows where, `toolchain` with what, `build` how."""
