//! An exported conversation in a file, read part by part: a long conversation is never in memory as a whole.

use std::fmt;
use std::io::{BufReader, Read, Seek};
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use super::transfer::{CopyPart, ThreadCopy, ThreadRest};
use crate::contract::child::ChildRecord;
use crate::contract::lifecycle::RunStatus;
use crate::contract::record::{OpenIntent, RunRecord, SuspensionRecord, ThreadRecord};
use crate::contract::storage::StoreError;

/// The bytes that are read at a time.
const BUFFER: usize = 64 * 1024;

/// A file with an exported conversation. It is read more than once, so it must be a regular file.
pub struct ThreadCopyFile(Box<dyn ReadSeek>);

trait ReadSeek: Read + Seek + Send {}

impl<T: Read + Seek + Send> ReadSeek for T {}

impl fmt::Debug for ThreadCopyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadCopyFile").finish_non_exhaustive()
    }
}

impl ThreadCopyFile {
    /// Takes an open file.
    #[must_use]
    pub fn new(file: impl Read + Seek + Send + 'static) -> Self {
        Self(Box::new(file))
    }

    /// Reads what must be known before anything is imported: the threads, their unfinished runs and what these wait
    /// for. Messages, summaries, images and finished runs stay in the file.
    ///
    /// # Errors
    /// The file is unreadable, or not an exported conversation.
    pub fn outline(&mut self) -> Result<ThreadCopy, serde_json::Error> {
        serde_json::from_reader::<_, Outline>(self.rewound()?).map(ThreadCopy::from)
    }

    /// Calls `put` with each part and the position of its thread: 0, then those of `children`.
    ///
    /// # Errors
    /// That of `put`, which ends the reading; [`StoreError::Unwritable`] when the file is unreadable, or changed so that it
    /// is not an exported conversation any more.
    pub fn parts<E: From<StoreError>>(
        &mut self,
        put: &mut dyn FnMut(usize, CopyPart) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut failed = None;
        let mut put = |nth, part| {
            put(nth, part).map_err(|failure| {
                failed = Some(failure);
                Refused
            })
        };
        let mut sink = Sink { put: &mut put };
        let done = self.rewound().and_then(|reader| {
            let mut reader = serde_json::Deserializer::from_reader(reader);
            Conversation { nth: 0, sink: &mut sink }.deserialize(&mut reader)?;
            reader.end()
        });
        match failed {
            Some(failure) => Err(failure),
            None => done.map_err(|error| {
                StoreError::Unwritable { what: "the conversation", why: error.to_string() }.into()
            }),
        }
    }

    fn rewound(&mut self) -> Result<BufReader<&mut dyn ReadSeek>, serde_json::Error> {
        self.0.rewind().map_err(serde_json::Error::io)?;
        Ok(BufReader::with_capacity(BUFFER, &mut *self.0))
    }
}

/// A [`ThreadCopy`] without what grows with its length.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    child: Option<ChildRecord>,
    thread: ThreadRecord,
    #[serde(rename = "messages")]
    _messages: IgnoredAny,
    #[serde(default, deserialize_with = "unfinished")]
    runs: Vec<RunRecord>,
    #[serde(default)]
    state: std::collections::BTreeMap<String, Value>,
    #[serde(default)]
    named_by: Option<String>,
    #[serde(default)]
    pinned_at: Option<i64>,
    #[serde(default)]
    branch: Option<String>,
    #[serde(default)]
    suspensions: Vec<SuspensionRecord>,
    #[serde(default)]
    intents: Vec<OpenIntent>,
    #[serde(default)]
    children: Vec<Outline>,
}

impl From<Outline> for ThreadCopy {
    fn from(outline: Outline) -> Self {
        let Outline { child, thread, runs, state, named_by, pinned_at, branch, suspensions, intents, .. } =
            outline;
        let rest = ThreadRest {
            runs,
            state,
            named_by,
            pinned_at,
            branch,
            suspensions,
            intents,
            ..ThreadRest::default()
        };
        let children = outline.children.into_iter().map(ThreadCopy::from).collect();
        Self {
            child,
            thread,
            messages: Vec::new(),
            rest,
            children,
            adopted: std::collections::HashMap::new(),
        }
    }
}

fn unfinished<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RunRecord>, D::Error> {
    let mut runs = Vec::new();
    let keep = |run: RunRecord| {
        if run.status != RunStatus::Done {
            runs.push(run);
        }
        Ok(())
    };
    Each(keep, PhantomData).deserialize(from)?;
    Ok(runs)
}

/// Marks that a part was refused; the reason is kept beside the reading.
struct Refused;

struct Sink<'a> {
    put: &'a mut dyn FnMut(usize, CopyPart) -> Result<(), Refused>,
}

impl Sink<'_> {
    fn put(&mut self, nth: usize, part: CopyPart) -> Result<(), Refused> {
        (self.put)(nth, part)
    }
}

/// Reads a list and calls a function with each of its values.
struct Each<T, F>(F, PhantomData<T>);

impl<'de, T: DeserializeOwned, F: FnMut(T) -> Result<(), Refused>> DeserializeSeed<'de> for Each<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> Result<(), Refused>> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<(), A::Error> {
        while let Some(value) = values.next_element()? {
            (self.0)(value).map_err(refused)?;
        }
        Ok(())
    }
}

/// Reads one conversation, and those below the first one.
struct Conversation<'a, 'b> {
    nth: usize,
    sink: &'a mut Sink<'b>,
}

impl<'de> DeserializeSeed<'de> for Conversation<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Conversation<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a conversation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Conversation { nth, sink } = self;
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "messages" => {
                    members.next_value_seed(Each(|of| sink.put(nth, CopyPart::Message(of)), PhantomData))?;
                }
                "runs" => {
                    members.next_value_seed(Each(
                        |of| sink.put(nth, CopyPart::Run(Box::new(of))),
                        PhantomData,
                    ))?;
                }
                "summaries" => {
                    members.next_value_seed(Each(|of| sink.put(nth, CopyPart::Summary(of)), PhantomData))?;
                }
                "images" => members.next_value_seed(Images { nth, sink: &mut *sink })?,
                // Those below are listed beside the first one, each after its parent.
                "children" if nth == 0 => members.next_value_seed(Children(&mut *sink))?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the conversations below the first one.
struct Children<'a, 'b>(&'a mut Sink<'b>);

impl<'de> DeserializeSeed<'de> for Children<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Children<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of conversations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let mut nth = 1;
        while values.next_element_seed(Conversation { nth, sink: &mut *self.0 })?.is_some() {
            nth += 1;
        }
        Ok(())
    }
}

/// Reads the images of a conversation.
struct Images<'a, 'b> {
    nth: usize,
    sink: &'a mut Sink<'b>,
}

impl<'de> DeserializeSeed<'de> for Images<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Images<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("images by their hashes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut images: A) -> Result<(), A::Error> {
        while let Some((hash, data)) = images.next_entry()? {
            self.sink.put(self.nth, CopyPart::Image { hash, data }).map_err(refused)?;
        }
        Ok(())
    }
}

fn refused<E: Error>(Refused: Refused) -> E {
    E::custom("refused")
}
