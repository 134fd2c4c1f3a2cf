"""Reads the statement of a run with the classes of in-toto, which reject unknown fields; prints what they have read."""
import json, subprocess, sys
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

command = [sys.argv[1], "export", "r", "-w", "work", "--to", "in-toto", "--unsigned"]
text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
statement = json_format.Parse(text, statement_pb2.Statement())
Statement.copy_from_pb(statement).validate()
predicate = json.dumps(json.loads(text)["predicate"])
provenance = json_format.Parse(predicate, provenance_pb2.Provenance())
print(json.dumps({
    "predicate": statement.predicate_type,
    "subjects": [subject.name for subject in statement.subject],
    "used": [resource.name for resource in provenance.build_definition.resolved_dependencies],
    "left": [resource.name for resource in provenance.run_details.byproducts],
    "run": provenance.run_details.metadata.invocation_id,
    "seconds": provenance.run_details.metadata.finished_on.seconds,
}))
