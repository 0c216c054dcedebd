//! Measures what idle connections cost a server: the processor time of a request, by the call that finds ready sockets.
//!
//! Owns: a server thread that answers short requests on some connections while many others are idle, once with `poll`
//! and once with `epoll`. `poll` passes over every connection at each call, so its cost grows with the idle ones; this
//! is what *Performance Issues in Squid* gained by kqueue. Nothing is proxied and nothing is stored, so a request costs
//! little else. Invariant: both servers read and write the same bytes, and only the server thread's time counts.
//! Cost: a descriptor for each idle connection. These are sockets without a peer, which the kernel checks as it checks
//! those of an idle client.

use crate::cpu;
use rustix::{
    event::{
        PollFd, PollFlags, epoll,
        epoll::{EventData, EventFlags},
        poll,
    },
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde::Serialize;
use std::{
    io::{self, Read, Write},
    os::unix::net::{UnixDatagram, UnixStream},
    thread,
    time::{Duration, Instant},
};

/// Length of a request and of its response, in bytes.
const MESSAGE_BYTES: usize = 64;
/// Number of descriptors that the process needs for other purposes than connections.
const OTHER_DESCRIPTORS: u64 = 64;
/// Maximum number of ready sockets that one call of `epoll_wait` returns.
const EVENTS_MAX: usize = 256;

/// The system call with which the server finds ready sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// `poll`: the server passes all its sockets to the kernel at each call.
    Poll,
    /// `epoll`: the kernel keeps the set of sockets between calls.
    Epoll,
}

impl Readiness {
    /// Both system calls.
    pub const ALL: [Self; 2] = [Self::Poll, Self::Epoll];

    /// Returns the name of the system call.
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Epoll => "epoll",
        }
    }
}

/// The settings of a measurement of idle connections.
#[derive(Clone, Debug)]
pub struct DescriptorsJob {
    /// Numbers of idle connections. Each is measured separately.
    pub idle_counts: Vec<u64>,
    /// Number of connections that send requests. Each waits for a response before the next request.
    pub active_count: u64,
    /// Duration of each measurement.
    pub time: Duration,
}

/// The results for one system call and one number of idle connections.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DescriptorsFigures {
    /// The system call with which the server found ready sockets.
    pub readiness: Readiness,
    /// Number of idle connections.
    pub idle_count: u64,
    /// Number of answered requests.
    pub requests: u64,
    /// Mean number of ready sockets that one call returned.
    pub ready_per_call: f64,
    /// Number of requests answered per second.
    pub requests_per_s: f64,
    /// Processor time of the server's thread per request, in microseconds.
    pub cpu_us: f64,
}

impl DescriptorsJob {
    /// Measures each system call with each number of idle connections. Calls `progress` before each measurement.
    ///
    /// # Errors
    /// The process may not open enough descriptors, or a system call fails.
    pub fn run(&self, progress: &dyn Fn(Readiness, u64)) -> io::Result<Vec<DescriptorsFigures>> {
        let most = self.idle_counts.iter().max().copied().unwrap_or(0);
        allow_descriptors(most.saturating_add(2 * self.active_count + OTHER_DESCRIPTORS))?;
        let mut figures = Vec::new();
        for &idle_count in &self.idle_counts {
            for readiness in Readiness::ALL {
                progress(readiness, idle_count);
                figures.push(self.measure(readiness, idle_count)?);
            }
        }
        Ok(figures)
    }

    fn measure(&self, readiness: Readiness, idle_count: u64) -> io::Result<DescriptorsFigures> {
        let idle: Vec<_> = (0..idle_count).map(|_| UnixDatagram::unbound()).collect::<io::Result<_>>()?;
        let pairs: Vec<_> = (0..self.active_count).map(|_| UnixStream::pair()).collect::<io::Result<_>>()?;
        let (mut clients, active): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let server = thread::spawn(move || match readiness {
            Readiness::Poll => serve_by_poll(&idle, &active),
            Readiness::Epoll => serve_by_epoll(&idle, &active),
        });
        let begun = Instant::now();
        let mut message = [0; MESSAGE_BYTES];
        while begun.elapsed() < self.time {
            for client in &mut clients {
                client.write_all(&message)?;
            }
            for client in &mut clients {
                client.read_exact(&mut message)?;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        // Dropping the clients closes the active connections, which ends the server.
        drop(clients);
        let served = server.join().map_err(|_| io::Error::other("the server thread panicked"))??;
        Ok(DescriptorsFigures {
            readiness,
            idle_count,
            requests: served.requests,
            ready_per_call: served.requests as f64 / served.calls.max(1) as f64,
            requests_per_s: served.requests as f64 / seconds,
            cpu_us: served.cpu.as_secs_f64() * 1e6 / served.requests.max(1) as f64,
        })
    }
}

/// The work of a server, from its start until a client closed the first connection.
struct ServerWork {
    requests: u64,
    /// Number of calls of `poll` or `epoll_wait`.
    calls: u64,
    cpu: Duration,
}

fn serve_by_poll(idle: &[UnixDatagram], active: &[UnixStream]) -> io::Result<ServerWork> {
    let mut entries: Vec<_> = idle.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    entries.extend(active.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
    let begun = cpu::of_thread();
    let mut requests = 0;
    let mut calls = 0;
    loop {
        poll(&mut entries, None)?;
        calls += 1;
        for (number, entry) in entries.iter().enumerate() {
            if entry.revents().is_empty() {
                continue;
            }
            if !answer(&active[number - idle.len()])? {
                return Ok(ServerWork { requests, calls, cpu: cpu::of_thread() - begun });
            }
            requests += 1;
        }
    }
}

fn serve_by_epoll(idle: &[UnixDatagram], active: &[UnixStream]) -> io::Result<ServerWork> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in idle {
        epoll::add(&set, socket, EventData::new_u64(u64::MAX), EventFlags::IN)?;
    }
    for (number, socket) in (0..).zip(active) {
        epoll::add(&set, socket, EventData::new_u64(number), EventFlags::IN)?;
    }
    let begun = cpu::of_thread();
    let mut requests = 0;
    let mut calls = 0;
    let mut events = Vec::with_capacity(EVENTS_MAX);
    loop {
        events.clear();
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None)?;
        calls += 1;
        for event in &events {
            if !answer(&active[event.data.u64() as usize])? {
                return Ok(ServerWork { requests, calls, cpu: cpu::of_thread() - begun });
            }
            requests += 1;
        }
    }
}

/// Answers one request on a socket. Returns `false` if the client has closed the connection.
fn answer(mut socket: &UnixStream) -> io::Result<bool> {
    let mut message = [0; MESSAGE_BYTES];
    match socket.read_exact(&mut message) {
        Ok(()) => socket.write_all(&message).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Raises the soft limit on open descriptors to `count`, unless it is higher already.
fn allow_descriptors(count: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < count) {
        let maximum = maximum.unwrap_or(u64::MAX);
        return Err(io::Error::other(format!("{count} open files are needed, and the hard limit is {maximum}")));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the figure for `poll` in the papers' laboratory. Idle connections cost a server with `poll`, and next to
    /// nothing with `epoll`.
    #[test]
    fn idle_connections_cost_poll_much_more_than_epoll() {
        let job = DescriptorsJob { idle_counts: vec![0, 400], active_count: 1, time: Duration::from_millis(60) };
        let figures = job.run(&|_, _| {}).unwrap();
        assert!(figures.iter().all(|line| line.requests > 0 && line.cpu_us > 0.0), "{figures:?}");
        // One connection has requests, so no call finds more than one of them.
        assert!(figures.iter().all(|line| (0.5..=1.0).contains(&line.ready_per_call)), "{figures:?}");
        let extra = |readiness: Readiness| {
            let of: Vec<_> = figures.iter().filter(|line| line.readiness == readiness).collect();
            of[1].cpu_us - of[0].cpu_us
        };
        assert!(extra(Readiness::Poll) > 2.0 * extra(Readiness::Epoll).max(0.0), "{figures:?}");
    }

    #[test]
    fn too_many_connections_are_refused_with_the_limit() {
        let job = DescriptorsJob { idle_counts: vec![u64::MAX / 8], active_count: 1, time: Duration::ZERO };
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let error = job.run(&|_, _| {}).unwrap_err();
            assert!(error.to_string().contains("the hard limit is"), "{error}");
        }
    }
}
