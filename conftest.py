"""Shared by every test in the repository."""

from __future__ import annotations
