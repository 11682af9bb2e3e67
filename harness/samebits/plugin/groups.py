"""Which items leave this process, and which of them share one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from samebits.plugin.collect import CaseItem, PowerItem

FLAG = "VLLM_BATCH_INVARIANT"
FIXTURE = "batch_invariant"
MARK = "samebits"


@dataclass(frozen=True)
class Group:
    """Items with one suite and one environment: one process."""

    suite: str
    env: tuple[tuple[str, str], ...]


GROUP = pytest.StashKey[Group]()
DEADLINE = pytest.StashKey[float]()
KEY = pytest.StashKey[str]()
"""By what another process finds an item: its file and the names inside. A node id depends on what else was
collected, and xdist renames it."""


def key(item: pytest.Item) -> str:
    """See `KEY`."""
    return f"{item.path}::{item.nodeid.partition('::')[2]}"


def uses_torch(item: pytest.Item) -> bool:
    """Whether samebits itself will compare bits for the item."""
    return isinstance(item, CaseItem) or FIXTURE in getattr(item, "fixturenames", ())


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Assign groups; put the items of a suite side by side, and within it those of an environment.

    Raises:
        pytest.UsageError: a `samebits` mark with arguments it does not have.
    """
    together: dict[str, int] = {}
    processes: dict[Group, int] = {}
    ranks: dict[pytest.Item, tuple[int, int, int, int]] = {}
    for i, item in enumerate(items):
        group = assign(item)
        suite = item.ledger_key if isinstance(item, PowerItem) else group.suite if group else None
        if suite is None:
            ranks[item] = (i, 0, i, i)
            continue
        last = isinstance(item, PowerItem)  # judges the suite, so it comes behind all of it
        inner = processes.setdefault(group, i) if group is not None else i
        ranks[item] = (together.setdefault(suite, i), last, inner, i)
        if item.get_closest_marker(MARK) is None:
            item.add_marker(MARK)
        if config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(suite))
    items.sort(key=ranks.__getitem__)


def assign(item: pytest.Item) -> Group | None:
    """The group of an item, or None for one that samebits has nothing to do with; kept in its stash."""
    group: Group | None = None
    if isinstance(item, CaseItem):
        group = Group(item.ledger_key, _env(item.case.env))
        if item.case.deadline is not None:
            item.stash[DEADLINE] = item.case.deadline
    elif not isinstance(item, PowerItem):
        group = _marked(item)
    if group is not None:
        item.stash[GROUP] = group
    return group


def _marked(item: pytest.Item) -> Group | None:
    marks = [_read(item, mark) for mark in item.iter_markers(MARK)]  # closest first
    if not marks and FIXTURE not in getattr(item, "fixturenames", ()):
        return None
    env: dict[str, str] = {}
    for mark in reversed(marks):
        env.update(mark.get("env") or {})
    deadline = next((m["deadline"] for m in marks if m.get("deadline") is not None), None)
    if deadline is not None:
        item.stash[DEADLINE] = float(deadline)
    suite = next((m["suite"] for m in marks if m.get("suite")), None)
    return Group(suite or str(item.path), _env(env))


def _read(item: pytest.Item, mark: pytest.Mark) -> Mapping[str, Any]:
    allowed = ("suite", "env", "deadline")
    wrong = [*map(repr, mark.args), *(k for k in mark.kwargs if k not in allowed)]
    env = mark.kwargs.get("env")
    if env is not None and not (
        isinstance(env, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in env.items())
    ):
        wrong.append(f"env={env!r}")
    if wrong:
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.samebits\n  found:   {', '.join(wrong)}\n"
            '  allowed: suite="name", env={"NAME": "text"}, deadline=seconds'
        )
    return mark.kwargs


def _env(own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({FLAG: os.environ.get(FLAG, "1"), **own}.items()))
