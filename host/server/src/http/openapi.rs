//! What this service offers, as an OpenAPI 3.1 document (<https://spec.openapis.org/oas/v3.1.1.html>).
//!
//! It is built when the server starts, as some of it is configured: the most ids of a request, whether tokens are
//! wanted, which drop-in paths there are. Problems are named by [`Kind`], which brings statuses and types along, so a
//! problem's status cannot differ between document and server. Tests hold the rest to the truth: every route is
//! described and every description has its route, and a client that was made from the document finds nothing amiss.

#![expect(clippy::indexing_slicing, reason = "members are added to objects that were made here, once at the start")]

mod console;
mod grants;

use axum::body::Bytes;
use axum::http::Method;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value, json};
use unalike::{ID_MAX, Text, encode};

use super::access::{Methods, Needs, OWN, Route};
use super::drop_in::MACHINE_BITS_MAX;
use super::{READY, Routes};
use crate::config::Config;
use crate::config::drop_in::DropIn;
use crate::config::formats::Notation;
use crate::config::layouts::LAYOUT_DEFAULT;
use crate::config::tokens::Scope;
use crate::service::problem::Kind;

/// What any request may meet.
const ANY: &[Kind] = &[Kind::Timeout, Kind::ConnectionsMax, Kind::Internal];
/// What any request may meet before anybody looks at where it goes, under its status.
const HEAD: &[Kind] = &[Kind::HeadTimeout, Kind::UrlTooLong, Kind::HeadTooLarge];
/// What any request may be refused for before anybody looks at what it is.
const DOORS: &[Kind] =
    &[Kind::RequestInvalid, Kind::HostInvalid, Kind::HostUnknown, Kind::OriginRefused, Kind::BodyTooLarge];
/// What any request to the store may meet.
const STORE: &[Kind] = &[Kind::StoreUnavailable, Kind::StoreCorrupt, Kind::StoreRefused];
/// What a request for ids may meet besides.
const IDS: &[Kind] = &[
    Kind::CountInvalid,
    Kind::QuotaReached,
    Kind::Exhausted,
    Kind::FormatBound,
    Kind::CeilingReached,
    Kind::GrantRefused,
    Kind::Closing,
    Kind::Rebuilt,
];
/// What a request for ids in some form may meet besides.
const FORMATS: &[Kind] = &[Kind::FormatInvalid, Kind::ShardKeyInvalid, Kind::NumberUnsafe];
/// What a request for ids of a snowflake may meet besides.
const LEASES: &[Kind] = &[
    Kind::WorkersExhausted,
    Kind::LeaseEnded,
    Kind::Quarantined,
    Kind::ClockWrong,
    Kind::LayoutMismatch,
    Kind::LeasesMissing,
];
/// What is refused of a query.
const QUERY: &[Kind] = &[Kind::QueryInvalid];
/// What is refused of a body.
const BODY: &[Kind] = &[Kind::BodyInvalid, Kind::BodyTooLarge, Kind::MediaTypeUnsupported];
/// What a token may be refused for.
const TOKEN: &[Kind] = &[Kind::Unauthorized, Kind::Forbidden];

/// Two ways to the same: GET is the simplest, and POST is safe from caches and from clients that ask twice.
const GET_AND_POST: [(&str, &str); 2] = [("get", "Get"), ("post", "Post")];

/// All methods that a document can name, but for HEAD and TRACE: paths that take any method take these.
const ANY_METHOD: [(&str, &str); 6] = [
    ("get", "Get"),
    ("post", "Post"),
    ("put", "Put"),
    ("patch", "Patch"),
    ("delete", "Delete"),
    ("options", "Options"),
];

/// A UUID of version 4 or 7, in lower case.
const UUID_PATTERN: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
/// A ULID, in upper case.
const ULID_PATTERN: &str = "[0-7][0-9A-HJKMNP-TV-Z]{25}";

/// A whole number in decimal without leading zeros. The bound above is said in words: a pattern of it would be of no
/// use to people, and clients for Go cannot read one with a comma.
const WHOLE: &str = "^(0|[1-9][0-9]*)$";
/// The same from 1 on.
const POSITIVE: &str = "^[1-9][0-9]*$";

/// Where it is served.
pub(super) const PATH: &str = "/openapi.json";

/// The document of a server with this configuration and these routes: what is described here and has no route is left
/// out.
fn document(config: &Config, routes: &Routes) -> Value {
    let mut paths = Paths { tokens: config.tokens.is_some(), needs: &routes.needs, paths: Map::new() };
    ids(&mut paths, config.count_max);
    random_ids(&mut paths, config.count_max);
    grants::grants(&mut paths, config);
    tags(&mut paths);
    layouts(&mut paths);
    operation(&mut paths);
    console::console(&mut paths);
    let mut groups = vec![
        json!({ "name": "ids", "description": "Ids of sequences and snowflakes" }),
        json!({ "name": "random-ids", "description": "UUIDs and ULIDs: unique by randomness, without a store" }),
        json!({ "name": "grants", "description": "Segments and workers for hosts that make ids by themselves" }),
        json!({ "name": "tags", "description": "What sequences count under" }),
        json!({ "name": "layouts", "description": "Snowflake layouts, and ids taken apart" }),
        json!({ "name": "operation", "description": "Health, metrics and this document" }),
    ];
    for drop_in in config.drop_ins() {
        let (name, description) = match drop_in {
            DropIn::Leaf => leaf(&mut paths),
            DropIn::Tinyid => tinyid(&mut paths),
            DropIn::Cosid => cosid(&mut paths, config.segment_count_max),
        };
        groups.push(json!({ "name": name, "description": description }));
    }
    paths.paths.retain(|path, _| path == PATH || routes.templates.contains(&path.as_str()));
    let responses = problem_responses(HEAD);
    let schemas =
        used_schemas(schemas(config), &[Value::Object(paths.paths.clone()), Value::Object(responses.clone())]);
    let mut components = json!({ "schemas": schemas, "responses": responses });
    if paths.tokens {
        components["securitySchemes"] = json!({ "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "A token of the server's token file. Its scope is read (hand out ids, look at things), lease (also \
                grant segments and workers to hosts) or admin (also create, change and raise tags), and it may be bound to some tags and snowflakes. \
                x-token-scope says which scope an operation needs. \
                A client certificate may take its place, where the server accepts such.",
        } });
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "unalike",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Distributed id generator: no two ids alike",
            "description": "Ids are whole numbers from 1 to 2^63 - 1, unique per tag of a store, and per snowflake; beside them \
                there are UUIDs and ULIDs. JSON has numbers as strings, because JavaScript rounds those above 2^53; in a body of a \
                request a JSON number is taken, too, and null is what is not given. Errors are \
                problem documents (RFC 9457), whose type is stable; Retry-After is there where waiting helps. No answer may be \
                cached. Each answer has the X-Request-Id of its request, or a new one.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "tags": groups,
        "paths": paths.paths,
        "components": components,
    })
}

/// The schemas that something refers to: those of what is off would be models of nothing in a client.
fn used_schemas(all: Value, used_by: &[Value]) -> Value {
    let Value::Object(mut unused) = all else { return all };
    let mut used = Map::new();
    let mut texts: Vec<String> = used_by.iter().map(Value::to_string).collect();
    while let Some(text) = texts.pop() {
        for name in text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            if let Some(schema) = unused.remove(name) {
                texts.push(schema.to_string());
                used.insert(name.to_owned(), schema);
            }
        }
    }
    Value::Object(used)
}

/// The route that serves it.
pub(super) fn route(config: &Config, routes: &Routes) -> Route {
    let body = Bytes::from(document(config, routes).to_string());
    let serve = move || {
        let body = body.clone();
        async move { ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body) }
    };
    Methods::behind(OWN).get(Needs::Nothing, serve).at(PATH)
}

/// The paths so far.
struct Paths<'a> {
    /// Whether tokens are required.
    tokens: bool,
    /// What each method of each route needs.
    needs: &'a [(&'static str, Method, Needs)],
    paths: Map<String, Value>,
}

impl Paths<'_> {
    /// The scope that an operation needs, where tokens are required; none if it needs no token.
    fn scope(&self, method: &str, path: &str) -> Option<Scope> {
        let is_asked = |(template, known, _): &&(&str, Method, Needs)| {
            *template == path && known.as_str().eq_ignore_ascii_case(method)
        };
        match self.needs.iter().find(is_asked) {
            Some((_, _, Needs::Token(scope))) if self.tokens => Some(*scope),
            _ => None,
        }
    }

    /// Adds an operation: what is said of it, its answers that are not problems, and its problems.
    fn add(&mut self, method: &str, path: &str, said: Value, problems: &[&[Kind]]) {
        let mut operation = said;
        let mut kinds: Vec<Kind> = problems.concat();
        if let Some(scope) = self.scope(method, path) {
            kinds.extend(TOKEN);
            say_scope(&mut operation, scope);
            operation["security"] = json!([{ "bearer": [] }]);
        }
        self.insert(method, path, operation, &kinds);
    }

    /// The same for an operation of another service, whose errors have a form of their own. `failure` is that of an
    /// error with a status, if there is such.
    fn add_foreign(&mut self, method: &str, path: &str, said: Value, failure: Option<&Value>) {
        let mut operation = said;
        let scope = self.scope(method, path);
        if let Some(scope) = scope {
            say_scope(&mut operation, scope);
        }
        match failure.filter(|_| scope.is_some()) {
            Some(content) => {
                operation["security"] = json!([{ "bearer": [] }]);
                operation["responses"]["401"] = json!({
                    "description": "The token is missing or unknown",
                    "headers": { "WWW-Authenticate": www_authenticate() },
                    "content": content,
                });
                operation["responses"]["403"] =
                    json!({ "description": "The token is not good for this", "content": content });
            }
            // The token may be a parameter instead, and a request without any is answered too.
            None if scope.is_some() => operation["security"] = json!([{ "bearer": [] }, {}]),
            None => {}
        }
        self.insert(method, path, operation, &[Kind::Timeout, Kind::ConnectionsMax]);
    }

    fn insert(&mut self, method: &str, path: &str, mut operation: Value, kinds: &[Kind]) {
        let mut kinds = kinds.to_vec();
        kinds.extend(DOORS.iter().filter(|kind| !kinds.contains(kind)).copied().collect::<Vec<_>>());
        for (status, response) in problem_responses(&kinds) {
            let known = &mut operation["responses"][status];
            if known.is_object() {
                // Errors of another service have this status, too.
                let problem = "application/problem+json";
                known["content"][problem] = response["content"][problem].clone();
                known["x-problem-types"] = response["x-problem-types"].clone();
            } else {
                *known = response;
            }
        }
        for status in HEAD.iter().map(|kind| kind.status()) {
            operation["responses"][status.as_str()] =
                json!({ "$ref": format!("#/components/responses/{}", status.as_str()) });
        }
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        item[method] = operation;
    }
}

/// Says of an operation which scope it needs: to people, and to programs.
fn say_scope(operation: &mut Value, scope: Scope) {
    let description = operation["description"].as_str().unwrap_or_default();
    operation["description"] = format!("{description} Needs a token with the scope {}.", scope.name()).trim().into();
    operation["x-token-scope"] = scope.name().into();
}

/// One response for each status that these kinds have.
fn problem_responses(kinds: &[Kind]) -> Map<String, Value> {
    let mut by_status: Vec<(u16, Vec<Kind>)> = Vec::new();
    for &kind in kinds {
        let status = kind.status().as_u16();
        match by_status.iter_mut().find(|(known, _)| *known == status) {
            Some((_, kinds)) => kinds.push(kind),
            None => by_status.push((status, vec![kind])),
        }
    }
    by_status.sort_unstable_by_key(|(status, _)| *status);
    let response = |(status, kinds): (u16, Vec<Kind>)| {
        let titles: Vec<&str> = kinds.iter().map(|kind| kind.title()).collect();
        let types: Vec<String> = kinds.iter().map(|kind| kind.urn()).collect();
        // One schema for all: generated clients have one class for it. The types are for people, and for the tests.
        let mut response = json!({
            "description": format!("{}: {}", titles.join("; "), types.join(", ")),
            "content": { "application/problem+json": { "schema": reference("Problem") } },
            "x-problem-types": types,
        });
        if status == 401 {
            response["headers"]["WWW-Authenticate"] = www_authenticate();
        }
        if status == 503 {
            response["headers"]["Retry-After"] = json!({
                "schema": { "type": "integer", "minimum": 1 },
                "description": "After how many seconds it may be better, where that can be said",
            });
        }
        (status.to_string(), response)
    };
    by_status.into_iter().map(response).collect()
}

fn www_authenticate() -> Value {
    json!({ "schema": { "type": "string", "enum": ["Bearer"] }, "required": true })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// A response with a body of one schema.
fn answer(description: &str, media: &str, schema: Value, example: Value) -> Value {
    json!({ "description": description, "content": { media: { "schema": schema, "example": example } } })
}

/// A parameter of the path that is a name.
fn name(parameter: &str, description: &str, example: &str) -> Value {
    json!({
        "name": parameter, "in": "path", "required": true, "description": description,
        "schema": reference("Name"), "example": example,
    })
}

/// A parameter of the query that may be left out.
fn query(parameter: &str, description: &str, schema: Value) -> Value {
    json!({ "name": parameter, "in": "query", "description": description, "schema": schema })
}

/// The parameter for a sub-key.
fn sub_key() -> Value {
    query(
        "sub",
        "A sub-key of the tag, which has numbers of its own; both together have 127 bytes at most",
        reference("SubKey"),
    )
}

/// The parameter for the form of an id.
fn format() -> Value {
    query(
        "format",
        "How ids are written; by default by the template of the tag or snowflake, or in decimal where there is none. template \
         is refused where there is none",
        json!({ "type": "string", "enum": Notation::names() }),
    )
}

/// The parameter for a number of ids.
fn count(count_max: u32) -> Value {
    query(
        "count",
        "How many ids",
        json!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": count_max, "default": 1 }),
    )
}

fn ids(paths: &mut Paths, count_max: u32) {
    let count = count(count_max);
    // A parameter that changes the type of an answer has no place in a typed client: it is said in words.
    const AS_NUMBER: &str = "`as=number` gives JSON numbers in place of strings, where none can be greater than 2^53 - 1 and \
        the format is decimal; clients made from this document do without it.";
    let shard_key = query(
        "shard_key",
        "The key whose low bits the ids carry, a whole number from 0 to 2^64 - 1: required where the tag or snowflake has \
         gene_bits, and refused elsewhere",
        json!({ "type": "string", "pattern": WHOLE, "maxLength": 20 }),
    );
    let leases = query(
        "leases",
        "The store that the worker must be leased from, by the name that `GET /v1/store` answers: a server of another one \
         refuses. For those who take ids of several servers",
        json!({ "type": "string", "pattern": "^[0-9a-fA-F]{32}$" }),
    );
    let lines = json!({ "schema": { "type": "string", "pattern": "^([^\n]+\n)+$" }, "example": "1\n2\n3\n" });
    for (method, verb) in GET_AND_POST {
        let mut ok = answer(
            "Ids, ascending",
            "application/json",
            reference("SequenceIds"),
            json!({ "tag": "order", "ids": ["1", "2", "3"] }),
        );
        ok["content"]["text/plain"] = lines.clone();
        paths.add(
            method,
            "/v1/sequences/{tag}/ids",
            json!({
                "operationId": format!("sequenceIdsBy{verb}"),
                "tags": ["ids"],
                "summary": "Take ids of a sequence",
                "description": format!("The tag is created on first use, unless the server is told otherwise. So is a sub-key, \
                    up to the limit of its tag. `Accept: text/plain` gives one id per line. POST takes the parameters as a body \
                    of JSON, too. Where the tag has a key or a gene, every format shows the number \
                    that they make of the id. {AS_NUMBER}"),
                "parameters": [
                    name("tag", "The tag that is counted under", "order"), count, sub_key(), format(), shard_key,
                ],
                "responses": { "200": ok },
            }),
            &[
                QUERY,
                BODY,
                IDS,
                FORMATS,
                LEASES,
                &[Kind::TagInvalid, Kind::TagUnknown, Kind::TagLimit, Kind::SubKeyLimit],
                STORE,
                ANY,
            ],
        );
        let mut ok = answer(
            "Ids, ascending",
            "application/json",
            reference("SnowflakeIds"),
            json!({ "snowflake": "default", "ids": ["2091879713353478144"] }),
        );
        ok["content"]["text/plain"] = lines.clone();
        paths.add(
            method,
            "/v1/snowflakes/{name}/ids",
            json!({
                "operationId": format!("snowflakeIdsBy{verb}"),
                "tags": ["ids"],
                "summary": "Take ids of a snowflake",
                "description": format!(
                    "`default` exists without being configured. `Accept: text/plain` gives one id per line. {AS_NUMBER}"
                ),
                "parameters": [
                    name("name", "The name of a snowflake in the configuration", "default"), count, format(), shard_key, leases,
                ],
                "responses": { "200": ok },
            }),
            &[QUERY, BODY, IDS, FORMATS, LEASES, &[Kind::TagInvalid, Kind::SnowflakeUnknown], STORE, ANY],
        );
    }
}

fn random_ids(paths: &mut Paths, count_max: u32) {
    let version = query(
        "version",
        "4: random, in no order; 7: the time and random bits, ascending within a server",
        json!({ "type": "integer", "enum": [4, 7], "default": 7 }),
    );
    let uuid = "01977420-dc00-7c3f-9d52-64b0f2a917ce";
    let ulid = "01JXT21Q00E9Z7QZ5JCZ4CMP2F";
    for (path, operation, summary, parameters, schema, example, id) in [
        (
            "/v1/uuids",
            "uuids",
            "Take UUIDs of version 7 or 4 (RFC 9562)",
            vec![count(count_max), version],
            "Uuids",
            json!({ "version": 7, "uuids": [uuid] }),
            (UUID_PATTERN, uuid),
        ),
        (
            "/v1/ulids",
            "ulids",
            "Take ULIDs, ascending within a server (https://github.com/ulid/spec)",
            vec![count(count_max)],
            "Ulids",
            json!({ "ulids": [ulid] }),
            (ULID_PATTERN, ulid),
        ),
    ] {
        for (method, verb) in GET_AND_POST {
            let (pattern, line) = id;
            let mut ok = answer("Ids", "application/json", reference(schema), example.clone());
            ok["content"]["text/plain"] = json!({
                "schema": { "type": "string", "pattern": format!("^({pattern}\n)+$") }, "example": format!("{line}\n"),
            });
            paths.add(
                method,
                path,
                json!({
                    "operationId": format!("{operation}By{verb}"),
                    "tags": ["random-ids"],
                    "summary": summary,
                    "description": "Unique by randomness, and with no regard to any store. A token that is bound to tags is good \
                        for it. `Accept: text/plain` gives one id per line.",
                    "parameters": parameters,
                    "responses": { "200": ok },
                }),
                &[QUERY, BODY, &[Kind::CountInvalid, Kind::QuotaReached, Kind::Exhausted], ANY],
            );
        }
    }
}

fn tags(paths: &mut Paths) {
    let record = json!({
        "tag": "order", "mode": "buffered", "start": "1", "step": { "policy": "fixed", "step": "1000" },
        "refill": { "policy": "share-consumed", "percent": 10 }, "watermark": "1000", "version": "1",
    });
    let ok = |description: &str| answer(description, "application/json", reference("Tag"), record.clone());
    paths.add(
        "get",
        "/v1/tags",
        json!({
            "operationId": "listTags",
            "tags": ["tags"],
            "summary": "List tags in the byte order of their names",
            "description": "The next page comes after the last tag of this one. A token that is bound to tags is refused.",
            "parameters": [
                query("after", "Only tags after this name", json!({ "type": "string" })),
                query(
                    "after_sub",
                    "Of the tag that after names, only its sub-keys after this one; refused without after",
                    json!({ "type": "string" }),
                ),
                query(
                    "limit",
                    "The most tags of the page",
                    json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
                ),
            ],
            "responses": { "200": answer(
                "A page of tags", "application/json", reference("TagPage"), json!({ "tags": [record.clone()] }),
            ) },
        }),
        &[QUERY, STORE, ANY],
    );
    let body = |schema: &str, example: Value| {
        json!({
            "required": true, "content": { "application/json": { "schema": reference(schema), "example": example } },
        })
    };
    paths.add(
        "post",
        "/v1/tags",
        json!({
            "operationId": "createTag",
            "tags": ["tags"],
            "summary": "Create a tag",
            "description": "A channel and its settings take the place of start, step, refill and mode; buff_size, \
                lowest_critical_value and prefix are for the channel unordered only.",
            "requestBody": body("TagCreate", json!({ "tag": "invoice", "start": "1000" })),
            "responses": { "201": ok("The tag as the store keeps it") },
        }),
        &[BODY, &[Kind::TagInvalid, Kind::TagExists, Kind::TagLimit], STORE, ANY],
    );
    let tag = || name("tag", "The tag", "order");
    paths.add(
        "get",
        "/v1/tags/{tag}",
        json!({
            "operationId": "showTag",
            "tags": ["tags"],
            "summary": "Look at a tag",
            "description": "Never creates one. Over a store in Redis it has the tag's ceiling, once the tag was used.",
            "parameters": [tag(), sub_key()],
            "responses": { "200": ok("The tag as the store keeps it") },
        }),
        &[QUERY, &[Kind::TagInvalid, Kind::TagUnknown], STORE, ANY],
    );
    paths.add(
        "patch",
        "/v1/tags/{tag}",
        json!({
            "operationId": "changeTag",
            "tags": ["tags"],
            "summary": "Change a tag's step and refill, or raise its next number",
            "description": "What is not given stays.",
            "parameters": [tag(), sub_key()],
            "requestBody": body("TagChange", json!({ "raise_to": "5000" })),
            "responses": { "200": ok("The tag as it is now") },
        }),
        &[QUERY, BODY, &[Kind::TagInvalid, Kind::TagUnknown, Kind::RaiseUnconfirmed], STORE, ANY],
    );
}

fn layouts(paths: &mut Paths) {
    paths.add(
        "get",
        "/v1/layouts",
        json!({
            "operationId": "listLayouts",
            "tags": ["layouts"],
            "summary": "List the layouts: those of the configuration first, those for reading only last",
            "description": "The same as `unalike layouts`. idleaf-gene:SHARDS and tidb-auto-random:S,R are known besides, and \
                layouts that are written out.",
            "responses": { "200": answer(
                "All layouts",
                "application/json",
                reference("LayoutList"),
                json!({ "layouts": [{
                    "name": "leaf", "bits": 63, "timestamp_bits": 41, "datacenter_bits": 0, "worker_bits": 10,
                    "sequence_bits": 12, "fields": [
                        { "name": "time", "bits": 41 }, { "name": "worker", "bits": 10, "source_name": "workerId" },
                        { "name": "sequence", "bits": 12, "source_name": "sequenceId" },
                    ],
                    "tick_ms": 1, "epoch": "2010-11-04T01:42:54.657Z", "workers": 1024, "ids_per_second": 4_096_000,
                    "ends": "2080-07-10T17:30:30.209Z", "ended": false, "ends_soon": false,
                    "above_53_bits": "2010-11-28T22:14:18.305Z", "reading_only": false,
                    "source": "Leaf's snowflake mode: Twitter's epoch and widths, the worker as one field of 10 bits",
                }] }),
            ) },
        }),
        &[ANY],
    );
    decode(paths);
    let time = |name: &str, description: &str, example: &str| {
        json!({
            "name": name, "in": "query", "required": true, "example": example,
            "description": format!("{description}: a date (00:00 UTC), RFC 3339, or Unix milliseconds"),
            "schema": { "type": "string" },
        })
    };
    paths.add(
        "get",
        "/v1/range",
        json!({
            "operationId": "idRange",
            "tags": ["layouts"],
            "summary": "The least and the greatest id of a span of time",
            "description": "For a search in an index of ids: between the two are all ids whose tick has a part in the span, \
                and no others. What lies outside the layout's time is cut off. Layouts whose time is not the highest field \
                have no such ids.",
            "parameters": [
                layout(json!({ "type": "string", "default": LAYOUT_DEFAULT })),
                time("from", "When the span begins", "2026-01-01"),
                time("to", "When it ends, after from: the first instant that is not in it", "2026-02-01T00:00:00Z"),
            ],
            "responses": { "200": answer(
                "The ids",
                "application/json",
                reference("IdRange"),
                json!({
                    "layout": "twitter", "from": "2026-01-01T00:00:00.000Z", "to": "2026-02-01T00:00:00.000Z",
                    "first": "2006515713438646272", "last": "2017749737272246271",
                }),
            ) },
        }),
        &[QUERY, &[Kind::LayoutUnknown], ANY],
    );
}

/// The parameter for a layout.
fn layout(schema: Value) -> Value {
    let mut parameter = query(
        "layout",
        "The layout of the id, by name (/v1/layouts lists them; tidb-auto-random:S,R and idleaf-gene:SHARDS are known besides), \
         or written out: 41/10/12 epoch 2024-01-01 (a plus sign in it is %2B)",
        schema,
    );
    parameter["example"] = "leaf".into();
    parameter
}

fn decode(paths: &mut Paths) {
    let mut ok = answer(
        "The parts of the id, or the layouts that it may be of",
        "application/json",
        reference("DecodeResult"),
        json!({
            "id": "1169786042799259000", "layout": "leaf", "time": "2019-09-06T01:35:00.834Z",
            "unix_ms": 1_567_733_700_834_u64, "fields": { "worker": 39, "sequence": 3448 },
            "source_names": { "worker": "workerId", "sequence": "sequenceId" },
        }),
    );
    ok["description"] =
        "The parts of the id, or what the text says; without a layout, the layouts that it may be of".into();
    let mut all = query(
        "all",
        "Also layouts in which the id makes no sense, with the reason; refused beside layout, tag, snowflake and format",
        json!({ "type": "string", "enum": ["true", "false"], "default": "false" }),
    );
    all["example"] = "false".into();
    paths.add(
        "get",
        "/v1/decode/{id}",
        json!({
            "operationId": "decodeId",
            "tags": ["layouts"],
            "summary": "Take an id apart, tell whose id it may be, or read a text",
            "description": "With a layout, the id is in decimal; layouts of less than 63 bits have no ids above their \
                greatest, which are refused. With a tag, a snowflake or a format in its place, a text is read as it was shown: a \
                layout beside these, or a tag beside a snowflake, is refused. Without any, it may have any notation that is known by its shape, and the answer has the layouts in which it \
                makes sense, the likeliest first.",
            "parameters": [
                {
                    "name": "id", "in": "path", "required": true, "description": "The id or the text",
                    "schema": { "type": "string", "minLength": 1 }, "example": "1169786042799259000",
                },
                query("tag", "Read a text by the format of this tag; not beside snowflake or layout", reference("Name")),
                query(
                    "snowflake",
                    "Read a text by the format of this snowflake; not beside tag or layout",
                    reference("Name"),
                ),
                format(),
                layout(json!({ "type": "string" })),
                all,
            ],
            "responses": { "200": ok },
        }),
        &[
            QUERY,
            &[Kind::IdInvalid, Kind::LayoutUnknown, Kind::FormatInvalid],
            &[Kind::TagInvalid, Kind::TagUnknown, Kind::SnowflakeUnknown],
            ANY,
        ],
    );
}

fn health(paths: &mut Paths, method: &str, by: &str) {
    paths.add(
        method,
        "/health/live",
        json!({
            "operationId": format!("live{by}"),
            "tags": ["operation"],
            "summary": "Whether the process serves requests",
            "description": "Nothing is said about the store.",
            "responses": { "200": answer(
                "It is so", "application/json", reference("Liveness"), json!({ "status": "live" }),
            ) },
        }),
        &[ANY],
    );
    paths.add(
        method,
        READY,
        json!({
            "operationId": format!("ready{by}"),
            "tags": ["operation"],
            "summary": "Whether ids can be issued: the store answers, or what it granted before still lasts",
            "description": "What the store said is kept for a second. While the store is down it is covered as long as every tag that is used has numbers left: the answer \
                says since when the store is down, and which tag's numbers are used up first, in how many seconds. A snowflake \
                that was asked for ids and gives none now makes it not ready: the problem says which, why, and since when. \
                With a tag or a snowflake, or both, only what is named counts.",
            "parameters": [
                query(
                    "tag",
                    "Whether the store, or the numbers in hand, give ids of this tag, if there is one",
                    reference("Name"),
                ),
                query("snowflake", "Whether this snowflake has not stopped giving ids", reference("Name")),
            ],
            "responses": { "200": answer(
                "It is so", "application/json", reference("Readiness"), json!({ "status": "ready" }),
            ) },
        }),
        &[
            QUERY,
            &[Kind::TagInvalid, Kind::SnowflakeUnknown],
            &[Kind::Closing, Kind::Exhausted, Kind::GrantRefused, Kind::Rebuilt],
            LEASES,
            STORE,
            ANY,
        ],
    );
}

fn operation(paths: &mut Paths) {
    // Load balancers ask by either.
    for (method, by) in [("get", ""), ("options", "ByOptions")] {
        health(paths, method, by);
    }
    paths.add(
        "get",
        "/metrics",
        json!({
            "operationId": "metrics",
            "tags": ["operation"],
            "summary": "The figures of this process as Prometheus reads them",
            "description": "A token that is bound to tags is refused.",
            "responses": { "200": {
                "description": "Prometheus text",
                "content": { "text/plain; version=0.0.4": { "schema": { "type": "string" } } },
            } },
        }),
        &[ANY],
    );
    paths.add(
        "get",
        PATH,
        json!({
            "operationId": "describe",
            "tags": ["operation"],
            "summary": "This document",
            "responses": { "200": {
                "description": "An OpenAPI document",
                "content": { "application/json": { "schema": { "type": "object", "required": ["openapi"] } } },
            } },
        }),
        &[ANY],
    );
}

fn leaf(paths: &mut Paths) -> (&'static str, &'static str) {
    const TEXT: &str = "text/plain";
    let content = json!({
        "application/json": { "schema": reference("LeafError") },
        "text/html": { "schema": { "type": "string" } },
    });
    let failure = |description: &str| json!({ "description": description, "content": content });
    let any_key = json!({
        "name": "key", "in": "path", "required": true, "description": "Anything", "example": "order",
        "schema": { "type": "string", "minLength": 1 },
    });
    for (path, key, operation, summary) in [
        ("/api/segment/get/{key}", name("key", "The tag", "order"), "leafSegmentId", "Take an id of the tag"),
        (
            "/api/snowflake/get/{key}",
            any_key,
            "leafSnowflakeId",
            "Take an id of the snowflake leaf, or else default; the key is ignored",
        ),
    ] {
        for (method, verb) in ANY_METHOD {
            paths.add_foreign(
                method,
                path,
                json!({
                    "operationId": format!("{operation}By{verb}"),
                    "tags": ["leaf"],
                    "summary": summary,
                    "description": "Any method but HEAD and TRACE does the same.",
                    "parameters": [key],
                    "responses": {
                        "200": answer("The id, in decimal", TEXT, reference("Id"), json!("1")),
                        "500": failure("No id: the message has Leaf's code for the reason"),
                    },
                }),
                Some(&content),
            );
        }
    }
    let decoded = json!({
        "timestamp": "1567733700834(2019-09-06 01:35:00.834)", "sequenceId": "3448", "workerId": "39",
    });
    for (method, verb) in ANY_METHOD {
        paths.add_foreign(
            method,
            "/decodeSnowflakeId",
            json!({
                "operationId": format!("leafDecodeBy{verb}"),
                "tags": ["leaf"],
                "summary": "Take an id of Leaf's layout apart; the time is in UTC",
                "description": "The parameter may also come in a form. Any method but HEAD and TRACE does the same.",
                "parameters": [{
                    "name": "snowflakeId", "in": "query", "required": true, "example": "1169786042799259000",
                    "schema": { "type": "string", "minLength": 1 },
                }],
                "responses": {
                    "200": answer(
                        "The parts, or errorMsg for what is not an id", "application/json", reference("LeafDecoded"), decoded.clone(),
                    ),
                    "400": failure("The parameter is missing"),
                },
            }),
            Some(&content),
        );
    }
    ("leaf", "The paths of Meituan's Leaf")
}

fn tinyid(paths: &mut Paths) -> (&'static str, &'static str) {
    let biz_type = json!({
        "name": "bizType", "in": "query", "required": true, "description": "The tag", "example": "order",
        "schema": reference("Name"),
    });
    let batch_size = query(
        "batchSize",
        "How many ids; more than 100,000 count as 100,000, and more than the server gives at once is an error",
        json!({ "type": "integer", "format": "int32", "minimum": 1, "default": 1 }),
    );
    let token = query("token", "A token, where tokens are required", json!({ "type": "string" }));
    let simple = |description: &str, pattern: &str, example: &str| {
        let schema = json!({ "type": "string", "pattern": format!("^({pattern})?$") });
        answer(description, "text/plain", schema, json!(example))
    };
    let operations = [
        (
            "nextId",
            "Take ids",
            vec![&biz_type, &batch_size, &token],
            answer(
                "Ids, or an error with a code of its own",
                "application/json",
                reference("TinyidIds"),
                json!({ "data": [1, 2], "code": 200, "message": "" }),
            ),
        ),
        (
            "nextIdSimple",
            "Take ids as text",
            vec![&biz_type, &batch_size, &token],
            simple("Ids with commas between them; nothing after an error", "[0-9]{1,19}(,[0-9]{1,19})*", "1,2"),
        ),
        (
            "nextSegmentId",
            "Take numbers to hand out",
            vec![&biz_type, &token],
            answer(
                "A segment, or an error with a code of its own",
                "application/json",
                reference("TinyidSegment"),
                json!({
                    "data": { "maxId": 1000, "loadingId": 200, "currentId": 0, "delta": 1, "remainder": 0 },
                    "code": 200, "message": "",
                }),
            ),
        ),
        (
            "nextSegmentIdSimple",
            "Take numbers to hand out, as text",
            vec![&biz_type, &token],
            simple(
                "currentId, loadingId, maxId, delta and remainder; nothing after an error",
                "[0-9]{1,19}(,[0-9]{1,19}){4}",
                "0,200,1000,1,0",
            ),
        ),
    ];
    for (path, summary, parameters, ok) in operations {
        for (method, verb) in ANY_METHOD {
            paths.add_foreign(
                method,
                &format!("/tinyid/id/{path}"),
                json!({
                    "operationId": format!("{path}By{verb}"),
                    "tags": ["tinyid"],
                    "summary": summary,
                    "description": "The parameters may also come in a form. Any method but HEAD and TRACE does the same.",
                    "parameters": parameters,
                    "responses": { "200": ok },
                }),
                None,
            );
        }
    }
    ("tinyid", "The paths of Didi's tinyid: the status is always 200")
}

fn cosid(paths: &mut Paths, segment_count_max: u64) -> (&'static str, &'static str) {
    const JSON: &str = "application/json";
    let content = json!({ JSON: { "schema": reference("CosIdError") } });
    let failure = |description: &str| json!({ "description": description, "content": content });
    let failed = || failure("The server cannot do it now");
    let number = || answer("The id", JSON, reference("IdNumber"), json!(1));
    let text = || {
        let example = encode(1, Text::Base62).map(|text| text.as_str().to_owned()).unwrap_or_default();
        let schema = json!({ "type": "string", "pattern": "^[0-9A-Za-z]{11}$" });
        answer("The id in base 62", "text/plain", schema, json!(example))
    };
    let id_name = || name("name", "A snowflake in the configuration, or else a tag", "order");
    for (path, operation, parameters, ok) in [
        ("/ids", "ShareId", vec![], number()),
        ("/ids/{name}", "Id", vec![id_name()], number()),
        ("/ids/as-string", "ShareIdAsString", vec![], text()),
        ("/ids/as-string/{name}", "IdAsString", vec![id_name()], text()),
    ] {
        let mut responses = json!({ "200": ok, "500": failed() });
        if !parameters.is_empty() {
            responses["400"] = failure("The name is unknown or not valid");
        }
        paths.add_foreign(
            "get",
            path,
            json!({
                "operationId": format!("cosid{operation}"),
                "tags": ["cosid"],
                "summary": "Take an id",
                "description": "Without a name, of the snowflake cosid, or else default.",
                "parameters": parameters,
                "responses": responses,
            }),
            Some(&content),
        );
    }
    let required = |parameter: &str, description: &str, minimum: u64, maximum: u64, example: u64| {
        json!({
            "name": parameter, "in": "query", "required": true, "description": description, "example": example,
            "schema": { "type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum },
        })
    };
    let names = || {
        [
            name("namespace", "The tag is this, a dot, and the name", "shop"),
            name("name", "What follows the dot", "order"),
        ]
    };
    let step = || required("step", "How many numbers", 1, segment_count_max, segment_count_max.min(100));
    let [namespace, last] = names();
    paths.add_foreign(
        "post",
        "/segments/distributor/{namespace}/{name}",
        json!({
            "operationId": "cosidCreateDistributor",
            "tags": ["cosid"],
            "summary": "Create the tag, unless it exists",
            "description": "Where tokens are required, creating needs one with the scope admin.",
            "parameters": [
                namespace, last,
                required("offset", "The number before the first", 0, ID_MAX - 1, 0), step(),
            ],
            "responses": {
                "200": { "description": "The tag is there" },
                "400": failure("A name or parameter is not valid"),
                "500": failed(),
            },
        }),
        Some(&content),
    );
    let [namespace, last] = names();
    paths.add_foreign(
        "patch",
        "/segments/{namespace}/{name}",
        json!({
            "operationId": "cosidNextMaxId",
            "tags": ["cosid"],
            "summary": "Take numbers to hand out: those in (max - step, max]",
            "parameters": [namespace, last, step()],
            "responses": {
                "200": answer(
                    "max, the last of the numbers", JSON, reference("IdNumber"), json!(100),
                ),
                "400": failure("A name or parameter is not valid, or the tag is unknown or gives no segments"),
                "500": failed(),
            },
        }),
        Some(&content),
    );
    machines(paths, &failure, &content);
    ("cosid", "The paths of CosId's proxy")
}

/// CosId's machine ids.
fn machines(paths: &mut Paths, failure: &dyn Fn(&str) -> Value, content: &Value) {
    let text = |parameter: &str, description: &str, example: &str| {
        json!({
            "name": parameter, "in": "query", "required": true, "description": description, "example": example,
            "schema": { "type": "string", "minLength": 1, "maxLength": 128 },
        })
    };
    let namespace = || name("namespace", "CosId's namespace", "shop");
    let instance = || text("instanceId", "The process that asks", "10.0.0.1:8080");
    let stable = || {
        json!({
            "name": "stable", "in": "query", "example": false, "schema": { "type": "boolean" },
            "description": "Whether no other process of this name is left",
        })
    };
    let guard = || text("safeGuardDuration", "For how long, as ISO 8601 writes it: a second or longer", "PT5M");
    let bits = json!({
        "name": "machineBit", "in": "query", "required": true, "example": 10,
        "description": "How many bits a machine id has", "schema": { "type": "integer", "minimum": 1, "maximum": MACHINE_BITS_MAX },
    });
    let state = json!({
        "type": "object", "required": ["machineId", "lastTimeStamp"], "additionalProperties": false,
        "properties": {
            "machineId": { "type": "integer", "minimum": 0, "maximum": (1_u64 << MACHINE_BITS_MAX) - 1 },
            "lastTimeStamp": { "type": "integer", "minimum": 0, "description": "No id before it, in Unix milliseconds" },
        },
    });
    let example = json!({ "machineId": 7, "lastTimeStamp": 1_700_000_000_000_u64 });
    let done = |description: &str| json!({ "description": description });
    for (method, operation, summary, said, parameters, ok, failed) in [
        (
            "post",
            "Distribute",
            "Take a machine id",
            "Where tokens are required, the first machine id of a namespace needs one with the scope admin.",
            vec![namespace(), bits, instance(), stable(), guard()],
            answer("The machine id", "application/json", state, example),
            "A parameter is not valid, or all machine ids are leased (M-01)",
        ),
        (
            "patch",
            "Guard",
            "Keep the machine id",
            "So are all others of this name that are leased.",
            vec![namespace(), instance(), stable(), guard()],
            done("It stays the instance's"),
            "A parameter is not valid, or the instance has none (M-02) or has lost it (M-03)",
        ),
        (
            "delete",
            "Revert",
            "Let the machine id end",
            "Where the name has several, none ends before its time.",
            vec![namespace(), instance(), stable()],
            done("It ends when its time is over"),
            "A parameter is not valid, or the instance has none (M-02)",
        ),
    ] {
        paths.add_foreign(
            method,
            "/machines/{namespace}",
            json!({
                "operationId": format!("cosidMachine{operation}"),
                "tags": ["cosid"],
                "summary": summary,
                "description": said,
                "parameters": parameters,
                "responses": { "200": ok, "400": failure(failed), "500": failure("The server cannot do it now") },
            }),
            Some(content),
        );
    }
}

/// An object with these members, all of them given and no others.
fn record(members: Value) -> Value {
    let names: Vec<String> = members.as_object().into_iter().flat_map(|members| members.keys().cloned()).collect();
    json!({ "type": "object", "required": names, "additionalProperties": false, "properties": members })
}

/// The same with a member that may be missing.
fn also(mut record: Value, member: &str, schema: Value) -> Value {
    record["properties"][member] = schema;
    record
}

fn schemas(config: &Config) -> Value {
    let list_of = |schema: &str| json!({ "type": "array", "items": reference(schema) });
    let ids = || json!({ "type": "array", "minItems": 1, "items": reference("IdText") });
    let bits = || json!({ "type": "integer", "minimum": 0, "maximum": 63 });
    let time_or_null = |description: &str| json!({ "type": ["string", "null"], "description": description });
    let id_time = || time_or_null("When the id's tick began, in UTC; null where there is no time in such ids");
    let unix_ms = || json!({ "type": ["integer", "null"], "format": "int64", "minimum": 0 });
    let fields = || {
        json!({
            "type": "object", "additionalProperties": reference("FieldValue"),
            "description": "The other fields, by their names here: datacenter, worker and sequence are these in every layout",
        })
    };
    let source_names = || {
        json!({
            "type": "object", "additionalProperties": { "type": "string" },
            "description": "What the system that the layout comes from calls these fields, where that is known",
        })
    };
    let is_in_redis = config.store.volatile().is_some();
    let channels: &[&str] =
        if is_in_redis { &["unordered", "ordered", "slow-ordered"] } else { &["unordered", "slow-ordered"] };
    let word = |words: &[&str]| json!({ "type": "string", "enum": words });
    let whole = |description: &str| json!({ "type": "string", "pattern": WHOLE, "maxLength": 20, "description": format!("{description}; below 2^64") });
    let id = |description: &str| json!({ "type": "string", "pattern": POSITIVE, "maxLength": 19, "description": format!("{description}; below 2^63") });
    let figure = |description: &str| json!({ "type": "string", "pattern": "^[0-9]+$", "description": description });
    let mut all = json!({
        "Name": {
            "type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
            "description": "1 to 128 bytes of UTF-8 without control characters; a new one has no space at an end",
        },
        "Id": {
            "type": "string", "pattern": POSITIVE, "maxLength": 19, "description": "A whole number from 1 to 2^63 - 1",
        },
        "IdText": {
            "type": "string", "minLength": 1,
            "description": "An id as its format writes it: in decimal, unless something else is configured or asked for",
        },
        "IdNumber": { "type": "integer", "format": "int64", "minimum": 1, "maximum": ID_MAX },
        "Figure": {
            "type": "string", "pattern": WHOLE, "maxLength": 20, "description": "A whole number from 0 to 2^64 - 1",
        },
        "SubKey": {
            "type": "string", "minLength": 1, "maxLength": 126, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
            "description": "A name; a tag and its sub-key together have 127 bytes at most",
        },
        "Liveness": record(json!({ "status": word(&["live"]) })),
        "Readiness": {
            "type": "object", "required": ["status"], "additionalProperties": false,
            "properties": {
                "status": word(&["ready", "covered"]),
                "store_down_since": {
                    "type": "string", "format": "date-time", "description": "Where it is covered, as what follows",
                },
                "cover_seconds": {
                    "type": ["number", "null"], "minimum": 0, "description":
                        "How long what was granted lasts; null while no tag is used",
                },
                "tag": {
                    "type": ["string", "null"], "description": "The tag that is used up first, or that was asked for",
                },
            },
        },
        "SequenceIds": also(record(json!({ "tag": reference("Name"), "ids": ids() })), "sub", reference("SubKey")),
        "SnowflakeIds": record(json!({ "snowflake": reference("Name"), "ids": ids() })),
        "Uuids": record(json!({
            "version": { "type": "integer", "format": "int32", "enum": [4, 7] },
            "uuids": list_of("Uuid"),
        })),
        "Uuid": { "type": "string", "format": "uuid", "pattern": format!("^{UUID_PATTERN}$") },
        "Ulids": record(json!({ "ulids": list_of("Ulid") })),
        "Ulid": { "type": "string", "pattern": format!("^{ULID_PATTERN}$") },
        "Tag": also(also(also(record(json!({
            "tag": reference("Name"),
            "mode": { "type": "string", "enum": ["buffered", "ordered"], "description":
                "buffered: ids ascend within a server; ordered: they ascend across all servers in real time" },
            "start": reference("Figure"),
            "step": reference("StepPolicy"),
            "refill": reference("RefillPolicy"),
            "watermark": figure("The greatest number that may have been handed out"),
            "version": figure("Grows with every grant, release and raise"),
        })), "sub", reference("SubKey")), "ceiling", reference("Ceiling")), "unchanged", json!({
            "type": "string", "description": "Why a change changed nothing, where it did not",
        })),
        "Ceiling": record(json!({
            "cur": figure("The number that was handed out last; max when what is left cannot be handed out"),
            "max": figure("The ceiling: the greatest number that may be handed out before it is raised"),
            "seq_recently": figure("How many numbers were handed out in the last 5 minutes"),
            "seq_long_term": figure("How many numbers were handed out in the last 30 minutes"),
        })),
        "TagPage": record(json!({ "tags": list_of("Tag") })),
        "TagCreate": {
            "description": "By start, step, refill and mode, or by a channel in place of these four: not both. buff_size, \
                lowest_critical_value and prefix are for the channel unordered only",
            "type": "object", "required": ["tag"], "additionalProperties": false,
            "properties": {
                "tag": reference("Name"),
                "start": id("The first number; 1 if it is not given"),
                "step": reference("StepPolicy"),
                "refill": reference("RefillPolicy"),
                "mode": word(&["buffered", "ordered"]),
                "channel": word(channels),
                "buff_size": id("How many ids are fetched at once; 5000 if it is not given"),
                "lowest_critical_value": whole("How many are left when the next are fetched: less than buff_size; 500, or a \
                    tenth of a smaller buff_size, if it is not given"),
                "prefix": { "type": "string", "pattern": POSITIVE, "maxLength": 17, "description": "What ids begin with" },
            },
            "dependentRequired": {
                "buff_size": ["channel"], "lowest_critical_value": ["channel"], "prefix": ["channel"],
            },
        },
        "TagChange": {
            "description": "What is not given stays",
            "type": "object", "additionalProperties": false,
            "properties": {
                "step": reference("StepPolicy"),
                "refill": reference("RefillPolicy"),
                "raise_to": id("Every later segment starts here or above; a number that was passed already changes nothing"),
                "confirm": {
                    "type": "boolean", "description": "That a raise by more than 1000000000 numbers is meant",
                },
            },
        },
        "StepPolicy": {
            "description": "How many numbers a segment asks for: always as many, or as demand has it, min to max",
            "oneOf": [reference("FixedStep"), reference("AdaptiveStep")],
            "discriminator": { "propertyName": "policy", "mapping": {
                "fixed": "#/components/schemas/FixedStep", "adaptive": "#/components/schemas/AdaptiveStep",
            } },
        },
        "FixedStep": record(json!({ "policy": word(&["fixed"]), "step": id("How many, always") })),
        "AdaptiveStep": {
            "description": "min <= initial <= max, and grow_below_ms <= shrink_above_ms; what is not given is the default",
            "type": "object", "required": ["policy"], "additionalProperties": false,
            "properties": {
                "policy": word(&["adaptive"]),
                "initial": id("The first step: from min to max; 1000 by default"),
                "min": id("The least step; 100 by default"),
                "max": id("The greatest step; 1000000 by default"),
                "grow_below_ms": whole("A segment that lasted less doubles the step; 900000 by default"),
                "shrink_above_ms": whole("A segment that lasted more halves it; 1800000 by default"),
            },
        },
        "RefillPolicy": {
            "description": "When the next segment is asked for: at a share used, or at a number remaining",
            "oneOf": [reference("ShareConsumed"), reference("Remaining")],
            "discriminator": { "propertyName": "policy", "mapping": {
                "share-consumed": "#/components/schemas/ShareConsumed", "remaining": "#/components/schemas/Remaining",
            } },
        },
        "ShareConsumed": record(json!({
            "policy": word(&["share-consumed"]),
            "percent": { "type": "integer", "format": "int32", "minimum": 0, "maximum": 100 },
        })),
        "Remaining": record(json!({ "policy": word(&["remaining"]), "count": whole("How many are left then") })),
        "LayoutList": record(json!({ "layouts": list_of("Layout") })),
        "Layout": record(json!({
            "name": { "type": "string" },
            "bits": bits(), "timestamp_bits": bits(), "datacenter_bits": bits(), "worker_bits": bits(),
            "sequence_bits": bits(),
            "fields": list_of("LayoutField"),
            "tick_ms": {
                "type": ["integer", "null"], "format": "int64", "minimum": 1, "description":
                    "null, as epoch and ends, where there is no time in the ids",
            },
            "epoch": { "type": ["string", "null"], "format": "date-time" },
            "workers": {
                "type": ["integer", "null"], "format": "int64", "minimum": 1, "description":
                    "null, as ids_per_second, where the layout is for reading only",
            },
            "ids_per_second": {
                "type": ["integer", "null"], "format": "int64", "minimum": 1, "description": "The most ids of one worker",
            },
            "ends": time_or_null("When the last tick ends: there are no ids from then on"),
            "ended": { "type": "boolean" },
            "ends_soon": { "type": "boolean", "description": "Whether it ends within ten years" },
            "above_53_bits": time_or_null(
                "From when on ids are above 2^53 - 1, which JavaScript rounds; null if that never is, or not by time",
            ),
            "reading_only": { "type": "boolean", "description": "Whether no generator makes such ids" },
            "source": { "type": "string" },
        })),
        "LayoutField": also(
            record(json!({ "name": { "type": "string" }, "bits": bits() })),
            "source_name",
            json!({ "type": "string", "description": "What the system that the layout comes from calls it" }),
        ),
        "FieldValue": {
            "description": "A number up to 2^53 - 1; a greater one as its digits, since JavaScript would round it",
            "anyOf": [
                { "type": "integer", "format": "int64", "minimum": 0, "maximum": (1_u64 << 53) - 1 },
                { "type": "string", "pattern": POSITIVE, "minLength": 16, "maxLength": 39 },
            ],
        },
        // Flat, and not one of three: a client for Java cannot tell them apart.
        "DecodeResult": {
            "description": "By a layout: layout, time, unix_ms, fields and source_names. Without: candidates. A text by its tag, \
                snowflake or format: text and number, and what else it says",
            "type": "object", "required": ["id"], "additionalProperties": false,
            "properties": {
                "id": { "type": "string", "description": "The id in decimal; with candidates, what was asked about" },
                "layout": { "type": "string" },
                "time": id_time(), "unix_ms": unix_ms(), "fields": fields(), "source_names": source_names(),
                "candidates": list_of("Candidate"),
                "text": { "type": "string", "minLength": 1 },
                "number": { "type": "string", "pattern": POSITIVE, "maxLength": 19, "description": "The number in the text" },
                "tag": { "type": "string" },
                "snowflake": { "type": "string" },
                "gene": {
                    "type": "integer", "format": "int32", "minimum": 0, "maximum": 65_535,
                    "description": "The low bits of the shard key",
                },
                "key_id": {
                    "type": "integer", "format": "int32", "minimum": 0, "maximum": 255,
                    "description": "The key that the id is shown under",
                },
                "from": { "type": "string", "description": "When it was issued at the earliest, in UTC" },
                "until": { "type": "string", "description": "Before when it was issued, in UTC" },
            },
        },
        "Candidate": record(json!({
            "layout": { "type": "string", "description": "For UUIDs, ULIDs and CosId's texts: what it is" },
            "read_as": word(&[
                "decimal", "padded", "base36", "base62", "base32", "uuid", "ulid", "cosid-radix62", "cosid-radix36",
                "cosid-friendly",
            ]),
            "number": {
                "type": ["string", "null"], "pattern": POSITIVE, "description": "The id, if it is one of 63 bits",
            },
            "plausible": {
                "type": "boolean", "description": "Whether it makes sense; UUIDs and ULIDs do, whatever their time is",
            },
            "why": { "type": "string" },
            "since": {
                "type": ["string", "null"], "description": "No id of the layout is older, where that is known, in UTC",
            },
            "until": {
                "type": ["string", "null"], "description": "When the ids of the layout ended, if they have, in UTC",
            },
            "time": id_time(), "unix_ms": unix_ms(), "fields": fields(), "source_names": source_names(),
        })),
        "IdRange": record(json!({
            "layout": { "type": "string" },
            "from": { "type": "string" }, "to": { "type": "string" },
            "first": reference("Id"), "last": reference("Id"),
        })),
        "Problem": {
            "description": "RFC 9457; other members are the values that it is about",
            "type": "object", "required": ["type", "title", "status", "detail"], "additionalProperties": true,
            "properties": {
                "type": {
                    "type": "string", "pattern": "^urn:unalike:problem:[a-z-]+$", "description":
                        "What to tell problems apart by: each response lists those that it may be",
                },
                "title": { "type": "string" },
                "status": { "type": "integer", "format": "int32", "minimum": 400, "maximum": 599 },
                "detail": { "type": "string", "minLength": 1 },
                "request_id": { "type": "string", "description": "By which the operator finds the request in the log" },
            },
            "examples": [{
                "type": Kind::CountInvalid.urn(), "title": Kind::CountInvalid.title(),
                "status": Kind::CountInvalid.status().as_u16(),
                "detail": "the count is \"0\", it must be a whole number from 1 to 10000", "count": "0", "count_max": 10_000,
            }],
        },
        "LeafError": {
            "type": "object", "required": ["timestamp", "status", "error", "message", "path"],
            "additionalProperties": false,
            "properties": {
                "timestamp": { "type": "integer", "format": "int64" }, "status": { "type": "integer", "format": "int32" },
                "error": { "type": "string" }, "exception": { "type": "string" }, "message": { "type": "string" },
                "path": { "type": "string" },
            },
        },
        "LeafDecoded": {
            "description": "The three parts, or only errorMsg",
            "type": "object", "additionalProperties": false, "minProperties": 1,
            "properties": {
                "timestamp": { "type": "string" }, "sequenceId": { "type": "string" }, "workerId": { "type": "string" },
                "errorMsg": { "type": "string" },
            },
        },
        "TinyidIds": envelope(json!({
            "type": ["array", "null"], "minItems": 1, "items": reference("IdNumber"),
        })),
        "TinyidSegment": envelope(json!({
            "type": ["object", "null"],
            "required": ["maxId", "loadingId", "currentId", "delta", "remainder"], "additionalProperties": false,
            "properties": {
                "maxId": reference("IdNumber"),
                "loadingId": { "type": "integer", "format": "int64", "minimum": 0 },
                "currentId": { "type": "integer", "format": "int64", "minimum": 0 },
                "delta": { "type": "integer", "format": "int64", "minimum": 1 },
                "remainder": { "type": "integer", "format": "int64", "minimum": 0 },
            },
        })),
        "CosIdError": record(json!({
            "code": { "type": "string" }, "msg": { "type": "string" },
            "errors": { "type": "array", "items": { "type": "string" } },
        })),
    });
    for more in [grants::schemas(record, also), console::schemas(record)] {
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
    }
    all
}

/// tinyid's answers: data with code 200, or null with another code.
fn envelope(data: Value) -> Value {
    record(json!({
        "data": data,
        "code": { "type": "integer", "format": "int32", "enum": [200, 5, 6], "description": "200 where there are data" },
        "message": { "type": "string", "description": "Empty where there are data" },
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use clap::ValueEnum;
    use strum::VariantArray;

    use super::*;
    use crate::http::console::Console;
    use crate::http::metrics::Metrics;
    use crate::http::routes;

    /// The document of a server with every service, and tokens, and its routes.
    fn everything() -> (Value, Routes) {
        let drop_in = Some(DropIn::value_variants().to_vec());
        let config = Config { drop_in, tokens: Some("tokens.toml".into()), ..Config::default() };
        let metrics = Arc::new(Metrics::of_nothing().unwrap());
        let routes = routes(&config, metrics, Arc::new(Console::new(&config)));
        (document(&config, &routes), routes)
    }

    #[test]
    fn every_route_is_described_and_every_description_has_its_route() {
        let (document, Routes { needs, .. }) = everything();
        // Routes without a name only say that it is missing.
        let is_whole = |template: &&str| !template.contains("//") && !template.ends_with('/');
        let asked = needs.iter().filter(|(template, ..)| is_whole(template)).map(|(template, method, needs)| {
            let scope = match needs {
                Needs::Nothing => None,
                Needs::Token(scope) => Some(scope.name()),
            };
            (*template, method.as_str().to_lowercase(), scope)
        });
        let described = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations.map(|(method, said)| (path.as_str(), method.clone(), said["x-token-scope"].as_str()))
        });
        assert_eq!(described.collect::<BTreeSet<_>>(), asked.collect());
    }

    #[test]
    fn every_problem_is_described() {
        // What fits no operation: every request may meet it.
        const ELSEWHERE: [Kind; 2] = [Kind::RouteUnknown, Kind::MethodNotAllowed];
        let (document, _) = everything();
        let document = format!("{}{}", document["paths"], document["components"]["responses"]);
        for kind in Kind::VARIANTS {
            let described = document.contains(&format!("\"{}\"", kind.urn()));
            assert_ne!(described, ELSEWHERE.contains(kind), "{kind:?}");
        }
    }

    #[test]
    fn every_reference_has_its_schema_and_every_schema_is_referred_to() {
        let (document, _) = everything();
        let text = document.to_string();
        let referred: BTreeSet<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(referred, schemas.keys().map(String::as_str).collect());
    }

    /// The document of a server on defaults.
    fn plain() -> Value {
        let config = Config::default();
        let (metrics, console) = (Arc::new(Metrics::of_nothing().unwrap()), Arc::new(Console::new(&config)));
        document(&config, &routes(&config, metrics, console))
    }

    #[test]
    fn what_is_off_leaves_no_schema_behind() {
        let plain = plain();
        let schemas = plain["components"]["schemas"].as_object().unwrap();
        for name in ["LeafError", "LeafDecoded", "TinyidIds", "TinyidSegment", "CosIdError", "IdNumber"] {
            assert!(!schemas.contains_key(name), "{name}");
            assert!(everything().0["components"]["schemas"][name].is_object(), "{name}");
        }
        assert!(schemas.contains_key("AdaptiveStep"), "by way of StepPolicy, by way of Tag");
    }

    /// What generators of clients have been seen to break on.
    fn assert_tolerable(at: &str, value: &Value) {
        if let Some(schema) = value.as_object().filter(|object| object.contains_key("type") && !at.ends_with("example"))
        {
            let types: Vec<&str> = match &schema["type"] {
                Value::String(one) => vec![one],
                Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
                _ => vec![],
            };
            assert_ne!(types, ["null"], "{at}: null beside something else alone");
            assert!(!types.contains(&"array") || schema.contains_key("items"), "{at}: an array of what?");
            let maximum = schema.get("maximum").and_then(Value::as_u64);
            assert!(maximum.is_none_or(|maximum| i64::try_from(maximum).is_ok()), "{at}: more than clients can write");
            assert!(
                maximum.is_none_or(|maximum| i32::try_from(maximum).is_ok() || schema.contains_key("format")),
                "{at}: without a format it has 32 bits"
            );
        }
        if let Some(object) = value.as_object() {
            assert!(!object.contains_key("const"), "{at}: an enum of one has a type in every client");
            assert!(!object.contains_key("enum") || object.contains_key("type"), "{at}: words of what type?");
            object.iter().for_each(|(name, value)| assert_tolerable(&format!("{at}/{name}"), value));
        }
        value.as_array().into_iter().flatten().for_each(|value| assert_tolerable(at, value));
    }

    #[test]
    fn generators_of_clients_find_nothing_that_they_break_on() {
        for document in [plain(), everything().0] {
            assert_tolerable("", &document["paths"]);
            assert_tolerable("", &document["components"]);
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let (document, _) = everything();
        let items = document["paths"].as_object().unwrap().values();
        let operations = items.flat_map(|item| item.as_object().unwrap().values());
        let names: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}
