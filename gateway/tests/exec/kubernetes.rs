//! The listener over pods of a double of a cluster.

mod commands;
mod dead;
mod driver;
mod harvest;
mod life;
mod rights;
mod silence;
mod world;
