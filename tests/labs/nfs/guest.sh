#!/bin/bash
# Process 1 of a guest: see lab.sh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
word() { sed "s/.*[ ]$1=\([^ ]*\).*/\1/" /proc/cmdline; }
lab=$(word lab)
guest=$(word guest)
hostname "$guest"
for dir in /run /mnt /root /etc/ssh /var/lib/nfs; do mount -t tmpfs tmpfs $dir; done
mkdir -p /run/sshd /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/rpc_pipefs
ip link set lo up
ip addr add "$(word address)/24" dev vec0
ip link set vec0 up
for module in sunrpc nfs nfsv3 nfsv4 nfsd; do modprobe -d "$lab/modules" $module; done
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/host
cp "$lab/key.pub" /run/keys.pub
printf '%s\n' 'HostKey /etc/ssh/host' 'AuthorizedKeysFile /run/keys.pub' 'StrictModes no' 'UsePAM no' \
    'PermitRootLogin prohibit-password' 'MaxStartups 200' 'MaxSessions 200' >/etc/ssh/config
/usr/sbin/sshd -f /etc/ssh/config
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
rpcbind
if [ "$guest" = server ]; then
    mkdir -p /mnt/disk
    mount -t ext4 /dev/ubda /mnt/disk
    mount -t nfsd nfsd /proc/fs/nfsd
    echo '/mnt/disk *(rw,no_root_squash,sync,no_subtree_check,fsid=0,insecure)' >/run/exports
    mount --bind /run/exports /etc/exports
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    # A client that is silent for so long loses its locks to whoever asks. The kernel takes 10 seconds or more.
    echo 10 >/proc/fs/nfsd/nfsv4leasetime
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    exportfs -ra
    rpc.statd --no-notify
    rpc.mountd
    rpc.nfsd 8
else
    rpc.statd --no-notify
    mkdir -p /mnt/v4 /mnt/v3 /mnt/nolock
    for _ in $(seq 60); do
        mount -t nfs -o vers=4.2 10.98.0.11:/ /mnt/v4 2>/dev/null && break
        sleep 0.5
    done
    mount -t nfs -o vers=3 10.98.0.11:/mnt/disk /mnt/v3
    mount -t nfs -o vers=3,nolock 10.98.0.11:/mnt/disk /mnt/nolock
fi
touch /run/ready
exec sleep infinity
