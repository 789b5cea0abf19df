#!/usr/bin/env bash
# Installs the Debian packages that building, running and testing need; does nothing when all are there.
# Needs root or sudo only if something is missing. The Rust toolchain is not installed here (see README).
set -euo pipefail

packages=(
    gcc libc6-dev make           # linking, the C host
    libssl-dev pkg-config        # TLS between members
    mariadb-server mariadb-client
    mariadb-backup rsync socat   # the three ways of state transfer, with their tools
    lsof iproute2                # the transfer scripts ask them for ports; network namespaces
    galera-4                     # for comparison
    mariadb-test perl stunnel4   # MariaDB's own suites
)

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
