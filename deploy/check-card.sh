#!/usr/bin/env bash
# Check tenure on a machine with a real NVIDIA card.  Takes under four minutes, and reaches no network.
#
#   deploy/check-card.sh --pack   where the network is: put all that is needed into build/wheels/ (ignored by git)
#   deploy/check-card.sh          on the machine with the card; prints `ok` or `FAILED` a line, exits 1 if any failed
#
# The machine needs Python 3.11 or later and, for that Python, torch with CUDA.  Settings, all optional:
#   PYTHON=python3        which Python sees torch
#   CARD_VENV=DIR         use this environment with tenure and torch in it, instead of making one from build/wheels/
#   CARD_PYTHONS="3.12"   --pack: for which Pythons        CARD_ARCH=x86_64   --pack: for which processor
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=build/wheels
limit_mib=60

cannot() { echo "check-card: $*" >&2; exit 2; }

pack() {
  local arch=${CARD_ARCH:-x86_64} version tag platforms=() pip=(python3 -m pip)
  [ -x .venv/bin/python ] && pip=(.venv/bin/python -m pip)
  for tag in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux_2_12 manylinux_2_5 manylinux1; do
    platforms+=(--platform "${tag}_$arch")
  done
  rm -rf "$wheels" && mkdir -p "$wheels"
  for version in ${CARD_PYTHONS:-3.12}; do
    for list in card assets; do
      "${pip[@]}" download -qq --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
        --implementation cp --python-version "$version" "${platforms[@]}" -d "$wheels" -r "requirements/$list.txt"
    done
  done
  local size; size=$(du -sm "$wheels" | cut -f1)
  echo "$wheels: $(find "$wheels" -name '*.whl' | wc -l) wheels, $size MiB, for Python ${CARD_PYTHONS:-3.12} on $arch"
  [ "$size" -le "$limit_mib" ] || cannot "that is more than $limit_mib MiB; pack for fewer Pythons"
}

# A venv of a venv does not see the packages of its parent, and the Python with torch is often one: hence the path file.
make_venv() {
  local python=${PYTHON:-python3} venv=$1 pip
  [ -d "$wheels" ] || cannot "$wheels is not there; run 'deploy/check-card.sh --pack' where the network is, and bring it along"
  "$python" -c 'import sys, importlib.util as u; sys.exit(sys.version_info < (3, 11) or u.find_spec("torch") is None)' ||
    cannot "$($python --version) is older than 3.11 or has no torch; name a Python that has it: PYTHON=…"
  "$python" -m venv --without-pip --system-site-packages "$venv"
  "$python" -c 'import sysconfig as s; print(s.get_path("purelib"), s.get_path("platlib"), sep="\n")' \
    >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/parent.pth"
  pip=("$venv/bin/python" "$PWD/$(echo "$wheels"/pip-*.whl)/pip" install -qq --no-index --no-deps --no-cache-dir --disable-pip-version-check)
  "${pip[@]}" --ignore-installed --require-hashes --find-links "$wheels" -r requirements/card.txt -r requirements/assets.txt
  "${pip[@]}" --no-build-isolation -e .
}

[ "${1:-}" = --pack ] && { pack; exit; }
[ $# -eq 0 ] || cannot "unknown argument $1; the only one is --pack"

work=$(mktemp -d "${TMPDIR:-/tmp}/tenure-card.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ -n "${CARD_VENV:-}" ]; then
  venv=$CARD_VENV
else
  venv=$work/venv
  make_venv "$venv"
fi
# The checks clean up after themselves on TERM; KILL is for the case that they cannot.
timeout --foreground --signal=TERM --kill-after=15 200 "$venv/bin/python" deploy/check_card.py "$work/home" "$venv/bin/tenure"
