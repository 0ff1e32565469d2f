//! What the Node and the Python host send to a database, and what they check of it: written from the constants that
//! this crate uses itself, into files that they read. A file that says something else than this crate does fails here.
//!
//! `UNALIKE_WRITE_SHARED=1 cargo test -p unalike-mysql shared` writes the files anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use unalike_storage::StoreError;

use crate::database::{ALONE, BEGIN, RECORDED};
use crate::dialects::tables::{self, Holds, Shape};
use crate::fence::{CHECKED, COMMIT, FACTS, READ_WHOLE_LISTS, ROLL_BACK, ROOM, SETTINGS, ServerFacts};
use crate::record::Record;
use crate::{error, identity, leases, place, schema, segments};

/// JSON, as far as it is needed here.
enum Json {
    Text(String),
    Number(u64),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn write(&self, into: &mut String, indent: usize) {
        let is_flat = |list: &[Self]| list.iter().all(|item| matches!(item, Self::Text(_) | Self::Number(_)));
        match self {
            Self::Text(text) => write_text(into, text),
            Self::Number(number) => write!(into, "{number}").unwrap(),
            Self::List(list) if is_flat(list) => {
                into.push('[');
                for (at, item) in list.iter().enumerate() {
                    into.push_str(if at == 0 { "" } else { ", " });
                    item.write(into, 0);
                }
                into.push(']');
            }
            Self::List(list) => write_block(into, indent, ['[', ']'], list.iter().map(|item| (None, item))),
            Self::Object(pairs) => {
                let pairs = pairs.iter().map(|(name, value)| (Some(name.as_str()), value));
                write_block(into, indent, ['{', '}'], pairs);
            }
        }
    }
}

fn write_block<'j>(
    into: &mut String,
    indent: usize,
    [open, close]: [char; 2],
    items: impl Iterator<Item = (Option<&'j str>, &'j Json)>,
) {
    into.push(open);
    for (at, (name, value)) in items.enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(into, "{comma}\n{:width$}", "", width = indent + 2).unwrap();
        if let Some(name) = name {
            write_text(into, name);
            into.push_str(": ");
        }
        value.write(into, indent + 2);
    }
    write!(into, "\n{:indent$}{close}", "").unwrap();
}

fn write_text(into: &mut String, text: &str) {
    into.push('"');
    for character in text.chars() {
        match character {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            _ if character < ' ' => write!(into, "\\u{:04x}", u32::from(character)).unwrap(),
            _ => into.push(character),
        }
    }
    into.push('"');
}

fn text(text: impl Into<String>) -> Json {
    Json::Text(text.into())
}

fn texts<'t>(list: impl IntoIterator<Item = &'t str>) -> Json {
    Json::List(list.into_iter().map(text).collect())
}

fn object<const N: usize>(pairs: [(&str, Json); N]) -> Json {
    Json::Object(pairs.map(|(name, value)| (name.to_owned(), value)).into())
}

fn statements<const N: usize>(pairs: [(&str, &str); N]) -> Json {
    object(pairs.map(|(name, statement)| (name, text(statement.trim()))))
}

fn change(change: &segments::Change) -> Json {
    statements([("plain", change.plain), ("striped", change.striped)])
}

fn table(shape: &Shape<'_>) -> Json {
    let holds = |holds: Holds| match holds {
        Holds::Name => "name",
        Holds::Bytes => "bytes",
        Holds::Whole => "whole",
        Holds::Id => "id",
    };
    let columns = shape.columns.iter().map(|(name, what)| texts([*name, holds(*what)]));
    object([
        ("name", text(shape.name)),
        ("ddl", text(shape.ddl.trim())),
        ("key", texts(shape.key.iter().copied())),
        ("columns", Json::List(columns.collect())),
    ])
}

/// What is made of the server's numbers: from the first to the last of a row, the kind of the error and what to do.
/// All others are refused.
fn errors() -> Json {
    let judge = |code| {
        let (kind, advice) = error::judge(code);
        let kind = match kind(String::new()) {
            StoreError::Unavailable { .. } => "unavailable",
            StoreError::OutcomeUnknown { .. } => "outcome-unknown",
            StoreError::Refused { .. } => "refused",
            other => panic!("{other}"),
        };
        (kind, advice)
    };
    let usual = judge(u16::MAX);
    let mut rows: Vec<(u16, u16, (&str, &str))> = Vec::new();
    for code in 0..u16::MAX {
        let judged = judge(code);
        match rows.last_mut() {
            Some((_, last, of)) if *of == judged && *last + 1 == code => *last = code,
            _ if judged != usual => rows.push((code, code, judged)),
            _ => {}
        }
    }
    let row = |(first, last, (kind, advice)): (u16, u16, (&str, &str))| {
        Json::List(vec![Json::Number(first.into()), Json::Number(last.into()), text(kind), text(advice)])
    };
    Json::List(rows.into_iter().map(row).collect())
}

fn shared() -> Json {
    let mut ending: Vec<(u16, u16)> = Vec::new();
    for code in (0..u16::MAX).filter(|&code| error::ends_connection(code)) {
        match ending.last_mut() {
            Some((_, last)) if *last + 1 == code => *last = code,
            _ => ending.push((code, code)),
        }
    }
    let ending = ending.iter().map(|&(first, last)| Json::List([first, last].map(|it| Json::Number(it.into())).into()));
    object([
        ("versions", Json::List(vec![Json::Number(schema::VERSION_MIN), Json::Number(schema::VERSION)])),
        ("lease_version", Json::Number(leases::VERSION)),
        ("settings", Json::List(SETTINGS.iter().map(|&(name, literal)| texts([name, literal])).collect())),
        ("checked", texts(CHECKED)),
        ("facts", texts(FACTS)),
        ("room", texts(ROOM)),
        (
            "session",
            statements([
                ("read_whole_lists", READ_WHOLE_LISTS),
                ("begin", BEGIN),
                ("commit", COMMIT),
                ("roll_back", ROLL_BACK),
            ]),
        ),
        (
            "lookups",
            statements([
                ("columns", tables::COLUMNS),
                ("keys", tables::KEYS),
                ("keys_end", tables::KEYS_END),
                ("triggers", tables::TRIGGERS),
            ]),
        ),
        (
            "store",
            statements([
                ("read", schema::READ),
                ("recorded", RECORDED),
                ("insert", schema::INSERT),
                ("replace", &format!("{}{}", schema::REPLACE, schema::HERE)),
                ("stripe", schema::STRIPE),
                ("alone", ALONE),
            ]),
        ),
        ("identity", statements([("ddl", identity::DDL), ("read", identity::READ), ("insert", identity::INSERT)])),
        (
            "place",
            statements([
                ("row", place::ROW),
                ("made", place::MADE),
                ("on_mariadb", place::ON_MARIADB),
                ("on_mysql", place::ON_MYSQL),
                ("known", place::KNOWN),
                ("add_versioning", place::ADD_VERSIONING),
            ]),
        ),
        (
            "segments",
            object([
                ("allocate", change(&segments::ALLOCATE)),
                ("release", change(&segments::RELEASE)),
                ("count", statements([("plain", segments::COUNT), ("striped", segments::COUNT_STRIPED)])),
                ("insert", statements([("plain", segments::INSERT), ("striped", segments::INSERT_STRIPED)])),
                ("find", text(segments::FIND)),
                ("find_locked", text(segments::FIND_LOCKED)),
                ("floor", text(segments::FLOOR)),
                ("row_stripe", text(segments::ROW_STRIPE)),
                ("begun", text(segments::BEGUN)),
            ]),
        ),
        (
            "leases",
            statements([
                ("read_store", leases::READ_STORE),
                ("has_store", leases::HAS_STORE),
                ("time_floor", leases::TIME_FLOOR),
                ("has_tags", leases::HAS_TAGS),
                ("granted_time", leases::GRANTED_TIME),
                ("kept", leases::KEPT),
                ("insert_store", leases::INSERT_STORE),
                ("raise_horizon", leases::RAISE_HORIZON),
                ("look", leases::LOOK),
                ("lock", leases::LOCK),
                ("bind", leases::BIND),
                ("previous", leases::PREVIOUS),
                ("oldest", leases::OLDEST),
                ("count", leases::COUNT),
                ("workers", leases::WORKERS),
                ("list", leases::LIST),
                ("grant_first", leases::GRANT_FIRST),
                ("grant_again", leases::GRANT_AGAIN),
                ("extend", leases::EXTEND),
                ("release", leases::RELEASE),
            ]),
        ),
        (
            "tables",
            object([
                ("store", table(&schema::STORE)),
                ("tag", table(&segments::SHAPE)),
                ("leases", Json::List(leases::TABLES.iter().map(table).collect())),
            ]),
        ),
        ("errors", errors()),
        ("ends_connection", Json::List(ending.collect())),
    ])
}

fn facts(values: &[(&str, &str)]) -> ServerFacts {
    ServerFacts::of(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

const MARIADB: [(&str, &str); 11] = [
    ("server_uid", "xyz="),
    ("server_id", "1"),
    ("gtid_domain_id", "0"),
    ("gtid_slave_pos", ""),
    ("innodb_flush_log_at_trx_commit", "1"),
    ("log_bin", "OFF"),
    ("binlog_format", "MIXED"),
    ("in_transaction", "0"),
    ("autocommit", "ON"),
    ("sql_mode", "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"),
    ("version", "10.11.6-MariaDB"),
];

/// What some servers say of themselves.
fn servers() -> Vec<BTreeMap<&'static str, &'static str>> {
    let mariadb = BTreeMap::from(MARIADB);
    let with = |pairs: &[(&'static str, &'static str)]| {
        let mut server = mariadb.clone();
        server.extend(pairs.iter().copied());
        server
    };
    vec![
        mariadb.clone(),
        with(&[("log_bin", "ON"), ("sync_binlog", "1"), ("gtid_slave_pos", "10-4-8,0-3-5")]),
        with(&[("log_bin", "ON"), ("sync_binlog", "0"), ("gtid_slave_pos", " 0-3-5, 10-4-8")]),
        with(&[("log_bin", "ON"), ("binlog_format", "STATEMENT"), ("innodb_flush_log_at_trx_commit", "2")]),
        with(&[("wsrep_on", "ON"), ("wsrep_provider", "none"), ("gtid_slave_pos", "0-1-77")]),
        with(&[
            ("wsrep_on", "ON"),
            ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so"),
            ("wsrep_cluster_name", "it's \u{e9}"),
            ("wsrep_provider_options", "pc.announce_timeout = PT3S; pc.ignore_quorum = false; pc.ignore_sb = false; "),
            ("gtid_slave_pos", "0-1-77"),
        ]),
        with(&[
            ("wsrep_on", "ON"),
            ("wsrep_provider", "libgalera_smm.so"),
            ("wsrep_cluster_name", "ids"),
            ("wsrep_provider_options", "pc.ignore_quorum=FALSE;pc.ignore_sb=true"),
            ("server_uuid", "3e11fa47-71ca-11e1-9e33-c80aa9429562"),
        ]),
        with(&[("wsrep_on", "OFF"), ("wsrep_provider", "libgalera_smm.so"), ("wsrep_cluster_name", "ids")]),
        with(&[("init_connect", "SET @a = 1; CREATE TEMPORARY TABLE t (a INT)"), ("autocommit", "OFF")]),
        with(&[("init_connect", " set names latin1 ; BEGIN work;start transaction"), ("server_id", "")]),
        with(&[("init_connect", "SET STATEMENT/* */ max_statement_time = 1 FOR DO 1"), ("in_transaction", "1")]),
        with(&[("server_uid", "unknown"), ("read_only", "ON"), ("timestamp", "1700000000.5")]),
        BTreeMap::from([
            ("server_uuid", "3e11fa47-71ca-11e1-9e33-c80aa9429562"),
            ("version", "8.0.36"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("transaction_read_only", "OFF"),
            ("sql_select_limit", "18446744073709551615"),
            ("max_statement_time", "0.000000"),
            ("max_execution_time", "5000"),
        ]),
        BTreeMap::from([("server_uuid", "unknown"), ("hostname", "a")]),
        BTreeMap::from([
            ("server_uuid", "00000000-0000-0000-0000-000000000000"),
            ("version", "8.0.11-TiDB-v7.5.1"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("insert_id", ""),
        ]),
        BTreeMap::from([("server_uuid", "3e11fa47-71ca-11e1-9e33-c80aa9429562"), ("version", "8.0.30-Vitess")]),
    ]
}

/// What this crate makes of facts and records: the other hosts must make the same of them.
fn cases() -> Json {
    const STATEMENT: &str = "{fence of the store} {fence} {fence alone} {fence of a row}";
    const MARK: &str = "mark 00000000000000000000000000000007 server_id 1 gtid_domain_id 0 ";
    let records = [
        format!("{MARK}gtid_slave_pos none"),
        format!("{MARK}gtid_slave_positions none"),
        format!("{MARK}gtid_slave_pos 0-3-5"),
        format!("{MARK}gtid_slave_positions 0-3-5,10-4-8"),
        format!("{MARK}gtid_slave_pos none lifted unalike=5"),
        format!("{MARK}gtid_slave_pos none era 000000000000000000000000000000ff 0"),
        "mark 00000000000000000000000000000007 wsrep_cluster_name it's \u{e9} lifted unalike=5".to_owned(),
        "server_uid xyz=".to_owned(),
        "server_uuid 3e11fa47-71ca-11e1-9e33-c80aa9429562".to_owned(),
        "server_uuid 3e11fa47-71ca-11e1-9e33-c80aa9429562 lifted unalike=9 era 00000000000000000000000000000007 201000"
            .to_owned(),
        "assumed".to_owned(),
        String::new(),
    ];
    let said = |what: Result<(), String>| text(what.err().unwrap_or_default());
    let servers = servers().into_iter().map(|server| {
        let pairs: Vec<_> = server.iter().map(|(name, value)| (*name, *value)).collect();
        let known = facts(&pairs);
        let by_record = records.iter().map(|record| {
            let recorded = Record::read(record);
            let (identity, problem) = match known.identity_as(recorded.server()) {
                Ok(identity) => (identity, String::new()),
                Err(problem) => (String::new(), problem),
            };
            let mut pairs = vec![
                ("record".to_owned(), text(record)),
                ("identity".to_owned(), text(&identity)),
                ("problem".to_owned(), text(problem)),
                ("is_unmarked".to_owned(), Json::Number(known.is_unmarked(record).into())),
                (
                    "another".to_owned(),
                    text(known.another_server("db:3306/ids", recorded.server(), &identity).to_string()),
                ),
            ];
            if identity == recorded.server() {
                let fence = known.fence(true, Some(&identity)).recorded(record);
                pairs.push(("fence".to_owned(), text(fence.put_into(STATEMENT))));
            }
            Json::Object(pairs)
        });
        let mut elsewhere = pairs.clone();
        elsewhere.retain(|(name, _)| *name != "timestamp");
        object([
            ("facts", object_of(&pairs)),
            ("durability", said(known.check_durability())),
            ("log", said(known.check_log())),
            ("kind", said(known.check_kind())),
            ("cluster", said(known.check_cluster(false))),
            ("vouched_cluster", said(known.check_cluster(true))),
            ("init_connect", said(known.check_init_connect())),
            ("session", said(known.check_session(&facts(&elsewhere)))),
            ("session_of_no_time", said(known.check_session(&known))),
            ("fence_of_any", text(known.fence(false, None).put_into(STATEMENT))),
            ("set_session", text(known.session_statement(4, 600))),
            ("by_record", Json::List(by_record.collect())),
        ])
    });
    let of_records = [
        "x lifted leaf=1000,-unalike=50",
        "x lifted leaf=1000,unalike=18446744073709551615",
        "x lifted leaf=1",
        "x lifted unalike",
        "x lifted unalike=-1",
        "x lifted unalike=1,",
        "x lifted unalike=18446744073709551616",
        "x lifted unalike=1 era ",
        "x lifted unalike=1 era 7",
        "x lifted unalike=1 era x 7",
        "x lifted unalike=1 era ff0f 7",
        "x lifted unalike=1 era 7 -1",
        "x lifted leaf=1 lifted unalike=3",
        "x era ",
        "x era 7",
        "x era x 7",
        "x era ff0f 7",
        "x era 7 -1",
        "x era 7 18446744073709551616",
        "x era 1 2 era 3 4",
        "x lifted y era 1 2",
    ];
    let of_records = of_records.into_iter().map(str::to_owned).chain(records.iter().cloned()).map(|record| {
        let read = Record::read(&record);
        object([
            ("record", text(&record)),
            ("server", text(read.server())),
            ("was_adopted", Json::Number(read.was_adopted().into())),
            ("is_valid", Json::Number(read.is_valid_for("unalike").into())),
            ("era", text(format!("{:032x}", read.era().mark))),
            ("names_cluster", Json::Number(crate::fence::names_cluster(&record).into())),
            ("mark", text(crate::fence::mark_in(&record).map_or_else(String::new, |mark| format!("{mark:032x}")))),
        ])
    });
    object([("servers", Json::List(servers.collect())), ("records", Json::List(of_records.collect()))])
}

fn object_of(pairs: &[(&str, &str)]) -> Json {
    Json::Object(pairs.iter().map(|(name, value)| ((*name).to_owned(), text(*value))).collect())
}

fn check(name: &str, json: &Json) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let mut written = String::new();
    json.write(&mut written, 0);
    written.push('\n');
    if std::env::var_os("UNALIKE_WRITE_SHARED").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(
        found == written,
        "adapters/mysql/{name} does not say what this crate does: write it anew with `UNALIKE_WRITE_SHARED=1 cargo test -p \
         unalike-mysql shared`, and run the tests of the Node and the Python host"
    );
}

#[test]
fn what_other_hosts_send_is_what_this_crate_sends() {
    check("src/sql/shared.json", &shared());
}

#[test]
fn what_other_hosts_make_of_a_server_is_what_this_crate_makes_of_it() {
    check("tests/cases.json", &cases());
}

/// The others put literals in the places of the marks, and know no other one.
#[test]
fn no_question_mark_stands_for_itself() {
    let mut all = String::new();
    shared().write(&mut all, 0);
    assert!(!all.contains("'?") && !all.contains("?'") && !all.contains("??"));
}
