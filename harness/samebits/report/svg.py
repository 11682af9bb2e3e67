"""Pictures of a report, as SVG text: the invariance map, and the bits of an element."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from samebits.report.invariance import Segment, letter, merged

WIDTH, HEIGHT, BAR = 720, 62, 30
COLOURS = 8
"""Bit classes with a colour of their own (classes c0..c7 of the style sheet); further ones share them."""
FIELDS = {8: (1, 4), 16: (1, 5), 32: (1, 8), 64: (1, 11)}
"""Sign and exponent bits by width. bfloat16 has 8 exponent bits: see `bits`."""


_RECTANGLE = Markup(
    '<rect class="c{}{}" x="{:.2f}" y="0" width="{:.2f}" height="{}" rx="2"><title>M = {}: bits {}</title></rect>'
)


def invariance_map(parts: Sequence[Segment]) -> Markup:
    """M on a logarithmic axis, each batch size in the colour of its bit class, pale where it was not launched."""
    if not parts:
        return Markup("")
    top = max(s.last for s in parts)
    span = math.log2(top + 1)

    def x(m: float) -> float:
        return WIDTH * math.log2(m) / span

    def rectangle(s: Segment, style: str = "") -> Markup:
        left, right = x(s.first), x(s.last + 1)
        # A hairline between neighbours, but never so wide that one batch size disappears.
        wide = max(right - left - min(1.0, 0.2 * (right - left)), 0.4)
        return _RECTANGLE.format(s.bits % COLOURS, style, left, wide, BAR, s.words, letter(s.bits))

    ranges = merged(parts)
    classes = len({s.bits for s in parts})
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{} bit classes over M = {} to {}">')
    out = [head.format(WIDTH, HEIGHT, classes, parts[0].first, top)]
    out += [rectangle(s, " pale") for s in ranges if s not in parts]
    out += [rectangle(s) for s in parts]
    for s in ranges:
        left, right = x(s.first), x(s.last + 1)
        if right - left > 16:
            name = Markup('<text class="name" x="{:.1f}" y="20">{}</text>')
            out.append(name.format((left + right) / 2, letter(s.bits)))
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
