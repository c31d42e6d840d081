//! How much a run measures.

/// How much is measured.
pub struct Scale {
    pub rounds: usize,
    /// Calls of a round that are sent one at a time.
    pub single_calls: u64,
    /// Calls of a round that are sent in pipelines.
    pub pipelined_calls: u64,
    /// Passes of the search for the longest command.
    pub passes: usize,
    /// Expiries of very many leases.
    pub expiries: usize,
}

/// A run whose figures are published.
pub const FULL: Scale = Scale {
    rounds: 25,
    single_calls: 1000,
    pipelined_calls: 8000,
    passes: 3,
    expiries: 7,
};

/// A first look.
pub const QUICK: Scale = Scale {
    rounds: 5,
    passes: 1,
    expiries: 2,
    ..FULL
};
