//! The OpenAPI document: schemas from the wire's own types, operations from one table beside the router's. The result is
//! checked in as `api/openapi.json`, which is what is served; a test compares the two.

mod operations;

use axum::response::IntoResponse;
use bex_proto::execution::{ConfigKind, ExecutionStatus, NamedSession};
use bex_proto::problem::{CONTENT_TYPE, Code};
use bex_proto::session::{
    DeliveryMode, EndedBy, FailureReason, Phase, SessionKind, TruncationReason, Verdict,
};
use http::header;
use utoipa::ToSchema;
use utoipa::openapi::path::{
    OperationBuilder, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, HttpMethod, InfoBuilder, License, OpenApi, OpenApiBuilder, Ref,
    RefOr, Required, ResponseBuilder,
};

use crate::http::{
    attach_ticket, exec, executions, holds, machines, priming, proof, remote, replay, revocations,
    sessions, transcript, turns, views,
};
use operations::{Answer, EXECUTIONS, OPERATIONS, Operation, REMOTE, REPLAY};

/// The checked-in document.
const DOCUMENT: &str = include_str!("../openapi.json");
const BEARER: &str = "bearer";

/// `GET /openapi.json`
pub async fn serve() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

/// The document of this build as text, for `bex-api openapi` and its test.
pub fn generate() -> String {
    let mut text = document()
        .to_pretty_json()
        .expect("a document of plain data always serialises");
    text.push('\n');
    text
}

/// Words of the contract whose list is known.
pub trait Words: Sized + Copy + 'static {
    /// Each of them.
    fn all() -> Vec<&'static str>;
}

macro_rules! words_of {
    ($($name:ident),+) => {
        $(impl Words for $name {
            fn all() -> Vec<&'static str> {
                $name::ALL.iter().map(|word| word.as_str()).collect()
            }
        })+
    };
}
words_of!(
    ConfigKind,
    DeliveryMode,
    EndedBy,
    ExecutionStatus,
    FailureReason,
    NamedSession,
    Phase,
    SessionKind,
    TruncationReason,
    Verdict
);

/// The schema of a word, with every word in it.
pub fn words<T: Words>() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(T::all()))
        .build()
        .into()
}

fn document() -> OpenApi {
    let info = InfoBuilder::new()
        .title("bex-api")
        .version("1")
        .description(Some("Agent sessions: create, steer, watch, read. Refusals are RFC 9457 problems with a stable code."))
        .license(Some(License::builder().name("Apache-2.0").identifier(Some("Apache-2.0")).build()));
    let mut schemas = Vec::new();
    add::<sessions::CreateSession>(&mut schemas);
    add::<sessions::SessionPage>(&mut schemas);
    add::<turns::BeginTurnRequest>(&mut schemas);
    add::<turns::TurnPage>(&mut schemas);
    add::<views::BegunTurn>(&mut schemas);
    add::<attach_ticket::TicketRequest>(&mut schemas);
    add::<views::TicketView>(&mut schemas);
    add::<transcript::TranscriptPage>(&mut schemas);
    add::<exec::ExecRequest>(&mut schemas);
    add::<revocations::RevocationBody>(&mut schemas);
    add::<priming::PrimingView>(&mut schemas);
    add::<proof::ProofPage>(&mut schemas);
    add::<holds::RetentionRequest>(&mut schemas);
    add::<holds::RetentionView>(&mut schemas);
    add::<machines::RegisterMachine>(&mut schemas);
    add::<machines::MachineToken>(&mut schemas);
    add::<machines::MachinePage>(&mut schemas);
    add::<remote::sessions::CreateRemoteSession>(&mut schemas);
    add::<remote::sessions::RemoteSessionPage>(&mut schemas);
    add::<remote::machine::Heartbeat>(&mut schemas);
    add::<remote::machine::CommandPage>(&mut schemas);
    add::<remote::machine::CommandResult>(&mut schemas);
    add::<remote::machine::RemoteStatus>(&mut schemas);
    add::<remote::machine::UsageBody>(&mut schemas);
    add::<remote::machine::UsageCounted>(&mut schemas);
    add::<remote::commands::ChatRequest>(&mut schemas);
    add::<remote::commands::ReasonRequest>(&mut schemas);
    add::<remote::commands::PermissionRequest>(&mut schemas);
    add::<remote::commands::CommandTold>(&mut schemas);
    add::<remote::output::OutputPage>(&mut schemas);
    add::<remote::output::OutputAnswer>(&mut schemas);
    add::<remote::output::ImportAnswer>(&mut schemas);
    add::<remote::messages::MessagePage>(&mut schemas);
    add::<remote::messages::RemoteTurnPage>(&mut schemas);
    add::<replay::PackageView>(&mut schemas);
    add::<executions::runs::RecordExecution>(&mut schemas);
    add::<executions::runs::ExecutionPage>(&mut schemas);
    add::<executions::runs::ExecutionDetail>(&mut schemas);
    add::<executions::nodes::RecordNode>(&mut schemas);
    add::<executions::nodes::NodePage>(&mut schemas);
    add::<executions::findings::RecordFindings>(&mut schemas);
    add::<executions::findings::FindingPage>(&mut schemas);
    add::<executions::usage::RecordUsage>(&mut schemas);
    add::<executions::usage::UsagePage>(&mut schemas);
    add::<executions::RecordedBatch>(&mut schemas);
    add::<executions::versions::ConfigBody>(&mut schemas);
    add::<executions::versions::VersionPage>(&mut schemas);
    schemas.push(("Problem".to_owned(), problem().into()));
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(BEARER, bearer);
    let mut paths = PathsBuilder::new();
    for operation in OPERATIONS
        .iter()
        .chain(REMOTE)
        .chain(EXECUTIONS)
        .chain(REPLAY)
    {
        paths = paths.path(
            operation.path,
            PathItem::new(method(operation.method), described(operation)),
        );
    }
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths)
        .components(Some(components.build()))
        .build()
}

/// A type's schema and those it refers to.
fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
}

fn method(word: &str) -> HttpMethod {
    match word {
        "post" => HttpMethod::Post,
        "put" => HttpMethod::Put,
        "delete" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn problem() -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    ObjectBuilder::new()
        .property("type", text())
        .property("title", text())
        .property("status", ObjectBuilder::new().schema_type(Type::Integer))
        .property("code", text().enum_values(Some(codes)))
        .property("retrySafe", ObjectBuilder::new().schema_type(Type::Boolean))
        .property("detail", text())
        .required("type")
        .required("title")
        .required("status")
        .required("code")
        .required("retrySafe")
        .build()
        .into()
}

fn described(operation: &Operation) -> OperationBuilder {
    let mut built = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .summary(Some(operation.summary))
        .parameters(Some(parameters(operation)));
    if let Some(schema) = operation.body {
        let content = Content::new(Some(Ref::from_schema_name(schema)));
        let body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/json", content);
        built = built.request_body(Some(body.build()));
    }
    if let Some(schema) = operation.lines {
        let content = match schema {
            "" => Content::new(None::<RefOr<Schema>>),
            schema => Content::new(Some(Ref::from_schema_name(schema))),
        };
        let body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/x-ndjson", content);
        built = built.request_body(Some(body.build()));
    }
    for (status, answer) in operation.answers {
        built = built.response(status.to_string(), success(answer));
    }
    if !is_for_everybody(operation.path) {
        built = built.security(SecurityRequirement::new(BEARER, Vec::<String>::new()));
    }
    for (status, codes) in refusals(operation) {
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        let text = format!("Codes: {}.", codes.join(", "));
        built = built.response(
            status.to_string(),
            ResponseBuilder::new()
                .description(text)
                .content(CONTENT_TYPE, content),
        );
    }
    built
}

/// Whether a path is answered without a token.
fn is_for_everybody(path: &str) -> bool {
    path == "/openapi.json"
        || path.starts_with("/.well-known/")
        || path.starts_with("/replay/objects/")
}

fn parameters(operation: &Operation) -> Vec<utoipa::openapi::path::Parameter> {
    let in_path = operation
        .path
        .split('/')
        .filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| (name, ParameterIn::Path, Required::True, ""));
    let in_query = operation
        .query
        .iter()
        .map(|(name, text)| (*name, ParameterIn::Query, Required::False, *text));
    let in_header = operation
        .headers
        .iter()
        .map(|(name, text)| (*name, ParameterIn::Header, Required::False, *text));
    in_path
        .chain(in_query)
        .chain(in_header)
        .map(|(name, place, required, text)| {
            let schema = parameter_schema(name);
            ParameterBuilder::new()
                .name(name)
                .parameter_in(place)
                .required(required)
                .description(Some(text).filter(|text| !text.is_empty()))
                .schema(Some(schema))
                .build()
        })
        .collect()
}

fn parameter_schema(name: &str) -> RefOr<Schema> {
    match name {
        "limit" | "from" | "after" | "afterSeq" | "turn" | "budgetBytes" | "waitSeconds" => {
            ObjectBuilder::new()
                .schema_type(Type::Integer)
                .build()
                .into()
        }
        "phase" => ArrayBuilder::new().items(words::<Phase>()).build().into(),
        "status" => ArrayBuilder::new()
            .items(words::<ExecutionStatus>())
            .build()
            .into(),
        _ => ObjectBuilder::new()
            .schema_type(Type::String)
            .build()
            .into(),
    }
}

fn success(answer: &Answer) -> ResponseBuilder {
    match answer {
        Answer::Empty(text) => ResponseBuilder::new().description(*text),
        Answer::Json(text, schema) => {
            let content = Content::new(Some(Ref::from_schema_name(*schema)));
            ResponseBuilder::new()
                .description(*text)
                .content("application/json", content)
        }
        Answer::File(text, types) => {
            let binary = ObjectBuilder::new().schema_type(Type::String).build();
            let described = ResponseBuilder::new().description(*text);
            types.iter().fold(described, |built, media| {
                built.content(*media, Content::new(Some(Schema::from(binary.clone()))))
            })
        }
        Answer::Frames(text) => {
            let binary = ObjectBuilder::new().schema_type(Type::String).build();
            let content = Content::new(Some(Schema::from(binary)));
            ResponseBuilder::new()
                .description(*text)
                .content(bex_proto::exec::CONTENT_TYPE, content)
        }
    }
}

/// The operation's own codes and those that every authenticated call may answer, by status.
fn refusals(operation: &Operation) -> std::collections::BTreeMap<u16, Vec<&'static str>> {
    let common: &[Code] = match operation.path {
        path if is_for_everybody(path) => &[],
        _ => &[
            Code::Unauthenticated,
            Code::Forbidden,
            Code::Overloaded,
            Code::Internal,
            Code::Unavailable,
        ],
    };
    let with_body: &[Code] = match operation.body {
        Some(_) => &[
            Code::InvalidRequest,
            Code::InvalidJson,
            Code::UnknownField,
            Code::BodyTooLarge,
        ],
        None => &[],
    };
    let mut by_status = std::collections::BTreeMap::<u16, Vec<&'static str>>::new();
    for code in common.iter().chain(with_body).chain(operation.codes) {
        let codes = by_status.entry(code.status()).or_default();
        if !codes.contains(&code.as_str()) {
            codes.push(code.as_str());
        }
    }
    by_status
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_checked_in_document_is_this_build() {
        assert!(
            DOCUMENT == generate(),
            "api/openapi.json is not what this build describes; run `cargo run -p bex-api -- openapi > api/openapi.json`"
        );
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let routes: BTreeSet<_> = crate::http::ROUTES.iter().copied().collect();
        let described: BTreeSet<_> = OPERATIONS
            .iter()
            .chain(REMOTE)
            .chain(EXECUTIONS)
            .chain(REPLAY)
            .map(|o| (o.method, o.path))
            .collect();
        assert_eq!(routes, described);
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).expect("a document");
        for (method, path) in routes {
            assert!(
                document["paths"][path][method].is_object(),
                "{method} {path}"
            );
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document: serde_json::Value = serde_json::from_str(&generate()).expect("a document");
        let schemas = document["components"]["schemas"]
            .as_object()
            .expect("schemas");
        let text = document.to_string();
        let refs: Vec<_> = text
            .split("\"#/components/schemas/")
            .skip(1)
            .filter_map(|t| t.split('"').next())
            .collect();
        assert!(refs.len() > 20, "{refs:?}");
        for name in refs {
            assert!(schemas.contains_key(name), "{name}");
        }
        assert_eq!(
            schemas["Session"]["properties"]["phase"]["enum"][0],
            "creating"
        );
        assert_eq!(schemas["CreateSession"]["additionalProperties"], false);
        assert!(schemas["EnvRequest"]["properties"].get("value").is_none());
    }
}
