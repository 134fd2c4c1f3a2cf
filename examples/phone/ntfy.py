"""Keeps messages in memory. Prints its address, then serves in the background for at most 2 minutes."""
import http.server, json, os, signal, sys

messages = []

class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        topic = self.path.strip("/")
        message = {"topic": topic, "message": body} if topic else json.loads(body)
        messages.append({"id": str(len(messages) + 1), "event": "message", **message})
        self.answer("")

    def do_GET(self):
        path, _, query = self.path.partition("?")
        since = dict(pair.split("=") for pair in query.split("&"))["since"]
        first = 0 if since == "all" else int(since)
        topic = path.split("/")[1]
        found = [message for message in messages[first:] if message["topic"] == topic]
        self.answer("".join(json.dumps(message) + "\n" for message in found))

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Server)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
child = os.fork()
if child:
    print(child, file=open("ntfy.pid", "w"))
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
os.dup2(1, 2)
signal.alarm(120)
server.serve_forever()
