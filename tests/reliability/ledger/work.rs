//! Clients at work in the background.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Connection, ConnectionLike, RedisError};

use super::Client;
use crate::support::eventually_within;

/// Long enough for Sentinels to replace a primary, even if they do so once more for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a client gets at whoever takes writes at present.
pub trait Link: Send + 'static {
    /// A new connection, if there is somebody to connect to.
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>>;

    /// Whether the last answer holds, whatever happens.
    fn confirmed(&mut self, connection: &mut dyn ConnectionLike) -> bool {
        let _ = connection;
        true
    }

    /// Whether a client of such a link meets this error and connects anew.
    fn expects(&self, error: &RedisError) -> bool {
        !error.is_timeout() && (error.is_io_error() || error.is_connection_dropped())
    }
}

/// Clients at work in the background.
pub struct Load {
    threads: Vec<JoinHandle<Client>>,
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Load {
    pub fn start<L: Link + Clone>(clients: Vec<Client>, link: &L) -> Self {
        let answered = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = clients.into_iter().map(|client| {
            let (link, answered, stop) = (link.clone(), Arc::clone(&answered), Arc::clone(&stop));
            thread::spawn(move || work(client, link, &answered, &stop))
        });
        Self {
            threads: threads.collect(),
            answered,
            stop,
        }
    }

    /// Returns once so many more calls are answered and confirmed.
    #[track_caller]
    pub fn goes_on(&self, calls: usize) {
        let before = self.answered.load(SeqCst);
        eventually_within(PATIENCE, "calls are answered", || {
            let broken = self.threads.iter().any(JoinHandle::is_finished);
            broken || self.answered.load(SeqCst) >= before + calls
        });
    }

    /// How many calls were answered so far.
    pub fn answered(&self) -> usize {
        self.answered.load(SeqCst)
    }

    /// Ends the work, and hands over the ledgers.
    pub fn stop(mut self) -> Vec<Client> {
        self.stop.store(true, SeqCst);
        let threads = self.threads.drain(..);
        threads
            .map(|thread| thread.join().expect("a client whose answers all fit"))
            .collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

fn work(
    mut client: Client,
    mut link: impl Link,
    answered: &AtomicUsize,
    stop: &AtomicBool,
) -> Client {
    let mut connection = None;
    while !stop.load(SeqCst) {
        let Some(connected) = &mut connection else {
            connection = link.connect();
            if connection.is_none() {
                thread::sleep(Duration::from_millis(2));
            }
            continue;
        };
        match client.step(&mut **connected, |connection| link.confirmed(connection)) {
            Ok(true) => {
                answered.fetch_add(1, SeqCst);
            }
            // Perhaps there is another primary by now.
            Ok(false) => connection = None,
            Err(error) if link.expects(&error) => connection = None,
            Err(error) => panic!("client {}: {error}", client.number),
        }
    }
    client
}

/// The link to one server over its socket.
#[derive(Clone)]
pub struct Socket(pub PathBuf);

impl Link for Socket {
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>> {
        let connection = connect(&self.0)?;
        Some(Box::new(connection))
    }
}

/// A connection, if somebody listens at the socket.
pub fn connect(socket: &Path) -> Option<Connection> {
    let url = format!("redis+unix://{}", socket.display());
    let client = redis::Client::open(url).expect("a valid address");
    let connection = client.get_connection().ok()?;
    let patience = Some(Duration::from_secs(30));
    connection.set_read_timeout(patience).expect("a timeout");
    Some(connection)
}
