//! The state file: VMs, spent tokens and the journal in one redb database.
//!
//! A commit is durable when it returns. Decides nothing about VMs; knows only tables.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition,
};

use super::{
    fleet::Fleet,
    journal::Entry,
    vm::{Vm, VmId},
};

const VMS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("vms");
const SPENT: TableDefinition<'static, &str, i64> = TableDefinition::new("spent_tokens");
const JOURNAL: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("journal");

/// The whole of a large fleet fits; redb's own default would grow to a gigabyte.
const CACHE: usize = 1 << 20;
/// Entries kept when the file is opened. Older ones prove nothing that still matters.
const JOURNAL_KEPT: u64 = 200_000;
/// A process that was just killed may still hold the file's lock for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Why the state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another process has it open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The file.
        path: String,
    },
    /// It cannot be opened or made.
    #[error("{path} cannot be opened")]
    Open {
        /// The file.
        path: String,
        /// What redb said.
        #[source]
        source: redb::Error,
    },
    /// Reading or writing failed.
    #[error("the state file cannot be read or written")]
    Storage(#[source] redb::Error),
    /// A record is not what this version writes.
    #[error("record {key} of the state file does not parse")]
    Record {
        /// Key within its table.
        key: String,
        /// What serde said.
        #[source]
        source: serde_json::Error,
    },
}

fn storage(error: impl Into<redb::Error>) -> LedgerError {
    LedgerError::Storage(error.into())
}

/// One durable change. A batch of them is one transaction.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The VM as it is from now on.
    Put(Arc<Vm>),
    /// The VM is gone.
    Remove(VmId),
    /// The token never makes a VM again.
    Spend { token: String, at: Timestamp },
    /// The token was spent so long ago that nobody asks for it.
    Forget { token: String },
    /// A line of the journal.
    Journal(Entry),
}

/// Where changes are kept.
pub(crate) enum Ledger {
    /// The open state file.
    File(Database),
    /// Nowhere but here, for simulations: only the journal is of use to anybody.
    Memory(Mutex<Vec<Entry>>),
}

impl Ledger {
    /// Opens the file, makes it if it is not there, and mends it if the last process was killed.
    pub(crate) fn open(path: &Path) -> Result<Self, LedgerError> {
        let db = patiently(path, || Builder::new().set_cache_size(CACHE).create(path))?;
        prepare(&db)?;
        Ok(Self::File(db))
    }

    /// Opens a file that must be there.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, LedgerError> {
        let db = patiently(path, || Builder::new().set_cache_size(CACHE).open(path))?;
        Ok(Self::File(db))
    }

    /// A ledger that ends with the process.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// The fleet as the file has it.
    pub(crate) fn load(&self) -> Result<Fleet, LedgerError> {
        let mut fleet = Fleet::default();
        let Self::File(db) = self else { return Ok(fleet) };
        let read = db.begin_read().map_err(storage)?;
        for row in read.open_table(VMS).map_err(storage)?.iter().map_err(storage)? {
            let (key, value) = row.map_err(storage)?;
            fleet.apply(Change::Put(Arc::new(parse::<Vm>(key.value(), value.value())?)));
        }
        for row in read.open_table(SPENT).map_err(storage)?.iter().map_err(storage)? {
            let (token, at) = row.map_err(storage)?;
            let at = Timestamp::from_millisecond(at.value()).unwrap_or(Timestamp::MAX);
            fleet.apply(Change::Spend {
                token: token.value().to_owned(),
                at,
            });
        }
        Ok(fleet)
    }

    /// The journal from its first kept entry on.
    pub(crate) fn journal(&self) -> Result<Vec<Entry>, LedgerError> {
        let db = match self {
            Self::File(db) => db,
            Self::Memory(journal) => return Ok(journal.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        };
        let read = db.begin_read().map_err(storage)?;
        let table = read.open_table(JOURNAL).map_err(storage)?;
        let mut entries = Vec::with_capacity(usize::try_from(table.len().map_err(storage)?).unwrap_or_default());
        for row in table.iter().map_err(storage)? {
            let (number, value) = row.map_err(storage)?;
            entries.push(parse::<Entry>(&number.value().to_string(), value.value())?);
        }
        Ok(entries)
    }

    /// Makes all changes durable, or none of them.
    pub(crate) fn commit<'a>(&self, changes: impl Iterator<Item = &'a Change>) -> Result<(), LedgerError> {
        let db = match self {
            Self::File(db) => db,
            Self::Memory(journal) => {
                let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                journal.extend(changes.filter_map(|change| match change {
                    Change::Journal(entry) => Some(entry.clone()),
                    Change::Put(_) | Change::Remove(_) | Change::Spend { .. } | Change::Forget { .. } => None,
                }));
                return Ok(());
            }
        };
        let write = db.begin_write().map_err(storage)?;
        {
            let mut vms = write.open_table(VMS).map_err(storage)?;
            let mut spent = write.open_table(SPENT).map_err(storage)?;
            let mut journal = write.open_table(JOURNAL).map_err(storage)?;
            let mut number = next_number(&journal)?;
            for change in changes {
                match change {
                    Change::Put(vm) => {
                        vms.insert(vm.id.as_str(), json(vm.as_ref()).as_slice())
                            .map_err(storage)?;
                    }
                    Change::Remove(id) => {
                        vms.remove(id.as_str()).map_err(storage)?;
                    }
                    Change::Spend { token, at } => {
                        spent.insert(token.as_str(), at.as_millisecond()).map_err(storage)?;
                    }
                    Change::Forget { token } => {
                        spent.remove(token.as_str()).map_err(storage)?;
                    }
                    Change::Journal(entry) => {
                        journal.insert(number, json(entry).as_slice()).map_err(storage)?;
                        number += 1;
                    }
                }
            }
        }
        write.commit().map_err(storage)
    }
}

/// Makes the tables, and forgets the oldest entries of the journal.
fn prepare(db: &Database) -> Result<(), LedgerError> {
    let write = db.begin_write().map_err(storage)?;
    write.open_table(VMS).map_err(storage)?;
    write.open_table(SPENT).map_err(storage)?;
    {
        let mut journal = write.open_table(JOURNAL).map_err(storage)?;
        let kept_from = next_number(&journal)?.saturating_sub(JOURNAL_KEPT);
        if kept_from > 0 {
            journal.retain_in(..kept_from, |_, _| false).map_err(storage)?;
        }
    }
    write.commit().map_err(storage)
}

fn next_number(journal: &impl redb::ReadableTable<u64, &'static [u8]>) -> Result<u64, LedgerError> {
    Ok(journal
        .last()
        .map_err(storage)?
        .map_or(0, |(number, _)| number.value() + 1))
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a record has string keys only and no failing serializer")
}

fn parse<T: serde::de::DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, LedgerError> {
    serde_json::from_slice(bytes).map_err(|source| LedgerError::Record {
        key: key.to_owned(),
        source,
    })
}

/// Opens with patience for the lock of a process that is just dying.
fn patiently(path: &Path, open: impl Fn() -> Result<Database, DatabaseError>) -> Result<Database, LedgerError> {
    let name = || path.display().to_string();
    let mut waited = Duration::ZERO;
    loop {
        match open() {
            Ok(db) => return Ok(db),
            Err(DatabaseError::DatabaseAlreadyOpen) if waited < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PAUSE);
                waited += LOCK_PAUSE;
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(LedgerError::Locked { path: name() }),
            Err(error) => {
                return Err(LedgerError::Open {
                    path: name(),
                    source: error.into(),
                });
            }
        }
    }
}
