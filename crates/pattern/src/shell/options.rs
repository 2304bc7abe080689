//! Options with which a program reads only the files named on its command line.
//!
//! The rules that come with aye allow programs by their names, so their options need a list of their own. The
//! list contains the safe options, not the dangerous ones: an option missing here, an abbreviated one and one
//! added by a later version of the program all ask. Options that are missing on purpose take names or text
//! from a file (`wc --files0-from`, `grep -f`, `git blame -S`), follow links out of the workspace (`grep -R`,
//! `rg -L`, `find -L`), or traverse whole folders (`diff -r`).

use super::Word;

/// The harmless options of a program.
struct Options {
    /// The program, or the program and its subcommand.
    names: &'static [&'static str],
    /// Letters that take no value, and so can be followed by others.
    flags: &'static str,
    /// Letters that take the rest of the word as their value, or the next word.
    valued: &'static str,
    /// Letters that take the rest of the word, if any, as their value.
    glued: &'static str,
    /// Complete names after `--` (`find`: after `-`), with or without `=value`.
    long: &'static str,
}

const NONE: Options = Options { names: &[], flags: "", valued: "", glued: "", long: "" };

const DIGITS: &str = "0123456789";

/// Programs that are not here have no option that opens a file which is not named as a word of its own.
const OPTIONS: &[Options] = &[
    Options {
        names: &["ls"],
        flags: "aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ1",
        valued: "ITw",
        long: "all almost-all author escape block-size color directory classify file-type format full-time \
               group-directories-first no-group human-readable si hide ignore inode indicator-style literal \
               numeric-uid-gid hide-control-chars show-control-chars quote-name quoting-style reverse recursive \
               size sort time time-style width context zero",
        ..NONE
    },
    Options { names: &["wc"], flags: "clmwL", long: "bytes chars lines words max-line-length total", ..NONE },
    Options {
        names: &["du"],
        flags: "0abchklmPsSx",
        valued: "Bdt",
        long: "null all apparent-size bytes total block-size max-depth human-readable si exclude inodes \
               no-dereference separate-dirs summarize threshold time time-style one-file-system",
        ..NONE
    },
    Options {
        names: &["sort"],
        flags: "bcCdfghiMmnrRsuVz",
        valued: "kt",
        long: "ignore-leading-blanks check dictionary-order ignore-case general-numeric-sort ignore-nonprinting \
               month-sort human-numeric-sort numeric-sort random-sort reverse sort version-sort key merge stable \
               field-separator unique zero-terminated debug parallel",
        ..NONE
    },
    Options {
        names: &["uniq"],
        flags: "cdDiuz",
        valued: "fsw",
        long: "count repeated all-repeated skip-fields group ignore-case skip-chars unique zero-terminated \
               check-chars",
        ..NONE
    },
    Options {
        names: &["diff"],
        flags: "abBcdeEinNpqstTuwyZ",
        valued: "CFIUW",
        long: "brief report-identical-files context unified ed normal rcs side-by-side width left-column \
               suppress-common-lines show-c-function show-function-line label expand-tabs initial-tab tabsize \
               new-file ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change \
               ignore-all-space ignore-blank-lines ignore-matching-lines text strip-trailing-cr minimal \
               speed-large-files color",
        ..NONE
    },
    Options {
        names: &["grep"],
        flags: "abcEFGhHiIlLnoPqrsTUvVwxyzZ",
        valued: "ABCem",
        long: "extended-regexp fixed-strings basic-regexp perl-regexp regexp ignore-case no-ignore-case \
               word-regexp line-regexp null-data no-messages invert-match version max-count byte-offset \
               line-number line-buffered with-filename no-filename label only-matching quiet silent binary-files \
               text recursive include exclude exclude-dir files-without-match files-with-matches count \
               initial-tab null before-context after-context context group-separator no-group-separator color \
               colour binary",
        ..NONE
    },
    Options {
        names: &["rg"],
        flags: "abcFhHiIlnNopPqsSuUvVwx0.",
        valued: "ABCdeEgjmMrtT",
        long: "after-context before-context binary block-buffered byte-offset case-sensitive color colors column \
               context context-separator count count-matches crlf encoding engine field-context-separator \
               field-match-separator files files-with-matches files-without-match fixed-strings glob \
               glob-case-insensitive heading hidden iglob ignore-case include-zero invert-match json \
               line-buffered line-number line-regexp max-columns max-columns-preview max-count max-depth \
               max-filesize multiline multiline-dotall no-config no-filename no-heading no-hidden no-ignore \
               no-ignore-dot no-ignore-exclude no-ignore-files no-ignore-global no-ignore-messages \
               no-ignore-parent no-ignore-vcs no-line-number no-messages no-require-git no-unicode null \
               one-file-system only-matching passthru path-separator pcre2 pretty quiet regexp replace \
               smart-case sort sortr stats text threads trim type type-list type-not unrestricted version \
               vimgrep with-filename word-regexp",
        ..NONE
    },
    Options {
        names: &["find"],
        long: "name iname path ipath wholename iwholename regex iregex regextype type xtype maxdepth mindepth \
               depth size empty mtime mmin atime amin ctime cmin newer newermt anewer cnewer used perm user group \
               uid gid nouser nogroup links inum samefile lname ilname readable writable executable prune quit \
               print print0 printf ls not a and o or true false mount xdev daystart fstype",
        ..NONE
    },
    Options {
        names: &["fd"],
        flags: "HIsigFap0u1",
        valued: "detEcS",
        long: "hidden no-ignore no-ignore-vcs case-sensitive ignore-case glob regex fixed-strings absolute-path \
               full-path max-depth min-depth exact-depth type extension exclude size changed-within \
               changed-before max-results color print0 unrestricted and",
        ..NONE
    },
    Options {
        names: &["md5sum", "sha1sum", "sha256sum"],
        flags: "btz",
        long: "binary tag text zero",
        ..NONE
    },
    Options {
        names: &["sed"],
        flags: "nrEsuz",
        valued: "el",
        long: "quiet silent expression regexp-extended separate unbuffered null-data line-length posix debug",
        ..NONE
    },
    Options {
        names: &["date"],
        flags: "u",
        glued: "I",
        long: "utc universal iso-8601 rfc-3339 rfc-email",
        ..NONE
    },
    Options { names: &["git status"], flags: "bsvz", glued: "uM", long: GIT_LONG, ..NONE },
    Options { names: &["git ls-files"], flags: "cdikmorstuvz", long: GIT_LONG, ..NONE },
    Options { names: &["git blame"], flags: "bcefhlnpstw", valued: "L", glued: "CM", long: GIT_LONG },
    Options { names: &["git grep"], flags: "acEFGhHiIlLnopPqrvwWz", valued: "ABCem", long: GIT_LONG, ..NONE },
    Options {
        names: &["git"],
        flags: "abcdDeEFghHikmpPqrRstuvwWz",
        valued: "GlLnSU",
        glued: "BCM",
        long: GIT_LONG,
    },
];

/// The long options of git's reading commands; a name that only one of them knows does nothing in the others.
const GIT_LONG: &str = "abbrev abbrev-commit abbrev-ref absolute-git-dir after ahead-behind all all-match always \
    ancestor-path and anchored author author-date-order before boundary branch branches break-rewrites cached \
    candidates cc check cherry cherry-mark cherry-pick children color color-moved color-words column combined-all-paths \
    committer contains count cumulative date date-order decorate deleted dense diff-algorithm diff-filter dirstat \
    dirty email error-unmatch exact-match exclude-standard exit-code extended-regexp files-with-matches \
    files-without-match find-copies find-object find-renames first-parent fixed-strings follow fork-point format \
    full-diff full-history full-index full-name full-tree function-context git-common-dir git-dir glob graph grep \
    histogram ignore-all-space ignore-blank-lines ignore-case ignore-cr-at-eol ignore-matching-lines \
    ignore-space-at-eol ignore-space-change ignored incremental independent inter-hunk-context invert-grep \
    invert-match is-ancestor is-bare-repository is-inside-git-dir is-inside-work-tree left-only left-right \
    line-number line-porcelain list local-env-vars log-size long match max-count max-depth merge-base merged merges \
    min-parents minimal modified name-only name-rev name-status no-abbrev no-abbrev-commit no-ahead-behind no-color \
    no-contains no-decorate no-ext-diff no-index-prefix no-max-parents no-merged no-merges no-min-parents no-notes \
    no-patch no-prefix no-renames no-textconv no-walk not notes null numbered numstat object-only oneline \
    only-matching or others parents patch patch-with-raw patch-with-stat patience perl-regexp pickaxe-all \
    pickaxe-regex points-at porcelain pretty quiet raw refs regexp-ignore-case relative remotes reverse right-only \
    root score-debug shortstat short show-cdup show-current show-email show-function show-name show-number show-prefix \
    show-pulls show-stash show-superproject-working-tree show-toplevel simplify-by-decoration simplify-merges since \
    skip sort sparse staged stage stat stat-count stat-width summary symbolic symbolic-full-name tags text threshold \
    timestamp topo-order until unified unmerged untracked untracked-files upstream use-mailmap verbose verify version \
    walk-reflogs word-diff word-diff-regex word-regexp ws-error-highlight";

/// A program with an option by which it may read more than the files it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` may read more than the files it names")]
pub struct ReadsMore(String);

/// Checks that every option of a command keeps the program to the files it is named.
///
/// # Errors
/// [`ReadsMore`]: the option that may do more.
pub fn only_named(words: &[Word]) -> Result<(), ReadsMore> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let (name, first) = match texts.as_slice() {
        ["git", sub, ..] if !sub.starts_with('-') => (format!("git {sub}"), 2),
        [program, ..] => ((*program).to_owned(), 1),
        [] => return Ok(()),
    };
    let is_for = |wanted: &str| OPTIONS.iter().find(|options| options.names.contains(&wanted));
    let Some(options) = is_for(&name).or_else(|| is_for(texts[0]).filter(|_| first == 2)) else {
        return Ok(());
    };
    let mut i = first;
    while let Some(&text) = texts.get(i) {
        i += 1;
        let is_fine = if texts[0] == "find" {
            // `-mtime -7`: a number is a value.
            let name = text.strip_prefix('-').filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
            name.is_none_or(|name| options.has_long(name))
        } else if text == "--" {
            return Ok(());
        } else if let Some(long) = text.strip_prefix("--") {
            options.has_long(long.split('=').next().unwrap_or(long))
        } else if let Some(letters) = text.strip_prefix('-') {
            match options.cluster(letters) {
                Some(true) => {
                    // A value that looks like an option may be one in another version of the program.
                    let is_value = texts.get(i).is_none_or(|value| !value.starts_with('-'));
                    i += 1;
                    is_value
                }
                Some(false) => true,
                None => false,
            }
        } else {
            true
        };
        if !is_fine {
            return Err(ReadsMore(format!("{name} {text}")));
        }
    }
    Ok(())
}

impl Options {
    fn has_long(&self, name: &str) -> bool {
        self.long.split_whitespace().any(|long| long == name)
    }

    /// Returns whether a cluster of letters takes the next word as a value; nothing if it contains an unknown
    /// letter.
    fn cluster(&self, letters: &str) -> Option<bool> {
        for (at, letter) in letters.char_indices() {
            if self.valued.contains(letter) {
                return Some(at + letter.len_utf8() == letters.len());
            }
            if self.glued.contains(letter) {
                return Some(false);
            }
            if !self.flags.contains(letter) && !DIGITS.contains(letter) {
                return None;
            }
        }
        Some(false)
    }
}
