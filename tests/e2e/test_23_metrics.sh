# shellcheck shell=bash
# Metrics: what real Prometheus, promtool and a browser make of them, under load.

# ask PATH [OPTIONS of curl]: the reply of the target's metrics address
ask() { curl -sS --max-time 10 "${@:2}" "http://127.0.0.1:$metrics$1"; }

# shellcheck source=tests/lib/rpc.sh
. "$top/tests/lib/rpc.sh"

# A target with metrics, an attachment by two paths with metrics, and a load on it until the test ends.
under_load() {
    metrics=$(free_port) attach_metrics=$(free_port)
    serve -a 127.0.0.2 --ana 127.0.0.2=non-optimized --namespace mem:64MiB --namespace mem:16MiB --metrics "127.0.0.1:$metrics"
    attach -a 127.0.0.2 --id disk --metrics "127.0.0.1:$attach_metrics"
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

# said NAME LABEL=VALUE.. NUMBER: metrics.txt has one such sample, and that is its value
said() {
    local found label number=${!#}
    found=$(grep "^$1{" metrics.txt || true)
    for label in "${@:2:$#-2}"; do
        label="${label%%=*}=\"${label#*=}\""
        found=$(grep -F -e "{$label" -e ",$label" <<<"$found" || true)
    done
    # The value is behind the last blank.
    [ "$(wc -l <<<"$found")" = 1 ] && awk -v is="${found##* }" -v wanted="$number" 'BEGIN { exit is == "" || is != wanted }' ||
        fail "$*: $found"
}

# is_told NAME ..: whether it says so now
is_told() { ask /metrics >metrics.txt && (said "$@") >said.log; }

# What JSON-RPC has made is what that says of it: kinds, limits, listeners, names, and devices without a namespace.
test_metrics_of_what_rpc_has_made() {
    local n=nqn.2026-11.test:made own=nqn.2026-11.test:own host=nqn.2026-11.test:host a b volume
    metrics=$(free_port) port=$(free_port) a=$(free_port) b=$(free_port)
    managed -a 127.0.0.1 -s "$port" -n "$own" --namespace mem:1MiB --lvstore "vols=$work/vols,size=64MiB" --metrics "127.0.0.1:$metrics"
    truncate -s 4M files/disk.img
    r bdev_aio_create "{\"name\":\"disk\",\"filename\":\"$work/files/disk.img\",\"block_size\":4096}"
    r bdev_malloc_create '{"name":"spare","num_blocks":2048,"block_size":512}'
    r bdev_lvol_create '{"lvs_name":"vols","lvol_name":"one","size_in_mib":4}'
    volume=$(jq -r . r.json)
    r nvmf_create_subsystem "{\"nqn\":\"$n\",\"max_namespaces\":7,\"ana_reporting\":true}"
    r nvmf_subsystem_add_host "{\"nqn\":\"$n\",\"host\":\"$host\"}"
    r nvmf_subsystem_add_ns "{\"nqn\":\"$n\",\"namespace\":{\"bdev_name\":\"disk\"}}"
    r nvmf_subsystem_add_ns "{\"nqn\":\"$n\",\"namespace\":{\"bdev_name\":\"$volume\"}}"
    for at in "$a" "$b"; do
        r nvmf_subsystem_add_listener "{\"nqn\":\"$n\",\"listen_address\":{\"trtype\":\"TCP\",\"traddr\":\"127.0.0.1\",\"trsvcid\":\"$at\"}}"
    done
    r nvmf_subsystem_listener_set_ana_state "{\"nqn\":\"$n\",\"ana_state\":\"non_optimized\",\"listen_address\":{\"trtype\":\"TCP\",\"traddr\":\"127.0.0.1\",\"trsvcid\":\"$b\"}}"
    "$ROADTRAIN" bench --rw randread --bs 4k --depth 4 --ios 500 -t tcp -a 127.0.0.1 -s "$a" -n "$n" --hostnqn "$host" >bench.log
    eventually 20 is_told roadtrain_bdev_reads_completed_total bdev_name=disk 500
    said roadtrain_bdev_metadata bdev_name=disk 'product_name=AIO disk' "device=$work/files/disk.img" block_size=4096 1
    said roadtrain_bdev_metadata "bdev_name=$volume" 'product_name=Logical Volume' device=vols/one 1
    said roadtrain_bdev_metadata bdev_name=spare 'product_name=Malloc disk' 1
    said roadtrain_bdev_metadata "bdev_name=$own/1" 'product_name=Malloc disk' 1
    said roadtrain_bdev_capacity_bytes bdev_name=spare $((1 << 20))
    said roadtrain_bdev_reads_completed_total bdev_name=spare 0
    said roadtrain_subsystem_namespace_metadata "nqn=$n" nsid=1 bdev_name=disk 1
    said roadtrain_subsystem_namespace_limit "nqn=$n" 7
    said roadtrain_subsystem_namespace_limit "nqn=$own" 16384
    said roadtrain_subsystem_listener_count "nqn=$n" 2
    said roadtrain_subsystem_listener_count "nqn=$own" 1
    said roadtrain_subsystem_host_count "nqn=$n" 1
    said roadtrain_subsystem_metadata "nqn=$n" ha_enabled=yes group=_null_ allow_any_host=no 1
    said roadtrain_subsystem_metadata "nqn=$own" ha_enabled=no allow_any_host=yes 1
    said roadtrain_listener_ana_state "nqn=$n" "listener=127.0.0.1:$a" state=optimized 1
    said roadtrain_listener_ana_state "nqn=$n" "listener=127.0.0.1:$b" state=non-optimized 1
    said roadtrain_listener_ana_state "nqn=$own" "listener=127.0.0.1:$port" state=optimized 1
    # Each device that RPC knows, by the same name.
    r bdev_get_bdevs
    jq -r '.[].name' r.json | sort >names
    sed -n 's/^roadtrain_bdev_metadata{bdev_name="\([^"]*\)".*/\1/p' metrics.txt | sort | diff - names || fail 'other names'
}

# Paths of an attachment: how they stand, what the target says of them, and what they carry.
test_metrics_of_paths() {
    local gone
    metrics=$(free_port) gone=$(free_port)
    serve -a 127.0.0.2 --ana 127.0.0.2=non-optimized --namespace mem:16MiB
    attach -a 127.0.0.2 -a "127.0.0.1:$gone" --id disk --metrics "127.0.0.1:$metrics"
    qemu-img bench -q -f raw -t none -c 2000 -d 16 -s 4096 "$uri"
    eventually 20 is_told roadtrain_path_ana_state id=disk "address=127.0.0.2:$port" state=non-optimized 1
    eventually 20 is_told roadtrain_path_state id=disk "address=127.0.0.2:$port" state=live 1
    said roadtrain_path_ana_state id=disk "address=127.0.0.1:$port" state=optimized 1
    said roadtrain_path_state id=disk "address=127.0.0.1:$port" state=live 1
    said roadtrain_path_state id=disk "address=127.0.0.1:$gone" state=live 0
    said roadtrain_path_state id=disk "address=127.0.0.1:$gone" state=connecting 1
    said roadtrain_path_in_flight id=disk "address=127.0.0.1:$port" 0
    said roadtrain_path_requests_total id=disk "address=127.0.0.1:$gone" 0
    grep -q "^roadtrain_path_requests_total{id=\"disk\",address=\"127.0.0.1:$port\"} [1-9]" metrics.txt || fail "$(grep path_ metrics.txt)"
    grep -q '^roadtrain_caravan_size_requests_count{id="disk"} [1-9]' metrics.txt || fail "$(grep caravan metrics.txt)"
    env ROADTRAIN_RUNTIME_DIR="$work/served" "$ROADTRAIN" ctl listener set -a "127.0.0.1:$port" --ana inaccessible >ctl.out
    eventually 20 is_told roadtrain_path_ana_state id=disk "address=127.0.0.1:$port" state=inaccessible 1
    kill -KILL "$target"
    eventually 20 is_told roadtrain_path_state id=disk "address=127.0.0.2:$port" state=live 0
    eventually 20 is_told roadtrain_path_losses_total id=disk "address=127.0.0.2:$port" 1
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

thorough+=(metrics_feed_prometheus_rules_and_dashboard)
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
    # The guide's picture of the dashboard has every panel.
    python3 "$top/scripts/picture_dashboard.py" "http://127.0.0.1:$prometheus" 10 >dashboard.html || fail 'no picture of the dashboard'
    [ "$(grep -c 'class="panel"' dashboard.html)" = "$(jq '[.panels[] | select(.type != "row")] | length' "$top/monitoring/dashboard.json")" ]
    curl -sS "http://127.0.0.1:$prometheus/api/v1/rules" >rules.json
    [ "$(jq '.data.groups[0].rules | length' rules.json)" = "$(grep -c 'alert:' "$top/monitoring/alerts.yml")" ]
    jq -r '.data.groups[].rules[].query' rules.json >alerts
    while IFS= read -r expression; do
        query "$expression"
        jq -e '.status == "success"' query.json >/dev/null || fail "$expression: $(cat query.json)"
    done <alerts
    holds rules.json '[.data.groups[].rules[] | select(.health == "err")] == []'
    # All metrics of the alerts exist, except for those of events that did not happen.
    for name in up roadtrain_healthy roadtrain_attachment_connected roadtrain_io_seconds_bucket \
        roadtrain_reactor_buffer_waits_total roadtrain_digest_errors_total roadtrain_attachment_errors_total; do
        has_data "$name"
    done
}

thorough+=(metrics_page_works_in_a_browser)
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
            axes: [...document.querySelectorAll('figure > svg')].map(e => ({
                times: [...e.querySelectorAll('text.time')].map(t => t.textContent),
                unit: e.querySelector('text.unit').textContent })),
            samples: [...document.querySelectorAll('figcaption .legend')].map(e => ({
                name: e.textContent.split(' ')[0],
                dash: e.querySelector('svg.sample line').getAttribute('stroke-dasharray'),
                width: e.querySelector('svg.sample').getBoundingClientRect().width })),
            drawn: [...document.querySelectorAll('figure path')].map(e => e.getAttribute('stroke-dasharray')),
            wide: document.documentElement.scrollWidth > innerWidth })" --size 400x800 --until "(() => {
            const tiles = [...document.querySelectorAll('.tile b')].map(e => e.textContent);
            return document.querySelectorAll('tbody tr').length >= 1 &&
                document.querySelectorAll('figure path').length >= 8 &&
                tiles.length == 6 && tiles[0] != '0' && /[mu]s\$/.test(tiles[2]) &&
                /serving|connected/.test(document.getElementById('state').textContent) })()" >page.json
        holds page.json '.errors == []'
        holds page.json '.value | fromjson | .rows >= 1 and .lines >= 8 and (.wide | not) and (.tiles | length == 6)'
        holds page.json '.value | fromjson | .axes | length == 6 and all(.times[0] == "now" and (.times | index("-30 s") or index("-20 s")))'
        holds page.json '.value | fromjson | [.axes[].unit] | (.[0] | test("IOPS$")) and (.[1] | test("^([KMG]i)?B/s$")) and .[2] == "log scale" and
            .[5] == "%"'
        holds page.json '.value | fromjson | .samples | map(.name) == ["read", "write", "read", "write", "p50", "p99", "p99.9", "commands",
            "together", "busy", "spinning"] and all(.width > 20) and ([.[4:7][].dash] | unique | length == 3)'
        holds page.json '.value | fromjson | (.drawn - [.samples[].dash]) == [] and (.drawn | unique | length == 3)'
        holds page.json '.value | fromjson | (.tiles[0] != "0") and (.tiles[2] | test("[mu]s$"))'
        holds page.json '.value | fromjson | .state | test("serving|connected")'
    done
}

# A target with thousands of namespaces: the page has the busiest ones, and says how many there are.
thorough+=(metrics_page_with_thousands_of_namespaces)
test_metrics_page_with_thousands_of_namespaces() {
    command -v chromium >/dev/null || skip 'no chromium'
    local count=${COUNT:-4096} metrics
    port=$(free_port) metrics=$(free_port)
    {
        printf 'address = "127.0.0.1"\nport = %s\n[[subsystem]]\nnqn = "nqn.2026-11.test:thousands"\n' "$port"
        for ((n = 1; n <= count; n++)); do printf '[[subsystem.namespace]]\nnsid = %s\nkind = "null"\nsize = "1MiB"\n' "$n"; done
    } >target.toml
    background target.log "$ROADTRAIN" serve --config target.toml --metrics "127.0.0.1:$metrics"
    target=$pid
    until_line target.log '^ready' "$target"
    timeout 150 python3 "$top/tests/e2e/browser.py" "http://127.0.0.1:$metrics/" 6 "JSON.stringify({
        state: document.getElementById('state').textContent,
        rows: document.querySelectorAll('tbody tr').length,
        note: document.querySelector('#tables p').textContent })" --until "document.querySelectorAll('tbody tr').length > 0" >page.json
    holds page.json '.errors == []'
    holds page.json '.value | fromjson | .rows == 50 and (.note | startswith("the 50 busiest of \($count)")) and
        (.state | test("serving"))' --argjson count "$count"
}
