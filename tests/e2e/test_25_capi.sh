# shellcheck shell=bash
# Programs in C on libroadtrain.so, and fio's engine on it.

# library: the shared library is here under its name
library() { cp "$LIBROADTRAIN" libroadtrain.so.0; }

test_capi_header_is_what_the_code_has() {
    command -v cbindgen >/dev/null || skip 'no cbindgen: scripts/setup.sh e2e'
    "$top/scripts/capi-header.sh" --check
}

test_capi_exports_its_header_and_no_more() {
    library
    [ "$(objdump -p libroadtrain.so.0 | awk '/SONAME/ {print $2}')" = libroadtrain.so.0 ] || fail 'soname'
    nm -D --defined-only libroadtrain.so.0 | awk '{print $3}' | sort >exported
    grep -oE '\broadtrain_[a-z_]+\(' "$top/crates/capi/include/roadtrain.h" | tr -d '(' | sort -u |
        grep -vx roadtrain_error >named || true
    { cat named; echo roadtrain_error; } | sort -u | diff - exported || fail 'others than the header has'
}

test_capi_program_reads_writes_and_misuses() {
    library
    gcc -std=c11 -Wall -Wextra -Werror -g -I"$top/crates/capi/include" -o program "$top/tests/capi/program.c" \
        ./libroadtrain.so.0 -Wl,-rpath,"$work"
    g++ -fsyntax-only -Wall -Werror -x c++ "$top/crates/capi/include/roadtrain.h" 2>cxx.log || { cat cxx.log; false; }
    serve --namespace mem:64MiB
    [ "$(timeout 60 ./program "127.0.0.1:$port" "$nqn")" = ok ]
}

thorough+=(capi_fio_engine_verifies)  # downloads fio's sources
test_capi_fio_engine_verifies() {
    library
    LIBROADTRAIN=$work/libroadtrain.so.0 "$top/scripts/fio-engine.sh" >engine.log 2>&1 ||
        skip "no engine: $(tail -n 1 engine.log)"
    serve --namespace mem:64MiB
    timeout 100 fio --ioengine="external:$top/target/fio/roadtrain-fio.so" --thread --addresses="127.0.0.1:$port" \
        --nqn="$nqn" --name=verify --rw=randwrite --bs=4k --size=32M --iodepth=32 --verify=crc32c --do_verify=1 \
        --verify_fatal=1 --fsync=64 --output=fio.txt --output-format=json || { cat fio.txt; fail 'fio'; }
    holds fio.txt '.jobs[0].error == 0 and .jobs[0].write.total_ios == 8192 and .jobs[0].read.total_ios == 8192'
    # Another job, which is forked, and an error that the target gives.
    timeout 60 fio --ioengine="external:$top/target/fio/roadtrain-fio.so" --addresses="127.0.0.1:$port" --nqn="$nqn" \
        --lanes=2 --name=mix --rw=randrw --bs=8k --size=16M --iodepth=8 --output=fork.txt || { cat fork.txt; fail 'fork'; }
    ! timeout 60 fio --ioengine="external:$top/target/fio/roadtrain-fio.so" --addresses="127.0.0.1:$port" \
        --nqn=nqn.2025-01.io.example:none --name=none --rw=read --size=1M >none.txt 2>&1 || fail 'no such subsystem'
    grep -q 'subsystem NQN right' none.txt || { cat none.txt; fail 'it does not say why'; }
}
