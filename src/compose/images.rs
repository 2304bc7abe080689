//! Images that a user attaches: read from a file or from the clipboard, checked, and stored.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use aye_files::known::FileId;
use aye_files::opener::{FilePlace, resolve};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::contract::content::ContentBlock;
use crate::contract::display::visible_line;
use crate::contract::image::{ImageError, ImageFormat, ImageRef, MAX_IMAGE_BYTES, Pixels};
use crate::contract::path_policy::{PathAccess, PathPolicies as _};
use crate::contract::spec::AgentSpec;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::program::opener;
use crate::tui::composer::dropped;
use crate::tui::host::{Attach, Attached};

mod clipboard;

/// The maximum pixels of an image in half blocks.
const SHOWN: (u32, u32) = (160, 96);

/// Why a file is not attached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAttached {
    /// The file does not exist.
    Missing,
    /// It is not an image.
    NoImage,
    /// It is an image that cannot or may not be sent; a sentence.
    Refused(String),
}

/// Returns the file that a path typed by the user refers to.
fn place(app: &AppContext, path: &str) -> PathBuf {
    let workspace = &app.foundation.workspace;
    if let Some(rest) = path.strip_prefix("~/") {
        return workspace.home.join(rest);
    }
    // Windows' own paths, as its terminals paste them into its Linux.
    if let [letter, b':', b'\\' | b'/', ..] = path.as_bytes()
        && letter.is_ascii_alphabetic()
        && app.foundation.env.has("WSL_DISTRO_NAME")
    {
        let letter = char::from(letter.to_ascii_lowercase());
        return PathBuf::from(format!("/mnt/{letter}/{}", path[3..].replace('\\', "/")));
    }
    workspace.cwd.join(path)
}

pub(crate) async fn attach_file(app: &AppContext, path: &str) -> Result<ImageRef, NotAttached> {
    let place = place(app, path);
    let cwd = &app.foundation.workspace.cwd;
    let name = place.strip_prefix(cwd).ok().or_else(|| place.file_name().map(Path::new)).unwrap_or(&place);
    let name = name.to_string_lossy().into_owned();
    let read = {
        let (place, name) = (place.clone(), name.clone());
        tokio::task::spawn_blocking(move || read(&place, &name)).await
    };
    let (image, bytes, opened) =
        read.unwrap_or_else(|_| Err(NotAttached::Refused(format!("{name} could not be read"))))?;
    allowed(app, &place, &name)?;
    opened.allowed(app, &name)?;
    keep(app, &image, bytes).await.map_err(|error| NotAttached::Refused(error.to_string()))?;
    Ok(image)
}

/// Checks that a file may be attached: one that a rule denies to the model may not. Where a rule asks, the
/// user has answered by naming the file.
fn allowed(app: &AppContext, place: &Path, name: &str) -> Result<(), NotAttached> {
    let policy = app.permission.policy(&AgentSpec::new("default"));
    match policy.restriction(place, PathAccess::Read) {
        Some(rule) if rule.is_denied => {
            Err(NotAttached::Refused(format!("{} is not attached: {}", visible_line(name), rule.why)))
        }
        Some(_) | None => Ok(()),
    }
}

/// The file that a path led to when it was opened.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    real: PathBuf,
}

impl OpenedFile {
    /// Opens a regular file. Its links are followed once, and what they lead to is what is opened.
    pub(crate) fn at(place: &Path) -> io::Result<OpenedFile> {
        let real = resolve(place)?;
        let file = FilePlace::of(&real)?.open_regular()?;
        Ok(OpenedFile { metadata: file.metadata()?, file, real })
    }

    /// Checks that no rule denies it, by where it lies or by the name under which rules knew it before.
    fn allowed(&self, app: &AppContext, name: &str) -> Result<(), NotAttached> {
        let known = app.permission.known_files().name(&FileId::of(&self.metadata));
        [Some(&self.real), known.as_ref()].into_iter().flatten().try_for_each(|path| allowed(app, path, name))
    }

    /// Checks the same for the text of a file that a user names.
    pub(crate) fn may_be_read(&self, app: &AppContext, name: &str) -> Result<(), AppError> {
        refusal(self.allowed(app, name))
    }
}

/// Checks the same for the text of a file that a user names.
pub(crate) fn may_be_read(app: &AppContext, place: &Path, name: &str) -> Result<(), AppError> {
    refusal(allowed(app, place, name))
}

fn refusal(checked: Result<(), NotAttached>) -> Result<(), AppError> {
    match checked {
        Err(NotAttached::Refused(why)) => Err(why.into()),
        Ok(()) | Err(NotAttached::Missing | NotAttached::NoImage) => Ok(()),
    }
}

fn read(place: &Path, name: &str) -> Result<(ImageRef, Vec<u8>, OpenedFile), NotAttached> {
    let refused = |why: &dyn std::fmt::Display| {
        NotAttached::Refused(format!("{} is not attached: {why}", visible_line(name)))
    };
    if place.metadata().is_err() {
        return Err(NotAttached::Missing);
    }
    let opened = OpenedFile::at(place).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => NotAttached::NoImage,
        _ => refused(&error),
    })?;
    if aye_platform::is_of_the_kernel(&opened.real) {
        return Err(NotAttached::NoImage);
    }
    let mut bytes = Vec::new();
    let most = MAX_IMAGE_BYTES + 1;
    (&opened.file).take(most).read_to_end(&mut bytes).map_err(|error| refused(&error))?;
    let image = match ImageRef::of(name, &bytes) {
        Err(ImageError::Unknown) => return Err(NotAttached::NoImage),
        Err(ImageError::Heavy(_)) => {
            return Err(refused(&ImageError::Heavy(opened.metadata.len().max(most))));
        }
        other => other.map_err(|error| refused(&error))?,
    };
    Ok((image, bytes, opened))
}

async fn keep(app: &AppContext, image: &ImageRef, bytes: Vec<u8>) -> Result<(), AppError> {
    Ok(app.store.put_image(image, bytes, app.clock.now_ms()).await?)
}

/// Reads what the terminal wants to attach.
pub(crate) async fn attach(app: &AppContext, what: Attach) -> Result<Attached, AppError> {
    match what {
        Attach::Path(path) => match attach_file(app, &path).await {
            Ok(image) => Ok(Attached::Image(image)),
            Err(NotAttached::Missing | NotAttached::NoImage) => Ok(Attached::Nothing),
            Err(NotAttached::Refused(why)) => Err(why.into()),
        },
        Attach::Clipboard => match clipboard::read(app).await? {
            clipboard::ClipboardContent::Text(text) => Ok(Attached::Text(text)),
            clipboard::ClipboardContent::Image(bytes) => {
                let image = ImageRef::of("clipboard", &bytes)
                    .map_err(|why| format!("the image on the clipboard is not attached: {why}"))?;
                keep(app, &image, bytes).await?;
                Ok(Attached::Image(image))
            }
        },
    }
}

/// Returns the images that a text mentions with `@` and that were not attached before. A mention that is not
/// an image stays text.
pub(crate) async fn mentioned(app: &AppContext, text: &str) -> Result<Vec<ContentBlock>, AppError> {
    let mut blocks = Vec::new();
    for (_, path) in dropped::mentions(text) {
        match attach_file(app, &path).await {
            Ok(image) => blocks.push(ContentBlock::StoredImage(image)),
            Err(NotAttached::Missing | NotAttached::NoImage) => {}
            Err(NotAttached::Refused(why)) => return Err(why.into()),
        }
    }
    Ok(blocks)
}

/// Stores an image given in base64.
pub(crate) async fn given(app: &AppContext, data: &str) -> Result<ContentBlock, AppError> {
    let wrong = |why: &dyn std::fmt::Display| format!("the image is not attached: {why}");
    let bytes = STANDARD.decode(data.as_bytes()).map_err(|_| wrong(&"it is not base64"))?;
    let image = ImageRef::of("image", &bytes).map_err(|why| wrong(&why))?;
    keep(app, &image, bytes).await?;
    Ok(ContentBlock::StoredImage(image))
}

/// The files of `--image`.
pub(crate) async fn of_flags(app: &AppContext, files: &[PathBuf]) -> Result<Vec<ContentBlock>, AppError> {
    let mut blocks = Vec::new();
    for file in files {
        let path = file.to_string_lossy();
        let why = match attach_file(app, &path).await {
            Ok(image) => {
                blocks.push(ContentBlock::StoredImage(image));
                continue;
            }
            Err(NotAttached::Missing) => format!("{} does not exist", visible_line(&path)),
            Err(NotAttached::NoImage) => format!("{}: {}", visible_line(&path), ImageError::Unknown),
            Err(NotAttached::Refused(why)) => why,
        };
        return Err(format!("--image: {why}").into());
    }
    Ok(blocks)
}

/// Stores the images that a tool returned before its step is committed, and returns their names: front ends read them
/// from the store.
pub(crate) async fn name(app: &AppContext, blocks: &mut [ContentBlock]) {
    for block in blocks {
        let ContentBlock::Image { data, .. } = block else { continue };
        let data = std::mem::take(data);
        let decoded = tokio::task::spawn_blocking(move || {
            let bytes = STANDARD.decode(data.as_bytes()).ok()?;
            Some((ImageRef::of("image", &bytes).ok()?, bytes))
        });
        if let Ok(Some((image, bytes))) = decoded.await {
            match keep(app, &image, bytes).await {
                Ok(()) => *block = ContentBlock::StoredImage(image),
                Err(error) => tracing::warn!(%error, "an image that a tool returned is not shown"),
            }
        }
    }
}

/// Returns a stored image, scaled down to what a terminal shows.
pub(crate) async fn pixels(app: &AppContext, image: &ImageRef) -> Result<Pixels, AppError> {
    let bytes = stored(app, image).await?;
    // One at a time: each may need much memory for a moment.
    let turn = Arc::clone(&app.decoding).acquire_owned().await;
    let made = tokio::task::spawn_blocking(move || {
        let made = crate::picture::decode(&bytes, SHOWN);
        drop(turn);
        made
    });
    Ok(made.await.map_err(|_| "it cannot be decoded")??)
}

async fn stored(app: &AppContext, image: &ImageRef) -> Result<Vec<u8>, AppError> {
    Ok(app.store.image(&image.hash).await?.ok_or("its bytes are no longer stored")?)
}

/// Writes stored images to a folder that only the user can read, and opens them in the desktop's program.
pub(crate) async fn open(
    app: &AppContext,
    images: &[ImageRef],
    opened: &OnceLock<tempfile::TempDir>,
) -> Result<(), AppError> {
    let wrong = |error: std::io::Error| format!("the image is not opened: {error}");
    let folder = if let Some(folder) = opened.get() {
        folder
    } else {
        let place = app.foundation.env.var("TMPDIR").filter(|place| !place.is_empty()).unwrap_or("/tmp");
        // The default mode of these folders is 0700.
        let new = tempfile::Builder::new().prefix("aye-images-").tempdir_in(place).map_err(wrong)?;
        opened.get_or_init(|| new)
    };
    for image in images {
        let bytes = stored(app, image).await?;
        // Neither the sender's name of the file nor the one in the database becomes a path.
        let is_hash = image.hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let format = ImageFormat::of(&bytes).filter(|_| is_hash).ok_or("it is not an image")?;
        let file = folder.path().join(format!("{}.{}", image.hash, format.name().to_ascii_lowercase()));
        std::fs::write(&file, bytes).map_err(wrong)?;
        if !opener::open(&app.foundation.env, file.as_os_str()).map_err(wrong)? {
            return Err("the image is not opened: this machine has no desktop (DISPLAY is not set)".into());
        }
    }
    Ok(())
}
