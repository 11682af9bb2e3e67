"""NVFP4 kernels whose batch invariance is a declared contract."""
