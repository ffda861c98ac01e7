#!/usr/bin/env bash
# The services that the tests start for themselves: makes sure that their programs are installed, and starts none.
# Idempotent.  One function a service, named in `services` below; what is there already costs nothing.
set -euo pipefail

services=(postgresql chromium)

have_postgresql() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}
packages_postgresql=(postgresql)

have_chromium() {
    command -v chromium >/dev/null
}
packages_chromium=(chromium fonts-liberation fonts-dejavu-core)

missing=()
for service in "${services[@]}"; do
    if ! "have_$service"; then
        packages="packages_$service[@]"
        missing+=("${!packages}")
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
