#!/usr/bin/env bash
# Fetches the kernels of tests/collectors/guest into .cache/kernels, unpacked and not installed: the distribution's cloud kernel
# and the newest 6.12 or later that it has (6.12 lets memory.peak be set back).  Debian and its mirrors only; about 60 MB once.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  { echo "guest kernels: no apt-get here; put vmlinuz-VERSION files into .cache/kernels yourself" >&2; exit 1; }
[ "$(dpkg --print-architecture)" = amd64 ] || { echo "guest kernels: only for amd64" >&2; exit 1; }
mkdir -p .cache/kernels
usual=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
newer=$(apt-cache pkgnames linux-image-6. | grep -E '^linux-image-6\.(1[2-9]|[2-9][0-9])\.[0-9]+.*-cloud-amd64$' | sort -V | tail -n 1 || true)
[ -n "$usual$newer" ] || { echo "guest kernels: apt knows no linux-image-…-cloud-amd64 (apt-get update?)" >&2; exit 1; }
for package in $(printf '%s\n' $usual $newer | sort -u); do
  kernel=.cache/kernels/vmlinuz-${package#linux-image-}
  [ -s "$kernel" ] && continue
  folder=$(mktemp -d .cache/kernels/new.XXXXXX)
  trap 'rm -rf "$folder"' EXIT
  (cd "$folder" && apt-get download -qq "$package" 2>/dev/null)
  dpkg-deb --fsys-tarfile "$folder"/*.deb | tar -x -C "$folder" ./boot
  mv "$folder"/boot/vmlinuz-* "$kernel"
  rm -rf "$folder"
  echo "guest kernels: $kernel"
done
