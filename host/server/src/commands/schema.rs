//! `unalike schema`: the tables for MySQL and the least privileges on them.

use std::fmt::Write as _;

use anyhow::{Context, ensure};

use crate::commands::arguments::{SchemaArguments, SchemaCommand};
use crate::commands::print::print;
use crate::config::{Config, leases, sources};
use crate::stores::{lease_tables, tables};

/// `unalike schema`
pub(crate) async fn schema(config: &Config, arguments: &SchemaArguments) -> anyhow::Result<()> {
    if let Some(SchemaCommand::Upgrade) = arguments.command {
        return upgrade(config).await;
    }
    let has_tables = !sources::databases(config)?.is_empty();
    let leases_are_named = leases::are_in_tables(config, false)?;
    // What is beside a store without tables would move there with it.
    let has_leases = leases::are_in_tables(config, arguments.dialect.is_some() || !has_tables)?;
    let dialect = match &arguments.dialect {
        Some(name) => Some(tables(name)?),
        // A database for leases only.
        None if leases_are_named && !has_tables => None,
        None => Some(sources::stores_tables(config)?),
    };
    let (mut statements, mut privileges) =
        dialect.map(|tables| (tables.statements, tables.privileges)).unwrap_or_default();
    if let Some(leases) = lease_tables().filter(|_| has_leases) {
        let more: Vec<_> = leases.statements.into_iter().filter(|statement| !statements.contains(statement)).collect();
        statements.extend(more);
        let is_new = |table: &String| privileges.iter().all(|(known, _)| known != table);
        let more: Vec<_> = leases.privileges.into_iter().filter(|(table, _)| is_new(table)).collect();
        privileges.extend(more);
    }
    let mut text = String::new();
    for statement in statements {
        writeln!(text, "{};\n", statement.trim().trim_end_matches(';'))?;
    }
    let user = account(&arguments.user);
    writeln!(text, "-- The least that the user needs: CREATE USER {user} IDENTIFIED BY '..';")?;
    for (table, privileges) in privileges {
        writeln!(text, "GRANT {privileges} ON {table} TO {user};")?;
    }
    print(&text)
}

/// `'NAME'@'HOST'`, as statements have it.
fn account(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    format!("{}@{}", quoted(name), quoted(host))
}

/// `unalike schema upgrade`
pub(crate) async fn upgrade(config: &Config) -> anyhow::Result<()> {
    let databases = sources::databases(config)?;
    ensure!(!databases.is_empty(), "the store {} has no tables in MySQL to upgrade (--store)", config.store);
    for place in databases {
        let address = place.address();
        place.upgrade().await.with_context(|| format!("the tables in {address} cannot be upgraded"))?;
        print(&format!("{address}: the tables have the version of this program\n"))?;
    }
    Ok(())
}
