"""A client for the official conformance suite, made of `delta mcp`: python3 conformance_client.py DELTA URL

As the browser of a login: python3 conformance_client.py --browse URL
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request

if sys.argv[1] == "--browse":
    urllib.request.urlopen(sys.argv[2], timeout=20).read()
    sys.exit()

DELTA, URL = sys.argv[1], sys.argv[2]
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ENVIRONMENT = dict(os.environ, BROWSER=f"{sys.executable} {os.path.abspath(__file__)} --browse")
# What delta prints for a person to type.
LOGIN = re.compile(r"run `delta (mcp login .*)`")


def delta(*arguments, **more):
    """Runs `delta mcp`, and each login that it names, as a person would who agrees to everything, but not forever."""
    for _ in range(3):
        ran = subprocess.run([DELTA, "mcp", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             check=False, env=ENVIRONMENT, **more)
        sys.stderr.write(ran.stderr)
        needed = LOGIN.search(ran.stderr)
        if ran.returncode != 7 or not needed:
            return ran
        login = subprocess.run([DELTA, *shlex.split(needed[1])], check=False, env=ENVIRONMENT,
                               stdin=subprocess.DEVNULL)
        if login.returncode != 0:
            sys.exit(login.returncode)
    sys.exit("no login was enough")


def call(tool, arguments):
    command = ["call", URL, tool, "--json"]
    ran = delta(*command, input=json.dumps(arguments))
    if ran.returncode == 5:
        answer = json.dumps({"action": "accept", "content": {"confirmed": True}})
        keys = json.loads(ran.stdout)["inputRequests"]
        given = [word for key in keys for word in ("--input", f"{key}={answer}")]
        delta(*command, *given, input=json.dumps(arguments))


def sample(schema):
    values = {"number": 5, "integer": 5, "boolean": True, "string": "text"}
    properties = schema.get("properties", {})
    return {name: values.get(properties[name].get("type"), "text") for name in schema.get("required", [])}


def use_agent(client, secret, more=""):
    """Uses the server as one of an agent, whose client is registered."""
    ENVIRONMENT.update(CLIENT_ID=client, CLIENT_SECRET=secret or "")
    secret_key = ", client_secret_env: CLIENT_SECRET" if secret else ""
    with tempfile.TemporaryDirectory() as agent:
        with open(f"{agent}/agent.yaml", "w") as file:
            file.write(f"mcp:\n  s:\n    url: {URL}\n    oauth: {{client_id_env: CLIENT_ID{secret_key}{more}}}\n")
        if delta("lock", "--agent", agent, "--write").returncode == 0:
            delta("call", "--agent", agent, "s", "test-tool", stdin=subprocess.DEVNULL)


if SCENARIO == "auth/basic-cimd":
    # The id of the suite's clients. delta has no address of its own, but an operator may.
    use_agent("https://conformance-test.local/client-metadata.json", None)
elif "client_id" in CONTEXT:
    grant = ", grant: client_credentials" if "client-credentials" in SCENARIO else ""
    use_agent(CONTEXT["client_id"], CONTEXT["client_secret"], grant)
else:
    listed = json.loads(delta("list", URL, "--json").stdout)
    calls = CONTEXT.get("toolCalls")
    if calls is None:
        calls = [{"name": tool["name"], "arguments": sample(tool["inputSchema"])} for tool in listed["tools"]]
    for one in calls:
        call(one["name"], one["arguments"])
