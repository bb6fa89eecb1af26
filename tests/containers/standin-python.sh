#!/bin/bash
# A local image in place of python:3.13-slim, for machines that reach no image registry: this Debian's base packages
# and this interpreter, copied. Whatever the real image has and the Dockerfile uses must be here too.
#   standin-python.sh TAG PYTHON_PREFIX
set -euo pipefail
tag=$1 prefix=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

python=$("$prefix/bin/python3" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
[ "$prefix" != /usr ] || { echo "standin-python.sh: needs a Python of its own prefix, not the system's" >&2; exit 1; }

base="base-files base-passwd bash ca-certificates coreutils dash debianutils diffutils findutils grep gzip hostname
  libc-bin login mawk ncurses-base netbase passwd perl-base sed tar tzdata util-linux
  libbz2-1.0 libexpat1 libffi8 liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 libtinfo6 libuuid1 zlib1g"
left_out='^(debconf|cdebconf|dpkg|perl|perl-modules.*|libperl.*|openssl|apt|python3.*|systemd.*|libapt.*)$'

# What these packages need, transitively, as far as it is installed here.
# shellcheck disable=SC2086
packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances --installed $base 2>/dev/null | grep -E '^[a-z0-9]' | cut -d: -f1 | sort -u | grep -vE "$left_out")

# /bin, /lib and /sbin are links into /usr, so every file is listed by its place under /usr.
mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
for link in bin sbin lib lib64; do ln -s "usr/$link" "$root/$link"; done
for package in $packages; do dpkg -L "$package" 2>/dev/null || dpkg -L "$package:$(dpkg --print-architecture)" 2>/dev/null || true; done \
  | grep -vE '^/usr/share/(man|doc|locale|info|lintian|bash-completion)(/|$)' \
  | sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#; s#^/##' \
  | grep -vE '^(bin|sbin|lib|lib64|\.)?$' | sort -u \
  | while read -r file; do if [ -e "/$file" ] || [ -L "/$file" ]; then echo "$file"; fi; done >"$work/files"
tar -C / --no-recursion -cf - -T "$work/files" | tar -C "$root" -xf - --keep-directory-symlink

mkdir -p "$root"/{proc,sys,dev,run,tmp,root,home,etc/ssl/certs,usr/local/bin,usr/local/lib}
chmod 1777 "$root/tmp"
cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
if [ -e /etc/nsswitch.conf ]; then cp /etc/nsswitch.conf "$root/etc/"; fi
# This machine may stand behind a proxy with a certificate of its own: builds must trust what this machine trusts.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
ln -sf /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/cert.pem"

# The interpreter, without its tests, headers, static library and Tk.
tar -C "$prefix" --exclude='test' --exclude='tests' --exclude='config-*' --exclude='idlelib' --exclude='tkinter' \
  --exclude='_tkinter*' --exclude='turtle*' --exclude='__pycache__' --exclude='lib*.a' --exclude='site-packages/*' \
  -cf - bin/python3 "bin/$python" "lib/$python" $(cd "$prefix" && ls -d "lib/lib$python"*.so* lib/libpython3.so 2>/dev/null) \
  | tar -C "$root/usr/local" -xf -
ln -sf python3 "$root/usr/local/bin/python"
chroot "$root" /sbin/ldconfig
chroot "$root" /usr/local/bin/python3 -m ensurepip >/dev/null 2>&1
ln -sf pip3 "$root/usr/local/bin/pip"
chroot "$root" /usr/local/bin/python3 -c 'import asyncio, bz2, ctypes, hashlib, lzma, readline, sqlite3, ssl, uuid, zlib'

tar -C "$root" -c . | docker import -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
  -c 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
  -c 'ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore' -c 'CMD ["python3"]' - "$tag"
