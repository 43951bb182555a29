//! The state on disk: objects and the version in one redb file, changed by one thread.
//!
//! Decides what is durable: a change is when the transaction that holds it has been synced. Changes that come meanwhile go
//! into the next one together. Knows no rule of the API; history is not kept.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::Timestamp;
use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::Api;
use crate::store::{Change, Key, Place};

/// Group, plural, namespace, name.
type Address = (&'static str, &'static str, &'static str, &'static str);

const OBJECTS: TableDefinition<'static, Address, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'static, &str, u64> = TableDefinition::new("numbers");
const VERSION: &str = "version";
/// Which way of writing the rows above are in; a file that says another number is of another release.
const FORMAT: (&str, u64) = ("format", 1);

/// Objects are read once and written once; redb's own default would grow to a gigabyte.
const CACHE: usize = 1 << 20;
/// A process that was just killed may still hold the file's lock for a moment.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Three seconds in all.
const LOCK_TRIES: u32 = 60;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    #[error("{} cannot be opened: {source}", path.display())]
    Open { path: PathBuf, source: redb::Error },
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: redb::Error },
    #[error("{} was written by another release (format {found})", path.display())]
    Format { path: PathBuf, found: u64 },
    #[error("the object {name} in {} does not parse: {source}", path.display())]
    Object {
        path: PathBuf,
        name: String,
        source: serde_json::Error,
    },
}

/// An open file, and the version that it holds.
pub struct Disk {
    database: Database,
    version: u64,
}

impl Disk {
    /// Opens or makes the file, and gives what it holds: none if it is new.
    pub fn open(path: &Path, now: Timestamp) -> Result<(Self, Option<Api>), DiskError> {
        let database = patiently(path)?;
        let wrong = |source| DiskError::Read {
            path: path.to_owned(),
            source,
        };
        let numbers = read_numbers(&database).map_err(wrong)?;
        if let Some(found) = numbers.format.filter(|found| *found != FORMAT.1) {
            return Err(DiskError::Format {
                path: path.to_owned(),
                found,
            });
        }
        let Some(version) = numbers.version else {
            return Ok((Self { database, version: 0 }, None));
        };
        let mut objects = Vec::new();
        for (place, key, text) in read_objects(&database).map_err(wrong)? {
            let object: Value = serde_json::from_slice(&text).map_err(|source| DiskError::Object {
                path: path.to_owned(),
                name: format!("{}/{}/{}", place.plural, key.namespace, key.name),
                source,
            })?;
            objects.push((place, key, object));
        }
        let api = Api::restored(version, objects, now);
        Ok((Self { database, version }, Some(api)))
    }

    /// Starts the thread that writes.
    pub(super) fn begin(self) -> (Outbox, Saved) {
        let (changes, inbox) = channel();
        let (tell, saved) = watch::channel(State {
            upto: self.version,
            broken: None,
        });
        let outbox = Outbox {
            after: self.version,
            changes,
        };
        std::thread::spawn(move || write_all(&self.database, &inbox, &tell));
        (outbox, Saved(saved))
    }
}

#[derive(Default)]
struct Numbers {
    format: Option<u64>,
    version: Option<u64>,
}

fn patiently(path: &Path) -> Result<Database, DiskError> {
    for _ in 0..LOCK_TRIES {
        match Builder::new().set_cache_size(CACHE).create(path) {
            Ok(database) => return Ok(database),
            Err(DatabaseError::DatabaseAlreadyOpen) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => {
                return Err(DiskError::Open {
                    path: path.to_owned(),
                    source: error.into(),
                });
            }
        }
    }
    Err(DiskError::Locked(path.to_owned()))
}

fn read_numbers(database: &Database) -> Result<Numbers, redb::Error> {
    let read = database.begin_read()?;
    let table = match read.open_table(NUMBERS) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Numbers::default()),
        Err(error) => return Err(error.into()),
    };
    let number = |key: &str| table.get(key).map(|found| found.map(|value| value.value()));
    Ok(Numbers {
        format: number(FORMAT.0)?,
        version: number(VERSION)?,
    })
}

fn read_objects(database: &Database) -> Result<Vec<(Place, Key, Vec<u8>)>, redb::Error> {
    let table = database.begin_read()?.open_table(OBJECTS)?;
    let mut out = Vec::new();
    for row in table.iter()? {
        let (address, object) = row?;
        let (group, plural, namespace, name) = address.value();
        let place = Place {
            group: group.to_owned(),
            plural: plural.to_owned(),
        };
        out.push((place, Key::new(namespace, name), object.value().to_vec()));
    }
    Ok(out)
}

/// How far the file has come.
#[derive(Debug, Clone)]
struct State {
    upto: u64,
    /// Why it will not come further.
    broken: Option<String>,
}

/// Tells how far the file has come.
#[derive(Debug, Clone)]
pub(super) struct Saved(watch::Receiver<State>);

impl Saved {
    /// Returns when a version is on disk.
    ///
    /// # Errors
    /// It will never be.
    pub(super) async fn reaches(&self, version: u64) -> Result<(), String> {
        let mut state = self.0.clone();
        let reached = state.wait_for(|state| state.broken.is_some() || state.upto >= version);
        let reached = match reached.await {
            Ok(state) => state.broken.clone(),
            Err(_) => Some("the thread that writes has ended".to_owned()),
        };
        reached.map_or(Ok(()), Err)
    }

    /// Why nothing more will be written, if so.
    pub(super) fn fault(&self) -> Option<String> {
        self.0.borrow().broken.clone()
    }

    /// Returns when nothing more is written and the file is closed; says why, if it was not asked to.
    pub(super) async fn ended(&self) -> Option<String> {
        let mut state = self.0.clone();
        while state.changed().await.is_ok() {}
        self.fault()
    }
}

/// What is on its way to the disk. Dropping it closes the file, once all is written.
pub(super) struct Outbox {
    /// The version up to which everything is under way.
    after: u64,
    changes: Sender<Vec<(Place, Change)>>,
}

impl Outbox {
    /// Sends what is new.
    pub(super) fn take(&mut self, api: &Api) {
        let new = api.changes(self.after);
        let upto = api.version();
        // Every version is one change, and history is not forgotten within the act that made it.
        assert_eq!(
            new.len() as u64,
            upto - self.after,
            "a change got lost on its way to the disk"
        );
        self.after = upto;
        if !new.is_empty() {
            let new = new.into_iter().map(|(place, change)| (place.clone(), change.clone()));
            // Without a thread the file is broken, which is what whoever waits for it is told.
            self.changes.send(new.collect()).ok();
        }
    }
}

fn write_all(database: &Database, inbox: &Receiver<Vec<(Place, Change)>>, tell: &watch::Sender<State>) {
    while let Ok(mut batch) = inbox.recv() {
        batch.extend(inbox.try_iter().flatten());
        let Some(upto) = batch.last().map(|(_, change)| change.version) else {
            continue;
        };
        match write(database, &batch, upto) {
            Ok(()) => tell.send_modify(|state| state.upto = upto),
            Err(error) => {
                tell.send_modify(|state| state.broken = Some(format!("the state cannot be written: {error}")));
                return;
            }
        }
    }
}

fn write(database: &Database, batch: &[(Place, Change)], upto: u64) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        for (place, change) in batch {
            let address = (
                place.group.as_str(),
                place.plural.as_str(),
                change.key.namespace.as_str(),
                change.key.name.as_str(),
            );
            match &change.after {
                Some(object) => {
                    let mut text = Vec::new();
                    object.write(&mut text, false);
                    objects.insert(address, text.as_slice())?;
                }
                None => {
                    objects.remove(address)?;
                }
            }
        }
        let mut numbers = write.open_table(NUMBERS)?;
        numbers.insert(VERSION, upto)?;
        numbers.insert(FORMAT.0, FORMAT.1)?;
    }
    write.commit()?;
    Ok(())
}
