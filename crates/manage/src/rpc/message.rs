//! Requests and replies of JSON-RPC 2.0, without sockets.

use super::error::{Rpc, RpcError};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Longest reply in bytes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// A dispatcher of methods.
pub trait Methods {
    /// Runs method `name`. May wait.
    ///
    /// # Errors
    /// The method was not carried out.
    fn call(&self, name: &str, params: MethodParams<'_>) -> Rpc<Value>;

    /// Receives notice of `bytes` that are no request.
    fn refused(&self, error: &RpcError, bytes: &[u8]);

    /// True for a method whose reply comes later, over the caller's stream. Such a request stands alone, not in an
    /// array.
    fn keeps_stream(&self, _name: &str) -> bool {
        false
    }
}

/// A request whose reply comes later, over the caller's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// Name of the method.
    pub method: String,
    /// The request's id as JSON.
    pub id: Value,
}

/// Parameters of a call, as raw JSON.
#[derive(Clone, Copy, Debug)]
pub struct MethodParams<'a>(Option<&'a RawValue>);

impl MethodParams<'_> {
    /// Reads the parameters as members of an object; without parameters the object is empty.
    ///
    /// # Errors
    /// Unknown, repeated or missing members, and values of another type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let text = self.0.map_or("{}", RawValue::get);
        if !text.starts_with('{') {
            return Err(serde_json::Error::custom("an object is expected"));
        }
        serde_json::from_str(text)
    }

    /// True if there are no parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none_or(
            |raw| matches!(serde_json::from_str(raw.get()), Ok(Value::Object(o)) if o.is_empty()),
        )
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RpcRequest<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct RpcReply<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RpcReplyError>,
}

#[derive(Serialize)]
struct RpcReplyError {
    code: i32,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

/// Outcome of one value of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Reply in one line; `None`: nothing is sent.
    pub text: Option<String>,
    /// Invalid JSON: no later byte of the stream can be trusted.
    pub is_broken: bool,
    /// Request that takes over the stream.
    pub kept: Option<KeptRequest>,
}

/// Runs a request, or an array of them.
pub fn answer(bytes: &[u8], methods: &impl Methods) -> Answered {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim(),
        Err(error) => return broken(error, bytes, methods),
    };
    // Checks the JSON syntax before any method runs.
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        return broken(error, bytes, methods);
    }
    let text = match text.as_bytes().first() {
        Some(b'[') => batch(text, methods),
        _ => match kept(text, methods) {
            Some(kept) => return Answered { kept: Some(kept), ..Answered::default() },
            None => single(text, methods),
        },
    };
    let text = text.map(|text| match text.len() > ANSWER_BYTES_MAX {
        true => {
            let error = RpcError::internal("the answer is too long");
            methods.refused(&error, bytes);
            error_line(None, error)
        }
        false => text,
    });
    Answered { text: text.map(|text| text + "\n"), ..Answered::default() }
}

/// Returns the reply to invalid JSON, after which the stream ends.
pub fn broken(why: impl std::fmt::Display, bytes: &[u8], methods: &impl Methods) -> Answered {
    let error = RpcError::parse(why);
    methods.refused(&error, bytes);
    let text = Some(error_line(None, error) + "\n");
    Answered { text, is_broken: true, ..Answered::default() }
}

/// Returns the request whose reply comes later, if `text` is one.
fn kept(text: &str, methods: &impl Methods) -> Option<KeptRequest> {
    let request: RpcRequest<'_> = serde_json::from_str(text).ok()?;
    let id = serde_json::from_str(request.id?.get()).ok()?;
    let has_id = matches!(id, Value::String(_) | Value::Number(_));
    let is_kept = has_id && methods.keeps_stream(&request.method);
    is_kept.then(|| KeptRequest { method: request.method.into_owned(), id })
}

/// Returns one line with the reply to the request `id`.
#[must_use]
pub fn reply_line(id: &Value, reply: Rpc<Value>) -> String {
    let id = serde_json::value::to_raw_value(id).ok();
    let (result, error) = match reply {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(RpcReplyError::from(error))),
    };
    line(RpcReply { jsonrpc: "2.0", id: id.as_deref(), result, error }) + "\n"
}

impl From<RpcError> for RpcReplyError {
    fn from(RpcError { code, message, data }: RpcError) -> RpcReplyError {
        RpcReplyError { code, message, data: data.map(|data| *data) }
    }
}

/// Returns the reply to `text`, which is valid JSON but no request.
fn no_request(
    (id, text): (Option<&RawValue>, &str),
    why: impl std::fmt::Display,
    methods: &impl Methods,
) -> Option<String> {
    let error = RpcError::request(why);
    methods.refused(&error, text.as_bytes());
    Some(error_line(id, error))
}

fn batch(text: &str, methods: &impl Methods) -> Option<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    if elements.is_empty() {
        return no_request((None, text), "the array is empty", methods);
    }
    let mut answers = String::new();
    for element in elements {
        let Some(answer) = single(element.get(), methods) else { continue };
        answers.push(if answers.is_empty() { '[' } else { ',' });
        answers.push_str(&answer);
        if answers.len() > ANSWER_BYTES_MAX {
            return Some(answers); // later requests are not run: their replies would be lost
        }
    }
    (!answers.is_empty()).then(|| answers + "]")
}

fn single(text: &str, methods: &impl Methods) -> Option<String> {
    let request: RpcRequest<'_> = match serde_json::from_str(text) {
        Ok(request) => request,
        Err(error) => {
            let why = match error.classify() {
                Category::Data if !text.starts_with('{') => "a request is an object".to_owned(),
                _ => error.to_string(),
            };
            return no_request((id_of(text), text), why, methods);
        }
    };
    let is_id = |raw: &&RawValue| {
        raw.get().starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
    };
    let id = match request.id {
        Some(raw) if !is_id(&raw) => {
            return no_request((None, text), "an id is a string or a number", methods);
        }
        id => id,
    };
    if request.jsonrpc.as_deref().is_some_and(|version| version != "2.0") {
        return no_request((id, text), "jsonrpc is \"2.0\"", methods);
    }
    match methods.call(&request.method, MethodParams(request.params)) {
        Ok(result) => id.map(|id| {
            line(RpcReply { jsonrpc: "2.0", id: Some(id), result: Some(result), error: None })
        }),
        Err(error) => Some(error_line(id, error)),
    }
}

/// Returns the id of an invalid request, if it has one.
fn id_of(text: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct WithId<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let id = serde_json::from_str::<WithId<'_>>(text).ok()?.id?;
    (!id.get().starts_with(['{', '[', 't', 'f'])).then_some(id)
}

fn error_line(id: Option<&RawValue>, error: RpcError) -> String {
    line(RpcReply { jsonrpc: "2.0", id, result: None, error: Some(error.into()) })
}

fn line(answer: RpcReply<'_>) -> String {
    serde_json::to_string(&answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Methods for Echo {
        fn call(&self, name: &str, params: MethodParams<'_>) -> Rpc<Value> {
            match name {
                "echo" => params.read::<Value>().map_err(RpcError::params),
                _ => Err(RpcError::method("")),
            }
        }

        fn refused(&self, _: &RpcError, _: &[u8]) {}
    }

    fn reply_to(text: &str) -> String {
        answer(text.as_bytes(), &Echo).text.unwrap_or_default()
    }

    #[test]
    fn requests_are_answered() {
        assert_eq!(
            reply_to(r#"{"method":"echo","params":{"a":1},"id":7}"#),
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":1}}\n"
        );
        assert_eq!(
            reply_to(r#"{"jsonrpc":"2.0","method":"eat","id":"x"}"#),
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}\n"
        );
        assert_eq!(reply_to(r#"{"method":"echo"}"#), "", "a notification");
        assert_eq!(reply_to(r#"{"method":"echo","id":null}"#), "");
        assert!(reply_to(r#"{"method":"eat"}"#).contains("\"id\":null"), "only errors get a reply");
    }

    #[test]
    fn batches_are_answered_as_one() {
        assert_eq!(
            reply_to(r#"[{"method":"echo","id":1},{"method":"echo"},3,{"method":"echo","id":2}]"#),
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}},\
             {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"Invalid request: a request is an object\"}},\
             {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]\n"
        );
        assert_eq!(reply_to(r#"[{"method":"echo"}]"#), "");
        assert!(
            reply_to("[]")
                .starts_with("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600")
        );
    }

    /// Dispatcher with long replies that counts its calls.
    struct Talker(std::cell::Cell<usize>);

    impl Methods for Talker {
        fn call(&self, _: &str, _: MethodParams<'_>) -> Rpc<Value> {
            self.0.update(|calls| calls + 1);
            Ok("x".repeat(ANSWER_BYTES_MAX / 3).into())
        }

        fn refused(&self, _: &RpcError, _: &[u8]) {}
    }

    #[test]
    fn a_batch_ends_when_its_answers_are_too_long() {
        let talker = Talker(std::cell::Cell::new(0));
        let request = r#"{"method":"talk","id":1}"#;
        let batch = format!("[{}]", [request; 9].join(","));
        let answered = answer(batch.as_bytes(), &talker).text.unwrap();
        assert!(answered.contains("the answer is too long"), "{} bytes", answered.len());
        assert_eq!(talker.0.get(), 3);
    }

    #[test]
    fn what_is_no_request_says_so() {
        for (text, code, is_broken) in [
            ("{", "-32700", true),
            ("{\"method\":}", "-32700", true),
            ("{} {}", "-32700", true),
            ("{}", "-32600", false),
            (r#"{"method":1,"id":1}"#, "-32600", false),
            (r#"{"method":"echo","more":1}"#, "-32600", false),
            (r#"{"method":"echo","method":"echo"}"#, "-32600", false),
            (r#"{"method":"echo","id":{}}"#, "-32600", false),
            (r#"{"method":"echo","id":true}"#, "-32600", false),
            (r#"{"method":"echo","jsonrpc":"1.0"}"#, "-32600", false),
            (r#"{"method":"echo","params":[1],"id":1}"#, "-32602", false),
        ] {
            let answered = answer(text.as_bytes(), &Echo);
            assert!(answered.text.unwrap().contains(code), "{text}");
            assert_eq!(answered.is_broken, is_broken, "{text}");
        }
        assert!(answer(b"{\"method\":\"\xff\"}", &Echo).is_broken);
    }
}
