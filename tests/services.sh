#!/usr/bin/env bash
# The services that the tests start for themselves: makes sure that their programs are installed, and starts none.
# Idempotent.  One function a service, named in `services` below, with its
# packages and the units that must not start by themselves; what is there already costs nothing.
set -euo pipefail

services=(postgresql chromium prometheus)

have_postgresql() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}
packages_postgresql=(postgresql)
units_postgresql=()

have_chromium() {
    command -v chromium >/dev/null
}
packages_chromium=(chromium fonts-liberation fonts-dejavu-core)
units_chromium=()

have_prometheus() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null
}
packages_prometheus=(prometheus)
units_prometheus=(prometheus.service)

missing=()
units=()
for service in "${services[@]}"; do
    if ! "have_$service"; then
        packages="packages_$service[@]"
        missing+=("${!packages}")
        started="units_$service[@]"
        units+=("${!started}")
    fi
done
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "tests/services.sh: the tests need ${missing[*]}; install them first (on Debian, as root: apt-get install ${missing[*]})" >&2
    exit 1
fi

# Debian's packages would start a server of their own; the tests start private ones and need none of it.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 || {
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}
# Nor is one to start with the machine's next boot.
if [ "${#units[@]}" -gt 0 ] && command -v systemctl >/dev/null; then
    systemctl disable --quiet "${units[@]}" 2>/dev/null || true
fi
