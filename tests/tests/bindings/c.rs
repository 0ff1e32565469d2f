//! Programs in C, compiled as the page says, over a store in a file and over a server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use unalike_tests::server::Server;

/// A folder with a program in it.
struct Program {
    folder: TempDir,
    library: PathBuf,
}

impl Program {
    /// Compiles a source file against the header and the library.
    fn compile(source: &str) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the tests are in no folder")?;
        // Cargo puts what this program depends on beside it.
        let library = std::env::current_exe()?.parent().context("this program is in no folder")?.to_owned();
        ensure!(library.join("libunalike_bindings.so").exists(), "there is no library in {}", library.display());
        let folder = TempDir::new()?;
        let compiled = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(folder.path().join("program"))
            .arg(root.join(source))
            .arg("-I")
            .arg(root.join("host/bindings/include"))
            .arg("-L")
            .arg(&library)
            .arg("-lunalike_bindings")
            .output()?;
        ensure!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Ok(Self { folder, library })
    }

    /// What runs it in its folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("program"));
        command.args(arguments).current_dir(self.folder.path()).env("LD_LIBRARY_PATH", &self.library);
        command
    }

    /// Runs it in its folder to its end, and answers what it printed.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let ran = self.command(arguments).output()?;
        let (printed, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        ensure!(ran.status.success(), "{arguments:?}: {}\n{printed}{said}", ran.status);
        Ok(printed.into_owned())
    }
}

const PROGRAM: &str = "tests/tests/bindings/program.c";
const FILE: &str = r#"{"store": "sqlite://ids.sqlite"}"#;

#[test]
fn the_first_program_of_the_page_goes_on_where_it_ended() -> Result<()> {
    let program = Program::compile("host/bindings/examples/first.c")?;
    let (first, second) = (program.run(&[])?, program.run(&[])?);
    ensure!(first.starts_with("order 1\norders 2 to 1001\nsnowflake "), "{first}");
    // What had crossed into a run when the first one ended is a gap.
    let number = |printed: &str, before: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(before)).context("it was printed")?;
        Ok::<u64, anyhow::Error>(line.parse()?)
    };
    let begins = number(&second, "order ")?;
    ensure!((1_002..2_002).contains(&begins), "{second}");
    ensure!(number(&first, "snowflake ")? < number(&second, "snowflake ")?, "{first}{second}");
    Ok(())
}

#[test]
fn threads_share_handles_and_no_id_comes_twice() -> Result<()> {
    let program = Program::compile(PROGRAM)?;
    let span = |printed: String| {
        let (least, greatest) = printed.trim().split_once(' ').context("two numbers are printed")?;
        Ok::<(u64, u64), anyhow::Error>((least.parse()?, greatest.parse()?))
    };
    let (first, second) = (span(program.run(&[FILE, "threads"])?)?, span(program.run(&[FILE, "threads"])?)?);
    ensure!(first.1 < second.0, "the second process begins above the first: {first:?} {second:?}");
    Ok(())
}

#[test]
fn a_server_is_a_store_too() -> Result<()> {
    let server = Server::start()?;
    let program = Program::compile(PROGRAM)?;
    let options = format!(r#"{{"store": "{}"}}"#, server.url());
    program.run(&[&options, "threads"])?;
    program.run(&[&options, "closing"])?;
    program.run(&[&options, "child"]).map(drop)
}

#[test]
fn a_program_outlives_its_server() -> Result<()> {
    let mut server = Server::start()?;
    let program = Program::compile(PROGRAM)?;
    let options = format!(r#"{{"store": "{}", "wait_max_ms": 1000}}"#, server.url());
    let mut child = program.command(&[&options, "outlives"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut asked = String::new();
    BufReader::new(child.stdout.as_mut().context("it prints")?).read_line(&mut asked)?;
    let killed = server.kill9();
    child.stdin.take().context("it reads")?.write_all(b"!")?;
    let ended = child.wait()?;
    killed?;
    ensure!(asked == "killed?\n" && ended.success(), "{asked}{ended}");
    Ok(())
}

#[test]
fn a_call_back_comes_without_the_handle_and_closes_nothing() -> Result<()> {
    Program::compile(PROGRAM)?.run(&[FILE, "freed"]).map(drop)
}

#[test]
fn each_call_back_comes_once_and_nothing_waits_in_it() -> Result<()> {
    Program::compile(PROGRAM)?.run(&[FILE, "callbacks"]).map(drop)
}

#[test]
fn ids_are_shown_as_a_format_says() -> Result<()> {
    let keyed = r#"{"store": "sqlite://ids.sqlite", "keys": {"1": {"secret": "000102030405060708090a0b0c0d0e0f"}}}"#;
    Program::compile(PROGRAM)?.run(&[keyed, "formats"]).map(drop)
}

#[test]
fn what_is_called_wrongly_is_refused_in_words() -> Result<()> {
    Program::compile(PROGRAM)?.run(&[FILE, "misuse"]).map(drop)
}

#[test]
fn a_forked_child_gets_nothing_that_is_its_parents() -> Result<()> {
    Program::compile(PROGRAM)?.run(&[FILE, "forks"]).map(drop)
}

#[test]
fn what_was_not_used_is_given_back_at_the_end() -> Result<()> {
    Program::compile(PROGRAM)?.run(&[FILE, "closing"]).map(drop)
}

#[test]
fn two_copies_never_have_one_file_open_together() -> Result<()> {
    let program = Program::compile("tests/tests/bindings/copies.c")?;
    let library = program.library.join("libunalike_bindings.so");
    let other = program.folder.path().join("other.so");
    std::fs::copy(&library, &other)?;
    let path = |path: &Path| path.to_str().map(str::to_owned).context("the path is UTF-8");
    program.run(&[&path(&library)?, &path(&other)?]).map(drop)
}

#[test]
fn a_program_closes_at_its_very_end_and_forks_after_it_closed() -> Result<()> {
    let program = Program::compile(PROGRAM)?;
    program.run(&[FILE, "atexit"])?;
    program.run(&[FILE, "closed"]).map(drop)
}
