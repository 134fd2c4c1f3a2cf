"""Compares OTLP requests in protobuf with the same requests in JSON, by OpenTelemetry's own messages.

Reads lines `{"protobuf": HEX, "json": {...}}` from stdin and prints one line for each: `ok` and the number of spans, or
how the two differ.
"""

import base64
import json
import sys

from google.protobuf import json_format
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def with_base64_ids(value):
    """OTLP/JSON has the ids in hexadecimal, protobuf's JSON has bytes in base64."""
    if isinstance(value, list):
        return [with_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(member)).decode()
        if name in ("traceId", "spanId", "parentSpanId") and isinstance(member, str)
        else with_base64_ids(member)
        for name, member in value.items()
    }


def unknown_fields(message):
    """The numbers of fields that the messages do not have, at any depth."""
    found = [field.field_number for field in UnknownFieldSet(message)]
    for _, value in message.ListFields():
        for inner in value if hasattr(value, "__iter__") and not isinstance(value, (str, bytes)) else [value]:
            if hasattr(inner, "ListFields"):
                found += unknown_fields(inner)
    return found


for line in sys.stdin:
    case = json.loads(line)
    sent = ExportTraceServiceRequest.FromString(bytes.fromhex(case["protobuf"]))
    expected = json_format.ParseDict(with_base64_ids(case["json"]), ExportTraceServiceRequest())
    unknown = unknown_fields(sent)
    if unknown:
        print(f"unknown fields {unknown}")
    elif sent != expected:
        print(f"differs: {json_format.MessageToJson(sent, indent=None)}")
    else:
        print("ok", sum(len(scope.spans) for resource in sent.resource_spans for scope in resource.scope_spans))
