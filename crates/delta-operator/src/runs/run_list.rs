//! The runs of a workspace, or of all workspaces below directories: read, sorted and listed.

mod candidates;
mod entry;
mod lookup;
mod table;
mod workspaces;

pub use candidates::{agent_name_candidates, run_candidates};
pub use entry::{
    RunListEntry, RunListStatus, read_workspace_runs, serialize_usage, sort_newest_first,
};
pub use lookup::{find_active_run, find_last_updated, render_candidates};
pub use table::{
    ListColumns, format_age, render_plain_lines, render_terminal_list, render_terminal_table,
    render_totals,
};
pub use workspaces::{find_below, read_below_again, read_runs_of, suggest_work_dirs};
