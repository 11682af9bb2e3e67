"""The evidence as one HTML file that needs nothing else: no network, no fonts, no scripts from elsewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from samebits.errors import ExitCode
from samebits.report import invariance, svg
from samebits.report.environment import machine_words
from samebits.report.summary import MEANING, count

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "report.html.j2"
OPEN_CASES = 12
"""A suite with more cases than this starts folded, unless one of them failed."""
HEADLINES = {
    ExitCode.INVARIANT: ("good", "Same bits, whatever the batch"),
    ExitCode.DIVERGENCE: ("bad", "Bits changed with the batch"),
    ExitCode.USAGE: ("bad", "A request that cannot be carried out"),
    ExitCode.INFRASTRUCTURE: ("warn", "The machine failed, not a kernel"),
    ExitCode.NOTHING_TESTED: ("warn", "Nothing was proven"),
}


def render_html(document: Mapping[str, Any]) -> str:
    """One self-contained page from an evidence document."""
    code = ExitCode(document["exit_code"])
    tone, headline = HEADLINES[code]
    told = [(s, c) for s in document["suites"] for c in s["cases"]]
    failed = [(s, c) for s, c in told if not c["verdict"]["ok"]]
    if code is ExitCode.DIVERGENCE and not any(_findings(c) for _, c in failed):
        headline = "A kernel failed"
    seen = [(s, c) for s, c in told if c["verdict"]["ok"] and _findings(c)]
    return _template().render(
        document=document,
        tone=tone,
        headline=headline,
        meaning=MEANING[code],
        command=shlex.join(document["command"]),
        parts=[_figure(p) for p in document["summary"].split(" · ")],
        started=datetime.fromisoformat(document["started"]).strftime("%-d %B %Y, %H:%M UTC"),
        machine=machine_words(dict(document["environment"])),
        failed=failed,
        observed=[(s, c) for s, c in seen if c["expect"] == "observed"],
        caught=[(s, c) for s, c in seen if c["expect"] == "divergence"],
        hashes=_hashes(told),
        open_cases=OPEN_CASES,
    )


def tone_of(verdict: Mapping[str, Any]) -> str:
    """The colour class of a verdict."""
    label = verdict["label"]
    if not verdict["ok"]:
        return "warn" if label == "no power" else "bad"
    if label in ("invariant", "caught", "contained", "ok"):
        return "good"
    return "warn" if label.endswith(("diverges", "flaky")) else "quiet"


@cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("samebits.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        tone_of=tone_of,
        bits=svg.bits,
        findings=_findings,
        invariance_map=lambda details: svg.invariance_map(invariance.segments(details)),
        map_words=_map_words,
        size=_size,
        count=count,
    )
    environment.filters["number"] = lambda n: f"{n:,}"
    return environment.get_template(TEMPLATE)


def _findings(case: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(check, its first finding) of each check that has one."""
    return [(c, c["findings"][0]) for c in case["checks"] if c["findings"]]


def _figure(part: str) -> tuple[str, str]:
    """("83", "cases invariant over ...") of a part of the summary line."""
    found = re.match(r"(\d[\d,]*(?: of \d[\d,]*)?) (.+)", part)
    return (found[1], found[2]) if found else ("", part)


def _hashes(told: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """(subject, source hash) of every kernel that declares one."""
    found = {}
    for _, case in told:
        sources = (case["facts"].get("contract") or {}).get("sources")
        if sources:
            found[str(case["facts"].get("subject", case["id"]))] = str(sources)
    return sorted(found.items())


def _map_words(details: Mapping[str, Any]) -> str:
    return invariance.words(invariance.segments(details)).replace(" = ", "\u00a0=\u00a0")


def _size(number: float) -> str:
    return f"{number / (1 << 30):.0f} GiB"
