//! From the arguments of a command to a run that is driven: [`operator`] has what this operator has on this machine,
//! [`prepare`] makes an agent ready, and [`drive`] has the commands that start, continue and change runs.

pub mod drive;
pub mod operator;
pub mod prepare;
