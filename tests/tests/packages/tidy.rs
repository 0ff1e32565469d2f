//! What holds of the repository's text itself: the map names every folder, links lead somewhere, tests that pages name
//! exist, lines are no longer than 120 characters, every Rust file belongs to a crate, and hosts import in one
//! direction.
//!
//! Each fault is one line: the file, the line, and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The longest line, in characters: rustfmt's `max_width`.
const WIDTH_MAX: usize = 120;

/// Words that mean the same as one of the glossary in `wit/README.md`, and phrases that read as if translated, each
/// with what to write. Both are looked for in lower case.
const OTHER_WORDS: [(&str, &str); 9] = [
    ("watermark store", "backing store"),
    ("worker number", "worker"),
    ("machine number", "worker"),
    ("biz tag", "tag"),
    ("ticket number", "ticket"),
    ("are had", "are available"),
    ("be had", "be available"),
    ("that there is not", "that does not exist"),
    ("so long ids", "for that time ids"),
];

/// The rules of `wit/README.md`.
const RULES: usize = 40;

/// The files of the repository by their paths from its root, with `/`.
struct Tree {
    root: PathBuf,
    files: BTreeSet<String>,
}

impl Tree {
    fn read() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
        let files = match listed {
            Ok(listed) if listed.status.success() => {
                let names = String::from_utf8(listed.stdout)?;
                // Not what is deleted and not committed yet.
                names.split_terminator('\0').filter(|name| root.join(name).exists()).map(str::to_owned).collect()
            }
            // A copy without its history.
            _ => {
                let mut files = BTreeSet::new();
                walk(&root, "", &mut files)?;
                files
            }
        };
        Ok(Self { root, files })
    }

    fn text(&self, file: &str) -> Result<String> {
        std::fs::read_to_string(self.root.join(file)).with_context(|| file.to_owned())
    }

    fn ending<'t>(&'t self, end: &'t str) -> impl Iterator<Item = &'t str> {
        self.files.iter().map(String::as_str).filter(move |file| file.ends_with(end))
    }

    /// Whether there is a file or a folder of this path.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty() || self.files.contains(path) || self.files.iter().any(|file| file.starts_with(&folder))
    }

    /// The folders of the crates, and their names.
    fn crates(&self) -> Result<BTreeMap<String, String>> {
        let mut crates = BTreeMap::new();
        for manifest in self.ending("/Cargo.toml") {
            let text = self.text(manifest)?;
            let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
            crates.insert(folder_of(manifest).to_owned(), name.trim_matches('"').to_owned());
        }
        Ok(crates)
    }
}

/// Adds the files of a folder.
fn walk(root: &Path, folder: &str, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type()?.is_dir() {
            files.insert(path);
        } else if !["target", "node_modules", ".git"].contains(&name.as_str()) {
            walk(root, &path, files)?;
        }
    }
    Ok(())
}

/// What is wrong, gathered: a test shows all of it at once.
#[derive(Default)]
struct Faults(String);

impl Faults {
    fn add(&mut self, file: &str, line: usize, what: &str) {
        // A String takes everything.
        let _ = writeln!(self.0, "{file}:{line}: {what}");
    }

    fn none(self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        bail!("the repository is not tidy:\n{}", self.0)
    }
}

/// The folder that a path is in; nothing at the root.
fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Where a link of a file in this folder leads, as a path from the root.
fn resolve(folder: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(folder).components().chain(Path::new(link).components()) {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => parts.pop().map(drop)?,
            _ => {}
        }
    }
    Some(parts.join("/"))
}

/// The lines of a page with their numbers, without those in fences.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    (1..).zip(page.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The links of a line: what is shown, and where each leads.
fn links(line: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else { break };
        links.push((before.rsplit_once('[').map_or(before, |(_, shown)| shown), target));
        rest = behind;
    }
    links
}

/// The anchors of a page's headings, as the repository's host makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.flat_map(char::to_lowercase).collect::<String>().replace(' ', "-");
        let repeated = (1..).map(|count| format!("{anchor}-{count}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// The word that a declaration begins after these, `mod` or `fn`.
fn declared<'l>(line: &'l str, keyword: &str) -> Option<&'l str> {
    let (before, after) = line.trim_start().split_once(keyword)?;
    let words = ["pub", "async", "const", "unsafe", "extern", "\"C\"", "pub(crate)", "pub(super)"];
    if !before.split_whitespace().all(|word| words.contains(&word)) {
        return None;
    }
    let end = after.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(after.len());
    after.get(..end).filter(|name| !name.is_empty())
}

#[test]
fn the_map_names_every_folder() -> Result<()> {
    let tree = Tree::read()?;
    let crates = tree.crates()?;
    let readme = tree.text("README.md")?;
    let mut faults = Faults::default();
    let mut mapped = BTreeSet::new();
    let map = prose(&readme).skip_while(|(_, line)| *line != "## The map").skip(1);
    for (at, line) in map.take_while(|(_, line)| !line.starts_with("## ")).filter(|(_, line)| line.starts_with('|')) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (folder, name) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let Some(folder) = folder.split('`').nth(1).map(|folder| folder.trim_end_matches('/')) else { continue };
        mapped.insert(folder.to_owned());
        let is = crates.get(folder).map_or("", String::as_str);
        if !tree.has(folder) {
            faults.add("README.md", at, &format!("there is no folder {folder}/: take its row out of the map"));
        } else if is != name.trim_matches('`') {
            faults.add(
                "README.md",
                at,
                &format!("the crate of {folder}/ is {is:?}: write its name in the second cell"),
            );
        }
    }
    let top = tree.files.iter().filter_map(|file| file.split_once('/')).map(|(folder, _)| folder.to_owned());
    for folder in top.filter(|folder| !folder.starts_with('.')).collect::<BTreeSet<_>>() {
        let below = format!("{folder}/");
        if !mapped.contains(&folder) && !mapped.iter().any(|mapped| mapped.starts_with(&below)) {
            faults.add("README.md", 1, &format!("the map has no row for {folder}/: add one"));
        }
    }
    for folder in crates.keys().filter(|folder| !mapped.contains(*folder)) {
        faults.add(&format!("{folder}/Cargo.toml"), 1, "the map in README.md has no row for this crate: add one");
    }
    faults.none()
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let tree = Tree::read()?;
    let mut faults = Faults::default();
    for page in tree.ending(".md") {
        let text = tree.text(page)?;
        for (at, line) in prose(&text) {
            for (_, target) in links(line).into_iter().filter(|(_, target)| !target.contains("://")) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let file = if path.is_empty() { Some(page.to_owned()) } else { resolve(folder_of(page), path) };
                let Some(file) = file.filter(|file| tree.has(file)) else {
                    faults.add(page, at, &format!("{target} leads nowhere: correct the path, relative to this page"));
                    continue;
                };
                if anchor.is_empty() {
                    continue;
                }
                if !file.ends_with(".md") || !anchors(&tree.text(&file)?).contains(anchor) {
                    faults.add(page, at, &format!("{file} has no heading for #{anchor}: correct the anchor"));
                }
            }
        }
    }
    faults.none()
}

#[test]
fn every_rule_names_tests_that_exist() -> Result<()> {
    const PAGE: &str = "wit/README.md";
    let tree = Tree::read()?;
    let page = tree.text(PAGE)?;
    let mut faults = Faults::default();
    // By its number: the line of its heading, and how many tests it names.
    let mut rules: Vec<(usize, usize)> = Vec::new();
    for (at, line) in prose(&page) {
        if let Some(rule) = line.strip_prefix("### Rule ") {
            rules.push((at, 0));
            let number = rule.split(':').next().and_then(|number| number.parse().ok());
            if number != Some(rules.len()) {
                faults.add(PAGE, at, &format!("this is rule {}: number the rules from 1 on", rules.len()));
            }
        }
        for (shown, target) in links(line).into_iter().filter(|(_, target)| target.ends_with(".rs")) {
            let Some(name) = shown.strip_prefix('`').and_then(|shown| shown.strip_suffix('`')) else { continue };
            let file = resolve(folder_of(PAGE), target).filter(|file| tree.files.contains(file));
            let text = file.as_deref().map(|file| tree.text(file)).transpose()?.unwrap_or_default();
            if text.lines().any(|line| declared(line, "fn ") == Some(name)) {
                if let Some((_, tests)) = rules.last_mut() {
                    *tests += 1;
                }
            } else {
                faults.add(PAGE, at, &format!("{target} has no fn {name}: name the test that protects the rule now"));
            }
        }
    }
    for (at, _) in rules.iter().filter(|(_, tests)| *tests == 0) {
        faults.add(PAGE, *at, "no test is named: add a link to the test that fails without the rule");
    }
    if rules.len() != RULES {
        faults.add(
            PAGE,
            1,
            &format!("there are {} rules, and RULES in tidy.rs says {RULES}: correct one", rules.len()),
        );
    }
    faults.none()
}

#[test]
fn no_line_is_longer_than_120_characters() -> Result<()> {
    let tree = Tree::read()?;
    let mut faults = Faults::default();
    let mut look = |file: &str, at: usize, line: &str| {
        let length = line.chars().count();
        if length > WIDTH_MAX && !is_one_word(line) {
            faults.add(file, at, &format!("{length} characters are more than {WIDTH_MAX}: wrap the line"));
        }
    };
    for page in tree.ending(".md") {
        let text = tree.text(page)?;
        for (at, line) in prose(&text).filter(|(_, line)| !line.starts_with('|')) {
            look(page, at, line);
        }
    }
    // What others wrote is kept as it is.
    for file in tree.ending(".wit").filter(|file| !file.contains("/deps/")) {
        for (at, line) in (1..).zip(tree.text(file)?.lines()) {
            look(file, at, line);
        }
    }
    // rustfmt wraps code, and neither comments nor texts. A text that a person reads may be longer.
    for file in tree.ending(".rs") {
        let text = tree.text(file)?;
        let mut is_fenced = false;
        for (at, line) in (1..).zip(text.lines()) {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                is_fenced = false;
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            is_fenced ^= comment.starts_with("```");
            if !is_fenced && !comment.starts_with('|') {
                look(file, at, line);
            }
        }
    }
    faults.none()
}

/// What one of MySQL and MariaDB lacks: tests start the other. MySQL 9.7 has these in a component alone.
const NOT_IN_MYSQL: &[&str] = &["MD5(", "SHA1(", "SHA("];

#[test]
fn statements_for_mysql_name_nothing_by_its_reserved_words() -> Result<()> {
    let tree = Tree::read()?;
    let listed = tree.text("adapters/mysql/tests/reserved_words.txt")?;
    let reserved: BTreeSet<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    ensure!(reserved.contains("GENERATED"), "the list lacks a word");
    let mut faults = Faults::default();
    let (mut names, mut are_types) = (0, BTreeSet::new());
    for file in tree.files.iter().filter(|file| file.starts_with("adapters/mysql/src/")) {
        for (at, line) in (1..).zip(tree.text(file)?.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for function in NOT_IN_MYSQL.iter().filter(|function| line.contains(**function)) {
                faults.add(file, at, &format!("MySQL 9.7 has no {function}): use SHA2"));
            }
            for after in line.split(" AS ").skip(1) {
                let word = after.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next();
                let word = word.unwrap_or_default().to_ascii_uppercase();
                names += 1;
                // CAST(value AS CHAR)
                if ["BINARY", "CHAR", "UNSIGNED"].contains(&word.as_str()) {
                    are_types.insert(word);
                } else if reserved.contains(word.as_str()) {
                    faults.add(file, at, &format!("{word} is reserved in MySQL: give the column another name"));
                }
            }
        }
    }
    ensure!(
        names > 50 && are_types.len() == 3,
        "{names} names, and {are_types:?}: statements are written otherwise now"
    );
    faults.none()
}

/// The text of every page, interface and program of the product, line by line, without this list.
#[test]
fn one_thing_has_one_word() -> Result<()> {
    let tree = Tree::read()?;
    let mut faults = Faults::default();
    let files = [".md", ".wit", ".rs", ".ts", ".py", ".toml"].into_iter().flat_map(|end| tree.ending(end));
    for file in files.filter(|file| !file.ends_with("/tidy.rs")) {
        for (at, line) in (1..).zip(tree.text(file)?.lines()) {
            let line = line.to_lowercase();
            for (words, instead) in OTHER_WORDS.iter().filter(|(words, _)| holds(&line, words)) {
                faults.add(file, at, &format!("write {instead:?} in place of {words:?}"));
            }
        }
    }
    faults.none()
}

/// A test that is renamed would leave the gate without a word.
#[test]
fn every_name_in_the_gate_is_that_of_a_test() -> Result<()> {
    let tree = Tree::read()?;
    let mut tests = BTreeSet::new();
    for file in tree.ending(".rs") {
        let module = file.strip_prefix("tests/tests/").and_then(|path| path.split_once('/'));
        let module = module.map_or("", |(_, module)| module.trim_end_matches(".rs"));
        for line in tree.text(file)?.lines() {
            if let Some(name) = declared(line, "fn ") {
                tests.insert(format!("{module}::{name}"));
            }
        }
    }
    let settings = tree.text(".config/nextest.toml")?;
    let (_, gate) = settings.split_once("default-filter = \"\"\"").context("there is a gate")?;
    let (gate, _) = gate.split_once("\"\"\"").context("it ends")?;
    let mut faults = Faults::default();
    for (nth, line) in gate.lines().enumerate() {
        for names in line.split("test(/").skip(1) {
            let (names, _) = names.split_once("/)").context("a name ends")?;
            for name in names.split('|') {
                let is_named = |test: &String| match name.strip_prefix('^') {
                    Some(begin) => test.starts_with(begin),
                    None => test.contains(name),
                };
                if !tests.iter().any(is_named) {
                    faults.add(
                        ".config/nextest.toml",
                        nth,
                        &format!("no test is called {name:?}: say what it is called now"),
                    );
                }
            }
        }
    }
    faults.none()
}

/// The packages of all languages, the WIT and the components in it are of one version, which `Cargo.toml` has.
#[test]
fn one_version_is_everywhere() -> Result<()> {
    const MANIFESTS: [(&str, &str, char); 4] = [
        ("host/node/package.json", "\"version\": \"", '"'),
        ("host/python/pyproject.toml", "version = \"", '"'),
        ("host/server/packaging/helm/unalike/Chart.yaml", "version: ", '\n'),
        ("host/server/packaging/helm/unalike/Chart.yaml", "appVersion: ", '\n'),
    ];
    let tree = Tree::read()?;
    let mut faults = Faults::default();
    let version_in = |text: &str, before: &str, behind: char| {
        let value = text.split(&format!("\n{before}")).nth(1).or_else(|| text.split(&format!("  {before}")).nth(1))?;
        value.split(behind).next().map(str::to_owned)
    };
    let version = version_in(&tree.text("Cargo.toml")?, "version = \"", '"').context("the workspace has no version")?;
    for (file, before, behind) in MANIFESTS {
        if version_in(&tree.text(file)?, before, behind).as_ref() != Some(&version) {
            faults.add(file, 1, &format!("{before}{version} is the version of the workspace"));
        }
    }
    let mut named = 0;
    for file in [".wit", ".rs", ".md", ".py", ".ts", ".mjs"].into_iter().flat_map(|end| tree.ending(end)) {
        for (at, line) in (1..).zip(tree.text(file)?.lines()) {
            for name in line.split("unalike:").skip(1) {
                let (name, rest) = name.split_once('@').unwrap_or((name, ""));
                let is_name = name.chars().all(|letter| letter.is_ascii_lowercase() || "-/".contains(letter));
                let other: String = rest.chars().take_while(|mark| mark.is_ascii_digit() || *mark == '.').collect();
                if is_name && !other.is_empty() {
                    named += 1;
                    if other.trim_end_matches('.') != version {
                        faults.add(file, at, &format!("unalike:{name}@{version} is the version of the workspace"));
                    }
                }
            }
        }
    }
    ensure!(named > 20, "only {named} names with a version were found");
    faults.none()
}

/// Whether a line has these words as whole words.
fn holds(line: &str, words: &str) -> bool {
    line.match_indices(words).any(|(at, _)| {
        let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + words.len()..).unwrap_or_default());
        let is_letter = |letter: char| letter.is_alphanumeric();
        !before.ends_with(is_letter) && !after.starts_with(is_letter)
    })
}

/// Whether a line is one word, after a mark of a list or of a comment: it cannot be wrapped.
fn is_one_word(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!', '-']).trim();
    !text.contains(' ')
}

#[test]
fn every_rust_file_belongs_to_a_crate() -> Result<()> {
    let tree = Tree::read()?;
    let mut known = BTreeSet::new();
    let mut open: Vec<(String, bool)> = Vec::new();
    for folder in tree.crates()?.keys() {
        for file in tree.ending(".rs") {
            let Some(inside) = file.strip_prefix(folder).and_then(|file| file.strip_prefix('/')) else { continue };
            let folder = folder_of(inside);
            let is_program = inside.ends_with("/main.rs") && folder_of(folder) == "tests";
            let is_root = ["src/lib.rs", "src/main.rs", "build.rs"].contains(&inside)
                || ["src/bin", "tests", "benches", "examples"].contains(&folder)
                || is_program;
            if is_root {
                open.push((file.to_owned(), true));
            }
        }
    }
    let mut faults = Faults::default();
    while let Some((file, is_root)) = open.pop() {
        if !known.insert(file.clone()) {
            continue;
        }
        let folder = folder_of(&file);
        let is_of_folder = is_root || file.ends_with("/mod.rs");
        let below = if is_of_folder { folder } else { file.trim_end_matches(".rs") };
        let text = tree.text(&file)?;
        let mut path = None;
        for (at, line) in (1..).zip(text.lines()) {
            let attribute = line.trim_start().strip_prefix("#[path = \"");
            path = attribute.and_then(|path| path.split('"').next()).or(path);
            let Some(name) = declared(line, "mod ").filter(|_| line.trim_end().ends_with(';')) else { continue };
            let places = match path.take() {
                Some(path) => [resolve(folder, path), None],
                None => [Some(format!("{below}/{name}.rs")), Some(format!("{below}/{name}/mod.rs"))],
            };
            match places.into_iter().flatten().find(|place| tree.files.contains(place)) {
                Some(place) => open.push((place, false)),
                None => faults.add(&file, at, &format!("the file of mod {name} is not in the repository: add it")),
            }
        }
    }
    for file in tree.ending(".rs").filter(|file| !known.contains(*file)) {
        faults.add(file, 1, "no mod includes this file: declare it, or delete it");
    }
    faults.none()
}

/// The paths that a file imports or names from its own crate, each as its words: `crate`, `super` or `self` first.
fn named_paths(text: &str) -> Vec<Vec<String>> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, " "]).collect();
    let mut paths = Vec::new();
    for statement in code.split("use ").skip(1) {
        let tree = statement.split(';').next().unwrap_or_default();
        unfold(&mut Vec::new(), tree, &mut paths);
    }
    for begin in ["crate::", "super::"] {
        for (at, _) in code.match_indices(begin) {
            let path = code.get(at..).unwrap_or_default();
            let end = path.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
            unfold(&mut Vec::new(), path.get(..end.unwrap_or(path.len())).unwrap_or_default(), &mut paths);
        }
    }
    paths.retain(|path| matches!(path.first().map(String::as_str), Some("crate" | "super" | "self")));
    paths
}

/// Adds the paths of a tree of imports: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn unfold(before: &mut Vec<String>, tree: &str, paths: &mut Vec<Vec<String>>) {
    let (mut depth, mut begin) = (0_usize, 0);
    let mut branches = Vec::new();
    for (at, letter) in tree.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                branches.push(tree.get(begin..at).unwrap_or_default());
                begin = at + 1;
            }
            _ => {}
        }
    }
    branches.push(tree.get(begin..).unwrap_or_default());
    for branch in branches.into_iter().map(str::trim).filter(|branch| !branch.is_empty()) {
        let (path, below) = branch.split_once('{').map_or((branch, None), |(path, below)| (path, Some(below)));
        let words = path.split("::").map(str::trim).filter(|word| !word.is_empty());
        let known = before.len();
        before.extend(words.map(|word| word.split(' ').next().unwrap_or_default().to_owned()));
        match below {
            Some(below) => unfold(before, below.rsplit_once('}').map_or(below, |(below, _)| below), paths),
            None => paths.push(before.clone()),
        }
        before.truncate(known);
    }
}

/// The module that a path leads to, from this one: the longest beginning of it that is a file.
fn module_of(path: &[String], from: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut words: Vec<&str> = from.split("::").filter(|word| !word.is_empty()).collect();
    for word in path {
        match word.as_str() {
            "crate" => words.clear(),
            "super" => drop(words.pop()),
            "self" => {}
            word => words.push(word),
        }
    }
    (0..=words.len())
        .rev()
        .filter_map(|length| words.get(..length))
        .map(|words| words.join("::"))
        .find(|module| modules.contains(module))
}

/// Those that reach each other, of everything that each reaches.
fn circles(reached: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|known| known.contains(to));
    let circle = |module: &String| {
        let known = reached.get(module).into_iter().flatten();
        known.filter(|other| reaches(other, module)).cloned().collect::<BTreeSet<_>>()
    };
    reached.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// The wings of the server, each of which imports only those before it.
const WINGS: [&str; 5] = ["words", "config", "service", "http", "commands"];

/// Two files may know each other, as a type and what it is made of do. More are a knot.
const CIRCLE_MAX: usize = 2;

#[test]
fn hosts_import_in_one_direction() -> Result<()> {
    let tree = Tree::read()?;
    let mut faults = Faults::default();
    for folder in tree.crates()?.keys().filter(|folder| folder.starts_with("host/")) {
        let src = format!("{folder}/src/");
        let module = |file: &str| {
            let path = file.strip_prefix(&src)?.strip_suffix(".rs")?;
            Some(if ["lib", "main"].contains(&path) { String::new() } else { path.replace('/', "::") })
        };
        let files: BTreeMap<String, &str> = tree.ending(".rs").filter_map(|file| Some((module(file)?, file))).collect();
        let modules: BTreeSet<String> = files.keys().cloned().collect();
        let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, file) in &files {
            let paths = named_paths(&tree.text(file)?);
            let known = paths.iter().filter_map(|path| module_of(path, from, &modules));
            reached.insert(from.clone(), known.filter(|other| other != from).collect());
        }
        if folder == "host/server" {
            for (from, others) in &reached {
                let wing = |module: &str| WINGS.iter().position(|wing| module.split("::").next() == Some(wing));
                for other in others.iter().filter(|other| wing(from).is_some() && wing(other) > wing(from)) {
                    let file = files.get(from).copied().unwrap_or_default();
                    faults.add(
                        file,
                        1,
                        &format!("it imports {other}, which comes after it in {WINGS:?}: turn that around"),
                    );
                }
            }
        }
        // What is reached by way of others, too.
        for _ in 0..modules.len() {
            let further = |others: &BTreeSet<String>| {
                let more = others.iter().filter_map(|other| reached.get(other)).flatten().cloned();
                others.iter().cloned().chain(more).collect::<BTreeSet<_>>()
            };
            let next: BTreeMap<_, _> = reached.iter().map(|(from, others)| (from.clone(), further(others))).collect();
            if next == reached {
                break;
            }
            reached = next;
        }
        for circle in circles(&reached).into_iter().filter(|circle| circle.len() > CIRCLE_MAX) {
            let file = circle.first().and_then(|first| files.get(first)).copied().unwrap_or_default();
            faults.add(
                file,
                1,
                &format!("{circle:?} import each other in a circle: move what they share to a file of its own"),
            );
        }
    }
    faults.none()
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let paths = |text: &str| named_paths(text).into_iter().map(|path| path.join("::")).collect::<Vec<_>>();
    let code = "use std::fmt;\nuse crate::a::{self, b::{C, D as E}, f};\nuse super::g;\n// use crate::no;\nlet x = crate::h::i();\n";
    let wanted = ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::f", "super::g", "crate::h::i"];
    let found = paths(code);
    for path in wanted {
        assert!(found.contains(&path.to_owned()), "{path}: {found:?}");
    }
    let modules: BTreeSet<String> = ["", "a", "a::b", "c"].map(str::to_owned).into();
    let leads =
        |path: &str, from: &str| module_of(&path.split("::").map(str::to_owned).collect::<Vec<_>>(), from, &modules);
    assert_eq!(leads("crate::a::b::C", "c").as_deref(), Some("a::b"));
    assert_eq!(leads("super::c::D", "a").as_deref(), Some("c"));
    assert_eq!(leads("self::b", "a").as_deref(), Some("a::b"));
    let reached = |text: &[(&str, &[&str])]| {
        text.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect())).collect()
    };
    let knot: BTreeMap<String, BTreeSet<String>> =
        reached(&[("a", &["b", "c", "a"]), ("b", &["a", "c", "b"]), ("c", &[])]);
    assert_eq!(circles(&knot), BTreeSet::from([["a", "b"].map(str::to_owned).into()]));
}

#[test]
fn pages_are_read_as_their_host_reads_them() {
    let page = "# A `b` (c)\n[x](y#z) and [`u`](v)\n```\n# no [q](r)\n```\n## A b c\n### Rule 1: d's, e\n";
    let wanted = ["a-b-c", "a-b-c-1", "rule-1-ds-e"].map(str::to_owned);
    assert_eq!(anchors(page), wanted.into());
    let found: Vec<_> = prose(page).flat_map(|(_, line)| links(line)).collect();
    assert_eq!(found, [("x", "y#z"), ("`u`", "v")]);
    assert_eq!(resolve("host/server", "../../wit/README.md").as_deref(), Some("wit/README.md"));
    assert_eq!(resolve("", "../secret"), None);
    assert_eq!(declared("    pub(crate) async fn a_b(c: u8) {", "fn "), Some("a_b"));
    assert_eq!(declared("// a fn in a comment", "fn "), None);
}
