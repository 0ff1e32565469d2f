//! Figures of this process, under the names that Prometheus' own clients have for them.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// What the system says of this process; none of it where there is no `/proc`.
struct Process {
    cpu_ticks: u64,
    threads: u64,
    /// After the start of the machine.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Process {
    /// By proc_pid_stat(5).
    fn parse(stat: &str) -> Option<Self> {
        // The name before may hold anything; what follows begins with the third field.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// When the machine was started, in Unix seconds.
fn booted() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Says what the names mean.
pub(super) fn describe() {
    describe_counter!("process_cpu_seconds_total", "Processor time that this process has used");
    describe_gauge!("process_open_fds", "Files that this process has open");
    describe_gauge!("process_max_fds", "Files that it may have open");
    describe_gauge!("process_virtual_memory_bytes", "Its virtual memory");
    describe_gauge!("process_resident_memory_bytes", "Its resident memory");
    describe_gauge!("process_start_time_seconds", "When it was started, in Unix seconds");
    describe_gauge!("process_threads", "Its threads");
}

/// Takes the figures.
#[expect(clippy::cast_precision_loss, reason = "figures to look at")]
pub(super) fn pull() {
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory.
        gauge!("process_open_fds").set(files.count().saturating_sub(1) as f64);
    }
    let files_max = getrlimit(Resource::Nofile).current;
    gauge!("process_max_fds").set(files_max.map_or(f64::INFINITY, |files| files as f64));
    let Some(process) = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| Process::parse(&stat)) else {
        return;
    };
    let ticks = clock_ticks_per_second().max(1);
    counter!("process_cpu_seconds_total").absolute(process.cpu_ticks / ticks);
    gauge!("process_virtual_memory_bytes").set(process.virtual_bytes as f64);
    gauge!("process_resident_memory_bytes").set(process.resident_pages.saturating_mul(page_size() as u64) as f64);
    gauge!("process_threads").set(process.threads as f64);
    if let Some(booted) = booted() {
        gauge!("process_start_time_seconds").set(booted as f64 + process.started_ticks as f64 / ticks as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_is_no_field() {
        let fields: Vec<String> = (3..=30).map(|number| number.to_string()).collect();
        let process = Process::parse(&format!("7 (a) b (c)) {}", fields.join(" "))).unwrap();
        let Process { cpu_ticks, threads, started_ticks, virtual_bytes, resident_pages } = process;
        assert_eq!((cpu_ticks, threads, started_ticks, virtual_bytes, resident_pages), (29, 20, 22, 23, 24));
        assert!(Process::parse("7 (a) S 1").is_none());
    }
}
