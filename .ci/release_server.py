"""For .ci/release-try, in a network namespace: an endpoint with TLS on port 8443, and a DNS server that knows `.test`.

The names of the endpoint and one that its certificate does not have lead to 127.0.0.1.
`--loopback` brings the loopback device up; `--enter ROOT UID COMMAND...` runs a command of a user in a root.
"""

import ctypes
import fcntl
import http.server
import os
import pathlib
import socket
import ssl
import struct
import sys
import threading

KNOWN = {b"\x06in-dns\x04test\x00", b"\x0aother-name\x04test\x00"}


class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"object": "list", "data": [{"id": "model-of-the-test", "object": "model"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def bring_up_loopback():
    """What `ip link set lo up` does."""
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = struct.pack("16sH14s", b"lo", 0x1 | 0x40, b"")
    fcntl.ioctl(control, 0x8914, request)


def enter(root, user, command):
    """Replaces the root of this mount namespace: after `chroot`, the kernel would refuse user namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    detach = 2
    os.chdir(root)
    for call, arguments in [(libc.pivot_root, (b".", b".")), (libc.umount2, (b".", detach))]:
        if call(*arguments):
            raise OSError(ctypes.get_errno(), call.__name__)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execvp(command[0], command)


def answer_names(server):
    while True:
        query, peer = server.recvfrom(512)
        end = query.index(b"\x00", 12) + 1
        name, question = query[12:end], query[12:end + 4]
        is_address = question[-4:-2] == b"\x00\x01"
        is_known = name.lower() in KNOWN
        count = 1 if is_known and is_address else 0
        flags = 0x8580 if is_known else 0x8583
        answer = struct.pack(">HHHHHH", int.from_bytes(query[:2], "big"), flags, 1, count, 0, 0) + question
        if count:
            answer += b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([127, 0, 0, 1])
        server.sendto(answer, peer)


def main():
    if sys.argv[1] == "--loopback":
        bring_up_loopback()
        return
    if sys.argv[1] == "--enter":
        enter(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    work = pathlib.Path(sys.argv[1])
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=answer_names, args=(names,), daemon=True).start()
    endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), Endpoint)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(work / "server.pem", work / "server.key")
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    (work / "ready").touch()
    endpoint.serve_forever()


main()
