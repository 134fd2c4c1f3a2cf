//! From the arguments of a command to a run that is driven: [`prepare`] makes an agent and its endpoint ready, [`drive`]
//! has the commands that start, continue and change runs, and [`transfer`] sends and receives them.

pub mod drive;
pub mod install;
pub mod prepare;
pub mod transfer;
