//! What an instance may take.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wasmtime::ResourceLimiter;

use super::counts::Counted;

/// The most elements of its tables: a program has one for each function that it calls by address.
const TABLE_ELEMENTS_MAX: usize = 1_000_000;

/// The most tables, memories and modules of an instance.
const PARTS_MAX: usize = 1_000;

/// Bounds the memories of an instance together.
pub(super) struct Limits {
    memory_max: usize,
    memory: usize,
    tables: usize,
    counted: Arc<Counted>,
}

impl Limits {
    pub(super) fn new(memory_max: usize, counted: Arc<Counted>) -> Self {
        Self { memory_max, memory: 0, tables: 0, counted }
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let memory = self.memory.saturating_add(desired.saturating_sub(current));
        let is_allowed = memory <= self.memory_max;
        if is_allowed {
            self.memory = memory;
        } else {
            self.counted.memory_refused.fetch_add(1, Ordering::Relaxed);
            let max = self.memory_max;
            tracing::warn!(wanted = memory, max, "an instance of the component may take no more memory, in bytes");
        }
        Ok(is_allowed)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let tables = self.tables.saturating_add(desired.saturating_sub(current));
        let is_allowed = tables <= TABLE_ELEMENTS_MAX;
        if is_allowed {
            self.tables = tables;
        }
        Ok(is_allowed)
    }

    fn instances(&self) -> usize {
        PARTS_MAX
    }

    fn tables(&self) -> usize {
        PARTS_MAX
    }

    fn memories(&self) -> usize {
        PARTS_MAX
    }
}
