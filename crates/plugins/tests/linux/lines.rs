//! Lines over the options of programs: those listed in a program's help, and single letters.

use fastrand::Rng;
use std::collections::BTreeMap;

const OPERANDS: &[&str] = &[
    "a.txt",
    "b.txt",
    "src",
    "src/deep",
    ".env",
    "./.env",
    "src/denied.txt",
    "keys/server.pem",
    "keys",
    "../outside/secret",
    "../secret",
    "../../outside/secret",
    "out/secret",
    "out",
    "outfile",
    "-",
    "--",
    "*.txt",
    ".e*",
    "*",
    "src/*",
    "HEAD",
    "HEAD:a.txt",
    "HEAD:.env",
    ":0:.env",
    "made1",
    "../outside/made2",
    "/tmp/made",
    "1",
    "x",
    ".",
    "..",
    "link/../..",
    "link",
    "/etc/hostname",
    "/etc/shadow",
    "~/notes",
    "list",
    "names",
    "v1",
    "/proc/self/root",
    "/proc/self/environ",
    "~/.ssh/id_rsa",
];
const VALUES: &[&str] = &[
    "",
    "",
    "",
    "=.env",
    "=../outside/secret",
    "=out/secret",
    "=outfile",
    "=made3",
    "=../outside/made",
    "=1",
    "=list",
    "=names",
    "=a.txt",
    "='cat ../outside/secret'",
    "=evil.sed",
];
const GLUED: &[&str] =
    &["", "", "", ".env", "../outside/secret", "outfile", "out/secret", "../outside/m", "1", "names"];
const LETTERS: &[u8] = b"aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ0159.";

/// Scripts for `awk` and `sed`.
const AWK: &[&str] = &[
    "'{print $1}'",
    "'BEGIN{while((getline l < \"../outside/secret\")>0) print l}'",
    "'BEGIN{while((getline l < \".env\")>0) print l}'",
    "'BEGIN{while((\"cat ~/notes src/denied.txt\" | getline l)>0) print l}'",
    "'BEGIN{ARGV[1]=\"out/secret\"; ARGC=2} {print}'",
    "'{print > \"made5\"}'",
    "'{print >> \"../outside/secret\"}'",
    "'{print | \"tee ../outside/made6\"}'",
    "'BEGIN{system(\"cat ../outside/secret; touch ../outside/made7 made8; chmod 777 ../outside\")}'",
    "'BEGIN{system(\"find / -name secret -exec cat {} +\")}'",
    "'BEGIN{printf \"x\" > \"/tmp/../outside/m\"; close(\"x\"); print ENVIRON[\"HOME\"]}'",
    "'@load \"filefuncs\"; BEGIN{chdir(\"..\"); while((getline l < \"secret\")>0) print l}'",
    "'BEGIN{s=\"/inet/tcp/0/127.0.0.1/22\"; s |& getline l; print l}'",
    "'BEGIN{system(\"ln -s ../outside/secret s; mv a.txt b.txt; rm -rf src ../home\")}'",
    "-f evil.awk",
    "-i inplace '{print \"x\"}'",
    "-f ../outside/secret",
];
const SED: &[&str] = &[
    "-n 1,5p",
    "-n '/x/{p;q}'",
    "s/o/x/",
    "-n '/[a-z]/p'",
    "'r ../outside/secret'",
    "'w made9'",
    "'1e cat ~/notes'",
    "-i s/o/x/",
    "-f evil.sed",
    "'s/x/cat .env/e'",
    "'s/o/x/w ../outside/m'",
    "-n '$='",
    "'1R out/secret'",
    "--debug p",
    "'/[/]/{p}'",
    "-s -n '$p'",
    "'y/o/x/;p'",
    "--sandbox p",
    "-E 's/(o)/\\1/p'",
];
const FIND: &[&str] = &[
    "-exec cat {} +",
    "-delete",
    "-fprint made",
    "-newer out/secret",
    "-samefile outfile",
    "-follow",
    "-L",
    "-type f",
    "-lname '*secret*'",
    "-printf '%l %p'",
    "-execdir cat {} ;",
    "-ls",
    "-files0-from list",
    "-maxdepth 2",
];

/// Picks one at random.
fn one<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    *random.choice(of).expect("not empty")
}

pub(super) struct Lines {
    random: Rng,
    programs: Vec<String>,
    /// The long options of each program.
    options: BTreeMap<String, Vec<String>>,
}

impl Lines {
    /// Reads the options of each program with `run`.
    pub(super) fn new(seed: u64, programs: Vec<String>, run: impl Fn(&str) -> String) -> Lines {
        let ask = |program: &String| {
            let help = if program.starts_with("git ") {
                format!("{program} -h")
            } else {
                format!("{program} --help")
            };
            let text = run(&format!("{help} 2>&1 | head -c 60000"));
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let words = text.match_indices("--").map(|(at, _)| {
                let rest = &text[at + 2..];
                &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
            });
            let mut found: Vec<String> = words.filter(|word| word.len() > 1).map(str::to_owned).collect();
            found.sort();
            found.dedup();
            (program.clone(), found)
        };
        let options = programs.iter().map(ask).collect();
        let random = Rng::with_seed(seed);
        Lines { random, programs, options }
    }

    fn word(&mut self, program: &str) -> String {
        match self.random.usize(..8) {
            0..=3 => one(&mut self.random, OPERANDS).to_owned(),
            4 | 5 => {
                let long = self.options.get(program).filter(|options| !options.is_empty());
                let name = match long {
                    Some(options) => options[self.random.usize(..options.len())].clone(),
                    None => "version".to_owned(),
                };
                let value = if self.random.usize(..4) == 0 {
                    format!(" {}", one(&mut self.random, OPERANDS))
                } else {
                    one(&mut self.random, VALUES).to_owned()
                };
                format!("--{name}{value}")
            }
            _ => {
                let letters: String = (0..=self.random.usize(..3))
                    .map(|_| char::from(one(&mut self.random, LETTERS)))
                    .collect();
                format!("-{letters}{}", one(&mut self.random, GLUED))
            }
        }
    }

    fn command(&mut self) -> String {
        let at = self.random.usize(..self.programs.len());
        let program = self.programs[at].clone();
        let first = program.split(' ').next().unwrap_or_default();
        let mut words = vec![program.clone()];
        let special = match first {
            "awk" | "gawk" | "mawk" => Some(AWK),
            "sed" => Some(SED),
            "find" => Some(FIND),
            _ => None,
        };
        if let Some(special) = special.filter(|_| self.random.usize(..5) > 0) {
            words.push(one(&mut self.random, special).to_owned());
        }
        for _ in 0..self.random.usize(..4) {
            let word = self.word(&program);
            words.push(word);
        }
        words.join(" ")
    }

    /// Generates the next line.
    pub(super) fn line(&mut self) -> String {
        let line = self.command();
        match self.random.usize(..10) {
            0 => format!("{line} | {}", self.command()),
            1 => format!("{line} && {}", self.command()),
            2 => format!("{line}; {}", self.command()),
            3 => format!("timeout 1 {line}"),
            4 => format!(
                "cd {} && {line}",
                one(&mut self.random, &["src", "src/deep", "link", "out", "nowhere", ".."])
            ),
            _ => line,
        }
    }
}
