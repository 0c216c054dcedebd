//! The commands of the program, one file each, and the command line that names them.
//!
//! They may use the modules `run`, `settings` and `ground`.

pub(crate) mod admin_client;
pub(crate) mod ca;
pub(crate) mod cli;
pub(crate) mod cluster;
pub(crate) mod env;
pub(crate) mod exec;
pub(crate) mod exec_server;
pub(crate) mod explain;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod ls;
pub(crate) mod manual;
pub(crate) mod mirror;
pub(crate) mod missing;
#[cfg(not(feature = "lab"))]
pub(crate) mod no_lab;
pub(crate) mod offline;
pub(crate) mod pack;
pub(crate) mod pin;
pub(crate) mod private_larder;
pub(crate) mod program;
pub(crate) mod purge;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod store;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod upgrade;
pub(crate) mod url_argument;
pub(crate) mod url_list;
pub(crate) mod warm;
