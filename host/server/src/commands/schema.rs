//! `unalike schema`: the tables for MySQL or PostgreSQL and the least privileges on them; those in etcd.

use std::fmt::Write as _;

use anyhow::{Context, ensure};
use unalike_stores::{Account, Tables, lease_tables, tables};

use crate::commands::arguments::{SchemaArguments, SchemaCommand};
use crate::commands::print::print;
use crate::config::{Config, leases, sources};

/// `unalike schema`
pub(crate) async fn schema(config: &Config, arguments: &SchemaArguments) -> anyhow::Result<()> {
    if let Some(SchemaCommand::Upgrade) = arguments.command {
        return upgrade(config).await;
    }
    let commands = sources::user_commands(config, &arguments.user)?;
    if !commands.is_empty() && arguments.dialect.is_none() {
        print(&format!("# The least that the user needs, as root:\n{}\n", commands.join("\n")))?;
        if sources::databases(config)?.is_empty() && !leases::are_in_tables(config, false)? {
            return Ok(());
        }
    }
    let has_tables = !sources::databases(config)?.is_empty();
    let leases_are_named = leases::are_in_tables(config, false)?;
    // What is beside a store without tables would move there with it.
    let has_leases = leases::are_in_tables(config, arguments.dialect.is_some() || !has_tables)?;
    let dialect = match &arguments.dialect {
        Some(name) => Some(tables(name, config.store.iter())?),
        // A database for leases only.
        None if leases_are_named && !has_tables => None,
        None => Some(sources::stores_tables(config)?),
    };
    if let (None, false, Some(tables)) = (&arguments.dialect, has_tables, &dialect) {
        eprintln!(
            "unalike: the store {} needs none, and makes its file by itself. These are for {}: name the store that they are \
             for (--store), or whose tables are meant (--dialect)",
            config.store,
            tables.backend.title()
        );
    }
    let leases = match (leases_are_named, &dialect) {
        _ if !has_leases => None,
        (true, _) => leases::named_tables(config)?,
        (false, Some(tables)) => tables.backend.lease_tables(tables.schema.as_deref()),
        (false, None) => lease_tables(),
    };
    print(&statements(dialect.into_iter().chain(leases).collect(), &arguments.user)?)
}

/// What creates these tables, each once, and what the user must be allowed to do with them.
fn statements(all: Vec<Tables>, user: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut kinds: Vec<Vec<Tables>> = Vec::new();
    for tables in all {
        let is_same = |other: &Tables| other.backend.title() == tables.backend.title() && other.schema == tables.schema;
        match kinds.iter_mut().find(|of_kind| of_kind.first().is_some_and(is_same)) {
            Some(of_kind) => of_kind.push(tables),
            None => kinds.push(vec![tables]),
        }
    }
    for of_kind in &kinds {
        let Some(Tables { backend, schema, .. }) = of_kind.first() else { continue };
        let Account { name, creation } = backend.account(user);
        let schema = schema.as_ref().and_then(|schema| backend.schema(schema, &name));
        for statement in schema.iter().flat_map(|schema| &schema.before) {
            writeln!(text, "{statement};\n")?;
        }
        let mut written: Vec<&str> = Vec::new();
        for statement in of_kind.iter().flat_map(|tables| &tables.statements) {
            if !written.contains(&statement.as_str()) {
                writeln!(text, "{};\n", statement.trim().trim_end_matches(';'))?;
                written.push(statement);
            }
        }
        writeln!(text, "-- The least that the user needs: {creation};")?;
        if let Some(schema) = schema {
            writeln!(text, "{};", schema.privileges)?;
        }
        let mut granted: Vec<&str> = Vec::new();
        for (table, privileges) in of_kind.iter().flat_map(|tables| &tables.privileges) {
            if !granted.contains(&table.as_str()) {
                writeln!(text, "GRANT {privileges} ON {table} TO {name};")?;
                granted.push(table);
            }
        }
    }
    Ok(text)
}

/// `unalike schema upgrade`
pub(crate) async fn upgrade(config: &Config) -> anyhow::Result<()> {
    let databases = sources::databases(config)?;
    ensure!(
        !databases.is_empty(),
        "the store {} has no tables in MySQL or PostgreSQL to upgrade (--store)",
        config.store
    );
    for place in databases {
        let address = place.address();
        place.upgrade().await.with_context(|| format!("the tables in {address} cannot be upgraded"))?;
        print(&format!("{address}: the tables have the version of this program\n"))?;
    }
    Ok(())
}
