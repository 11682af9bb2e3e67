"""The pytest plugin: suites as test items, each suite in a fresh process, results on ordinary reports.

Only the standard library and pytest are imported here: a plugin is loaded in every pytest run of every project
that has samebits installed. Loading it changes nothing until a test uses it.

| file | what |
| --- | --- |
| `options` | command line and ini, and combinations that are refused |
| `collect` | `samebits.Suite` objects as items |
| `groups` | which items share a process |
| `controller` | the parent: asks fresh processes to run items, logs their reports |
| `remote` | one fresh process and the conversation with it |
| `worker` | the fresh process: a pytest session that runs items as it is asked |
| `ledger` | verdicts, the power of suites, the terminal summary |
| `fixture` | `batch_invariant` |
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from samebits.plugin import collect, groups, options
from samebits.plugin.controller import Controller
from samebits.plugin.fixture import batch_invariant
from samebits.plugin.ledger import FACTS, Ledger

__all__ = ["batch_invariant"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--samebits-*` and the ini values of the same names."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; decide whether items leave this process."""
    config.addinivalue_line(
        "markers",
        "samebits(suite=None, env=None, deadline=None): run this test in a fresh process, together with those of"
        " the same suite (default: its file) and environment; deadline: seconds until it counts as hung.",
    )
    options.refuse_forked(config)
    settings = config.stash[options.SETTINGS] = options.Settings.of(config)
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # collecting may ask for cards, not start CUDA
    if settings.profile:
        os.environ["SAMEBITS_PROFILE"] = settings.profile  # children inherit it
    if config.pluginmanager.hasplugin("samebits-worker"):
        return
    ledger = config.stash[Ledger.KEY] = Ledger(config)
    config.pluginmanager.register(ledger, "samebits-ledger")
    if settings.isolate:
        # Registered last, it is asked first: before pytest-forked, which would run our items in a fork of this
        # process, and before reruns, which would hide that a result changed.
        config.pluginmanager.register(Controller(config, settings, ledger), "samebits-controller")


def pytest_report_header(config: pytest.Config) -> str:
    """One line: where tests run."""
    return options.header(config, config.stash[options.SETTINGS])


def pytest_collect_file(file_path: Any, parent: pytest.Collector) -> pytest.Collector | None:
    """Files of installed suites, whatever their name."""
    return collect.suite_file(file_path, parent)


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> pytest.Collector | None:
    """`samebits.Suite` objects of a module."""
    return collect.suite_object(collector, name, obj)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember by what a fresh process will find the item, before anybody renames it."""
    item.stash[groups.KEY] = groups.key(item)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put items that share a process side by side."""
    groups.arrange(config, items)
    if not config.stash[options.SETTINGS].isolate and any(groups.GROUP in item.stash for item in items):
        from samebits.isolate.device import own_card

        os.environ.update(own_card())  # processes of their own get it from the controller


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what samebits found on the report: plain JSON types, so that it survives processes."""
    report = yield
    if call.when == "call" and FACTS in item.stash:
        # A test may expect a divergence: then it is no failure.
        facts = item.stash[FACTS]
        report.samebits = {**facts, "ok": facts["ok"] or report.passed}  # type: ignore[attr-defined]
    return report
