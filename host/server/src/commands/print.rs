//! How commands print: text, and tables of it.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context;

/// Tags that are read at once.
pub(crate) const PAGE: u32 = 1_000;

/// Whether the reader has gone, as `head` does: no error, and no reason to go on.
pub(crate) fn is_closed(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("the standard output cannot be written to"),
    }
}

/// Columns of text, each as wide as its widest cell.
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(titles: [impl Into<String>; COLUMNS]) -> Self {
        Self { rows: vec![titles.map(Into::into)] }
    }

    pub(crate) fn add(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    /// Whether there is nothing below the titles.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        print(&text)
    }
}

pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    is_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(drop)
}
