"""Plan launches, compare bits, give the verdict. Imports neither torch nor pytest at module top."""
