#!/usr/bin/env python3
"""Draws the panels of monitoring/dashboard.json from what a Prometheus has: a page for a browser, on stdout.

picture_dashboard.py http://ADDRESS:PORT SECONDS: of the last so many seconds.
It is not Grafana, which draws the same panels in its own style.
"""

import html
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

DASHBOARD = pathlib.Path(__file__).parent.parent / "monitoring" / "dashboard.json"
COLUMN, LINE, GAP = 49, 25, 6
COLORS = ["#2a78d6", "#d97706", "#159a62", "#c2377b", "#7a5cc4", "#0e8a9b", "#a3630f", "#d64545", "#6b7280", "#3f9b2f"]
STYLE = """
body { margin: 0; background: #f3f4f6; font: 12px system-ui, 'DejaVu Sans', sans-serif; color: #1f2937; }
.panel, .row { position: absolute; box-sizing: border-box; overflow: hidden; }
.panel { background: #fff; border: 1px solid #e1e4e8; border-radius: 3px; padding: 5px 8px; }
.row { font-weight: 600; padding: 4px 2px; }
h2 { font-size: 12px; font-weight: 600; margin: 0; }
.value { font-size: 30px; text-align: center; padding-top: 12px; color: #159a62; }
.legend { line-height: 15px; font-size: 11px; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 3px; margin: 0 4px 3px 0; }
.legend span { margin-right: 12px; }
svg text { font-size: 10px; fill: #6b7280; }
"""


def ask(server, path, **query):
    """What Prometheus' API answers."""
    with urllib.request.urlopen(f"{server}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=20) as answer:
        return json.load(answer)["data"]["result"]


def steps(value, size, names):
    """A number with the largest unit that fits."""
    place = 0
    while abs(value) >= size and place + 1 < len(names):
        value, place = value / size, place + 1
    return f"{value:.3g}{names[place]}" if abs(value) < 100 else f"{value:.0f}{names[place]}"


def show(value, unit):
    """A value in the unit of its panel."""
    if unit == "s":
        scale, name = next(((s, n) for s, n in ((1, "s"), (1e-3, "ms")) if value >= s), (1e-6, "µs"))
        return f"{value / scale:.3g} {name}"
    if unit in ("binBps", "bytes"):
        tail = "/s" if unit == "binBps" else ""
        return steps(value, 1024, [" B", " KiB", " MiB", " GiB"]) + tail
    if unit == "percentunit":
        return f"{value * 100:.0f}%"
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    return steps(value, 1000, ["", " K", " M"]) + {"iops": " io/s", "ops": " ops/s"}.get(unit, "")


class Series:
    """The lines of a panel."""

    def __init__(self, server, panel, seconds):
        self.until = time.time()
        self.since = self.until - seconds
        self.lines = []
        for target in panel["targets"]:
            expression = target["expr"].replace("$instance", ".*")
            expression = expression.replace("$__rate_interval", "5s").replace("$__range", f"{seconds}s")
            found = ask(server, "query_range", query=expression, start=self.since, end=self.until, step=1)
            for one in found:
                points = [(float(at), float(value)) for at, value in one["values"]]
                points = [(at, value) for at, value in points if math.isfinite(value)]
                if points:
                    self.lines.append((self.name(target["legendFormat"], one["metric"]), points))

    @staticmethod
    def name(form, labels):
        return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form).strip() or "value"

    def stacked(self):
        """Each line on those before it."""
        below, lines = {}, []
        for name, points in self.lines:
            points = [(at, value + below.get(at, 0)) for at, value in points]
            below.update(points)
            lines.append((name, points))
        self.lines = lines


def ticks(low, high, is_log, unit):
    """Where lines across a chart are."""
    if is_log:
        return [10.0 ** power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    is_binary = unit in ("bytes", "binBps") and high >= 1
    scale = 1024 ** math.floor(math.log(high, 1024)) if is_binary else 1
    step = 10 ** math.floor(math.log10(high / scale / 4))
    step = scale * next(step * factor for factor in (1, 2, 5, 10) if high / scale / (step * factor) <= 5)
    return [step * number for number in range(int(high / step) + 1)]


def chart(series, unit, is_log, width, height):
    """The lines as SVG."""
    values = [value for _, points in series.lines for _, value in points if value > 0 or not is_log]
    high = max(values, default=1) * (1.3 if is_log else 1.08) or 1
    low = min(values, default=0.1) / 1.3 if is_log else 0
    scale = math.log10 if is_log else float
    left, bottom = 62, 16

    def x(at):
        return left + (at - series.since) / (series.until - series.since) * (width - left - 4)

    def y(value):
        share = (scale(max(value, low)) - scale(low)) / (scale(high) - scale(low))
        return (height - bottom) - share * (height - bottom - 6)

    parts = []
    for tick in ticks(low, high, is_log, unit):
        parts.append(f'<path d="M{left} {y(tick):.1f}H{width}" stroke="#e5e7eb"/><text x="{left - 5}" '
                     f'y="{y(tick) + 3:.1f}" text-anchor="end">{show(tick, unit)}</text>')
    seconds = round(series.until - series.since)
    for ago in range(0, seconds, 15):
        name = f"-{ago} s" if ago else "now"
        anchor = "middle" if ago else "end"
        parts.append(f'<text x="{x(series.until - ago):.0f}" y="{height - 3}" text-anchor="{anchor}">{name}</text>')
    for number, (_, points) in enumerate(series.lines):
        path = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in points)
        parts.append(f'<path d="M{path}" fill="none" stroke-width="1.6" stroke="{COLORS[number % len(COLORS)]}"/>')
    return f'<svg width="{width}" height="{height}">{"".join(parts)}</svg>'


def legend(series):
    """Names of the lines, as many as have room."""
    parts = [f'<span><i style="background:{COLORS[n % len(COLORS)]}"></i>{html.escape(name)}</span>'
             for n, (name, _) in enumerate(series.lines)]
    return f'<div class="legend">{"".join(parts)}</div>'


def draw(server, panel, seconds):
    """A panel at its place."""
    grid = panel["gridPos"]
    width, height = grid["w"] * COLUMN - GAP, grid["h"] * LINE - GAP
    place = f'left:{grid["x"] * COLUMN + GAP}px;top:{grid["y"] * LINE}px;width:{width}px;height:{height}px'
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        return f'<div class="row" style="{place}">{title}</div>'
    series = Series(server, panel, seconds)
    if not series.lines:
        sys.exit(f"no data for {panel['title']!r}: {[one['expr'] for one in panel['targets']]}")
    unit, custom = panel["fieldConfig"]["defaults"]["unit"], panel["fieldConfig"]["defaults"].get("custom", {})
    if panel["type"] == "stat":
        body = f'<div class="value">{show(series.lines[0][1][-1][1], unit)}</div>'
    else:
        if "stacking" in custom:
            series.stacked()
        body = chart(series, unit, "scaleDistribution" in custom, width - 20, height - 46) + legend(series)
    return f'<div class="panel" style="{place}"><h2>{title}</h2>{body}</div>'


def main():
    server, seconds = sys.argv[1], int(sys.argv[2])
    panels = json.loads(DASHBOARD.read_text())["panels"]
    end = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * LINE + GAP
    print(f'<!doctype html><meta charset="utf-8"><title>Roadtrain</title><style>{STYLE}body {{ height: {end}px }}</style>')
    for panel in panels:
        print(draw(server, panel, seconds))


main()
