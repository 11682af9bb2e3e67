"""Pictures of a report, as SVG text: the invariance map, and the bits of an element."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from samebits.report.invariance import Segment, letter

WIDTH, HEIGHT, BAR = 720, 62, 30
COLOURS = 8
"""Bit classes with a colour of their own (classes c0..c7 of the style sheet); further ones share them."""
FIELDS = {8: (1, 4), 16: (1, 5), 32: (1, 8), 64: (1, 11)}
"""Sign and exponent bits by width. bfloat16 has 8 exponent bits: see `bits`."""


def invariance_map(parts: Sequence[Segment]) -> Markup:
    """M on a logarithmic axis, each batch size in the colour of its bit class; gaps were not launched."""
    if not parts:
        return Markup("")
    top = max(s.last for s in parts)
    span = math.log2(top + 1) or 1.0

    def x(m: float) -> float:
        return WIDTH * math.log2(m) / span

    classes = len({s.bits for s in parts})
    out = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{} bit classes over M = {} to {}">').format(
            WIDTH, HEIGHT, classes, parts[0].first, top
        )
    ]
    for s in parts:
        left, right = x(s.first), x(s.last + 1)
        # A hairline between neighbours, but never so wide that one batch size disappears.
        wide = max(right - left - min(1.0, 0.2 * (right - left)), 0.4)
        out.append(
            Markup(
                '<rect class="c{}" x="{:.2f}" y="0" width="{:.2f}" height="{}" rx="2"><title>{}</title></rect>'
            ).format(s.bits % COLOURS, left, wide, BAR, f"M = {s.words}: bits {letter(s.bits)}")
        )
        if wide > 16:
            middle = left + wide / 2
            out.append(Markup('<text class="name" x="{:.1f}" y="20">{}</text>').format(middle, letter(s.bits)))
    m = 1
    while m <= top:
        at = (x(m) + x(m + 1)) / 2
        anchor = "end" if at > WIDTH - 20 else "start" if at < 8 else "middle"
        out.append(Markup('<line x1="{0:.1f}" x2="{0:.1f}" y1="33" y2="38"/>').format(at))
        out.append(Markup('<text class="tick" x="{:.1f}" y="52" text-anchor="{}">{}</text>').format(at, anchor, m))
        m *= 2
    out.append(Markup("</svg>"))
    return Markup("").join(out)


def bits(mine: str, other: str, dtype: str = "") -> Markup:
    """Hex bits in binary, grouped into sign, exponent and fraction, with the bits that differ marked."""
    try:
        a, b, width = int(mine, 16), int(other, 16), 4 * (len(mine) - 2)
    except ValueError:
        return Markup("")
    sign, exponent = FIELDS.get(width, (0, 0)) if not dtype.startswith(("int", "uint", "bool")) else (0, 0)
    exponent = {"bfloat16": 8, "float8_e5m2": 5}.get(dtype, exponent)
    out = []
    for i in range(width):
        place = width - 1 - i
        differs = (a ^ b) >> place & 1
        gap = Markup(" ") if i and i in (sign, sign + exponent) else Markup("")
        digit = str(a >> place & 1)
        out.append(gap + (Markup("<mark>{}</mark>").format(digit) if differs else Markup(digit)))
    return Markup("").join(out)
