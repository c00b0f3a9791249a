//! What the reporter is told: flags, and the token from a file or one variable.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bex_proto::RemoteSessionId;
use clap::{Args, ValueEnum};

use super::client::Token;
use super::endpoint::Endpoint;

/// The variable that holds the token where no file does.
pub const TOKEN_VARIABLE: &str = "BEX_MACHINE_TOKEN";

/// How the command is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// A chat is a line; an abort is SIGINT; an answer to a permission request is `y` or `n`.
    Text,
    /// Lines of Claude's stream-json.
    Claude,
}

/// Whether the reporter's own output shows the command's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EchoWhen {
    /// When standard error is a terminal.
    Auto,
    /// It does.
    Always,
    /// It does not.
    Never,
}

/// `bex-driver remote`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The api: https, or http on loopback.
    #[arg(long, env = "BEX_API_URL")]
    url: String,
    /// The remote session.
    #[arg(long, env = "BEX_REMOTE_SESSION")]
    session: RemoteSessionId,
    /// A directory for this session's state. A reporter that was killed goes on with the same.
    #[arg(long)]
    state: PathBuf,
    /// A file with the machine's token, else it is in BEX_MACHINE_TOKEN.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// PEM file of the authorities that the api's certificate must chain to, instead of this machine's.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// How the command is spoken to.
    #[arg(long, value_enum, default_value_t = Dialect::Text)]
    input: Dialect,
    /// The command's standard input is empty.
    #[arg(long)]
    no_input: bool,
    /// Whether the command's output is shown here too.
    #[arg(long, value_enum, default_value_t = EchoWhen::Auto)]
    echo: EchoWhen,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Where the command's input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFrom {
    /// Chats, through a pipe with a name.
    Pipe,
    /// Nowhere.
    Nowhere,
}

/// Whether output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// It is.
    Shown,
    /// It is not.
    Hidden,
}

/// The same, checked.
#[derive(Debug)]
pub struct Config {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) token: Arc<Token>,
    pub(super) session: RemoteSessionId,
    pub(super) state: PathBuf,
    pub(super) dialect: Dialect,
    pub(super) input: InputFrom,
    pub(super) echo: Echo,
    pub(super) command: Vec<OsString>,
}

/// Why the reporter cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFault {
    /// No address, or none that a token may be sent to.
    #[error("--url")]
    Url(#[source] super::endpoint::EndpointFault),
    /// No token.
    #[error("neither --token-file nor {TOKEN_VARIABLE} is given")]
    NoToken,
    /// The file cannot be read.
    #[error("--token-file cannot be read")]
    TokenFile(#[source] std::io::Error),
    /// What cannot be one.
    #[error("the token is empty or has characters that no token has")]
    Token,
}

impl Config {
    /// Checks arguments; variables come from `lookup`.
    ///
    /// # Errors
    /// See [`ConfigFault`].
    pub fn parse(
        arguments: Arguments,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigFault> {
        let ca: Option<&Path> = arguments.ca.as_deref();
        let endpoint = Endpoint::parse(&arguments.url, ca).map_err(ConfigFault::Url)?;
        let token = match arguments.token_file {
            Some(path) => Token::read(path)?,
            None => Token::new(&lookup(TOKEN_VARIABLE).ok_or(ConfigFault::NoToken)?)?,
        };
        let shown = match arguments.echo {
            EchoWhen::Auto => std::io::stderr().is_terminal(),
            EchoWhen::Always => true,
            EchoWhen::Never => false,
        };
        Ok(Self {
            endpoint: Arc::new(endpoint),
            token: Arc::new(token),
            session: arguments.session,
            state: arguments.state,
            dialect: arguments.input,
            input: if arguments.no_input {
                InputFrom::Nowhere
            } else {
                InputFrom::Pipe
            },
            echo: if shown { Echo::Shown } else { Echo::Hidden },
            command: arguments.command,
        })
    }
}
