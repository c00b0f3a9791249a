//! The attach listener in this process: a real store, a scripted driver over TCP, and the bytes a browser would get.

mod door;
mod ends;
mod live;
mod memory;
mod remote;
mod replay;
mod rig;
