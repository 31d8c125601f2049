#!/usr/bin/env python3
"""Writes dashboard.json, the Grafana dashboard: change this, not that."""

import json
import pathlib

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WHICH = 'instance=~"$instance"'


def panel(title, unit, expressions, kind="timeseries", width=12, height=8, **more):
    """A panel; expressions are pairs of PromQL and the name of its series."""
    targets = [
        {"refId": chr(ord("A") + n), "expr": e, "legendFormat": name, "datasource": DATASOURCE}
        for n, (e, name) in enumerate(expressions)
    ]
    custom = {"fillOpacity": 8, "lineWidth": 2, "showPoints": "never"}
    if more.pop("log", False):
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    if more.pop("stack", False):
        custom["stacking"] = {"mode": "normal"}
        custom["fillOpacity"] = 40
    defaults = {"unit": unit, "min": 0 if "scaleDistribution" not in custom else None}
    if kind == "timeseries":
        defaults["custom"] = custom
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    else:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return {
        "title": title, "type": kind, "datasource": DATASOURCE, "targets": targets, "w": width, "h": height,
        "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options, **more,
    }


def rate(name, by, more=""):
    return f"sum by ({by}) (rate({name}{{{WHICH}{more}}}[$__rate_interval]))"


def quantile(share, name, by, more=""):
    buckets = f"rate({name}_bucket{{{WHICH}{more}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def batching(numerator, denominator):
    return f"{rate(numerator, 'instance')} / ({rate(denominator, 'instance')} > 0)"


ROWS = [
    ("Now", [
        panel("Healthy", "bool_yes_no", [(f"min(roadtrain_healthy{{{WHICH}}})", "")], "stat", 4, 4),
        panel("IOPS", "iops", [(
            f"sum(rate(roadtrain_host_commands_total{{{WHICH}}}[$__rate_interval]))", "")], "stat", 4, 4),
        panel("Bandwidth", "binBps", [(
            f"sum(rate(roadtrain_namespace_read_bytes_total{{{WHICH}}}[$__rate_interval])) + "
            f"sum(rate(roadtrain_namespace_written_bytes_total{{{WHICH}}}[$__rate_interval]))", "")], "stat", 4, 4),
        panel("In flight", "short", [(f"sum(roadtrain_namespace_in_flight{{{WHICH}}})", "")], "stat", 4, 4),
        panel("Connections", "short", [(f"sum(roadtrain_connections_open{{{WHICH}}})", "")], "stat", 4, 4),
        panel("Failed commands", "short", [(
            f"sum(increase(roadtrain_namespace_errors_total{{{WHICH}}}[$__range])) or vector(0)", "")], "stat", 4, 4),
    ]),
    ("Target", [
        panel("I/O a second", "iops", [(rate("roadtrain_host_commands_total", "op"), "{{op}}")]),
        panel("Bandwidth", "binBps", [
            (rate("roadtrain_namespace_read_bytes_total", "instance"), "read {{instance}}"),
            (rate("roadtrain_namespace_written_bytes_total", "instance"), "written {{instance}}")]),
        panel("Latency at the target", "s", [
            (quantile(0.5, "roadtrain_io_seconds", "op"), "p50 {{op}}"),
            (quantile(0.99, "roadtrain_io_seconds", "op"), "p99 {{op}}"),
            (quantile(0.999, "roadtrain_io_seconds", "op"), "p999 {{op}}")], log=True),
        panel("p99 by class", "s", [(quantile(0.99, "roadtrain_io_seconds", "class"), "{{class}}")], log=True),
    ]),
    ("Namespaces and hosts", [
        panel("Reads and writes by namespace", "iops", [
            (f"topk(10, {rate('roadtrain_namespace_reads_completed_total', 'nqn, nsid')})", "read {{nqn}}/{{nsid}}"),
            (f"topk(10, {rate('roadtrain_namespace_writes_completed_total', 'nqn, nsid')})", "write {{nqn}}/{{nsid}}")]),
        panel("p99 by namespace", "s", [
            (f"topk(10, {quantile(0.99, 'roadtrain_namespace_io_seconds', 'nqn, nsid')})", "{{nqn}}/{{nsid}}")], log=True),
        panel("Bandwidth by host", "binBps", [
            (f"topk(10, {rate('roadtrain_host_read_bytes_total', 'host_nqn')})", "read {{host_nqn}}"),
            (f"topk(10, {rate('roadtrain_host_written_bytes_total', 'host_nqn')})", "written {{host_nqn}}")]),
        panel("In flight by host", "short", [
            (f"topk(10, sum by (host_nqn) (roadtrain_host_in_flight{{{WHICH}}}))", "{{host_nqn}}")]),
    ]),
    ("Batching and reactors", [
        panel("Requests per caravan", "short", [
            (batching("roadtrain_caravan_requests_total", "roadtrain_caravans_total"), "{{instance}}")]),
        panel("System calls per request", "short", [
            (batching("roadtrain_sends_total", "roadtrain_requests_total"), "sends {{instance}}"),
            (batching("roadtrain_receives_total", "roadtrain_requests_total"), "receives {{instance}}")]),
        panel("Doorbells by cause", "short", [(rate("roadtrain_doorbells_total", "cause"), "{{cause}}")], stack=True),
        panel("Reactors", "percentunit", [
            (rate("roadtrain_reactor_seconds_total", "instance, name, mode", ',mode!="idle"'), "{{mode}} {{instance}} {{name}}")]),
        panel("Buffers", "bytes", [
            (f"sum by (instance) (roadtrain_reactor_buffer_bytes{{{WHICH}}})", "in use {{instance}}"),
            (f"sum by (instance) (roadtrain_reactor_buffer_limit_bytes{{{WHICH}}})", "limit {{instance}}")]),
        panel("Requests that waited for a buffer", "ops", [
            (rate("roadtrain_reactor_buffer_waits_total", "instance"), "{{instance}}")]),
    ]),
    ("Attachments", [
        panel("Reads and writes", "iops", [
            (rate("roadtrain_attachment_reads_completed_total", "id"), "read {{id}}"),
            (rate("roadtrain_attachment_writes_completed_total", "id"), "write {{id}}")]),
        panel("Latency at the host", "s", [
            (quantile(0.5, "roadtrain_attachment_io_seconds", "id"), "p50 {{id}}"),
            (quantile(0.99, "roadtrain_attachment_io_seconds", "id"), "p99 {{id}}"),
            (quantile(0.999, "roadtrain_attachment_io_seconds", "id"), "p999 {{id}}")], log=True),
        panel("Connected", "bool_yes_no", [(f"min by (id) (roadtrain_attachment_connected{{{WHICH}}})", "{{id}}")], "stat"),
        panel("In flight and waiting", "short", [
            (f"sum by (id) (roadtrain_attachment_in_flight{{{WHICH}}})", "in flight {{id}}"),
            (f"sum by (id) (roadtrain_attachment_waiting{{{WHICH}}})", "waiting {{id}}")]),
        panel("Requests per caravan, p50 and p99", "short", [
            (quantile(0.5, "roadtrain_caravan_size_requests", "id", ',id!=""'), "p50 {{id}}"),
            (quantile(0.99, "roadtrain_caravan_size_requests", "id", ',id!=""'), "p99 {{id}}")]),
    ]),
    ("Paths", [
        panel("Paths that are live", "short", [
            (f'sum by (id) (roadtrain_path_state{{{WHICH},state="live"}})', "live {{id}}"),
            (f'count by (id) (roadtrain_path_state{{{WHICH},state="live"}})', "all {{id}}")]),
        panel("Paths by ANA state", "short", [
            (f"sum by (id, state) (roadtrain_path_ana_state{{{WHICH}}}) > 0", "{{state}} {{id}}")], stack=True),
        panel("Requests by path", "iops", [(rate("roadtrain_path_requests_total", "id, address"), "{{id}} {{address}}")]),
        panel("In flight by path", "short", [
            (f"sum by (id, address) (roadtrain_path_in_flight{{{WHICH}}})", "{{id}} {{address}}")]),
        panel("Connections of paths that were lost", "short", [
            (f"sum by (id, address) (increase(roadtrain_path_losses_total{{{WHICH}}}[$__rate_interval]))", "{{id}} {{address}}")]),
        panel("Listeners by ANA state, at targets", "short", [
            (f"sum by (instance, state) (roadtrain_listener_ana_state{{{WHICH}}}) > 0", "{{state}} {{instance}}")], stack=True),
    ]),
]


def place(rows):
    """Panels one after the other, each row below a heading."""
    panels, y = [], 0
    for title, row in rows:
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y, x, tallest = y + 1, 0, 0
        for one in row:
            width, height = one.pop("w"), one.pop("h")
            if x + width > 24:
                x, y, tallest = 0, y + tallest, 0
            panels.append({**one, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
            x, tallest = x + width, max(tallest, height)
        y += tallest
    return [{"id": number, **one} for number, one in enumerate(panels, 1)]


DASHBOARD = {
    "title": "Roadtrain", "uid": "roadtrain", "tags": ["storage", "nvme"], "schemaVersion": 39, "version": 1,
    "timezone": "browser", "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "editable": True,
    "templating": {"list": [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {"name": "instance", "type": "query", "label": "Instance", "datasource": DATASOURCE, "multi": True,
         "includeAll": True, "allValue": ".*", "refresh": 2, "sort": 1,
         "query": {"query": "label_values(roadtrain_build_info, instance)", "refId": "instance"}},
    ]},
    "panels": place(ROWS),
}

if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("dashboard.json")
    path.write_text(json.dumps(DASHBOARD, indent=1) + "\n")
