#!/bin/bash
# An NFS server and two clients, each with a kernel, a clock and caches of its own: User-mode Linux guests in one network
# namespace. As root, on Debian 12 or newer:
#   apt-get install -y --no-install-recommends user-mode-linux nfs-kernel-server nfs-common rpcbind kmod openssh-server iproute2 e2fsprogs gcc
#
#   lab.sh up                       start the guests, 15 s
#   lab.sh in server|one|two CMD    run CMD in a guest; /mnt/v4 is NFSv4.2, /mnt/v3 NFSv3, /mnt/nolock NFSv3 without locks
#   lab.sh cut one                  take its network away; heal one
#   lab.sh pause one                stop the guest, as a virtual machine is suspended; resume one
#   lab.sh down                     end the guests and remove $LAB
#
# A guest sees the files of this machine, read-only. Everything else is in $LAB (/tmp/delta-nfs-lab).
set -u
export PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
lab=${LAB:-/tmp/delta-nfs-lab}
namespace=delta-nfs

number() {
    case $1 in
    server) echo 1 ;;
    one) echo 2 ;;
    two) echo 3 ;;
    *) echo "lab.sh: expected server, one or two, found \`$1\`" >&2; exit 2 ;;
    esac
}

boot() {
    local guest=$1 number disk=
    number=$(number "$guest")
    [ "$guest" = server ] && disk="ubd0=$lab/server.img"
    setsid ip netns exec $namespace env LD_PRELOAD="$lab/fp_state.so" linux.uml rootfstype=hostfs rootflags=/ ro mem=512M init="$lab/guest.sh" \
        lab="$lab" guest="$guest" address="10.98.0.1$number" $disk \
        vec0:transport=tap,ifname="tap$number",depth=128,gro=1 con=null con0=null,fd:1 quiet \
        umid="$guest" uml_dir="$lab/uml" >"$lab/log/$guest" 2>&1 </dev/null &
    echo $! >"$lab/pids/$guest"
}

inside() {
    local number
    number=$(number "$1")
    shift
    ip netns exec $namespace ssh -q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o ConnectTimeout=5 -i "$lab/key" "root@10.98.0.1$number" "$@"
}

wait_for() {
    local guest=$1 condition=$2
    for _ in $(seq 90); do
        inside "$guest" "$condition" 2>/dev/null && return
        sleep 1
    done
    echo "lab.sh: $guest did not come up; see $lab/log/$guest" >&2
    exit 1
}

up() {
    for program in cc linux.uml mkfs.ext4 ip ssh sshd rpc.nfsd rpcbind depmod; do
        command -v $program >/dev/null || { echo "lab.sh: $program is missing; see the head of this file" >&2; exit 1; }
    done
    [ -e /run/netns/$namespace ] && { echo "lab.sh: the lab is up; \`lab.sh down\` ends it" >&2; exit 1; }
    mkdir -p "$lab"/{log,pids,uml,modules/lib/modules}
    cp "$here/guest.sh" "$lab/"
    cc -O2 -shared -fPIC -o "$lab/fp_state.so" "$here/fp_state.c"
    ssh-keygen -q -t ed25519 -N '' -f "$lab/key"
    truncate -s 2G "$lab/server.img"
    mkfs.ext4 -q -F -N 400000 "$lab/server.img"
    for version in /usr/lib/uml/modules/*; do
        cp -r "$version" "$lab/modules/lib/modules/"
        depmod -b "$lab/modules" "${version##*/}"
    done
    ip netns add $namespace
    ip -n $namespace link set lo up
    ip -n $namespace link add br0 type bridge
    ip -n $namespace addr add 10.98.0.1/24 dev br0
    ip -n $namespace link set br0 up
    for guest in server one two; do
        ip -n $namespace tuntap add dev "tap$(number $guest)" mode tap
        ip -n $namespace link set "tap$(number $guest)" master br0 up
        boot $guest
    done
    for guest in server one two; do wait_for $guest "test -e /run/ready"; done
    for guest in one two; do wait_for $guest "test \$(grep -c ' /mnt/.* nfs' /proc/mounts) = 3"; done
}

down() {
    for file in "$lab"/pids/*; do [ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null; done
    sleep 0.5
    for pid in $(ip netns pids $namespace 2>/dev/null); do kill -9 "$pid"; done
    sleep 0.3
    ip netns del $namespace 2>/dev/null
    rm -rf "$lab"
}

case "${1:-}" in
up) up ;;
in) shift; inside "$@" ;;
cut) ip -n $namespace link set "tap$(number "$2")" nomaster ;;
heal) ip -n $namespace link set "tap$(number "$2")" master br0 ;;
pause) kill -STOP "$(cat "$lab/pids/$2")" ;;
resume) kill -CONT "$(cat "$lab/pids/$2")" ;;
down) down ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
