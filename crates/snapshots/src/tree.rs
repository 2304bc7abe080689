//! The files of a folder as pieces: each folder is a piece that names its rows, so equal folders are one.

use std::collections::BTreeMap;

use aye_store_sqlite::objects::{Hash, ObjectError, ObjectKind, Objects, hash_of};

/// The kind of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    File,
    /// One that may be executed.
    Program,
    /// A symbolic link; its piece says where it leads.
    Link,
    /// The path exists but was not kept: too large, or unreadable.
    LeftOut,
    /// The path does not exist: in trees of single files only.
    Absent,
}

/// A path that is not a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: PathKind,
    pub(super) hash: Hash,
}

/// All paths of a tree, relative, with `/`, in bytes as the system has them.
pub(super) type Items = BTreeMap<Vec<u8>, Item>;

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeDifference {
    pub(super) path: Vec<u8>,
    pub(super) before: Option<Item>,
    pub(super) after: Option<Item>,
}

enum TreeNode {
    Entry(Item),
    Folder(BTreeMap<Vec<u8>, TreeNode>),
}

pub(super) const FOLDER: u8 = b'd';

pub(super) fn letter(kind: PathKind) -> u8 {
    match kind {
        PathKind::File => b'f',
        PathKind::Program => b'x',
        PathKind::Link => b'l',
        PathKind::LeftOut => b'-',
        PathKind::Absent => b'0',
    }
}

/// The pieces of all folders of a tree, and the name of the topmost one.
pub(super) fn build(items: &Items) -> (Hash, Vec<(Hash, Vec<u8>)>) {
    let mut top = BTreeMap::new();
    for (path, item) in items {
        let mut place = &mut top;
        let mut parts = path.split(|b| *b == b'/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                place.insert(part.to_vec(), TreeNode::Entry(*item));
                break;
            }
            let node = place.entry(part.to_vec()).or_insert_with(|| TreeNode::Folder(BTreeMap::new()));
            match node {
                TreeNode::Folder(below) => place = below,
                // A path that changed from a file to a folder while the walk went by.
                TreeNode::Entry(_) => break,
            }
        }
    }
    let mut pieces = Vec::new();
    let hash = write(&top, &mut pieces);
    (hash, pieces)
}

fn write(folder: &BTreeMap<Vec<u8>, TreeNode>, pieces: &mut Vec<(Hash, Vec<u8>)>) -> Hash {
    let mut bytes = Vec::new();
    for (name, node) in folder {
        let (letter, hash) = match node {
            TreeNode::Entry(item) => (letter(item.kind), item.hash),
            TreeNode::Folder(below) => (FOLDER, write(below, pieces)),
        };
        row(&mut bytes, letter, &hash, name);
    }
    let hash = hash_of(ObjectKind::Folder, &bytes);
    pieces.push((hash, bytes));
    hash
}

/// Adds a row to a folder's piece.
pub(super) fn row(bytes: &mut Vec<u8>, letter: u8, hash: &Hash, name: &[u8]) {
    bytes.push(letter);
    bytes.extend_from_slice(hash);
    bytes.extend_from_slice(name);
    bytes.push(0);
}

enum TreeRow<'a> {
    Item(&'a [u8], Item),
    Folder(&'a [u8], Hash),
}

/// Parses the rows of a folder. A row with an invalid name is damage: it could lead out of the folder.
fn rows(bytes: &[u8]) -> Result<Vec<TreeRow<'_>>, ObjectError> {
    let mut rows = Vec::new();
    let mut rest = bytes;
    while let Some((letter, after)) = rest.split_first() {
        let (hash, after) = after.split_first_chunk::<32>().ok_or(ObjectError::Damaged)?;
        let end = after.iter().position(|b| *b == 0).ok_or(ObjectError::Damaged)?;
        let name = &after[..end];
        if name.is_empty() || name == b"." || name == b".." || name == b".git" || name.contains(&b'/') {
            return Err(ObjectError::Damaged);
        }
        let item = |kind| TreeRow::Item(name, Item { kind, hash: *hash });
        rows.push(match *letter {
            FOLDER => TreeRow::Folder(name, *hash),
            b'f' => item(PathKind::File),
            b'x' => item(PathKind::Program),
            b'l' => item(PathKind::Link),
            b'-' => item(PathKind::LeftOut),
            b'0' => item(PathKind::Absent),
            _ => return Err(ObjectError::Damaged),
        });
        rest = &after[end + 1..];
    }
    Ok(rows)
}

/// The pieces that a folder names.
pub(super) fn references(bytes: &[u8]) -> Vec<(ObjectKind, Hash)> {
    let named = |row: TreeRow<'_>| match row {
        TreeRow::Folder(_, hash) => Some((ObjectKind::Folder, hash)),
        TreeRow::Item(_, item) => (!matches!(item.kind, PathKind::LeftOut | PathKind::Absent))
            .then_some((ObjectKind::Bytes, item.hash)),
    };
    rows(bytes).map(|rows| rows.into_iter().filter_map(named).collect()).unwrap_or_default()
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() { name.to_vec() } else { [above, b"/", name].concat() }
}

/// All paths of a tree below a folder.
fn collect(objects: &Objects, folder: &Hash, above: &[u8], into: &mut Items) -> Result<(), ObjectError> {
    let bytes = objects.get(ObjectKind::Folder, folder)?;
    for row in rows(&bytes)? {
        match row {
            TreeRow::Item(name, item) => drop(into.insert(join(above, name), item)),
            TreeRow::Folder(name, hash) => collect(objects, &hash, &join(above, name), into)?,
        }
    }
    Ok(())
}

/// All paths of a tree.
pub(super) fn all(objects: &Objects, tree: &Hash) -> Result<Items, ObjectError> {
    let mut all = Items::new();
    collect(objects, tree, b"", &mut all)?;
    Ok(all)
}

/// Returns the item at a path of a tree.
pub(super) fn item_at(objects: &Objects, tree: &Hash, path: &[u8]) -> Result<Option<Item>, ObjectError> {
    let bytes = objects.get(ObjectKind::Folder, tree)?;
    let (name, below) = match path.iter().position(|b| *b == b'/') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    };
    for row in rows(&bytes)? {
        match (row, below) {
            (TreeRow::Item(here, item), None) if here == name => return Ok(Some(item)),
            (TreeRow::Folder(here, hash), Some(below)) if here == name => {
                return item_at(objects, &hash, below);
            }
            (TreeRow::Item(..) | TreeRow::Folder(..), _) => {}
        }
    }
    Ok(None)
}

/// The plain files of a tree that have this name, in any folder.
pub(super) fn named(objects: &Objects, tree: &Hash, wanted: &[u8]) -> Result<Items, ObjectError> {
    let mut all = all(objects, tree)?;
    all.retain(|path, item| {
        path.rsplit(|b| *b == b'/').next() == Some(wanted)
            && matches!(item.kind, PathKind::File | PathKind::Program)
    });
    Ok(all)
}

/// Returns the differences between two trees, in the order of the paths. Equal folders are not even read.
pub(super) fn differences(
    objects: &Objects,
    before: &Hash,
    after: &Hash,
) -> Result<Vec<TreeDifference>, ObjectError> {
    let mut found = Vec::new();
    compare(objects, Some(before), Some(after), b"", &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn compare(
    objects: &Objects,
    before: Option<&Hash>,
    after: Option<&Hash>,
    above: &[u8],
    found: &mut Vec<TreeDifference>,
) -> Result<(), ObjectError> {
    if before == after {
        return Ok(());
    }
    let load =
        |hash: Option<&Hash>| hash.map_or(Ok(Vec::new()), |hash| objects.get(ObjectKind::Folder, hash));
    let (old, new) = (load(before)?, load(after)?);
    let mut names: BTreeMap<&[u8], (Option<TreeRow<'_>>, Option<TreeRow<'_>>)> = BTreeMap::new();
    for row in rows(&old)? {
        let name = name_of(&row);
        names.entry(name).or_default().0 = Some(row);
    }
    for row in rows(&new)? {
        let name = name_of(&row);
        names.entry(name).or_default().1 = Some(row);
    }
    for (name, (old, new)) in names {
        let path = join(above, name);
        let (old_folder, old_item) = parts(old.as_ref());
        let (new_folder, new_item) = parts(new.as_ref());
        if old_folder.is_some() || new_folder.is_some() {
            compare(objects, old_folder, new_folder, &path, found)?;
        }
        if old_item != new_item {
            found.push(TreeDifference { path, before: old_item, after: new_item });
        }
    }
    Ok(())
}

fn name_of<'a>(row: &TreeRow<'a>) -> &'a [u8] {
    match row {
        TreeRow::Item(name, _) | TreeRow::Folder(name, _) => name,
    }
}

fn parts<'a>(row: Option<&'a TreeRow<'_>>) -> (Option<&'a Hash>, Option<Item>) {
    match row {
        None => (None, None),
        Some(TreeRow::Folder(_, hash)) => (Some(hash), None),
        Some(TreeRow::Item(_, item)) => (None, Some(*item)),
    }
}
