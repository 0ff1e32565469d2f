//! What all servers that run as child processes have in common.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::PATIENCE;
use crate::hosts::repository;

/// The cargo that built this program, with its own compiler, [outside](outside_cargo) of the one that started it.
///
/// The `rustc` of rustup, which it would find, takes the toolchain that a package names in a `rust-toolchain.toml` of
/// its own, as sqlx 0.9.0 does.
#[must_use]
pub fn cargo() -> Command {
    let cargo = Path::new(env!("CARGO"));
    let mut command = Command::new(cargo);
    outside_cargo(&mut command).env("RUSTC", cargo.with_file_name("rustc"));
    command
}

/// Takes away what cargo sets for a test. A cargo that is started with it compiles ring again, and all that stands on
/// it, and the next one without it once more.
pub fn outside_cargo(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|begin| text.starts_with(begin)) {
            command.env_remove(&name);
        }
    }
    command
}

/// The ports below belong to well-known services.
const PORT_MIN: u16 = 10_000;

/// A port that is this process's own as long as it lives, so that a server may be started on it, and started again.
///
/// It lies below those that the system gives to outgoing connections, any of which could take it while the server is
/// down; and a socket with its number in its name keeps other tests from it.
///
/// # Errors
/// When there is none.
pub fn free_port() -> anyhow::Result<u16> {
    static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let outgoing = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let first: u16 = outgoing.split_whitespace().next().unwrap().parse()?;
    // Where those have all ports, some of theirs must do.
    let first = if first > PORT_MIN { first } else { u16::MAX };
    for _ in 0..1_000 {
        let port = fastrand::u16(PORT_MIN..first);
        let name = SocketAddr::from_abstract_name(format!("unalike-tests-{port}"))?;
        let Ok(taken) = UnixListener::bind_addr(&name) else { continue };
        // Whatever else runs on this machine.
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap().push(taken);
            return Ok(port);
        }
    }
    bail!("no port from {PORT_MIN} to {first} is free")
}

/// Copies a folder, such as the data directory of a server that does not run.
///
/// # Errors
/// When it cannot be copied.
pub fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").args(["--archive", "--sparse=always"]).args([from, to]).status()?;
    ensure!(status.success(), "{} was not copied: {status}", from.display());
    Ok(())
}

/// A program in an environment of Python packages, below the folder of all versions of Python.
///
/// # Errors
/// When it is not there; `install` says what to do.
pub fn python_program(environment: &str, path: &str, install: &str) -> anyhow::Result<PathBuf> {
    let libraries = repository().join(environment).join("lib");
    let pythons = std::fs::read_dir(&libraries).with_context(|| format!("{}: {install}", libraries.display()))?;
    for python in pythons {
        let program = python?.path().join(path);
        if program.exists() {
            make_executable(&program)?;
            return Ok(program);
        }
    }
    bail!("{path} is not in {}: {install}", libraries.display())
}

/// pip makes nothing executable that a wheel does not call a regular file, and some wheels say nothing of that.
fn make_executable(program: &Path) -> anyhow::Result<()> {
    let mut permissions = std::fs::metadata(program)?.permissions();
    if permissions.mode() & 0o111 == 0 {
        permissions.set_mode(permissions.mode() | 0o755);
        std::fs::set_permissions(program, permissions)?;
    }
    Ok(())
}

/// Runs what a test does in a process of its own, whose threads and memory are known: by starting this program again
/// for the test of this name, in the module that it is called from ([`module_path!`]).
///
/// # Panics
/// When the test fails there.
pub fn alone(module: &str, test: &str, act: impl FnOnce()) {
    const MARK: &str = "UNALIKE_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return act();
    }
    let (_, module) = module.split_once("::").unwrap();
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", &format!("{module}::{test}"), "--test-threads=1", "--nocapture"]).env(MARK, "1");
    let output = itself.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let is_right = output.status.success() && said.contains("1 passed");
    assert!(is_right, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Something that has ended stands for a server that does not run, or that somebody else runs.
pub(crate) fn ended() -> anyhow::Result<Child> {
    Ok(Command::new("true").spawn()?)
}

/// Has the command's process end when the calling thread does.
pub fn end_with_thread(command: &mut Command) {
    #[expect(unsafe_code, reason = "the standard library cannot have a child end with its parent")]
    // SAFETY: between fork and exec there is one system call, which takes two integers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Sends a signal to a child.
///
/// # Errors
/// When there is no such process.
pub fn signal(child: &Child, signal: i32) -> anyhow::Result<()> {
    let id = libc::pid_t::try_from(child.id())?;
    #[expect(unsafe_code, reason = "kill takes two integers, and the child was not waited for yet")]
    let sent = unsafe { libc::kill(id, signal) };
    ensure!(sent == 0, "the signal was not sent: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Stops a child where it is, without ending it: connections stay open and nothing answers. `SIGCONT` lets it go on.
///
/// # Errors
/// When there is no such process, or it does not stop.
pub fn pause(child: &Child) -> anyhow::Result<()> {
    signal(child, libc::SIGSTOP)?;
    // The signal is on its way: a thread that runs just now may still answer.
    let deadline = Instant::now() + PATIENCE;
    while !is_stopped(child)? {
        ensure!(Instant::now() < deadline, "the process {} does not stop", child.id());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether all its threads are stopped: the state behind the name in brackets (`man 5 proc`).
fn is_stopped(child: &Child) -> anyhow::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        if !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}
