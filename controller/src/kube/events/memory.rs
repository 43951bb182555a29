//! The recent messages about each object, and the events that wait to be written.
//!
//! Decides of each message whether it becomes a new event, one more count on an existing event, is held back, or is dropped. Sends
//! nothing and reads no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::{Lane, Severity};

/// A message that comes again after this time is a new event.
pub(super) const REMEMBERED: Duration = Duration::from_secs(300);
/// The same for the lane of Machines' lives: each message comes once per Machine, and there are thousands of Machines.
pub(super) const LIFE_REMEMBERED: Duration = Duration::from_secs(30);
/// How often what is older is forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// One event is patched at most this often, however often its message is repeated.
pub(super) const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Tokens of the bucket that each object has: a new event takes one. client-go's spam filter has the same numbers.
pub(super) const BURST: u32 = 25;
/// How long it takes until the bucket of an object has one token more.
pub(super) const REFILL: Duration = Duration::from_secs(300);
/// A message that is repeated after other messages becomes a new event, so that the newest event stands last, unless only this many
/// tokens are left: these are for new messages.
pub(super) const KEPT_FOR_NEW_WORDS: u32 = 15;

/// What is to become an event.
#[derive(Debug)]
pub(super) struct Message {
    pub about: ObjectReference,
    pub lane: Lane,
    pub severity: Severity,
    pub reason: String,
    pub note: String,
    pub at: Timestamp,
}

impl Message {
    /// Hash of reason and note. Two messages are taken for one only where their hashes collide.
    fn words(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.reason, &self.note).hash(&mut hasher);
        hasher.finish()
    }

    fn uid(&self) -> String {
        let about = &self.about;
        about.uid.clone().or_else(|| about.name.clone()).unwrap_or_default()
    }
}

/// Count and time of the last occurrence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub count: i32,
    pub last: Timestamp,
}

/// The object's uid and the number in the event's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventId {
    uid: String,
    pub number: u64,
}

/// What is to be written now.
#[derive(Debug)]
pub(super) enum Write {
    /// A new event.
    Create {
        id: EventId,
        message: Message,
        series: Series,
        /// Events about the object that were dropped since the last one that was written.
        left_out: u32,
    },
    /// A new count for an event that exists at the API server.
    Count {
        id: EventId,
        namespace: String,
        object: String,
        lane: Lane,
        series: Series,
    },
}

impl Write {
    pub fn lane(&self) -> Lane {
        match self {
            Self::Create { message, .. } => message.lane,
            Self::Count { lane, .. } => *lane,
        }
    }
}

/// What became of something that was said, as metrics name it.
pub(super) type Outcome = (Lane, &'static str);

/// A token bucket of one object.
#[derive(Debug, Default)]
struct Bucket {
    /// When all its tokens are back. `None`: they are there.
    full_at: Option<Instant>,
}

impl Bucket {
    fn owed(&self, now: Instant) -> Duration {
        self.full_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Whether it has more than `kept` tokens.
    fn has_beyond(&self, kept: u32, now: Instant) -> bool {
        self.owed(now) + REFILL * (kept + 1) <= REFILL * BURST
    }

    fn take(&mut self, now: Instant) {
        self.full_at = Some(now + self.owed(now) + REFILL);
    }

    fn take_if_any(&mut self, now: Instant) -> bool {
        let has = self.has_beyond(0, now);
        if has {
            self.take(now);
        }
        has
    }

    /// When the next token is there.
    fn next(&self, now: Instant) -> Instant {
        now + self.owed(now).saturating_sub(REFILL * (BURST - 1))
    }
}

/// An event that was queued, and perhaps written.
#[derive(Debug)]
struct Told {
    number: u64,
    words: u64,
    lane: Lane,
    series: Series,
    heard: Instant,
    /// When it was last written. `None`: not yet.
    sent: Option<Instant>,
    /// Whether the count is higher than what was written.
    is_behind: bool,
}

impl Told {
    fn is_remembered(&self, now: Instant) -> bool {
        is_remembered(self.lane, self.heard, now)
    }
}

/// The messages about one object.
#[derive(Debug)]
struct Said {
    namespace: String,
    object: String,
    bucket: Bucket,
    /// Its events by number: the newest is the last.
    told: Vec<Told>,
    /// The newest message, where the bucket had no token for it, and how often it came.
    held: Option<Box<(Message, i32)>>,
    left_out: u32,
    heard: Instant,
    /// The lane of the last message.
    lane: Lane,
}

impl Said {
    fn begin(message: &Message, now: Instant) -> Self {
        let about = &message.about;
        Self {
            namespace: about.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            object: about.name.clone().unwrap_or_default(),
            bucket: Bucket::default(),
            told: Vec::new(),
            held: None,
            left_out: 0,
            heard: now,
            lane: message.lane,
        }
    }

    fn find(&mut self, number: u64) -> Option<&mut Told> {
        self.told.iter_mut().find(|told| told.number == number)
    }

    fn forget(&mut self, number: u64) {
        self.told.retain(|told| told.number != number);
    }

    /// Counts a message on the event that exists for the message. `None`: there is no such event, and the message needs a new one.
    /// `Some(None)`: the message is counted, and a write of the count is planned already. `Some(Some((at, number)))`: the message is
    /// counted, and the count of event `number` is to be written at `at`.
    fn repeat(&mut self, words: u64, at: Timestamp, now: Instant) -> Option<Option<(Instant, u64)>> {
        let has_to_spare = self.bucket.has_beyond(KEPT_FOR_NEW_WORDS, now);
        let newest = self.told.last().map(|told| told.number).filter(|_| self.held.is_none());
        let told = self.told.iter_mut().rev().find(|told| told.words == words)?;
        let is_newest = newest == Some(told.number);
        if !is_fresh(told.heard, now) || (!is_newest && has_to_spare) {
            return None;
        }
        told.heard = now;
        told.series = Series {
            count: told.series.count.saturating_add(1),
            last: at,
        };
        if told.is_behind {
            return Some(None);
        }
        // What is not written yet is written with its count.
        let Some(sent) = told.sent else {
            return Some(None);
        };
        told.is_behind = true;
        Some(Some((now.max(sent + COUNT_EVERY), told.number)))
    }
}

fn is_remembered(lane: Lane, heard: Instant, now: Instant) -> bool {
    match lane {
        Lane::Prompt => is_fresh(heard, now),
        Lane::Life => now.saturating_duration_since(heard) < LIFE_REMEMBERED,
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < REMEMBERED
}

/// What is due at a later time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// A count that is behind.
    Count(EventId),
    /// The held message of this object.
    Held(String),
}

/// What waits to be written.
#[derive(Debug, Default)]
struct Waiting {
    /// With the number of events about the object that were left out before. The messages are boxed, because the places of a queue that was
    /// long once stay allocated.
    new: VecDeque<(EventId, Box<Message>, u32)>,
    later: BTreeSet<(Instant, Later)>,
}

/// The messages of all objects, and what waits to be written in each lane.
#[derive(Debug, Default)]
pub(super) struct Memory {
    objects: BTreeMap<String, Said>,
    prompt: Waiting,
    life: Waiting,
    last_number: u64,
    swept: Option<Instant>,
}

impl Memory {
    /// Takes a message. Returns its outcome and those of messages that were dropped for it; nothing while it waits.
    pub fn accept(&mut self, message: Message, now: Instant) -> Vec<Outcome> {
        self.sweep(now);
        let (uid, words, lane) = (message.uid(), message.words(), message.lane);
        let said = self
            .objects
            .entry(uid.clone())
            .or_insert_with(|| Said::begin(&message, now));
        (said.heard, said.lane) = (now, lane);
        if let Some((held, count)) = said.held.as_deref_mut()
            && held.words() == words
        {
            (held.at, *count) = (message.at, count.saturating_add(1));
            return vec![(lane, "repeated")];
        }
        if let Some(behind) = said.repeat(words, message.at, now) {
            if let Some((at, number)) = behind {
                let lane = said.find(number).map_or(lane, |told| told.lane);
                self.waiting(lane)
                    .later
                    .insert((at, Later::Count(EventId { uid, number })));
            }
            return vec![(lane, "repeated")];
        }
        self.tell(uid, message, now)
    }

    /// Queues a new message, or holds it until the bucket has a token. A message that was held before is dropped for it.
    fn tell(&mut self, uid: String, message: Message, now: Instant) -> Vec<Outcome> {
        let Some(said) = self.objects.get_mut(&uid) else {
            return Vec::new();
        };
        let mut outcomes = Vec::new();
        if let Some((old, count)) = said.held.take().map(|held| *held) {
            said.left_out += u32::try_from(count).unwrap_or(0);
            outcomes.push((old.lane, "throttled"));
        }
        if said.bucket.take_if_any(now) {
            outcomes.extend(self.queue(uid, message, 1, now));
            return outcomes;
        }
        let (lane, at) = (message.lane, said.bucket.next(now));
        said.held = Some(Box::new((message, 1)));
        self.waiting(lane).later.insert((at, Later::Held(uid)));
        outcomes
    }

    /// Puts a new event behind the others of its lane. Where there are too many, the oldest goes.
    fn queue(&mut self, uid: String, message: Message, count: i32, now: Instant) -> Option<Outcome> {
        let clock = u64::try_from(message.at.as_nanosecond()).unwrap_or_default();
        // Two events at one moment need two names.
        self.last_number = clock.max(self.last_number.saturating_add(1));
        let number = self.last_number;
        let mut left_out = 0;
        if let Some(said) = self.objects.get_mut(&uid) {
            left_out = std::mem::take(&mut said.left_out);
            said.told.push(Told {
                number,
                words: message.words(),
                lane: message.lane,
                series: Series {
                    count,
                    last: message.at,
                },
                heard: now,
                sent: None,
                is_behind: false,
            });
        }
        let lane = message.lane;
        let waiting = self.waiting(lane);
        waiting
            .new
            .push_back((EventId { uid, number }, Box::new(message), left_out));
        if waiting.new.len() <= lane.places() {
            return None;
        }
        let (id, _, left_out) = waiting.new.pop_front()?;
        self.leave_out(&id, left_out);
        Some((lane, "full"))
    }

    /// Takes what a lane writes next. `all`: also what is not due yet, because the process ends.
    pub fn take(&mut self, lane: Lane, now: Instant, all: bool) -> Option<Write> {
        loop {
            if let Some((id, message, left_out)) = self.waiting(lane).new.pop_front() {
                let Some(said) = self.objects.get_mut(&id.uid) else {
                    continue;
                };
                let Some(told) = said.find(id.number) else {
                    continue;
                };
                told.sent = Some(now);
                let series = told.series;
                return Some(Write::Create {
                    id,
                    message: *message,
                    series,
                    left_out,
                });
            }
            let (at, later) = self.waiting(lane).later.pop_first()?;
            if at > now && !all {
                self.waiting(lane).later.insert((at, later));
                return None;
            }
            match later {
                Later::Count(id) => {
                    if let Some(write) = self.count(id, now) {
                        return Some(write);
                    }
                }
                Later::Held(uid) => self.let_speak(uid, now, all),
            }
        }
    }

    fn count(&mut self, id: EventId, now: Instant) -> Option<Write> {
        let said = self.objects.get_mut(&id.uid)?;
        let (namespace, object) = (said.namespace.clone(), said.object.clone());
        let told = said.find(id.number).filter(|told| told.is_behind)?;
        told.is_behind = false;
        told.sent = Some(now);
        Some(Write::Count {
            id,
            namespace,
            object,
            lane: told.lane,
            series: told.series,
        })
    }

    /// Queues the held message of an object, if its bucket has a token.
    fn let_speak(&mut self, uid: String, now: Instant, all: bool) {
        let Some(said) = self.objects.get_mut(&uid) else {
            return;
        };
        let Some((message, count)) = said.held.take().map(|held| *held) else {
            return;
        };
        if all || said.bucket.take_if_any(now) {
            self.queue(uid, message, count, now);
            return;
        }
        let (lane, at) = (message.lane, said.bucket.next(now));
        said.held = Some(Box::new((message, count)));
        self.waiting(lane).later.insert((at, Later::Held(uid)));
    }

    /// When a lane has something to write.
    pub fn due(&self, lane: Lane, now: Instant) -> Option<Instant> {
        let waiting = match lane {
            Lane::Prompt => &self.prompt,
            Lane::Life => &self.life,
        };
        if !waiting.new.is_empty() {
            return Some(now);
        }
        waiting.later.first().map(|(at, _)| *at)
    }

    /// A write did not take effect. An event that could not be created counts as left out; a count is written again while its message is
    /// remembered, unless the event is gone.
    pub fn failed(&mut self, write: &Write, is_gone: bool, now: Instant) {
        let id = match write {
            Write::Create { id, left_out, .. } => return self.leave_out(id, *left_out),
            Write::Count { id, .. } => id,
        };
        let Some(said) = self.objects.get_mut(&id.uid) else {
            return;
        };
        let Some(told) = said.find(id.number) else { return };
        if is_gone || !is_fresh(told.heard, now) {
            return said.forget(id.number);
        }
        told.is_behind = true;
        let again = (now + COUNT_EVERY, Later::Count(id.clone()));
        self.waiting(write.lane()).later.insert(again);
    }

    /// Forgets an event that was not written. Its count, and `others`, which its text would have told, are left out.
    fn leave_out(&mut self, id: &EventId, others: u32) {
        if let Some(said) = self.objects.get_mut(&id.uid) {
            let count = said.find(id.number).map_or(0, |told| told.series.count);
            said.forget(id.number);
            said.left_out += others + u32::try_from(count).unwrap_or(0);
        }
    }

    fn waiting(&mut self, lane: Lane) -> &mut Waiting {
        match lane {
            Lane::Prompt => &mut self.prompt,
            Lane::Life => &mut self.life,
        }
    }

    /// Forgets what is old, now and then: at every event it would cost more than the event. An object that is forgotten gets a full
    /// bucket; so it is kept until half of its bucket is there.
    fn sweep(&mut self, now: Instant) {
        if self
            .swept
            .is_some_and(|at| now.saturating_duration_since(at) < SWEEP_EVERY)
        {
            return;
        }
        self.swept = Some(now);
        self.objects.retain(|_, said| {
            said.told
                .retain(|told| told.is_behind || told.sent.is_none() || told.is_remembered(now));
            // Where Machines come and go faster than events can be written, a Machine is gone before its dropped events can be told.
            let owes_nothing = said.left_out == 0 || !is_remembered(said.lane, said.heard, now);
            let is_calm = said.bucket.has_beyond(BURST / 2, now) && owes_nothing;
            !said.told.is_empty() || said.held.is_some() || !is_calm
        });
    }

    #[cfg(test)]
    pub fn objects(&self) -> usize {
        self.objects.len()
    }
}
