//! The machine that the figures are of, and where on it server and client run.

use core_affinity::CoreId;

/// The cores of the client and of the server, if there are two.
fn cores() -> Option<[CoreId; 2]> {
    let cores = core_affinity::get_core_ids()?;
    Some([*cores.first()?, *cores.get(1)?])
}

/// The core that servers are pinned to.
pub fn server_core() -> Option<usize> {
    cores().map(|[_, server]| server.id)
}

/// Pins this thread, and those that it starts, to a core that is not the server's.
pub fn pin_client() {
    if let Some([client, _]) = cores() {
        core_affinity::set_for_current(client);
    }
}
