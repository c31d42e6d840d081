//! redis-seat: the module.
