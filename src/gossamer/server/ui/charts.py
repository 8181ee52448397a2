"""Charts as SVG, drawn on the server: lines, stacked areas and bars over time, and bars of shares.

Colours are class names; the stylesheet defines them for light and dark. Every chart comes with its figures as a table,
for readers who cannot see it; the script shows the figures at the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from ... import units
from ...clock import iso_time

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24
MOST_ROWS = 400  # of the table; a chart has no more points
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds
STEPS = (
    *(1, 2, 5, 10, 15, 30), *(n * MINUTE for n in (1, 2, 5, 10, 30)), *(n * HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 28)),
)  # fmt: skip  # between two marks on the axis of time
SHORT = 10 * MINUTE  # the tick labels of a shorter chart show seconds
FORMS = {"day": "%d %b", "clock": "%H:%M", "second": "%H:%M:%S"}  # as in gossamer.js, for the reader's zone
HOURS_ROOM = 0.95  # a label beyond this share of the axis would not fit
WIDE_STEPS = 7  # ticks on the time axis, at most


Notes = Sequence[tuple[float, str]]  # when, and what was noted


class Series(NamedTuple):
    """Values at the chart's points in time; None: absent. `kind` is a colour: ok, bad, warn, a, b, c, d."""

    name: str
    values: Sequence[float | None]
    kind: str = "a"


Words = Callable[[float], str]


def plain(value: float) -> str:
    """A number as short as it can be read: 0.25, 4.1, 120, 12,500."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}"


def percent(value: float) -> str:
    return f"{value * 100:.4g} %"


def seconds(value: float) -> str:
    if not value:
        return "0 s"
    return units.span(value) if value >= 1 else f"{value * 1000:.{1 if value < 0.01 else 0}f} ms"


def size(value: float) -> str:
    return units.size(int(value))


WORDS: dict[str, Words] = {"plain": plain, "percent": percent, "seconds": seconds, "size": size}


def lines(
    label: str,
    times: Sequence[float],
    series: Sequence[Series],
    *,
    unit: str = "plain",
    top: float = 0,
    stepped: bool = False,
    daily: bool = False,
    notes: Notes = (),
) -> Markup:
    """A line for each series. `top`: the axis reaches at least this value. `stepped`: each value holds until the next.
    `daily`: the points are days. `notes` of people are marks at their times."""
    high = max([top, *_known(one.values for one in series)])
    frame = _Frame(label, times, series, unit, high, daily=daily, notes=notes)
    return frame.drawn(_line(frame, one, stepped=stepped) for one in series)


def areas(
    label: str, times: Sequence[float], series: Sequence[Series], *, unit: str = "plain", notes: Notes = ()
) -> Markup:
    """Stacked areas."""
    sums = [0.0] * len(times)
    layers: list[tuple[Series, list[float], list[float]]] = []
    for one in series:
        below, sums = sums, [low + (value or 0.0) for low, value in zip(sums, one.values, strict=True)]
        layers.append((one, below, sums))
    frame = _Frame(label, times, series, unit, max(sums, default=0), notes=notes)
    shapes = []
    for one, below, above in layers:
        up = [f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in zip(times, above, strict=True)]
        down = [f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in zip(times, below, strict=True)]
        shapes.append(f'<polygon class="area {one.kind}" points="{" ".join((*up, *reversed(down)))}"/>')
    return frame.drawn(shapes)


def bars(
    label: str, times: Sequence[float], series: Sequence[Series], *, unit: str = "plain", notes: Notes = ()
) -> Markup:
    """Stacked bars, one at each point in time."""
    tops = [sum(one.values[n] or 0.0 for one in series) for n in range(len(times))]
    frame = _Frame(label, times, series, unit, max(tops, default=0), banded=True, notes=notes)
    shapes = []
    for n in range(len(times)):
        low = 0.0
        for one in series:
            value = one.values[n] or 0.0
            if value > 0:
                y, under = frame.y(low + value), frame.y(low)
                left = frame.x(times[n]) - frame.band * 0.4
                shapes.append(
                    f'<rect class="bar {one.kind}" x="{left:.1f}" y="{y:.1f}" width="{max(1.0, frame.band * 0.8):.1f}" '
                    f'height="{max(0.5, under - y):.1f}" rx="1"/>'
                )
                low += value
    return frame.drawn(shapes)


def meter(label: str, parts: Iterable[tuple[str, float, str]]) -> Markup:
    """One bar of parts (name, count, colour) that make up a whole."""
    known = [(name, count, kind) for name, count, kind in parts if count > 0]
    whole = sum(count for _, count, _ in known)
    words = ", ".join(f"{name} {count:,.0f}" for name, count, _ in known) or "nothing yet"
    drawn, x = [], 0.0
    for name, count, kind in known:
        width = count / whole * 100
        drawn.append(
            Markup(
                '<rect class="bar {}" x="{:.3f}%" width="{:.3f}%" height="100%"><title>{} {:,.0f}</title></rect>'
            ).format(kind, x, width, name, count)
        )
        x += width
    return Markup('<svg class="meter" role="img" aria-label="{}">{}</svg>').format(
        f"{label}: {words}", Markup("").join(drawn)
    )


def lane(label: str, times: Sequence[float], begin: float, end: float, *, cut: bool = False) -> Markup:
    """Points in time as marks on a line from `begin` to `end`; `hours` draws the scale above it. `cut`: there are more
    than these, as close together, until the end."""
    marks = Markup("").join(
        Markup('<rect class="bar a" x="{:.2f}%" width="3" height="100%" rx="1"><title>{}</title></rect>').format(
            (at - begin) / (end - begin) * 100, _utc(at)
        )
        for at in times[:MOST_ROWS]
    )
    if cut:
        last = (times[-1] - begin) / (end - begin) * 100
        marks += Markup(
            '<rect class="bar a" x="{:.2f}%" width="{:.2f}%" height="100%"><title>and so on</title></rect>'
        ).format(last, 100 - last)
    known = f"over {len(times)}" if cut else len(times)
    return Markup('<svg class="lane" role="img" aria-label="{}: {}">{}</svg>').format(label, known, marks)


def hours(begin: float, end: float) -> Markup:
    """The scale of hours above lanes."""
    step = 3 * HOUR
    first = math.ceil(begin / step) * step
    marks = [first + n * step for n in range(int((end - first) / step) + 1)]
    return Markup('<svg class="hours" aria-hidden="true">{}</svg>').format(
        Markup("").join(
            Markup('<text class="tick" x="{:.2f}%" y="12" data-at="{}" data-form="clock">{}</text>').format(
                (at - begin) / (end - begin) * 100,
                iso_time(at),
                datetime.fromtimestamp(at, UTC).strftime(FORMS["clock"]),
            )
            for at in marks
            if (at - begin) / (end - begin) < HOURS_ROOM
        )
    )


def spark(label: str, values: Sequence[float | None], kind: str = "a", *, low: float, high: float) -> Markup:
    """A sparkline: without axes, as high as a line of text, scaled from `low` to `high`."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup("")
    room = high - low
    points = [
        f"{n / (len(values) - 1) * 96 + 2:.1f},{22 - (value - low) / room * 20:.1f}"
        for n, value in enumerate(values)
        if value is not None
    ]
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polyline class="line {}" points="{}"/></svg>'
    ).format(label, kind, " ".join(points))


class _Frame:
    """Axes, legend, hover targets and the table: everything but the shapes."""

    def __init__(
        self,
        label: str,
        times: Sequence[float],
        series: Sequence[Series],
        unit: str,
        high: float,
        *,
        banded: bool = False,
        daily: bool = False,
        notes: Notes = (),
    ) -> None:
        self._notes = notes
        self._label = label
        self._times = list(times)[:MOST_ROWS]
        self._series = series
        self._words = WORDS[unit]
        self._daily = daily
        self._ticks = _ticks(high, whole=all(one == int(one) for one in _known(one.values for one in series)))
        first, last = (self._times[0], self._times[-1]) if self._times else (0.0, 1.0)
        step = min((b - a for a, b in pairwise(self._times) if b > a), default=DAY if daily else 1)
        margin = step / 2 if banded or last <= first else 0.0
        self._begin, self._end = first - margin, last + margin
        room = self._end - self._begin
        self.band = (WIDTH - LEFT - RIGHT) * step / room
        self._form = "day" if daily or room > 2 * DAY else "clock" if room > SHORT else "second"

    def x(self, at: float) -> float:
        return LEFT + (at - self._begin) / (self._end - self._begin) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._ticks[-1] * (HEIGHT - BOTTOM - TOP)

    def drawn(self, shapes: Iterable[str]) -> Markup:
        if not self._times:
            return Markup('<p class="empty">No figures yet.</p>')
        kind = "chart daily" if self._daily else "chart"
        svg = Markup(
            '<svg class="{kind}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
            "{axes}{shapes}{hits}{notes}</svg>"
        ).format(
            kind=kind,
            w=WIDTH,
            h=HEIGHT,
            label=self._label,
            axes=self._axes(),
            shapes=Markup("".join(shapes)),  # noqa: S704 numbers and class names of ours
            hits=self._hits(),
            notes=self._note_marks(),
        )
        return Markup('<figure class="chart-box">{}{}<p class="readout" aria-hidden="true"></p>{}</figure>').format(
            self._legend(), svg, self._table()
        )

    def _axes(self) -> Markup:
        parts = []
        for tick in self._ticks:
            y = self.y(tick)
            parts.append(
                Markup(
                    '<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>'
                    '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
                ).format(LEFT, WIDTH - RIGHT, LEFT - 6, y + 4, self._words(tick), y=y)
            )
        form = self._form
        for at in self._marks():
            shown = datetime.fromtimestamp(at, UTC).strftime(FORMS[form])
            parts.append(
                Markup(
                    '<text class="tick" x="{:.1f}" y="{}" text-anchor="middle" data-at="{}" data-form="{}">{}</text>'
                ).format(self.x(at), HEIGHT - 6, iso_time(at), form, shown)
            )
        return Markup("").join(parts)

    def _marks(self) -> list[float]:
        """Ticks at round times."""
        room = self._end - self._begin
        most = 4 if self._form == "second" else WIDE_STEPS
        step = next((one for one in STEPS if room / one <= most and (one >= DAY or not self._daily)), STEPS[-1])
        first = math.ceil(self._times[0] / step) * step
        marks = [first + n * step for n in range(int(room / step) + 1)]
        return [at for at in marks if self._begin <= at <= self._end and LEFT + 20 <= self.x(at) <= WIDTH - 20]

    def _hits(self) -> Markup:
        """An invisible strip at each point: the browser shows its title, the script a better tooltip."""
        parts = []
        for n, at in enumerate(self._times):
            left = max(LEFT, self.x(at) - self.band / 2)
            words = f"{_utc(at)}: {self._words_at(n)}"
            parts.append(
                Markup(
                    '<rect class="hit" x="{:.1f}" y="{}" width="{:.1f}" height="{}" data-at="{}">'
                    "<title>{}</title></rect>"
                ).format(left, TOP, max(1.0, self.band), HEIGHT - TOP - BOTTOM, iso_time(at), words)
            )
        return Markup("").join(parts)

    def _note_marks(self) -> Markup:
        """A line and a flag at the time of each note, above the strips, so that the title of the flag is its text."""
        parts = []
        for at, words in self._notes:
            if self._begin <= at <= self._end:
                parts.append(
                    Markup(
                        '<line class="note" x1="{x:.1f}" x2="{x:.1f}" y1="{}" y2="{}"/>'
                        '<circle class="note" cx="{x:.1f}" cy="{}" r="4"><title>{}: {}</title></circle>'
                    ).format(TOP, HEIGHT - BOTTOM, TOP, _utc(at), words, x=self.x(at))
                )
        return Markup("").join(parts)

    def _words_at(self, n: int) -> str:
        said = [(one.name, one.values[n]) for one in self._series]
        return " · ".join(f"{name} {self._words(value)}" for name, value in said if value is not None) or "nothing"

    def _legend(self) -> Markup:
        if len(self._series) < 2:
            return Markup("")
        names = Markup("").join(
            Markup(
                '<li><svg class="dot" aria-hidden="true" viewBox="0 0 8 8">'
                '<rect class="bar {}" width="8" height="8" rx="2"/></svg>{}</li>'
            ).format(one.kind, one.name)
            for one in self._series
        )
        return Markup('<ul class="legend">{}</ul>').format(names)

    def _table(self) -> Markup:
        head = Markup("").join(Markup('<th scope="col" class="n">{}</th>').format(one.name) for one in self._series)
        rows = []
        for n, at in enumerate(self._times):
            cells = Markup("").join(
                Markup('<td class="n">{}</td>').format("–" if value is None else self._words(value))
                for value in (one.values[n] for one in self._series)
            )
            moment = Markup('<time datetime="{}">{}</time>').format(iso_time(at), _utc(at))
            rows.append(Markup('<tr><th scope="row">{}</th>{}</tr>').format(moment, cells))
        return Markup(
            '<details class="figures"><summary>Figures</summary><div class="scroll" tabindex="0" role="region" '
            'aria-label="{label}"><table><caption class="unseen">{label}</caption>'
            '<thead><tr><th scope="col">Time</th>{head}</tr></thead>'
            "<tbody>{rows}</tbody></table></div></details>"
        ).format(label=self._label, head=head, rows=Markup("").join(rows))


def _line(frame: _Frame, series: Series, *, stepped: bool = False) -> str:
    """A line with gaps where values are missing; a single value is a dot."""
    pieces: list[list[str]] = [[]]
    for at, value in zip(frame._times, series.values, strict=False):
        if value is None:
            pieces.append([])
            continue
        x, y = f"{frame.x(at):.1f}", f"{frame.y(value):.1f}"
        if stepped and pieces[-1]:
            pieces[-1].append(f"{x},{pieces[-1][-1].partition(',')[2]}")
        pieces[-1].append(f"{x},{y}")
    shapes = []
    for piece in pieces:
        if len(piece) == 1:
            x, _, y = piece[0].partition(",")
            shapes.append(f'<circle class="point {series.kind}" cx="{x}" cy="{y}" r="2.5"/>')
        elif piece:
            shapes.append(f'<polyline class="line {series.kind}" points="{" ".join(piece)}"/>')
    return "".join(shapes)


def _known(values: Iterable[Sequence[float | None]]) -> list[float]:
    return [one for each in values for one in each if one is not None]


def _ticks(high: float, *, whole: bool) -> list[float]:
    """Ticks from 0 to at least `high`, in two to five round steps; `whole` numbers get no fractions."""
    if not high > 0 or not math.isfinite(high):
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high))
    step = next(factor * size for factor in (0.25, 0.5, 1.0, 2.0, 2.5, 5.0) if high / (factor * size) <= 4)
    step = math.ceil(step) if whole else step
    return [n * step for n in range(math.ceil(round(high / step, 9)) + 1)]


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
