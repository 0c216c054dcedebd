//! Limits the connections to each origin, over all workers, and queues the requests that wait for one.
//!
//! Owns: the number of connections of each origin, and its queue. Connections are opened and kept in `pool`.
//! Invariants: an origin never has more connections than the limit. Waiting requests are served in order, by a
//! connection that their own worker got back, or by the right to open one when another has closed. Memory: one entry
//! for each origin with connections, with a bounded queue. Cost: one short lock for each new connection; returning a
//! connection costs one load while nothing waits.

use larder_device::IgnorePoison;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::oneshot;

use crate::ground::target::Origin;

/// Limits the connections to each origin. `C` is the type of a connection.
pub(crate) struct OriginRooms<C> {
    rooms: Mutex<HashMap<Origin, Arc<OriginRoom<C>>>>,
    waiting_count_max: usize,
}

/// Limits the connections to one origin, and queues the requests that wait for one.
pub(crate) struct OriginRoom<C> {
    waiting_count_max: usize,
    /// Number of waiting requests. A copy of the queue's length that can be read without the lock.
    waiting_count: AtomicUsize,
    state: Mutex<RoomState<C>>,
}

struct RoomState<C> {
    place_count: usize,
    waiting: VecDeque<RoomWaiter<C>>,
}

struct RoomWaiter<C> {
    worker: usize,
    turn: oneshot::Sender<RoomTurn<C>>,
}

/// The right to have one connection to an origin, given back when this is dropped.
pub(crate) struct RoomPlace<C>(Option<Arc<OriginRoom<C>>>);

/// The outcome for a request that has waited for a connection.
pub(crate) enum RoomTurn<C> {
    /// The request may open a connection.
    Open(RoomPlace<C>),
    /// The request gets a connection that another request has finished using.
    Kept(C),
}

/// The immediate outcome for a request that needs a connection.
pub(crate) enum RoomEntry<C> {
    /// The request may open a connection.
    Now(RoomPlace<C>),
    /// The request has a place in the queue. The channel delivers the connection, or the right to open one.
    Wait(oneshot::Receiver<RoomTurn<C>>),
    /// The request gets no connection, because the queue is full.
    Full,
}

impl<C> OriginRooms<C> {
    pub(crate) fn new(waiting_count_max: usize) -> Self {
        Self { rooms: Mutex::default(), waiting_count_max }
    }

    /// Returns the limit of an origin, creating it if necessary.
    pub(crate) fn of(&self, origin: &Origin) -> Arc<OriginRoom<C>> {
        let mut rooms = self.lock();
        if let Some(room) = rooms.get(origin) {
            return Arc::clone(room);
        }
        let room = Arc::new(OriginRoom {
            waiting_count_max: self.waiting_count_max,
            waiting_count: AtomicUsize::new(0),
            state: Mutex::new(RoomState { place_count: 0, waiting: VecDeque::new() }),
        });
        rooms.insert(origin.clone(), Arc::clone(&room));
        room
    }

    /// Removes the entries of origins without connections.
    pub(crate) fn sweep(&self) {
        self.lock().retain(|_, room| Arc::strong_count(room) > 1);
    }

    /// Returns the number of requests that wait for a connection, over all origins.
    pub(crate) fn waiting_count(&self) -> usize {
        self.lock().values().map(|room| room.waiting_count.load(Relaxed)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Arc<OriginRoom<C>>>> {
        self.rooms.lock().ignore_poison()
    }
}

impl<C> OriginRoom<C> {
    /// Takes the right to open a connection, or joins the queue if `place_count_max` connections exist.
    pub(crate) fn enter(self: &Arc<Self>, worker: usize, place_count_max: usize) -> RoomEntry<C> {
        let mut state = self.lock();
        if state.place_count < place_count_max.max(1) {
            state.place_count += 1;
            return RoomEntry::Now(RoomPlace(Some(Arc::clone(self))));
        }
        state.waiting.retain(|waiter| !waiter.turn.is_closed());
        let entered = if state.waiting.len() < self.waiting_count_max {
            let (turn, taken) = oneshot::channel();
            state.waiting.push_back(RoomWaiter { worker, turn });
            RoomEntry::Wait(taken)
        } else {
            RoomEntry::Full
        };
        self.waiting_count.store(state.waiting.len(), Relaxed);
        entered
    }

    /// Offers an unused connection of `worker` to the requests that wait.
    ///
    /// A waiting request of the same worker gets it. If only other workers' requests wait, the connection is closed, so
    /// that one of them can open another. Returns the connection if no request waits.
    pub(crate) fn offer(&self, worker: usize, mut connection: C) -> Option<C> {
        while self.waiting_count.load(Relaxed) > 0 {
            let mut state = self.lock();
            let at = state.waiting.iter().position(|waiter| waiter.worker == worker);
            let waiter = at.and_then(|at| state.waiting.remove(at));
            let others_wait = !state.waiting.is_empty();
            self.waiting_count.store(state.waiting.len(), Relaxed);
            drop(state);
            connection = match waiter {
                Some(waiter) => match waiter.turn.send(RoomTurn::Kept(connection)) {
                    Err(RoomTurn::Kept(connection)) => connection,
                    Ok(()) | Err(RoomTurn::Open(_)) => return None,
                },
                None if others_wait => return None,
                None => break,
            };
        }
        Some(connection)
    }

    fn lock(&self) -> MutexGuard<'_, RoomState<C>> {
        self.state.lock().ignore_poison()
    }
}

impl<C> Drop for RoomPlace<C> {
    fn drop(&mut self) {
        let Some(room) = self.0.take() else { return };
        loop {
            let mut state = room.lock();
            let Some(waiter) = state.waiting.pop_front() else {
                assert!(state.place_count > 0, "a place was taken");
                state.place_count -= 1;
                return;
            };
            room.waiting_count.store(state.waiting.len(), Relaxed);
            drop(state);
            match waiter.turn.send(RoomTurn::Open(RoomPlace(Some(Arc::clone(&room))))) {
                Ok(()) => return,
                // The waiting request was cancelled, so the right to open a connection goes to the next one.
                Err(RoomTurn::Open(mut place)) => place.0 = None,
                Err(RoomTurn::Kept(_)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Arc<OriginRoom<u32>> {
        OriginRooms::new(2).of(&Origin::of_client("a.example", 80))
    }

    fn wait(room: &Arc<OriginRoom<u32>>, worker: usize) -> oneshot::Receiver<RoomTurn<u32>> {
        match room.enter(worker, 1) {
            RoomEntry::Wait(turn) => turn,
            RoomEntry::Now(_) | RoomEntry::Full => panic!("there is a queue"),
        }
    }

    #[test]
    fn place_that_becomes_free_is_the_next_ones_who_still_waits() {
        let room = room();
        let RoomEntry::Now(place) = room.enter(0, 1) else { panic!("there is room") };
        let gone = wait(&room, 0);
        let mut next = wait(&room, 1);
        assert!(matches!(room.enter(0, 1), RoomEntry::Full));
        drop(gone);
        drop(place);
        let Ok(RoomTurn::Open(place)) = next.try_recv() else { panic!("it is its turn") };
        assert_eq!(room.lock().place_count, 1);
        // A turn that its receiver never read is passed on too.
        let unread = wait(&room, 0);
        let mut last = wait(&room, 0);
        drop(place);
        drop(unread);
        assert!(matches!(last.try_recv(), Ok(RoomTurn::Open(_))));
        assert_eq!(room.lock().place_count, 0);
    }

    #[test]
    fn connection_is_handed_on_within_its_worker_and_closed_for_others() {
        let room = room();
        let RoomEntry::Now(_place) = room.enter(0, 1) else { panic!("there is room") };
        assert_eq!(room.offer(0, 7), Some(7), "nobody waits");
        let mut here = wait(&room, 0);
        assert_eq!(room.offer(0, 7), None);
        assert!(matches!(here.try_recv(), Ok(RoomTurn::Kept(7))));
        let _there = wait(&room, 1);
        assert_eq!(room.offer(0, 7), None);
        drop(wait(&room, 0));
    }
}
