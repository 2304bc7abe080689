//! Lines over the options of programs: those that a program lists in its help, and single letters.

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

/// What `awk` and `sed` are told.
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

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("64 bits") % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

pub(super) struct Lines {
    dice: Dice,
    programs: Vec<String>,
    /// The long options of each program.
    options: BTreeMap<String, Vec<String>>,
}

impl Lines {
    /// Asks each program for its options with `run`.
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
        // The seed of such dice must not be 0, and small ones begin alike.
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..16 {
            dice.below(2);
        }
        Lines { dice, programs, options }
    }

    fn word(&mut self, program: &str) -> String {
        match self.dice.below(8) {
            0..=3 => self.dice.one(OPERANDS).to_owned(),
            4 | 5 => {
                let long = self.options.get(program).filter(|options| !options.is_empty());
                let name = match long {
                    Some(options) => options[self.dice.below(options.len())].clone(),
                    None => "version".to_owned(),
                };
                let value = if self.dice.below(4) == 0 {
                    format!(" {}", self.dice.one(OPERANDS))
                } else {
                    self.dice.one(VALUES).to_owned()
                };
                format!("--{name}{value}")
            }
            _ => {
                let letters: String =
                    (0..=self.dice.below(3)).map(|_| char::from(self.dice.one(LETTERS))).collect();
                format!("-{letters}{}", self.dice.one(GLUED))
            }
        }
    }

    fn command(&mut self) -> String {
        let at = self.dice.below(self.programs.len());
        let program = self.programs[at].clone();
        let first = program.split(' ').next().unwrap_or_default();
        let mut words = vec![program.clone()];
        let special = match first {
            "awk" | "gawk" | "mawk" => Some(AWK),
            "sed" => Some(SED),
            "find" => Some(FIND),
            _ => None,
        };
        if let Some(special) = special.filter(|_| self.dice.below(5) > 0) {
            words.push(self.dice.one(special).to_owned());
        }
        for _ in 0..self.dice.below(4) {
            let word = self.word(&program);
            words.push(word);
        }
        words.join(" ")
    }

    /// The next line.
    pub(super) fn line(&mut self) -> String {
        let line = self.command();
        match self.dice.below(10) {
            0 => format!("{line} | {}", self.command()),
            1 => format!("{line} && {}", self.command()),
            2 => format!("{line}; {}", self.command()),
            3 => format!("timeout 1 {line}"),
            4 => format!(
                "cd {} && {line}",
                self.dice.one(&["src", "src/deep", "link", "out", "nowhere", ".."])
            ),
            _ => line,
        }
    }
}
