//! A watch as a stream: asks the value whenever it changed, and waits in between.
//!
//! Decides when a stream says something and when it ends. What is said is the value's affair.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::Stream;
use futures::stream::unfold;
use jiff::Timestamp;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::room::Room;
use crate::reply::lines;
use crate::watch::{Event, Started, Watch};

/// How long a watch lasts whose caller leaves that to the server.
const LASTS: Duration = Duration::from_mins(30);

/// Events that are written at a time.
const AT_ONCE: usize = 64;

struct Course {
    room: Arc<Room>,
    bell: Receiver<u64>,
    watch: Watch,
    /// The version up to which the caller has seen everything.
    at: u64,
    /// What is to be sent before the value is asked again.
    ready: VecDeque<Event>,
    ends: Instant,
    next_bookmark: Instant,
    over: bool,
}

/// Why a stream that waits goes on.
enum Woken {
    Changed,
    BookmarkDue,
    TimeIsUp,
    Stopped,
}

/// The lines of a watch that began at `now`.
pub(super) fn events(
    room: Arc<Room>,
    started: Started,
    now: Timestamp,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let lasts = started.watch.ends.map_or(LASTS, |ends| {
        // An end in the past is now.
        Duration::try_from(ends.duration_since(now)).unwrap_or_default()
    });
    let began = Instant::now();
    let course = Course {
        bell: room.bell(),
        watch: started.watch,
        at: started.at,
        ready: started.first.into(),
        ends: began + lasts,
        next_bookmark: began + room.bookmarks,
        over: false,
        room,
    };
    unfold(course, |mut course| async move {
        let lines = course.next().await?;
        Some((Ok(lines), course))
    })
}

impl Course {
    /// The next lines; none when the stream has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.ready.is_empty() {
                // What will never be on disk was never there: nobody hears of it.
                self.room.kept(self.at).await.ok()?;
                let now = self.ready.len().min(AT_ONCE);
                return Some(lines(self.ready.drain(..now)).into());
            }
            if self.over {
                return None;
            }
            self.look(false);
            if !self.ready.is_empty() || self.over {
                continue;
            }
            match self.wait().await {
                Woken::Changed => {}
                Woken::BookmarkDue => {
                    self.next_bookmark += self.room.bookmarks;
                    self.look(true);
                }
                // A last bookmark spares the caller's next watch what this one has seen.
                Woken::TimeIsUp => {
                    self.look(true);
                    self.over = true;
                }
                Woken::Stopped => self.over = true,
            }
        }
    }

    /// Asks the value what came after `at`. A bookmark tells of the same instant: events and it are read under one lock.
    fn look(&mut self, bookmark: bool) {
        // Marked as seen before looking, so that a change in between rings again.
        self.bell.borrow_and_update();
        let (watch, at) = (&self.watch, self.at);
        let (batch, bookmark) = self.room.with(|api| {
            let batch = api.events(watch, at);
            let bookmark = (bookmark && !batch.closed).then(|| api.bookmark(watch)).flatten();
            (batch, bookmark)
        });
        self.at = batch.upto;
        self.over |= batch.closed;
        self.ready.extend(batch.events);
        self.ready.extend(bookmark);
    }

    async fn wait(&mut self) -> Woken {
        tokio::select! {
            biased;
            () = self.room.stop.cancelled() => Woken::Stopped,
            () = sleep_until(self.ends) => Woken::TimeIsUp,
            // The bell lives in the room, which is held here: it cannot go away.
            _ = self.bell.changed() => Woken::Changed,
            () = sleep_until(self.next_bookmark) => Woken::BookmarkDue,
        }
    }
}
