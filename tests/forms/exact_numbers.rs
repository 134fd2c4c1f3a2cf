//! Numbers of arguments that have more digits than 64 bits hold, where they arrive as JSON and not as text.

use super::{DELTA, ECHO};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// What a tree of JSON would write as `1.2345678901234568e22`.
const BIG: &str = "12345678901234567890123";
const LONG_DECIMAL: &str = "0.1234567890123456789012";

/// A response with one call, whole or as the events of a stream, that passes on an object and not its text.
fn response(form: &str, arguments: &str) -> (bool, String) {
    let event = |data: &str| format!("data: {data}\n\n");
    match form {
        "openai" => (
            false,
            format!(
                "{{\"choices\":[{{\"index\":0,\"finish_reason\":\"tool_calls\",\"message\":{{\"role\":\"assistant\",\"content\":null,\
             \"tool_calls\":[{{\"id\":\"c1\",\"type\":\"function\",\"function\":{{\"name\":\"echo\",\"arguments\":{arguments}}}}}]}}}}]}}"
            ),
        ),
        "openai stream" => (
            true,
            event(&format!(
                "{{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\
             \"function\":{{\"name\":\"echo\",\"arguments\":{arguments}}}}}]}},\"finish_reason\":\"tool_calls\"}}]}}"
            )) + "data: [DONE]\n\n",
        ),
        "anthropic" => (
            false,
            format!(
                "{{\"id\":\"m1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"test-model\",\"stop_reason\":\"tool_use\",\
             \"content\":[{{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"echo\",\"input\":{arguments}}}],\
             \"usage\":{{\"input_tokens\":1,\"output_tokens\":1}}}}"
            ),
        ),
        "responses" => (
            false,
            format!(
                "{{\"id\":\"r1\",\"status\":\"completed\",\"model\":\"test-model\",\"output\":[{{\"type\":\"function_call\",\"call_id\":\"c1\",\
             \"name\":\"echo\",\"arguments\":{arguments}}}]}}"
            ),
        ),
        _ => {
            let whole = format!(
                "{{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":[{{\"thoughtSignature\":\"c2ln\",\
                 \"functionCall\":{{\"name\":\"echo\",\"args\":{arguments}}}}}]}},\"finishReason\":\"STOP\"}}]}}"
            );
            let is_streamed = form == "gemini stream";
            (is_streamed, if is_streamed { event(&whole) } else { whole })
        }
    }
}

#[test]
fn c_4_4_arguments_keep_every_digit_in_each_form() {
    for form in ["openai", "openai stream", "anthropic", "responses", "gemini", "gemini stream"] {
        for number in [BIG, LONG_DECIMAL, "1.50"] {
            let (is_streamed, body) = response(form, &format!("{{ \"text\": {number} }}"));
            let first =
                if is_streamed { Answer::event_stream(body) } else { Answer::raw(200, body) };
            let server = ScriptedServer::start(vec![first, Answer::text("done")]);
            let name = form.split(' ').next().unwrap();
            let sandbox = Sandbox::new(DELTA);
            let url = if matches!(name, "openai" | "responses") {
                server.url()
            } else {
                server.root_url()
            };
            let llm = format!(
                "provider: {name}
  model: test-model
  base_url: {url}
  stream: {is_streamed}"
            );
            sandbox.agent(&llm, ECHO);
            sandbox.run("hi", &[]).expect_code(0);
            assert_eq!(sandbox.observations(), [format!("{number}\n")], "{form}");
            let thought = sandbox.events("THOUGHT").remove(0);
            let arguments = thought["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
            let exact = format!("{{\"text\":{number}}}");
            assert_eq!(arguments.replace(": ", ":").replace(' ', ""), exact, "{form}");
            // The next request has it too, as text or as an object.
            let request = String::from_utf8(server.requests()[1].bytes.clone()).unwrap();
            let read = request.replace(['\\', ' '], "");
            assert!(read.contains(&format!("\"text\":{number}}}")), "{form}: {request}");
        }
    }
}
