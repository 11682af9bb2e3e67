from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from samebits.engine.result import CaseResult, Finding
from samebits.engine.suite import Expect
from samebits.isolate.protocol import Death
from samebits.report import svg
from samebits.report.evidence import Evidence
from samebits.report.html import render_html
from samebits.report.invariance import Segment, segments, words
from samebits.report.model import CaseRecord, RunRecord, SuiteRecord

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(*cases: CaseRecord, **environment: Any) -> str:
    suite = SuiteRecord("mine", "pkg.mine", "our kernels", {c.id: c for c in cases})
    return render_html(Evidence(RunRecord({"mine": suite}), Path("x"), environment).document())


def done(result: CaseResult, case: str = "gemm", expect: str = "invariant") -> CaseRecord:
    return CaseRecord(case, Expect(expect), state="done", checks=result.checks, facts=result.facts)


def test_page_is_whole_and_needs_nothing_else(result: Callable[..., CaseResult]) -> None:
    html = page(done(result("diverged")), done(result("diverged"), "free", "divergence"))
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    assert "svg" in parser.seen
    assert not re.search(r"""(src|href)=|https?://|@import|url\(""", html)


def test_page_shows_bits_map_and_replay(result: Callable[..., CaseResult]) -> None:
    html = page(done(result("diverged")))
    assert "Bits changed with the batch" in html
    assert "0x3f800001" in html
    assert 'data-copy="samebits replay &#39;torch_ops::linear-dtype=float32::batch-size@0&#39;"' in html
    assert "M = 2..3: bits B" in html
    assert "98.2 % of 4,096 elements" in html


def test_everything_from_outside_is_escaped(
    result: Callable[..., CaseResult], finding: Callable[..., Finding]
) -> None:
    evil = "<script>alert(1)</script>"
    bad = result("diverged")
    bad.checks[0].findings = [finding(message=evil, cause=evil, replay=evil, details={"dtype": evil})]
    dead = CaseRecord(evil, state="died", death=Death("signal", evil, None, stderr=evil))
    html = page(done(bad), dead, cpu=evil, cores=1)
    assert evil not in html
    assert html.count("&lt;script&gt;") >= 6


@pytest.mark.parametrize(
    ("status", "expect", "headline"),
    [
        ("error", "invariant", "A kernel failed"),
        ("no power", "invariant", "Nothing was proven"),
        ("flaky", "invariant", "Bits changed with the batch"),
        ("diverged", "divergence", "Same bits, whatever the batch"),
    ],
)
def test_headline(result: Callable[..., CaseResult], status: str, expect: str, headline: str) -> None:
    assert f"<h1>{headline}</h1>" in page(done(result(status), expect=expect))


def test_map_renumbers_classes_by_appearance() -> None:
    expected = [Segment(1, 1, 0), Segment(2, 3, 1), Segment(4, 4, 0)]
    assert segments({"map": [[4, 4, 7], [1, 1, 7], [2, 3, 2]]}) == expected
    assert segments({}) == []
    assert words(expected) == "2 bit classes. A: M = 1 · B: M = 2..3 · A: M = 4"


def test_map_says_and_shows_what_was_not_launched() -> None:
    sampled = [Segment(1, 4, 0), Segment(7, 9, 0), Segment(12, 12, 1)]
    assert words(sampled) == "2 bit classes. A: M = 1..9 · B: M = 12 (not every M between was launched)"
    assert svg.invariance_map(sampled).count(" pale") == 1


def test_map_of_many_classes_keeps_every_batch_size_visible() -> None:
    picture = svg.invariance_map([Segment(m, m, m - 1) for m in range(1, 1025)])
    widths = [float(w) for w in re.findall(r'width="([\d.]+)"', picture)]
    assert len(widths) == 1024
    assert min(widths) > 0


def test_bits_mark_what_differs() -> None:
    assert svg.bits("0x3f81", "0x3f80", "bfloat16") == "0 01111111 000000<mark>1</mark>"
    assert svg.bits("0x8000", "0x0000", "float16") == "<mark>1</mark> 00000 0000000000"
    assert svg.bits("0x03", "0x01", "uint8") == "000000<mark>1</mark>1"
    assert svg.bits("missing", "0x00") == ""


def test_further_checks_of_a_case_are_folded(result: Callable[..., CaseResult]) -> None:
    html = page(done(result("diverged", "diverged", "diverged")))
    assert html.count('<section class="finding">') == 1
    assert html.count('<details class="finding">') == 2
