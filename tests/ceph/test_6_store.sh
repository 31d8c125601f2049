# shellcheck shell=bash
# The store of images (crates/store/tests/store/rbd.rs), on the shared cluster.

thorough+=(store_owner_without_heartbeat)

# store_test NAME: one test of that file
store_test() {
    local program
    need_ceph
    command -v cargo >/dev/null || skip 'no cargo'
    # As the unit tests are built, so that nothing is built twice.
    "${outside[@]}" cargo test --quiet --manifest-path "$top/Cargo.toml" --workspace --test store --no-run \
        --message-format=json >built.json 2>cargo.log || fail "$(cat cargo.log)"
    program=$(jq -r 'select(.target.name == "store" and .executable != null).executable' built.json)
    ceph_lab
    ROADTRAIN_TEST_CEPH=$ceph "$program" --ignored --exact "rbd::$1" --nocapture >store.log 2>&1 || fail "$1"
    grep -q '^test result: ok. 1 passed' store.log || fail "there is no test $1"
}

test_store_images() { store_test images_are_stores; }

test_store_encrypted_images() {
    command -v cryptsetup >/dev/null || skip 'no cryptsetup'
    store_test encrypted_images_are_stores
}

test_store_shared_images() { store_test shared_images_are_stores; }

test_store_owner_without_heartbeat() { store_test owners_without_heartbeat_are_followed; }
