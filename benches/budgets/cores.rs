//! Where server and client run: on a core of their own each, if there are two.

use std::sync::OnceLock;

use core_affinity::CoreId;

/// The cores of the client and of the server, if there are two. Asked first before the client is
/// pinned, since a pinned process has one only.
fn cores() -> Option<[CoreId; 2]> {
    static CORES: OnceLock<Option<[CoreId; 2]>> = OnceLock::new();
    *CORES.get_or_init(|| {
        let cores = core_affinity::get_core_ids()?;
        Some([*cores.first()?, *cores.get(1)?])
    })
}

/// Whether server and client have a core each.
pub fn are_apart() -> bool {
    cores().is_some()
}

/// The core that servers are pinned to.
pub fn server_core() -> Option<usize> {
    cores().map(|[_, server]| server.id)
}

/// Pins this thread, and those that it starts, to a core that is not the server's.
pub fn pin_client() {
    if let Some([client, _]) = cores() {
        let pinned = core_affinity::set_for_current(client);
        assert!(pinned, "the client cannot be pinned to a core");
    }
}
