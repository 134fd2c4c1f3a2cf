"""Verifies all seals of a run, and of the runs that its sandboxes started, with public keys alone.

Usage: verify_seals.py RUN_DIR KEY...
"""
import base64, hashlib, json, pathlib, sys

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

def add(a, b):
    t = D * a[0] * b[0] * a[1] * b[1]
    return ((a[0] * b[1] + b[0] * a[1]) * pow(1 + t, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, P) % P)

def multiply(factor, point, product=(0, 1)):
    while factor:
        product, point, factor = add(product, point) if factor & 1 else product, add(point, point), factor >> 1
    return product

def decode_point(data):
    y, sign = int.from_bytes(data, "little") & 2**255 - 1, data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = next(x for x in (pow(square, (P + 3) // 8, P) * pow(2, (P - 1) // 4 * i, P) % P for i in (0, 1)) if (x * x - square) % P == 0)
    return (x if x & 1 == sign else P - x, y)

def verify(key, message, signature):
    scalar = int.from_bytes(signature[32:], "little")
    hashed = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little")
    base = decode_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    return scalar < L and multiply(scalar, base) == add(decode_point(signature[:32]), multiply(hashed % L, decode_point(key)))

def count_seals(run_dir, keys):
    run_id = home = previous = b""
    inner, count = set(), 0
    for line in (run_dir / "journal.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        if event["type"] in ("ENGINE_START", "FORK", "RUN_TRUSTED"):
            run_id = event["run_id"].encode()
        if event["type"] == "ENGINE_START":
            home = event["agent_home"].encode()
            inner |= {event["config"]["inner_key"]} if "inner_key" in event["config"] else set()
        covered, chain = line[:-2].rsplit(b',"chain":"', 1)
        assert hashlib.sha256(previous + covered).hexdigest()[:32].encode() == chain, f"chain of line {event['seq']}"
        if "seal" in event:
            covered, seal = covered[:-1].rsplit(b',"seal":"', 1)
            key, signature = seal.split(b".")
            assert key.decode() in keys, f"key of line {event['seq']}"
            parts = [b"delta seal 2", run_id, home, previous, covered]
            message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
            key, signature = (base64.urlsafe_b64decode(text + b"==") for text in (key[8:], signature))
            assert verify(key, message, signature), f"seal of line {event['seq']}"
            count += 1
        previous = chain
    children = run_dir / "children.jsonl"
    for child in children.read_text().splitlines() if children.exists() else []:
        count += count_seals(run_dir.parent / json.loads(child)["run_id"], keys | inner)
    return count

if __name__ == "__main__":
    print(count_seals(pathlib.Path(sys.argv[1]), set(sys.argv[2:])))
