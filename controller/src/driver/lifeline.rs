//! Connections that tell their end: behind the next one there may be another process, and a channel reconnects without a word.
//!
//! Decides only which ends say something: a connection that did not last may be one that the other side closes each time.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Hears of the ends of an endpoint's connections.
#[derive(Debug)]
pub struct Lifeline {
    /// Wakes the connection's handshake.
    pub(super) doubted: Arc<Notify>,
    lasting: Duration,
    ends: AtomicU64,
}

impl Lifeline {
    /// Ends of connections that lasted so long count.
    pub fn new(lasting: Duration) -> Arc<Self> {
        Arc::new(Self {
            doubted: Arc::default(),
            lasting,
            ends: AtomicU64::new(0),
        })
    }

    /// How many have ended: while this stays the same, the same process answers.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// A connection was given up: who answers next may be another process.
    pub(super) fn broke(&self) {
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    fn ended(&self, lasted: Duration) {
        if lasted >= self.lasting {
            self.broke();
            self.doubted.notify_one();
        }
    }
}

/// A connection that tells its end.
pub(super) struct Watched<S> {
    stream: S,
    since: Instant,
    lifeline: Arc<Lifeline>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, lifeline: Arc<Lifeline>) -> Self {
        let since = Instant::now();
        Self {
            stream,
            since,
            lifeline,
        }
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.lifeline.ended(self.since.elapsed());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
