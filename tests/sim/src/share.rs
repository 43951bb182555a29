//! Work that is shared among threads: each takes the next piece when it has done its last.
//!
//! Decides nothing about the order in which pieces end; who cares sorts what came of them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does each piece, on so many threads.
pub fn each<T: Sync>(pieces: &[T], threads: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(piece);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_done_once_by_however_many() {
        for threads in [1, 2, 7] {
            let done: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
            each(&done, threads, |piece| {
                piece.fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|piece| piece.load(Ordering::Relaxed) == 1), "{done:?}");
        }
    }
}
