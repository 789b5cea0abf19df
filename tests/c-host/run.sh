#!/bin/sh
# Builds the C host with AddressSanitizer and runs it against a provider.
#
#     tests/c-host/run.sh <provider.so>
#
# CC        compiler (default cc)
# SANITIZE  sanitizers (default address,undefined; empty: none)
# LEAKS     1: report leaks too (default; 0 for libraries that are not ours)
# LDLIBS    further libraries; for a provider in C++: "-Wl,--no-as-needed -lstdc++", or its exceptions escape the sanitizer
# VERBOSE   set: print the provider's log and all views
set -eu
provider=$(realpath "${1:?usage: run.sh <provider.so>}")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sanitize=${SANITIZE-address,undefined}
${CC:-cc} -std=c11 -Wall -Wextra -Werror -g -O1 ${sanitize:+-fsanitize="$sanitize" -fno-omit-frame-pointer -fno-sanitize-recover=all} \
    -o "$work/host" "$here/host.c" -pthread -ldl ${LDLIBS:-}
mkdir "$work/data"
# With leak checking the library stays mapped, or reports could not name its functions.
[ "${LEAKS:-1}" = 1 ] && export KEEP_LIBRARY=1
ASAN_OPTIONS="detect_leaks=${LEAKS:-1}:abort_on_error=0" "$work/host" "$provider" "$work/data"
