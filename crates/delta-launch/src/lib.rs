//! From the arguments of a command to a run that is driven: [`prepare`] makes an agent and its endpoint ready, and [`drive`]
//! has the commands that start, continue and change runs.

pub mod drive;
pub mod prepare;
