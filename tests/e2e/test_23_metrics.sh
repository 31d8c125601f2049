# shellcheck shell=bash
# Metrics: what real Prometheus, promtool and a browser make of them, under load.

# ask PATH [OPTIONS of curl]: what the target's metrics address answers
ask() { curl -sS --max-time 10 "${@:2}" "http://127.0.0.1:$metrics$1"; }

# A target with metrics, an attachment with metrics, and a load on it until the test ends.
under_load() {
    metrics=$(free_port) attach_metrics=$(free_port)
    serve --namespace mem:64MiB --namespace mem:16MiB --metrics "127.0.0.1:$metrics"
    attach --id disk --metrics "127.0.0.1:$attach_metrics"
    background load.log bash -c "while true; do
        qemu-img bench -q -f raw -t none -c 20000 -d 16 -s 4096 '$uri'
        qemu-img bench -q -f raw -t none -c 20000 -d 16 -s 4096 -w '$uri'
    done"
}

# query EXPRESSION: Prometheus' answer, in query.json
query() { curl -sS --max-time 10 --data-urlencode "query=$1" "http://127.0.0.1:$prometheus/api/v1/query" >query.json; }

# has_data EXPRESSION: soon it gives something
has_data() {
    local n
    for ((n = 0; n < 100; n++)); do
        query "$1" || true
        ! jq -e '.status == "success" and (.data.result | length > 0)' query.json >/dev/null || return 0
        sleep 0.3
    done
    cat query.json
    fail "no data: $1"
}

test_metrics_are_what_was_done() {
    metrics=$(free_port)
    serve --namespace mem:16MiB --metrics "127.0.0.1:$metrics"
    "$ROADTRAIN" bench --rw randread --bs 4k --depth 4 --ios 5000 --json -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" >bench.json
    ask /metrics >metrics.txt
    local labels="nqn=\"$nqn\",nsid=\"1\""
    grep -qxF "roadtrain_namespace_reads_completed_total{$labels} 5000" metrics.txt || fail "$(grep reads_completed metrics.txt)"
    grep -qxF "roadtrain_namespace_read_bytes_total{$labels} $((5000 * 4096))" metrics.txt
    grep -qxF "roadtrain_namespace_io_seconds_count{$labels,op=\"read\"} 5000" metrics.txt
    grep -qxF "roadtrain_namespace_in_flight{$labels} 0" metrics.txt
    grep -q '^roadtrain_io_seconds_bucket{reactor="0",op="read",class="normal",le="+Inf"} 5000$' metrics.txt
    ask /snapshot.json >snapshot.json
    holds snapshot.json '.namespaces[0].io.reads == 5000 and .reactors[0].batching.requests >= 5000'
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" status --prometheus >node.prom
    grep -q '^roadtrain_namespace_reads_completed_total{id="target0",.*} 5000$' node.prom || fail "$(head -50 node.prom)"
}

is_healthy() { [ "$(ask /healthz -w '%{http_code}')" = $'ok\n200' ]; }

test_metrics_say_when_something_is_wrong() {
    metrics=$(free_port) attach_metrics=$(free_port)
    serve --namespace mem:16MiB --metrics "127.0.0.1:$metrics"
    eventually 20 is_healthy
    attach --metrics "127.0.0.1:$attach_metrics"
    metrics=$attach_metrics
    eventually 20 is_healthy
    kill -KILL "$target"
    local n
    for ((n = 0; n < 50; n++)); do
        [ "$(ask /healthz -o healthz.txt -w '%{http_code}')" != 503 ] || break
        sleep 0.2
    done
    [ -s healthz.txt ] && [ "$n" -lt 50 ] || fail "healthy without a target: $(cat healthz.txt)"
    ask /metrics >metrics.txt
    grep -qx 'roadtrain_attachment_connected{id="nbd0"} 0' metrics.txt
    local rc=0
    "$ROADTRAIN" serve -a 127.0.0.1 -s "$(free_port)" -n "$nqn" --namespace mem:1MiB --metrics "127.0.0.1:$metrics" 2>error.log || rc=$?
    [ "$rc" = 1 ] && grep -q -- "--metrics 127.0.0.1:$metrics" error.log || fail "status $rc: $(cat error.log)"
}

test_metrics_feed_prometheus_rules_and_dashboard() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null || skip 'no prometheus'
    promtool check rules "$top/monitoring/alerts.yml" >promtool.log || fail "$(cat promtool.log)"
    python3 -c "
import pathlib, runpy, json
made = runpy.run_path('$top/monitoring/make_dashboard.py')['DASHBOARD']
assert made == json.loads(pathlib.Path('$top/monitoring/dashboard.json').read_text())" || fail 'dashboard.json is not what make_dashboard.py writes'
    under_load
    local prometheus rc=0 expression
    prometheus=$(free_port)
    sed -e "s/127.0.0.1:9420/127.0.0.1:$metrics\", \"127.0.0.1:$attach_metrics/" -e 's/scrape_interval: .*/scrape_interval: 1s\n  evaluation_interval: 1s/' \
        -e "s|alerts.yml|$top/monitoring/alerts.yml|" "$top/monitoring/prometheus.yml" >prometheus.yml
    promtool check config prometheus.yml >promtool.log || fail "$(cat promtool.log)"
    background prometheus.log prometheus --config.file prometheus.yml --storage.tsdb.path data \
        --web.listen-address "127.0.0.1:$prometheus"
    until_line prometheus.log 'Server is ready' "$pid" 60
    # Names with _count are as ceph-nvmeof has them, which promtool finds unusual (3), but not wrong (1).
    for format in 'text/plain' 'application/openmetrics-text'; do
        ask /metrics -H "Accept: $format" >metrics.txt
        promtool check metrics <metrics.txt >promtool.log 2>&1 || rc=$?
        [ "$rc" = 0 ] || [ "$rc" = 3 ] || fail "$format: $(cat promtool.log)"
    done
    has_data 'count(up == 1) == 2'
    jq -r '.. | .expr? // empty' "$top/monitoring/dashboard.json" |
        sed -e 's/\$instance/.*/g; s/\$__rate_interval/5s/g; s/\$__range/1m/g' >expressions
    [ "$(wc -l <expressions)" -gt 30 ]
    while IFS= read -r expression; do has_data "$expression"; done <expressions
    curl -sS "http://127.0.0.1:$prometheus/api/v1/rules" >rules.json
    [ "$(jq '.data.groups[0].rules | length' rules.json)" = "$(grep -c 'alert:' "$top/monitoring/alerts.yml")" ]
    jq -r '.data.groups[].rules[].query' rules.json >alerts
    while IFS= read -r expression; do
        query "$expression"
        jq -e '.status == "success"' query.json >/dev/null || fail "$expression: $(cat query.json)"
    done <alerts
    holds rules.json '[.data.groups[].rules[] | select(.health == "err")] == []'
    # Of what all alerts look at there is something, but for what did not happen.
    for name in up roadtrain_healthy roadtrain_attachment_connected roadtrain_io_seconds_bucket \
        roadtrain_reactor_buffer_waits_total roadtrain_digest_errors_total roadtrain_attachment_errors_total; do
        has_data "$name"
    done
}

test_metrics_page_works_in_a_browser() {
    command -v chromium >/dev/null || skip 'no chromium'
    under_load
    local address
    for address in "$metrics" "$attach_metrics"; do
        timeout 150 python3 "$top/tests/e2e/browser.py" "http://127.0.0.1:$address/" 6 "JSON.stringify({
            state: document.getElementById('state').textContent,
            tiles: [...document.querySelectorAll('.tile b')].map(e => e.textContent),
            lines: document.querySelectorAll('figure path').length,
            rows: document.querySelectorAll('tbody tr').length,
            wide: document.documentElement.scrollWidth > innerWidth })" --size 400x800 --until "(() => {
            const tiles = [...document.querySelectorAll('.tile b')].map(e => e.textContent);
            return document.querySelectorAll('tbody tr').length >= 1 &&
                document.querySelectorAll('figure path').length >= 8 &&
                tiles.length == 6 && tiles[0] != '0' && /[mµ]s\$/.test(tiles[2]) &&
                /serving|connected/.test(document.getElementById('state').textContent) })()" >page.json
        holds page.json '.errors == []'
        holds page.json '.value | fromjson | .rows >= 1 and .lines >= 8 and (.wide | not) and (.tiles | length == 6)'
        holds page.json '.value | fromjson | (.tiles[0] != "0") and (.tiles[2] | test("[mµ]s$"))'
        holds page.json '.value | fromjson | .state | test("serving|connected")'
    done
}
