# shellcheck shell=bash
# NBD over TCP with TLS: unmodified clients with keys and certificates, and those that are not let in.

# nbd_keys: psk/keys.psk with alice's key, wrong/keys.psk with another one
nbd_keys() {
    mkdir psk wrong
    (umask 077 && echo "alice:$(openssl rand -hex 32)" >psk/keys.psk && echo "alice:$(openssl rand -hex 32)" >wrong/keys.psk)
}

# sign DIRECTORY NAME EXTENSION: NAME-cert.pem and NAME-key.pem, by the authority in DIRECTORY
sign() {
    openssl req -newkey rsa:2048 -nodes -subj "/CN=$2" -keyout "$1/$2-key.pem" -out "$1/$2.csr" 2>/dev/null
    openssl x509 -req -in "$1/$2.csr" -CA "$1/ca-cert.pem" -CAkey "$1/ca-key.pem" -CAcreateserial -days 2 \
        -extfile <(printf '%s\n' 'basicConstraints=CA:FALSE' 'keyUsage=digitalSignature' "$3") \
        -out "$1/$2-cert.pem" 2>/dev/null
}

# certificates DIRECTORY: an authority, its server and its client
certificates() {
    mkdir "$1"
    (umask 077
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$1/ca-key.pem" \
            -out "$1/ca-cert.pem" 2>/dev/null
        sign "$1" server 'subjectAltName=DNS:localhost,IP:127.0.0.1
extendedKeyUsage=serverAuth'
        sign "$1" client 'extendedKeyUsage=clientAuth')
}

# over_tls [OPTIONS]: a target, and its namespace over NBD with TLS; leaves the clients' port in $nbd_port
over_tls() {
    serve --namespace mem:64MiB
    attach_tcp --lanes 2 "$@"
    nbd_port=${uri##*:}
}

turned_away() {
    ! timeout 20 "$@" >refused.out 2>&1 || fail "was let in: $*"
}

test_nbd_tls_psk() {
    nbd_keys
    over_tls --nbd-tls-psk psk/keys.psk
    [ "$uri" = "nbds://127.0.0.1:$nbd_port" ] || fail "$uri"
    local known="nbds://alice@127.0.0.1:$nbd_port/?tls-psk-file=$work/psk/keys.psk"
    local wrong="nbds://alice@127.0.0.1:$nbd_port/?tls-psk-file=$work/wrong/keys.psk"
    make_image disk.raw
    # Requests and data of a whole disk, over several connections.
    nbdcopy --connections=4 disk.raw "$known"
    nbdcopy --connections=4 "$known" back.raw
    cmp disk.raw back.raw
    nbdinfo --json "$known" >info.json
    holds info.json '.TLS == true and .exports[0]["export-size"] == 67108864'
    local image="driver=nbd,host=127.0.0.1,port=$nbd_port,tls-creds=tls"
    local psk='tls-creds-psk,username=alice'
    qemu-img convert --object "$psk,id=tls,endpoint=client,dir=$work/psk" --image-opts "$image" -O raw again.raw
    cmp disk.raw again.raw
    qemu-io --object "$psk,id=tls,endpoint=client,dir=$work/psk" --image-opts "$image" \
        -c 'write -P 0x5a 4096 100000' -c 'read -P 0x5a 4096 100000' >io.log
    [ "$(grep -c 'ops; ' io.log)" = 2 ] || fail "$(cat io.log)"
    turned_away nbdinfo "$wrong"
    sed 's/alice/bob/' wrong/keys.psk >bob.psk
    local bob="nbds://bob@127.0.0.1:$nbd_port/?tls-psk-file=$work/bob.psk"
    turned_away nbdinfo "$bob"
    turned_away nbdinfo "nbd://127.0.0.1:$nbd_port"
    turned_away qemu-img info "nbd://127.0.0.1:$nbd_port"
    grep -q TLS refused.out || fail "$(cat refused.out)"
    grep -q 'TLS handshake: this client is refused: .*for the identity alice is another one peer=127.0.0.1:' attach.log
    grep -q 'TLS handshake: this client is refused: no key for the identity bob peer=127.0.0.1:' attach.log
    # A user who comes needs no restart.
    cat bob.psk >>psk/keys.psk
    nbdinfo "$bob" >/dev/null
    ! grep -q "$(cut -d: -f2 bob.psk)" attach.log || fail 'a key is in the log'
}

test_nbd_tls_certificates() {
    certificates ours
    certificates others
    over_tls --nbd-tls-certificates ours
    [ "$uri" = "nbds://127.0.0.1:$nbd_port" ] || fail "$uri"
    local known="nbds://localhost:$nbd_port/?tls-certificates=$work"
    mkdir anyone && cp ours/ca-cert.pem anyone/
    make_image disk.raw
    nbdcopy --connections=4 disk.raw "$known/anyone"
    local image="driver=nbd,host=localhost,port=$nbd_port,tls-creds=tls"
    local x509='tls-creds-x509,id=tls,endpoint=client,dir='
    qemu-img convert --object "$x509$work/anyone" --image-opts "$image" -O raw back.raw
    cmp disk.raw back.raw
    # The server proves who it is: who trusts another authority does not go on.
    turned_away nbdinfo "$known/others"
    kill "$attached" && ended "$attached" 10

    attach_tcp --nbd-tls-certificates ours --nbd-tls-verify-peer
    nbd_port=${uri##*:}
    known="nbds://localhost:$nbd_port/?tls-certificates=$work"
    image="driver=nbd,host=localhost,port=$nbd_port,tls-creds=tls"
    nbdcopy "$known/ours" back.raw
    cmp disk.raw back.raw
    qemu-img compare --object "$x509$work/ours" --image-opts "driver=raw,file.driver=file,file.filename=disk.raw" "$image"
    turned_away nbdinfo "$known/anyone"
    cp ours/ca-cert.pem others/
    turned_away nbdinfo "$known/others"
    [ "$(grep -c 'TLS handshake: this client is refused: .* peer=127.0.0.1:' attach.log)" = 2 ] || fail "$(cat attach.log)"
}

# TLS options without TLS, or wrong ones, are reported, and nothing listens.
test_nbd_tls_needs() {
    nbd_keys
    serve --namespace mem:64MiB
    not_attached() {
        ! "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" "${@:2}" >refused.out 2>&1 || fail 'it listens'
        grep -q -e "$1" refused.out || fail "$(cat refused.out)"
    }
    not_attached 'a Unix socket has none' --as "nbd:unix:$work/nbd.sock" --nbd-tls-psk psk/keys.psk
    not_attached '--nbd-tls-psk' --as nbd:tcp:0.0.0.0:0
    not_attached 'missing.psk: No such file' --as nbd:tcp:127.0.0.1:0 --nbd-tls-psk missing.psk
    echo 'alice:0123' >wrong/keys.psk
    not_attached 'keys.psk: line 1: a key has 16 to 64 bytes' --as nbd:tcp:127.0.0.1:0 --nbd-tls-psk wrong/keys.psk
    not_attached 'server-cert.pem: No such file' --as nbd:tcp:127.0.0.1:0 --nbd-tls-certificates psk
    # With TLS it listens for everybody.
    background attach.log "$ROADTRAIN" attach -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" --as nbd:tcp:0.0.0.0:0 \
        --nbd-tls-psk psk/keys.psk
    until_line attach.log '^ready nbds://0.0.0.0:' "$pid"
}
