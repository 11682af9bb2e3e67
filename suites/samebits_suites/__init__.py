"""Determinism suites."""
