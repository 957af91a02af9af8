"""Bar charts as SVG by the standard library: a fill pattern beside each colour, and a title on each bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 180, 80, 20, 8
_MOST_LABELS = 12
# Over the colours, by the position of a series: plain, dots, lines up, lines down.
_SHAPES = (
    "",
    '<circle cx="4" cy="4" r="1.6"/>',
    '<path d="M0 8 8 0M-2 2 2 -2M6 10 10 6"/>',
    '<path d="M0 0 8 8M-2 6 2 10M6 -2 10 2"/>',
)
#: Style sheet: colours that are distinct for people with red-green colour blindness, with contrast on both backgrounds.
#: They follow the reader's system; ``<html data-theme="dark">`` or ``light`` overrides it.
COLOURS = """:root { color-scheme: light dark; --text: light-dark(#1b1f24, #e6e9ed);
  --back: light-dark(#fff, #14171a); --line: light-dark(#8c959f, #7d8590); --head: light-dark(#f3f4f6, #22272e);
  --over: var(--back); --s0: light-dark(#0063b1, #5aa9f0); --s1: light-dark(#c2570c, #f2a25c);
  --s2: light-dark(#8b2fa8, #d59bea); --s3: light-dark(#5c6773, #aab4bf); }
:root[data-theme=light] { color-scheme: light; } :root[data-theme=dark] { color-scheme: dark; }"""
#: Style sheet of the charts, in these colours.
STYLE = """.patterns { position: absolute; }
svg { max-width: 100%; } svg text { fill: var(--text); font-size: 12px; } .end { text-anchor: end; }
.middle { text-anchor: middle; } svg line { stroke: var(--line); } pattern circle { fill: var(--over); }
pattern path { stroke: var(--over); stroke-width: 1.5; fill: none; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
.key { width: 16px; height: 16px; vertical-align: -3px; } .legend { list-style: none; display: flex; gap: 1.5rem;
  padding: 0; margin: .2rem 0 .6rem; flex-wrap: wrap; }
"""
#: The fill patterns, which a page with charts needs once.
PATTERNS = (
    '<svg width="0" height="0" class="patterns" aria-hidden="true"><defs>'
    + "".join(
        f'<pattern id="p{at}" width="8" height="8" patternUnits="userSpaceOnUse">{shape}</pattern>'
        for at, shape in enumerate(_SHAPES)
    )
    + "</defs></svg>"
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One kind of value in a chart.

    :param name: its name in the legend.
    :param values: one for each bar, 0 or more; None if the merge has no such value.
    """

    name: str
    values: Sequence[int | None]


def stacked_bars(
    name: str, labels: Sequence[str], series: Sequence[Series], written: Callable[[int | None], str]
) -> str:
    """A chart whose bars are made of one block for each series.

    :param name: the chart's name for screen readers.
    :param labels: the text below each bar.
    :param series: at most as many as there are patterns.
    :param written: formats a value.
    """
    sums = [sum(each.values[at] or 0 for each in series) for at in range(len(labels))]
    largest = max([*sums, 1])
    step = (_WIDTH - _LEFT) / max(1, len(labels))
    parts = [_axis(written(largest), written(0))]
    for at, label in enumerate(labels):
        parts += _bar(at, step, label, series, largest, written)
    return (
        f'<svg role="img" aria-label="{escape(name)}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"{''.join(parts)}</svg>{_legend(series)}"
    )


def _bar(
    at: int, step: float, label: str, series: Sequence[Series], largest: int, written: Callable[[int | None], str]
) -> list[str]:
    room = _HEIGHT - _BOTTOM - _TOP
    left, width, top = _LEFT + at * step + step * 0.1, max(1.0, step * 0.8), float(_HEIGHT - _BOTTOM)
    parts = []
    for number, each in enumerate(series):
        value = each.values[at] or 0
        height = max(1.0, room * value / largest) if value else 0.0
        top -= height
        if value:
            box = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
            title = f"<title>{escape(f'{label}: {each.name} {written(value)}')}</title>"
            parts.append(f'<g>{title}<rect class="s{number}" {box}/><rect fill="url(#p{number})" {box}/></g>')
    every = -(-len(series[0].values) // _MOST_LABELS)
    if at % every == 0:
        parts.append(f'<text x="{left + width / 2:.1f}" y="{_HEIGHT - 5}" class="middle">{escape(label)}</text>')
    return parts


def _axis(top: str, bottom: str) -> str:
    floor = _HEIGHT - _BOTTOM
    return (
        f'<line x1="{_LEFT}" y1="{floor}" x2="{_WIDTH}" y2="{floor}"/>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" class="end">{escape(top)}</text>'
        f'<text x="{_LEFT - 6}" y="{floor}" class="end">{escape(bottom)}</text>'
    )


def _legend(series: Sequence[Series]) -> str:
    boxes = (
        f'<li><svg class="key" viewBox="0 0 16 16" aria-hidden="true"><rect class="s{at}" width="16" height="16"/>'
        f'<rect fill="url(#p{at})" width="16" height="16"/></svg> {escape(each.name)}</li>'
        for at, each in enumerate(series)
    )
    return f'<ul class="legend">{"".join(boxes)}</ul>'
