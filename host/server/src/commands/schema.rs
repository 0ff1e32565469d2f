//! `unalike schema`: the tables for MySQL and the least privileges on them.

use std::fmt::Write as _;

use anyhow::{Context, anyhow, ensure};
use unalike_mysql::{Dialect, MysqlLeases, MysqlStore};

use crate::commands::arguments::{SchemaArguments, SchemaCommand};
use crate::commands::print::print;
use crate::config::{Config, leases, tables};

/// `unalike schema`
pub(crate) async fn schema(config: &Config, arguments: &SchemaArguments) -> anyhow::Result<()> {
    if let Some(SchemaCommand::Upgrade) = arguments.command {
        return upgrade(config).await;
    }
    let is_in_mysql = tables::is_in_mysql(config)?;
    let leases_are_named = leases::are_in_mysql(config, false)?;
    // What stands beside a store that is not in MySQL would move there with it.
    let has_leases = leases::are_in_mysql(config, arguments.dialect.is_some() || !is_in_mysql)?;
    let dialect = match &arguments.dialect {
        Some(name) => Some(Dialect::named(name).ok_or_else(|| {
            anyhow!(
                "the dialect {name:?} is unknown: it is one of unalike, leaf, tinyid, cosid, sequence-table, id-generator, \
                 batch, slow-ordered and ticket (--dialect)"
            )
        })?),
        // A database for leases alone.
        None if leases_are_named && !is_in_mysql => None,
        None => Some(tables::dialect(config)?),
    };
    let mut statements = dialect.as_ref().map(Dialect::ddl).unwrap_or_default();
    let mut privileges = dialect.as_ref().map(Dialect::privileges).unwrap_or_default();
    if has_leases {
        let more: Vec<_> = MysqlLeases::ddl().into_iter().filter(|statement| !statements.contains(statement)).collect();
        statements.extend(more);
        let is_new = |table: &String| privileges.iter().all(|(known, _)| known != table);
        let more: Vec<_> = MysqlLeases::privileges().into_iter().filter(|(table, _)| is_new(table)).collect();
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
    let databases = tables::databases(config)?;
    ensure!(!databases.is_empty(), "the store {} has no tables in MySQL to upgrade (--store)", config.store);
    for options in databases {
        let address = options.address();
        MysqlStore::upgrade(options).await.with_context(|| format!("the tables in {address} cannot be upgraded"))?;
        print(&format!("{address}: the tables have the version of this program\n"))?;
    }
    Ok(())
}
