#!/bin/bash
# Installs what building and testing need, as far as it is missing: setup.sh GROUP...
#   build  C linker, Rust           e2e  fio, qemu-img, nbdcopy, nbdinfo, nbdkit, nbd-client
#   lint   shellcheck, cargo-deny   vm   QEMU and what goes into the guest
#   ceph   a Ceph cluster of one machine, librbd
#   containers, libvirt  what runs the container image, and what runs machines as the guide has them; LVM
#   fuzz   a C++ compiler            instructions valgrind
#   book   what mdBook is installed by
#   csi    what the CSI driver calls, and csi-sanity, if Go is there
#   deb    what makes and checks Debian packages
#   eval   perf, applications, and what our devices are compared with
# Debian packages are installed when run as root; else, and for Rust, it says what to install.
set -euo pipefail

declare -A packages=(
    [build]='gcc libc6-dev make jq bc'
    [e2e]='fio jq openssl qemu-utils libnbd-bin nbdkit nbd-client util-linux e2fsprogs xfsprogs iproute2 uuid-runtime
        ceph-mon ceph-osd ceph-common
        curl python3 prometheus chromium
        dpkg-dev lintian systemd procps strace cbindgen g++ tmux pkg-config'
    [ceph]='ceph-mon ceph-osd ceph-common librbd1 uuid-runtime util-linux e2fsprogs qemu-utils python3-venv python3-dev'
    [csi]='jq curl python3-venv util-linux e2fsprogs xfsprogs'
    [lint]='shellcheck python3-venv'
    [book]='python3-venv'
    [deb]='dpkg-dev lintian'
    [containers]='crun podman uidmap docker-compose'
    [libvirt]='libvirt-daemon libvirt-clients libvirt-daemon-driver-qemu libxml2-utils lvm2'
    [fuzz]='g++'
    [instructions]='valgrind'
    [eval]='linux-perf fio util-linux iproute2 e2fsprogs xfsprogs rocksdb-tools postgresql nbdkit libnbd-bin
        qemu-utils qemu-system-common qemu-block-extra tgt'
    [vm]='jq qemu-utils qemu-system-x86 busybox-static kmod cpio xz-utils zstd iproute2 util-linux
        nvme-cli fio e2fsprogs xfsprogs tcpdump nbd-client ceph-mon ceph-osd ceph-common uuid-runtime'
)

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml"; }

check_rust() {
    local wanted have
    wanted=$(rust_version)
    have=$(cargo --version 2>/dev/null | awk '{print $2}') || true
    if [ -z "$have" ]; then
        echo "setup: needs Rust $wanted or later: install it with rustup" >&2
        exit 1
    fi
    if [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" != "$wanted" ]; then
        echo "setup: needs Rust $wanted or later, this is $have: rustup update stable" >&2
        exit 1
    fi
}

is_installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" >/dev/null
}

# Those that there are, each on its own.
install_what_there_is() {
    local package
    for package; do
        apt_install "$package" || echo "setup: without $package" >&2
    done
}

missing=()
for group; do
    [ -n "${packages[$group]-}" ] || { echo "setup: no group '$group'" >&2; exit 2; }
    for package in ${packages[$group]}; do
        is_installed "$package" || missing+=("$package")
    done
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "setup: please install: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    # Of what is compared each is worth having without the others.
    if ! apt_install "${missing[@]}"; then
        [ "$*" = eval ] || exit 1
        install_what_there_is "${missing[@]}"
    fi
fi
case " $* " in *' build '*) check_rust ;; esac
case " $* " in *' lint '*) "$(dirname "$0")/deny.sh" get ;; esac
# Without it the suite is skipped, and says so.
case " $* " in *' csi '*) "$(dirname "$0")/csi-tools.sh" csi-sanity || true ;; esac
