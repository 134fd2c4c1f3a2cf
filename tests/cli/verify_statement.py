"""Verifies the signature of a statement with a public key alone, and its subjects in a directory.

Usage: verify_statement.py FILE KEY DIR
"""
import base64, hashlib, json, os, pathlib, sys
from verify_seals import verify

envelope = json.loads(pathlib.Path(sys.argv[1]).read_bytes())
key = base64.urlsafe_b64decode(sys.argv[2].removeprefix("ed25519:") + "=")
payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
signatures = [base64.b64decode(signature["sig"]) for signature in envelope["signatures"]]
assert kind == b"application/vnd.in-toto+json", kind
assert any(verify(key, message, signature) for signature in signatures), "no signature of this key"
for subject in json.loads(payload)["subject"]:
    path = pathlib.Path(sys.argv[3], subject["name"])
    is_link = subject.get("annotations", {}).get("kind") == "symlink"
    data = os.readlink(path).encode() if is_link else path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == subject["digest"]["sha256"], f"{path} differs"
    print(subject["name"])
